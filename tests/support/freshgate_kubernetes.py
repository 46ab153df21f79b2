"""An API server in memory, as far as the operator uses one, and the operator around it with clocks that stand.

It speaks below `Cluster`: paths, selectors, resourceVersions, generations, server-side apply and its conflicts are all
its own, so that what runs here runs on a real one, where the same things are shown once more.
"""

import asyncio
import base64
import copy
import json
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from freshgate_operator import facts
from freshgate_operator.cluster import APPLY, METADATA_ONLY, Body, Cluster
from freshgate_operator.errors import Conflict, Missing
from freshgate_operator.kinds import NAMESPACE, POD, SECRET, WRITTEN, Kind
from freshgate_operator.metrics import Metrics
from freshgate_operator.names import SERVES, SIDECAR_CONTAINER
from freshgate_operator.observing import Observer
from freshgate_operator.pods import Report, Reporters
from freshgate_operator.publish import Publication, Publisher
from freshgate_operator.queue import Queue, Work
from freshgate_operator.reconcile import Reconciler
from freshgate_operator.records import Records
from freshgate_operator.settings import Settings
from freshgate_operator.status import Statuses
from freshgate_operator.touch import Rollouts

START = datetime(2026, 11, 30, 10, tzinfo=UTC)
PATH = re.compile(
    "(?P<root>/api/v1|/apis/[^/]+/[^/]+)(/namespaces/(?P<namespace>[^/]+))?(/(?P<plural>[a-z]+)(/(?P<name>[^/]+))?)?"
)
WITHOUT_GENERATION = {"secrets", "serviceaccounts", "services", "pods", "events", "namespaces", "leases"}
SETTINGS = Settings(image="freshgate-service:1", own_namespace="freshgate-system", touch_pods=True)


class Killed(BaseException):
    """The process ended here."""


Hook = Callable[[str, str], None]


