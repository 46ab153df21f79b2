"""Every metric of the operator, defined once.

Labels are kinds of resources and words of a short fixed list: never a name out of a resource, a person or a message.
Counters exist at 0 from the start, so that a first failure is a rise and not a new series.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from freshgate_crds.manifests import KINDS

PUBLICATIONS = ("configuration", "stamp")
_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """One a process, with a registry of its own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._reconciles = Counter(
            "freshgate_operator_reconciles",
            "Passes over a namespace: read, compile, publish, tell.",
            registry=self._registry,
        )
        self._failures = Counter(
            "freshgate_operator_reconcile_failures",
            "Workspaces that a pass could not bring to what was written; they are tried again.",
            registry=self._registry,
        )
        self._durations = Histogram(
            "freshgate_operator_reconcile_duration_seconds",
            "Duration of a pass.",
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._dirty = Gauge(
            "freshgate_operator_dirty_workspaces",
            "Workspaces, and namespaces of which other resources changed, that are not reconciled yet.",
            registry=self._registry,
        )
        self._oldest = Gauge(
            "freshgate_operator_oldest_unreconciled_change_age_seconds",
            "Age of the oldest change that is not reconciled yet; 0 where there is none.",
            registry=self._registry,
        )
        self._heartbeat_age = Gauge(
            "freshgate_operator_heartbeat_age_seconds",
            "Time since a heartbeat was last seen through a watch.",
            registry=self._registry,
        )
        self._publications = Counter(
            "freshgate_operator_publications",
            "Configurations published, and stamps put on those that stayed the same.",
            ["what"],
            registry=self._registry,
        )
        self._refusals = Counter(
            "freshgate_operator_refusals",
            "Resources that began to be refused, or for another cause than before.",
            ["kind"],
            registry=self._registry,
        )
        self._writes = Counter(
            "freshgate_operator_writes",
            "Requests that write, by what they write. At rest only leases rise, and secrets at a stamp.",
            ["resource"],
            registry=self._registry,
        )
        for what in PUBLICATIONS:
            self._publications.labels(what)
        for kind in KINDS:
            self._refusals.labels(kind)

    # what happened

    def reconciling(self) -> AbstractContextManager[object]:
        """Counts one pass, and how long its `with` block took."""
        self._reconciles.inc()
        return self._durations.time()

    def failed(self, workspaces: int) -> None:
        self._failures.inc(workspaces)

    def published(self, *, stamp_alone: bool) -> None:
        self._publications.labels(PUBLICATIONS[stamp_alone]).inc()

    def refused(self, kind: str) -> None:
        self._refusals.labels(kind).inc()

    def wrote(self, resource: str) -> None:
        self._writes.labels(resource).inc()

    # what is

    def watch_queue(self, dirty: Callable[[], float], oldest: Callable[[], float]) -> None:
        """Both are asked at each scrape: an age rises although nothing happens."""
        self._dirty.set_function(dirty)
        self._oldest.set_function(oldest)

    def watch_heartbeat(self, age: Callable[[], float]) -> None:
        self._heartbeat_age.set_function(age)

    def render(self) -> bytes:
        """As Prometheus reads it."""
        return generate_latest(self._registry)

    def writes(self) -> dict[str, float]:
        """How often each kind of object was written."""
        samples = (sample for metric in self._writes.collect() for sample in metric.samples)
        return {sample.labels["resource"]: sample.value for sample in samples if sample.name.endswith("_total")}
