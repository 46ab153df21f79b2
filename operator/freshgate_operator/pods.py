"""What a workspace's pods say of themselves: which revision they have loaded, how fresh their sources are.

Asked over the pods' network with the workspace's scrape token. What comes back is a report, and is believed no further
than a status may show it: lengths are bounded, control characters are dropped, nothing of it is ever obeyed.
"""

import asyncio
import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from freshgate_crds.compiled import Revision
from freshgate_operator.names import SIDECAR_CONTAINER
from freshgate_operator.snapshots import is_leaving

Body = Mapping[str, Any]

TIMEOUT = aiohttp.ClientTimeout(total=2.0)
MAX_REPORT_BYTES = 1024 * 1024
CONCURRENT = 32
MOST_MISSED = 2
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


class _Said(BaseModel):
    # A pod of another version may say more.
    model_config = ConfigDict(extra="ignore", frozen=True)


class SourceReport(_Said):
    name: str
    objects: int
    stale: int
    last_success: AwareDatetime | None = None
    last_error: str | None = None
    last_error_at: AwareDatetime | None = None
    oldest_confirmed: AwareDatetime | None = None
    """When the object was confirmed that was not confirmed for the longest time."""


class Report(_Said):
    ready: bool
    revision: Revision | None = None
    format: int | None = None
    sources: tuple[SourceReport, ...] = ()


@dataclass(frozen=True, slots=True)
class SeenPod:
    """`waiting`: why a container does not run, in the kubelet's word. No report: it does not answer. `missed` is how
    often it did not in a row, while its last report still counts."""

    name: str
    ready: bool
    waiting: str | None = None
    report: Report | None = None
    missed: int = 0

    def has_loaded(self, revision: Revision) -> bool:
        loaded = self.report.revision if self.report else None
        return (
            loaded is not None and loaded.workspace_uid == revision.workspace_uid and loaded.counter >= revision.counter
        )


@dataclass(frozen=True, slots=True)
class Observation:
    """Of one workspace. `outdated_sidecars`: pods whose sidecar is of another version than the service is."""

    pods: tuple[SeenPod, ...] = ()
    outdated_sidecars: tuple[str, ...] = ()

    def has_arrived(self, revision: Revision, replicas: int) -> bool:
        """Enough pods are ready, and all there are have loaded it."""
        return sum(pod.ready for pod in self.pods) >= replicas and not self.behind(revision, silent=True)

    def behind(self, revision: Revision, *, silent: bool = False) -> list[str]:
        """Names of the pods that report an older one; with `silent`, of those too that report nothing."""
        reporting = (pod for pod in self.pods if silent or pod.report)
        return [pod.name for pod in reporting if not pod.has_loaded(revision)]


class Reporters:
    """Asks pods for their reports."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self._session = session
        self._port = port
        self._slots = asyncio.Semaphore(CONCURRENT)

    async def look(self, pods: Iterable[Body], token: str) -> tuple[SeenPod, ...]:
        """Those that are not leaving, in the order of their names."""
        staying = sorted((pod for pod in pods if not is_leaving(pod)), key=lambda pod: str(pod["metadata"]["name"]))
        return tuple(await asyncio.gather(*(self._one(pod, token) for pod in staying)))

    async def _one(self, pod: Body, token: str) -> SeenPod:
        status = pod.get("status") or {}
        address = status.get("podIP")
        report = await self._ask(address, token) if address else None
        return SeenPod(pod["metadata"]["name"], _is_ready(status), _waiting(status), report)

    async def _ask(self, address: str, token: str) -> Report | None:
        host = f"[{address}]" if ipaddress.ip_address(address).version == 6 else address
        headers = {"Authorization": f"Bearer {token}"}
        url = f"http://{host}:{self._port}/status"
        try:
            async with (
                self._slots,
                self._session.get(url, headers=headers, timeout=TIMEOUT, allow_redirects=False) as answer,
            ):
                content = await _bounded(answer.content)
                return Report.model_validate_json(content) if answer.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError, ValidationError):
            return None


def patient(now: Iterable[SeenPod], before: Iterable[SeenPod]) -> tuple[SeenPod, ...]:
    """A pod that is busy may miss an answer or two before it counts as silent."""
    known = {pod.name: pod for pod in before if pod.report and pod.missed < MOST_MISSED}
    return tuple(
        replace(pod, report=last.report, missed=last.missed + 1)
        if pod.report is None and (last := known.get(pod.name))
        else pod
        for pod in now
    )


async def _bounded(stream: aiohttp.StreamReader) -> bytes:
    """Nothing where there is too much of it."""
    content = bytearray()
    async for chunk in stream.iter_any():
        content += chunk
        if len(content) > MAX_REPORT_BYTES:
            return b""
    return bytes(content)


def outdated_sidecars(pods: Iterable[Body], image: str) -> tuple[str, ...]:
    """Names of those that run another image of the service."""
    return tuple(sorted(pod["metadata"]["name"] for pod in pods if not is_leaving(pod) and _sidecar(pod) != image))


def _sidecar(pod: Body) -> str | None:
    containers = pod["spec"].get("initContainers") or ()
    return next((one["image"] for one in containers if one["name"] == SIDECAR_CONTAINER), None)


def _is_ready(status: Body) -> bool:
    conditions = status.get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _waiting(status: Body) -> str | None:
    states = (container.get("state") or {} for container in status.get("containerStatuses") or ())
    return next((state["waiting"].get("reason") for state in states if state.get("waiting")), None)


def shown(text: str, length: int) -> str:
    """Of another program's words what a status may show."""
    return _CONTROL.sub(" ", text).strip()[:length]
