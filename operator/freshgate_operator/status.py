"""Statuses and events: the only writer of both.

A status is written when a state changed, and what merely counts (a workspace's rows) once in five minutes. An event
tells of a change of state and of nothing else. Neither ever holds a secret: all words in it are the operator's own,
`compile`'s, or a pod's report with its length bounded.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from freshgate_operator import conditions
from freshgate_operator.cluster import Body, Cluster
from freshgate_operator.conditions import Condition
from freshgate_operator.errors import ClusterError, Missing
from freshgate_operator.kinds import EVENT, WORKSPACE_KIND, WRITTEN, Kind
from freshgate_operator.logs import get_logger
from freshgate_operator.metrics import Metrics
from freshgate_operator.names import OPERATOR
from freshgate_operator.pods import SourceReport, shown
from freshgate_operator.records import Record
from freshgate_operator.snapshots import Clock

ROWS_SECONDS = 300.0
LONGEST_NOTE = 1024
LONGEST_ERROR = 1024
PASSING = frozenset({"NotObserved", "NotReadYet", "PodsBehind"})
"""Reasons that every change of a configuration passes through: no event tells of them."""
STARTING = frozenset({"NotPublished", "PodsNotReady"})
"""Reasons that every workspace begins with."""

KINDS: Mapping[str, Kind] = {kind.name: kind for kind in WRITTEN}

log = get_logger(__name__)


class Statuses:
    """`clock` is the wall's, for what is written; `now` is this process's, for what is waited for."""

    def __init__(
        self, cluster: Cluster, metrics: Metrics, *, clock: Clock, now: Callable[[], float], instance: str
    ) -> None:
        self._cluster = cluster
        self._metrics = metrics
        self._clock = clock
        self._now = now
        self._instance = instance

    async def tell(self, body: Mapping[str, Any], said: Sequence[Condition]) -> None:
        """Of a MemorySource or an EntitlementPolicy, as it was read. Raises ClusterError."""
        before = body.get("status") or {}
        await self._write(body, {"conditions": self._conditions_of(body, said)}, before)

    def is_told(self, body: Mapping[str, Any], said: Sequence[Condition]) -> bool:
        return bool((body.get("status") or {}).get("conditions") == self._conditions_of(body, said))

    def _conditions_of(self, body: Mapping[str, Any], said: Sequence[Condition]) -> list[Body]:
        return self._conditions(said, body.get("status") or {}, body["metadata"]["generation"])

    async def tell_workspace(self, record: Record) -> None:
        """What is known of it now; one at a time, so that what is told last was known last. Raises ClusterError."""
        async with record.telling:
            if record.to_be_observed:
                return
            status = self._workspace_status(record)
            if _state(status) == _state(record.status) and not self._rows_due(record, status):
                return
            await self._write(_workspace(record), status, record.status)
            record.status, record.rows_told = status, self._now()

    def _rows_due(self, record: Record, status: Body) -> bool:
        return status != record.status and self._now() - record.rows_told >= ROWS_SECONDS

    def _workspace_status(self, record: Record) -> Body:
        now = self._clock()
        said = conditions.of_workspace(record, now)
        status: Body = {"conditions": self._conditions(said, record.status, record.owner.generation)}
        rows = _rows(record, now)
        if rows:
            status |= {"sources": rows, "stale": sum(row["stale"] for row in rows)}
            if all("lastSuccess" in row for row in rows):
                status["lastSuccess"] = min(row["lastSuccess"] for row in rows)
        return status

    def _conditions(self, said: Iterable[Condition], before: Mapping[str, Any], generation: int) -> list[Body]:
        known = _by_type(before)
        return [self._condition(condition, known.get(condition.type), generation) for condition in said]

    def _condition(self, said: Condition, before: Body | None, generation: int) -> Body:
        same = before is not None and before["status"] == said.status
        since = before["lastTransitionTime"] if before and same else _time(self._clock())
        return {**said._asdict(), "observedGeneration": generation, "lastTransitionTime": since}

    async def _write(self, body: Mapping[str, Any], status: Body, before: Mapping[str, Any]) -> None:
        metadata = body["metadata"]
        # The UID keeps a namesake that was made meanwhile from being told what was said of this one.
        identity = {name: metadata[name] for name in ("name", "namespace", "uid")}
        head = {"apiVersion": body["apiVersion"], "kind": body["kind"], "metadata": identity}
        try:
            await self._cluster.apply(KINDS[body["kind"]], {**head, "status": status}, "status")
        except Missing:
            return
        for changed in _changes(status, before):
            self._count(body["kind"], changed)
            await self._announce(head, changed)

    def _count(self, kind: str, changed: Body) -> None:
        if changed["type"] in ("Accepted", "ResolvedRefs") and changed["status"] == "False":
            self._metrics.refused(kind)

    async def _announce(self, head: Body, changed: Body) -> None:
        """An event that is lost is no harm: the condition says it too."""
        if changed["type"] == "Ready" or changed["reason"] in PASSING:
            return
        try:
            await self._cluster.create(EVENT, self._event(head, changed))
        except ClusterError as error:
            log.warning("event_lost", reason=error.reason)

    def _event(self, head: Body, changed: Body) -> Body:
        metadata = head["metadata"]
        return {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.name,
            "metadata": {
                "namespace": metadata["namespace"],
                "name": f"{metadata['name'][:200]}.{uuid.uuid4().hex[:16]}",
            },
            "regarding": {**metadata, "apiVersion": head["apiVersion"], "kind": head["kind"]},
            "eventTime": self._clock().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": OPERATOR,
            "reportingInstance": self._instance[:128],
            "action": changed["type"],
            "reason": changed["reason"],
            "type": "Normal" if _is_good(changed) or changed["reason"] == "Paused" else "Warning",
            "note": changed["message"][:LONGEST_NOTE],
        }


def _workspace(record: Record) -> Body:
    owner = record.owner
    metadata = {"name": owner.name, "namespace": owner.namespace, "uid": owner.uid}
    return {"apiVersion": WORKSPACE_KIND.api_version, "kind": WORKSPACE_KIND.name, "metadata": metadata}


def _by_type(status: Mapping[str, Any]) -> dict[str, Body]:
    return {condition["type"]: condition for condition in status.get("conditions") or ()}


def _is_good(condition: Mapping[str, Any]) -> bool:
    return bool(condition["status"] == ("False" if condition["type"] == "SidecarsOutdated" else "True"))


def _changes(status: Mapping[str, Any], before: Mapping[str, Any]) -> list[Body]:
    """Conditions whose state is another than before."""
    known = _by_type(before)
    return [condition for condition in status["conditions"] if _is_change(condition, known.get(condition["type"]))]


def _is_change(condition: Body, before: Body | None) -> bool:
    if before is None:
        return not _is_good(condition) and condition["reason"] not in STARTING
    return _essence(condition) != _essence(before)


def _essence(condition: Mapping[str, Any]) -> tuple[str, str]:
    return condition["status"], condition["reason"]


# --- rows ----------------------------------------------------------------------------------------------------------


def _rows(record: Record, now: datetime) -> list[Body]:
    """Only of the workspace's own sources, whatever a pod reports. Where none does, what was known last."""
    config = record.publication.config if record.publication else None
    names = [source.name for source in config.sources] if config else []
    known = {row["name"]: row for row in record.status.get("sources") or ()}
    report = conditions.report_of(record)
    if report is None:
        return [known[name] for name in names if name in known]
    told = {source.name: source for source in report.sources}
    return [_row(told[name], known.get(name, {}), now) for name in names if name in told]


def _row(told: SourceReport, known: Mapping[str, Any], now: datetime) -> Body:
    row: Body = {"name": told.name, "objects": max(0, told.objects), "stale": max(0, told.stale)}
    if told.last_success is not None:
        row["lastSuccess"] = _time(told.last_success)
    if told.last_error is not None:
        row["lastError"] = _last_error(told, known.get("lastError") or {}, now)
    return row


def _last_error(told: SourceReport, known: Mapping[str, Any], now: datetime) -> Body:
    message = shown(told.last_error or "", LONGEST_ERROR)
    if told.last_error_at is not None:
        at = _time(told.last_error_at)
    else:  # then since it is known here
        at = known["time"] if known.get("message") == message else _time(now)
    return {"time": at, "message": message}


def _state(status: Mapping[str, Any]) -> Any:
    """What of a status is worth a write at once."""
    rows = [(row["name"], (row.get("lastError") or {}).get("message")) for row in status.get("sources") or ()]
    return status.get("conditions"), rows


def _time(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
