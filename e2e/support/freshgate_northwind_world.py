"""What the stories are about: Northwind in a Postgres, a workspace over it, and agents with tokens of their own."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from string import Template
from typing import Any

from freshgate_clusters import ROOT, Images
from freshgate_kubectl import apply, eventually, get, kubectl, wait
from freshgate_northwind import DUMP

MANIFESTS = ROOT / "e2e" / "stories" / "manifests"
ASK = ROOT / "e2e" / "support" / "ask.py"
NAMESPACE, AGENTS, PLAIN, WORKSPACE = "northwind", "agents", "plain", "sales"
URL = f"http://{WORKSPACE}-freshgate.{NAMESPACE}"
SERVES = f"freshgate.dev/serves={WORKSPACE}"
READER = "CREATE ROLE reader LOGIN PASSWORD 'reading'; GRANT pg_read_all_data TO reader;\n"


def manifest(name: str, **values: str) -> str:
    return Template((MANIFESTS / name).read_text("utf-8")).safe_substitute(values)


@dataclass(frozen=True)
class Watch:
    process: subprocess.Popen[str]

    def next(self) -> dict[str, Any]:
        """Waits for the next answer that is another one."""
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(next(self.process.stdout))
        return answer

    def rest(self) -> list[dict[str, Any]]:
        """Ends it. All that was not read yet."""
        assert self.process.stdout is not None
        self.process.terminate()
        return [json.loads(line) for line in self.process.stdout]


@dataclass(frozen=True)
class Agent:
    """A pod with a ServiceAccount of its own."""

    name: str
    namespace: str = AGENTS

    def over_mcp(self, query: str, url: str = URL) -> list[dict[str, Any]]:
        said = self._ask("mcp", url, query)
        assert not said["error"], said
        results: list[dict[str, Any]] = said["answer"]["results"]
        return results

    def over_rest(self, query: str, url: str = URL) -> tuple[int, Any]:
        said = self._ask("rest", url, query)
        return said["status"], said["answer"]

    @contextmanager
    def watching(self, query: str, url: str = URL) -> Iterator["Watch"]:
        """What `ask.py watch` prints, as it comes."""
        command = ["kubectl", "exec", f"--namespace={self.namespace}", self.name, "--", "python3", "/ask/ask.py"]
        with subprocess.Popen([*command, "watch", url, query], stdout=subprocess.PIPE, text=True) as process:
            try:
                yield Watch(process)
            finally:
                process.terminate()

    def _ask(self, how: str, url: str, query: str) -> Any:
        command = ["python3", "/ask/ask.py", how, url, query]
        return json.loads(kubectl("exec", f"--namespace={self.namespace}", self.name, "--", *command))


def settle(images: Images) -> None:
    """Northwind and the store, running."""
    apply(manifest("namespaces.yaml"))
    create_config_map("sales-db", NAMESPACE, {"1.sql": DUMP.read_text("utf-8"), "2.sql": READER})
    apply(manifest("postgres.yaml", POSTGRES_IMAGE=images.postgres))
    for name in ("sales-db", "store-db"):
        kubectl("rollout", "status", f"deployment/{name}", f"--namespace={NAMESPACE}", "--timeout=120s")


def remember() -> None:
    """The workspace, until it is ready."""
    apply(manifest("memory.yaml"))
    wait("condition=Ready", f"workspace/{WORKSPACE}", namespace=NAMESPACE, seconds=120)


def hire(images: Images, *names: str) -> list[Agent]:
    create_config_map("ask", AGENTS, {"ask.py": ASK.read_text("utf-8")})
    for name in names:
        apply(manifest("agents.yaml", AGENT=name, SERVICE_IMAGE=images.service))
    wait("condition=Ready", *(f"pod/{name}" for name in names), namespace=AGENTS, seconds=60)
    return [Agent(name) for name in names]


def create_config_map(name: str, namespace: str, data: dict[str, str]) -> None:
    """Not applied: the annotation that applying leaves has less room than Northwind needs."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data}
    kubectl("delete", "configmap", name, f"--namespace={namespace}", "--ignore-not-found")
    kubectl("create", "--filename=-", stdin=json.dumps(body))


def conditions(kind: str, name: str, namespace: str = NAMESPACE) -> dict[str, dict[str, Any]]:
    found = get(kind, name, namespace=namespace).get("status", {}).get("conditions", [])
    return {one["type"]: one for one in found}


def settle_plain() -> None:
    """A namespace without Pod Security, for pods that are only asked whether they may be."""
    apply(manifest("plain.yaml"))
    eventually(
        lambda: get("serviceaccount", "default", namespace=PLAIN), seconds=20, what="its ServiceAccount is there"
    )


def sql(database: str, statement: str) -> str:
    """As the superuser of one of the two servers; the first line of the result."""
    command = ["psql", "-h", "/tmp", "-U", "postgres", "-tAc", statement]
    return kubectl("exec", f"deployment/{database}", f"--namespace={NAMESPACE}", "--", *command).strip()


def connects(pod: str, namespace: str, host: str, port: int) -> bool:
    """Whether something answers there, asked from inside of a pod."""
    code = (
        "import socket, sys\n"
        "try: socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).close(); print('yes')\n"
        "except ConnectionRefusedError: print('refused')\n"
        "except TimeoutError: print('silent')\n"
    )
    command = ["python3", "-c", code, host, str(port)]
    return kubectl("exec", pod, f"--namespace={namespace}", "--", *command).strip() == "yes"