class FakeCluster(Cluster):
    """`hooks` are called with the method and the path of each request before it is served, and may raise."""

    def __init__(self, metrics: Metrics, clock: Callable[[], datetime]) -> None:
        self._metrics = metrics
        self._clock = clock
        self._versions = count(1)
        self.objects: dict[str, Body] = {}
        self.kinds = {kind.plural: kind for kind in WRITTEN}
        self.hooks: list[Hook] = []
        self.calls: list[tuple[str, str]] = []
        self.issuer_keys: list[Body] = [{"kid": "1", "kty": "RSA"}]

    # for tests

    def put(self, kind: Kind, body: Mapping[str, Any]) -> Body:
        """As kubectl applies it: a status is kept, a generation rises with the spec."""
        metadata = body["metadata"]
        path = kind.path(metadata.get("namespace") if kind is not NAMESPACE else None, metadata["name"])
        before = self.objects.get(path)
        made = copy.deepcopy(dict(body))
        made = {"apiVersion": kind.api_version, "kind": kind.name, **made}
        if before is not None:
            made["metadata"] = {**before["metadata"], **made["metadata"]}
            made |= {"status": before["status"]} if "status" in before else {}
        return self._store(path, made, before)

    def drop(self, kind: Kind, namespace: str | None, name: str) -> None:
        del self.objects[kind.path(namespace, name)]

    def at(self, kind: Kind, namespace: str | None, name: str) -> Body:
        return self.objects[kind.path(namespace, name)]

    def all(self, kind: Kind) -> list[Body]:
        return [body for path, body in self.objects.items() if body["kind"] == kind.name]

    @property
    def written(self) -> list[tuple[str, str]]:
        return [call for call in self.calls if call[0] != "GET"]

    # the wire

    async def __aexit__(self, *_: object) -> None:
        return None

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Body | None = None,
        accept: str = "",
        content_type: str = "",
        may_quote: bool = True,
    ) -> Any:
        self.calls.append((method, path))
        for hook in self.hooks:
            hook(method, path)
        sent = json.loads(json.dumps(body))
        match method:
            case "GET":
                answer = self._read(path, query or {}, accept)
            case "POST":
                answer = self._create(path, sent)
            case "PUT":
                answer = self._replace(path, sent)
            case "PATCH":
                answer = self._apply(path, sent) if content_type == APPLY else self._merge(path, sent)
        return copy.deepcopy(answer)

    def _read(self, path: str, query: Mapping[str, str], accept: str) -> Any:
        told = {facts.DISCOVERY: {"issuer": "https://cluster.example"}, facts.KEYS: {"keys": self.issuer_keys}}
        found = told.get(path) or self.objects.get(path)
        if found is not None:
            return found
        place = PATH.fullmatch(path)
        if place is None or place["name"]:
            raise Missing(path)
        if place["plural"]:
            return {"items": self._selected(place, query, accept) or None}
        known = [kind.plural for kind in self.kinds.values() if kind.root == path]
        if not known:
            raise Missing(path)
        return {"resources": [{"name": plural} for plural in known]}

    def _selected(self, place: re.Match[str], query: Mapping[str, str], accept: str) -> list[Body]:
        found = [
            body
            for path, body in sorted(self.objects.items())
            if (at := PATH.fullmatch(path)) is not None
            and (at["root"], at["plural"]) == (place["root"], place["plural"])
            and place["namespace"] in (None, at["namespace"])
            and _matches(body, query)
        ]
        return [{"metadata": body["metadata"]} for body in found] if accept == METADATA_ONLY else found

    def _create(self, path: str, body: Body) -> Body:
        path = f"{path}/{body['metadata']['name']}"
        if path in self.objects:
            raise Conflict(path)
        return self._store(path, body, None)

    def _replace(self, path: str, body: Body) -> Body:
        before = self.objects.get(path)
        if before is None:
            raise Missing(path)
        if before["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            raise Conflict(path)
        return self._store(path, body, before)

    def _apply(self, path: str, body: Body) -> Body:
        is_status = path.endswith("/status")
        path = path.removesuffix("/status")
        before = self.objects.get(path)
        if is_status:
            if before is None:
                raise Missing(path)
            if before["metadata"]["uid"] != body["metadata"]["uid"]:
                raise Conflict(path)
            return self._store(path, {**before, "status": body["status"]}, before)
        return self._store(path, _merged(before or {}, body, lists_too=True), before)

    def _merge(self, path: str, change: Body) -> Body:
        before = self.objects.get(path)
        if before is None:
            raise Missing(path)
        return self._store(path, _merged(before, change), before)

    def _store(self, path: str, body: Body, before: Body | None) -> Body:
        made = copy.deepcopy(body)
        known = before["metadata"] if before else {}
        metadata = {**known, **made["metadata"]}
        metadata.setdefault("uid", str(uuid.uuid4()))
        metadata.setdefault("creationTimestamp", self._clock().strftime("%Y-%m-%dT%H:%M:%SZ"))
        if path.split("/")[-2] not in WITHOUT_GENERATION:
            changed = before is None or before.get("spec") != made.get("spec")
            metadata["generation"] = known.get("generation", 0) + changed
        made["metadata"] = metadata
        if before is not None and _bare(made) == _bare(before):
            return before  # as a server does: what changes nothing is no new version
        metadata["resourceVersion"] = str(next(self._versions))
        self.objects[path] = made
        return made


def _bare(body: Body) -> Body:
    return {**body, "metadata": {**body["metadata"], "resourceVersion": None}}


def _merged(before: Body, change: Body, *, lists_too: bool = False) -> Body:
    made = dict(before)
    for name, value in change.items():
        both = isinstance(value, dict) and isinstance(made.get(name), dict)
        made[name] = _merged(made[name], value, lists_too=lists_too) if both else value
    return made


def _matches(body: Body, query: Mapping[str, str]) -> bool:
    labels = body["metadata"].get("labels") or {}
    label, equals, value = query.get("labelSelector", "").partition("=")
    if label and (label not in labels or (equals and labels[label] != value)):
        return False
    name, _, value = query.get("fieldSelector", "").partition("=")
    return not name or body.get(name) == value


# --- the operator around it ----------------------------------------------------------------------------------------


class FakeReporters(Reporters):
    """Pods answer what was put here, by their address; and whoever asked with which token is kept."""

    def __init__(self) -> None:
        self.reports: dict[str, Report] = {}
        self.tokens: set[str] = set()

    async def _ask(self, address: str, token: str) -> Report | None:
        self.tokens.add(token)
        return self.reports.get(address)


@dataclass
class Time:
    """Both clocks, which stand until they are moved."""

    wall: datetime = START
    process: float = 1000.0

    def move(self, seconds: float) -> None:
        self.wall += timedelta(seconds=seconds)
        self.process += seconds


@dataclass
class Office:
    """One operator process: made anew on the same cluster, it knows nothing."""

    cluster: FakeCluster
    time: Time
    settings: Settings = SETTINGS
    metrics: Metrics = field(default_factory=Metrics)
    reporters: FakeReporters = field(default_factory=FakeReporters)
    sleeps: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cluster._metrics = self.metrics
        self.queue = Queue(lambda: self.time.process, jitter=lambda: 1.0)
        self.records = Records()
        self.surroundings = facts.Surroundings(self.cluster)
        self.statuses = Statuses(
            self.cluster,
            self.metrics,
            clock=lambda: self.time.wall,
            now=lambda: self.time.process,
            instance="operator-0",
        )
        self.observer = Observer(
            self.cluster,
            self.settings,
            surroundings=self.surroundings,
            records=self.records,
            reporters=self.reporters,
            statuses=self.statuses,
            queue=self.queue,
        )
        self.rollouts = Rollouts(
            self.cluster, self.observer, self.records, touch=self.settings.touch_pods, sleep=self._sleep
        )
        self.reconciler = Reconciler(
            self.cluster,
            self.settings,
            surroundings=self.surroundings,
            records=self.records,
            publisher=Publisher(self.cluster, self.metrics),
            statuses=self.statuses,
            rollouts=self.rollouts,
            queue=self.queue,
            clock=lambda: self.time.wall,
        )

    async def _sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)

    async def reconcile(self, *workspaces: str, namespace: str = "acme") -> frozenset[str]:
        """One pass, and all that follows of it."""
        await self.surroundings.refresh()
        try:
            failed = await self.reconciler.reconcile(Work(namespace, frozenset(workspaces)))
            await asyncio.gather(*self.rollouts._tasks.values())
        finally:
            await self.rollouts.close()
        return failed

    def publication(self, workspace: str = "support") -> Publication:
        return Publication.of(self.cluster.at(SECRET, "acme", f"{workspace}-freshgate"))

    def status(self, kind: Kind, name: str) -> dict[str, Any]:
        status: dict[str, Any] = self.cluster.at(kind, "acme", name).get("status") or {}
        return status

    def conditions(self, kind: Kind, name: str) -> dict[str, tuple[str, str]]:
        rows = self.status(kind, name).get("conditions") or ()
        return {row["type"]: (row["status"], row["reason"]) for row in rows}

    def message(self, kind: Kind, name: str, condition: str) -> str:
        rows = self.status(kind, name)["conditions"]
        return next(str(row["message"]) for row in rows if row["type"] == condition)

    def pod(self, name: str, *, workspace: str = "support", ready: bool = True, report: Report | None = None) -> None:
        """One of a workspace's own."""
        address = f"10.0.0.{len(self.cluster.all(POD)) + 1}"
        status = {"podIP": address, "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
        labels = {SERVES: workspace}
        body = {"metadata": {"name": name, "namespace": "acme", "labels": labels}, "spec": {}, "status": status}
        self.cluster.put(POD, body)
        if report is not None:
            self.reporters.reports[address] = report

    def sidecar(self, name: str, *, image: str, workspace: str = "support") -> None:
        labels = {"freshgate.dev/workspace": workspace}
        spec = {"initContainers": [{"name": SIDECAR_CONTAINER, "image": image}]}
        self.cluster.put(POD, {"metadata": {"name": name, "namespace": "acme", "labels": labels}, "spec": spec})


def secret(name: str, labelled: bool = True, **values: str) -> Body:
    """`values` are its keys; `-` in a key is not needed here."""
    labels = {"freshgate.dev/credential": "true"} if labelled else {}
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    return {"metadata": {"name": name, "namespace": "acme", "labels": labels}, "data": data, "type": "Opaque"}


def put_all(cluster: FakeCluster, bodies: Iterable[Body]) -> None:
    kinds = {kind.name: kind for kind in WRITTEN}
    for body in bodies:
        cluster.put(kinds[body["kind"]], body)
