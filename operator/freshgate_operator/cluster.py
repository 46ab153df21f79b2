"""Talks to the API server in plain dicts, and is the only module that knows how.

Every request has a timeout, every failure is one of ours, and every write is counted. What a Secret holds passes
through here and is never put into an error or a log.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio import config as kubernetes_config
from kubernetes.aio.client import ApiClient, Configuration

from freshgate_operator.errors import (
    ClusterError,
    ClusterUnavailable,
    Conflict,
    Forbidden,
    Missing,
    Refused,
    SettingsRefused,
)
from freshgate_operator.kinds import SECRET, Kind
from freshgate_operator.metrics import Metrics

Body = dict[str, Any]

FIELD_MANAGER = "freshgate-operator"
TIMEOUT = aiohttp.ClientTimeout(total=10.0)
MESSAGE_LENGTH = 512

JSON = "application/json"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

_ERRORS: Mapping[int, type[ClusterError]] = {
    401: ClusterUnavailable,  # until the token is read anew
    403: Forbidden,
    404: Missing,
    409: Conflict,
    410: ClusterUnavailable,
    429: ClusterUnavailable,
}


async def configuration(kubeconfig: Path | None) -> Configuration:
    """Of a kubeconfig file, or of the pod that this runs in. Raises SettingsRefused."""
    found = Configuration()
    try:
        if kubeconfig is not None:
            await kubernetes_config.load_kube_config(  # type: ignore[no-untyped-call]  # untyped there, as below
                str(kubeconfig), client_configuration=found, persist_config=False
            )
        else:
            kubernetes_config.load_incluster_config(found)  # type: ignore[no-untyped-call]
    except (kubernetes_config.ConfigException, OSError) as error:
        raise SettingsRefused(f"no cluster: {error}. Run in a pod, or give --kubeconfig.") from error
    return found


class Cluster:
    def __init__(self, configured: Configuration, metrics: Metrics) -> None:
        self._client = ApiClient(configured)
        self._metrics = metrics

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()  # type: ignore[no-untyped-call]

    # reading

    async def list(
        self, kind: Kind, namespace: str | None, *, labels: str = "", fields: str = "", metadata_only: bool = False
    ) -> list[Body]:
        """All of them as they are now, never from a cache that lags behind: no resourceVersion is given."""
        query = {"labelSelector": labels, "fieldSelector": fields}
        accept = METADATA_ONLY if metadata_only else JSON
        found = await self._call("GET", kind.path(namespace), query=query, accept=accept)
        return [{**item, "apiVersion": kind.api_version, "kind": kind.name} for item in found["items"] or ()]

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Body | None:
        try:
            found: Body = await self._call("GET", kind.path(namespace, name))
        except Missing:
            return None
        return found

    async def raw(self, path: str) -> Any:
        """What is no object: discovery, keys."""
        return await self._call("GET", path, accept=f"{JSON}, application/jwk-set+json")

    # writing

    async def create(self, kind: Kind, body: Body) -> Body:
        """Raises Conflict where it exists."""
        return await self._write("POST", kind.path(body["metadata"]["namespace"]), kind, body)

    async def replace(self, kind: Kind, body: Body) -> Body:
        """Raises Conflict where it is not any more of the resourceVersion that `body` names."""
        metadata = body["metadata"]
        return await self._write("PUT", kind.path(metadata["namespace"], metadata["name"]), kind, body)

    async def apply(self, kind: Kind, body: Body, *below: str) -> Body:
        """Server-side, and forced: what this operator says of an object is so."""
        metadata = body["metadata"]
        path = kind.path(metadata["namespace"], metadata["name"], *below)
        return await self._write("PATCH", path, kind, body, content_type=APPLY, query={"force": "true"})

    async def merge(self, kind: Kind, namespace: str, name: str, change: Body) -> Body:
        return await self._write("PATCH", kind.path(namespace, name), kind, change, content_type=MERGE)

    async def _write(
        self,
        method: str,
        path: str,
        kind: Kind,
        body: Body,
        *,
        content_type: str = JSON,
        query: Mapping[str, str] | None = None,
    ) -> Body:
        self._metrics.wrote(kind.plural)
        query = {"fieldManager": FIELD_MANAGER, **(query or {})}
        quotable = kind is not SECRET
        written: Body = await self._call(
            method, path, query=query, body=body, content_type=content_type, may_quote=quotable
        )
        return written

    # the wire

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Body | None = None,
        accept: str = JSON,
        content_type: str = JSON,
        may_quote: bool = True,
    ) -> Any:
        """`may_quote`: whether the server's own words may be passed on; about a Secret they could hold its values."""
        asked = urlencode({name: value for name, value in (query or {}).items() if value})
        try:
            _, url, headers, sent, _ = await self._client.param_serialize(
                method,
                f"{path}?{asked}" if asked else path,
                header_params={"Accept": accept, "Content-Type": content_type},
                body=body,
                auth_settings=["BearerToken"],
            )
            answer = await self._client.call_api(method, url, headers, sent, _request_timeout=TIMEOUT)
            content: bytes = await answer.read()  # type: ignore[no-untyped-call]
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ClusterUnavailable(f"the API server did not answer ({type(error).__name__})") from None
        if not 200 <= answer.status < 300:
            raise _error(answer.status, content, path, may_quote=may_quote)
        return json.loads(content)


def _error(status: int, content: bytes, path: str, *, may_quote: bool) -> ClusterError:
    kind = _ERRORS.get(status, ClusterUnavailable if status >= 500 else Refused)
    try:
        said = json.loads(content)
        words = str(said["message"] if may_quote else said["reason"])
    except (ValueError, KeyError, TypeError):
        words = f"status {status}"
    where = path.partition("?")[0].rpartition("/namespaces/")[2]
    return kind(f"{where}: {' '.join(words.split())[:MESSAGE_LENGTH]}")
