"""The API server over one connection: for thousands of dry runs, and for what kubectl will not send."""

import base64
import contextlib
import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from typing import Any

from freshgate_clusters import ROOT
from freshgate_kubectl import kubectl

MERGE = {"Content-Type": "application/merge-patch+json"}


class Server:
    def __init__(self, kubeconfig: dict[str, Any]) -> None:
        cluster, user = kubeconfig["clusters"][0]["cluster"], kubeconfig["users"][0]["user"]
        context = ssl.create_default_context(cadata=_decoded(cluster["certificate-authority-data"]))
        if "client-certificate-data" in user:
            _load_client(context, user)
        host = cluster["server"].removeprefix("https://")
        self._connection = http.client.HTTPSConnection(host, context=context, timeout=30)
        self._headers = {"Content-Type": "application/json"}
        if "token" in user:
            self._headers["Authorization"] = f"Bearer {user['token']}"

    def close(self) -> None:
        self._connection.close()

    def call(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        sent = json.dumps(body) if body is not None else None
        self._connection.request(method, path, sent, {**self._headers, **(headers or {})})
        answer = self._connection.getresponse()
        return answer.status, json.loads(answer.read())


@contextlib.contextmanager
def connected() -> Iterator[Server]:
    """As whoever KUBECONFIG says."""
    kubeconfig = json.loads(kubectl("config", "view", "--raw", "--flatten", "--minify", "--output=json"))
    with contextlib.closing(Server(kubeconfig)) as server:
        yield server


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode()


def _load_client(context: ssl.SSLContext, user: dict[str, str]) -> None:
    chain = ROOT / "build" / "client.pem"
    chain.touch(mode=0o600)
    try:
        chain.write_text(_decoded(user["client-certificate-data"]) + _decoded(user["client-key-data"]), "utf-8")
        context.load_cert_chain(chain)
    finally:
        chain.unlink()
