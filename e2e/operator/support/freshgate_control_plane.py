"""A tenant's namespace on a real API server, as its users and its platform team work on it."""

import asyncio
import base64
import contextlib
import os
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from freshgate_crds.compiled import Config
from freshgate_crds.manifests import POLICY, SOURCE, WORKSPACE
from freshgate_operator.cluster import Body, Cluster
from freshgate_operator.errors import ClusterError
from freshgate_operator.kinds import (
    CHILDREN,
    ENTITLEMENT_POLICY,
    EVENT,
    MEMORY_SOURCE,
    POD,
    SECRET,
    WORKSPACE_KIND,
    WRITTEN,
    Kind,
)
from freshgate_operator.main import Operator
from freshgate_operator.names import SERVES
from freshgate_operator.publish import Publication
from freshgate_operator.settings import Settings

CHECKOUT = Path(__file__).parents[3]
CACHE = Path(os.environ.get("FRESHGATE_CLUSTER_CACHE", CHECKOUT / "build" / "cluster"))
KINDS = {SOURCE: MEMORY_SOURCE, POLICY: ENTITLEMENT_POLICY, WORKSPACE: WORKSPACE_KIND, "Secret": SECRET}
PODS_PORT = 18_750
SETTINGS = Settings(image="freshgate-service:1", own_namespace="default", touch_pods=True, ops_port=PODS_PORT)

Start = Callable[..., Awaitable[Operator]]


@dataclass(frozen=True)
class ControlPlane:
    kubeconfig: Path

    def kubectl(self, *words: str | Path, given: str | None = None) -> str:
        command = [CACHE / "bin" / "kubectl", f"--kubeconfig={self.kubeconfig}", *words]
        done = subprocess.run(list(map(str, command)), input=given, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


class Desk:
    """One tenant's namespace, as its users and its platform team work on it."""

    def __init__(self, plane: ControlPlane, admin: Cluster, namespace: str) -> None:
        self.plane = plane
        self.admin = admin
        self.namespace = namespace

    async def put(self, *bodies: Mapping[str, Any]) -> None:
        for body in bodies:
            kind = KINDS[body["kind"]]
            here = {**body, "metadata": {**body["metadata"], "namespace": self.namespace}}
            await self.admin.apply(kind, here)

    async def secret(self, name: str, **values: str) -> None:
        data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
        labels = {"freshgate.dev/credential": "true"}
        head: Body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": labels}}
        await self.put({**head, "data": data})

    async def get(self, kind: Kind, name: str = "support-freshgate") -> Body | None:
        return await self.admin.get(kind, self.namespace, name)

    async def at(self, kind: Kind, name: str = "support-freshgate") -> Body:
        found = await self.get(kind, name)
        assert found is not None, (kind.name, name)
        return found

    async def delete(self, kind: Kind, name: str = "support-freshgate") -> None:
        self.plane.kubectl("delete", kind.plural, name, f"--namespace={self.namespace}", "--wait=false")

    async def publication(self, workspace: str = "support") -> Publication:
        return Publication.of(await self.at(SECRET, f"{workspace}-freshgate"))

    async def config(self, workspace: str = "support") -> Config:
        config = (await self.publication(workspace)).config
        assert config is not None
        return config

    async def conditions(self, kind: Kind, name: str) -> dict[str, tuple[str, str]]:
        rows = ((await self.at(kind, name)).get("status") or {}).get("conditions") or ()
        return {row["type"]: (row["status"], row["reason"]) for row in rows}

    async def versions(self) -> dict[str, str]:
        """Of all that is in the namespace, by kind and name."""
        kinds = (*CHILDREN, *WRITTEN, SECRET, POD, EVENT)
        found = self.plane.kubectl(
            "get",
            ",".join(f"{kind.plural}.{kind.group}".rstrip(".") for kind in kinds),
            f"--namespace={self.namespace}",
            "--output=jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.resourceVersion}{'\\n'}{end}",
        )
        return dict(line.split(" ", 1) for line in found.splitlines())

    async def pod(self, name: str, address: str) -> None:
        """That runs and is ready, as far as its status says."""
        container = {"name": "freshgate", "image": "freshgate-service:1"}
        metadata = {"name": name, "namespace": self.namespace, "labels": {SERVES: "support"}}
        spec = {"serviceAccountName": "support-freshgate", "containers": [container]}
        head: Body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
        await self.admin.create(POD, {**head, "spec": spec})
        status = {"podIP": address, "podIPs": [{"ip": address}], "conditions": [{"type": "Ready", "status": "True"}]}
        await self.admin.apply(POD, {**head, "status": status}, "status")


async def eventually(holds: Callable[[], Awaitable[Any]], seconds: float = 5.0) -> Any:
    """The first answer that is true."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(ClusterError, AssertionError):
            if found := await holds():
                return found
        assert time.monotonic() < deadline, f"not within {seconds} s"
        await asyncio.sleep(0.05)
