"""Every metric of the service, defined once.

The other modules tell `Metrics` what happened; only this one knows names, labels and Prometheus. A label is the
workspace, a source, or a value of a short fixed list: never a person, a query, a record or a text from outside.
Counters exist at 0 from the start, so that a first failure is a rise and not a new series.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import accumulate
from typing import Any, Generic, NamedTuple, TypeVar

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.utils import floatToGoString

from freshgate_crds.compiled import Revision, Source
from freshgate_service.domain import Reason, SourceState, State

REFRESH_RESULTS = ("unchanged", "changed", "deleted", "failed")
CONDENSERS = ("extractive", "anthropic", "extractive_fallback")
STAGES = ("entitle", "score", "refresh", "check", "total")
"""Parts of a query's time; `total` holds the others, and what lies between them."""

_REFRESH_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_QUERY_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Description(NamedTuple):
    """What documentation says of one metric. `labels` are without `workspace`, which all have."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]


# --- values ----------------------------------------------------------------------------------------------------------
# Plain numbers, since one thread counts: the client library's own take a lock for each, in the midst of every query.

Sample = tuple[str, Mapping[str, str], float]
"""What is added to the metric's name, and to its labels, and the value."""


class Counter:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        self.value += amount

    def samples(self) -> Iterator[Sample]:
        yield "_total", {}, self.value


class Gauge:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def set(self, value: float) -> None:
        self.value = float(value)

    def samples(self) -> Iterator[Sample]:
        yield "", {}, self.value


class Histogram:
    """`bounds` are the buckets' upper ends, rising; what lies above them all is counted too."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def time(self) -> "Timer":
        return Timer(self)

    def samples(self) -> Iterator[Sample]:
        upto = list(accumulate(self._counts))
        for bound, count in zip((*self._bounds, float("inf")), upto, strict=True):
            yield "_bucket", {"le": str(floatToGoString(bound))}, count  # type: ignore[no-untyped-call]  # untyped there
        yield "_count", {}, upto[-1]
        yield "_sum", {}, self._sum


class Timer:
    """Observes how long its `with` block took."""

    __slots__ = ("_histogram", "_started")

    def __init__(self, histogram: Histogram) -> None:
        self._histogram = histogram

    def __enter__(self) -> None:
        self._started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._histogram.observe(time.perf_counter() - self._started)


S = TypeVar("S", bound=Counter | Gauge | Histogram)


class Family(Generic[S]):
    """One metric of one workspace: a series for each combination of labels that was used."""

    def __init__(self, description: Description, workspace: str, new: Callable[[], S]) -> None:
        self.description = description
        self._workspace = workspace
        self._new: Callable[[], S] = new
        self._series: dict[tuple[str, ...], S] = {}

    def of(self, *values: str) -> S:
        series = self._series.get(values)
        if series is None:
            series = self._series[values] = self._new()
        return series

    def drop(self, *values: str) -> None:
        """Ends all series whose first labels have these values."""
        for known in [known for known in self._series if known[: len(values)] == values]:
            del self._series[known]

    def collect(self) -> Iterable[Metric]:
        name = self.description.name.removesuffix("_total")
        metric = Metric(name, self.description.help, self.description.kind)
        for values, series in self._series.items():
            labels = dict(zip(("workspace", *self.description.labels), (self._workspace, *values), strict=True))
            for suffix, more, value in series.samples():
                metric.add_sample(name + suffix, {**labels, **more}, value)
        return [metric]


# --- what is measured ------------------------------------------------------------------------------------------------


class Metrics:
    """What one process tells Prometheus about its one workspace."""

    def __init__(self, workspace: str) -> None:
        self._workspace = workspace
        self._registry = CollectorRegistry()
        self._families: list[Family[Any]] = []

        gauge, counter, histogram = self._gauge, self._counter, self._histogram
        self._objects = gauge("freshgate_objects", "Objects in memory.", "source", "state")
        self._ttl = gauge("freshgate_source_ttl_seconds", "The TTL that the source declares.", "source")
        self._interval = gauge(
            "freshgate_source_discovery_interval_seconds",
            "The time from one listing of the source to the next.",
            "source",
        )
        self._sweep = gauge(
            "freshgate_source_sweep_seconds", "The time in which every object of the source is read again.", "source"
        )
        self._last_success = gauge(
            "freshgate_source_last_success_timestamp_seconds",
            "Start of the last pass over the source that read all it set out to read.",
            "source",
        )
        self._last_listing = gauge(
            "freshgate_source_last_listing_timestamp_seconds",
            "Start of the last listing of the source that was read to its end.",
            "source",
        )
        self._oldest_confirmed = gauge(
            "freshgate_source_oldest_confirmed_timestamp_seconds",
            "When the source's longest unconfirmed object was last confirmed.",
            "source",
        )
        self._breaker = gauge(
            "freshgate_source_breaker_open",
            "1 while this process spares a source that kept failing.",
            "source",
        )
        self._loop_holder = gauge("freshgate_loop_holder", "1 while this process runs the background loop.")
        self._refreshes = counter(
            "freshgate_refresh_total", "Objects read again, by what came of it.", "source", "result"
        )
        self._refresh_failures = counter(
            "freshgate_refresh_failures_total", "Objects or listings that could not be read.", "source", "reason"
        )
        self._refresh_seconds = histogram(
            "freshgate_refresh_duration_seconds",
            "Time of one refresh of some objects, from claim to write.",
            "source",
            buckets=_REFRESH_BUCKETS,
        )
        self._served = counter("freshgate_served_total", "Items in answers, by their freshness.", "source", "state")
        self._condensations = counter(
            "freshgate_condensations_total", "Records condensed, by what condensed them.", "source", "condenser"
        )
        self._avoided = counter(
            "freshgate_condensations_avoided_total", "Records read again whose content had not changed.", "source"
        )
        self._tokens = counter("freshgate_condense_tokens_total", "Tokens that a model used for condensing.")
        self._requests = counter("freshgate_requests_total", "Requests answered.", "route", "code")
        self._query_seconds = histogram(
            "freshgate_query_duration_seconds", "Time of a query, by stage.", "stage", buckets=_QUERY_BUCKETS
        )
        self._config = gauge("freshgate_config_info", "1 for the configuration in force.", "revision", "format")
        self._config_rejected = counter(
            "freshgate_config_rejected_total", "Configurations, or parts of one, that were refused."
        )
        self._valid_until = gauge(
            "freshgate_entitlements_valid_until_timestamp_seconds",
            "When the entitlements expire; queries are refused from then on.",
        )
        self._max_age = gauge(
            "freshgate_entitlements_max_age_seconds", "How long the entitlements are valid from their stamp on."
        )
        self._violations = counter(
            "freshgate_invariant_violations_total", "Answers withheld because a promise was about to be broken."
        )
        schedule = (self._ttl, self._interval, self._sweep)
        passes = (self._last_success, self._last_listing)
        self._of_holder = (*schedule, *passes, self._objects, self._oldest_confirmed)
        self._start_at_zero()

    def _start_at_zero(self) -> None:
        for family in (self._tokens, self._config_rejected, self._violations):
            family.of()
        self._loop_holder.of().set(0)
        for stage in STAGES:
            self._query_seconds.of(stage)

    # --- reading them --------------------------------------------------------------------------------------------

    def render(self) -> bytes:
        """The text that Prometheus scrapes."""
        return generate_latest(self._registry)

    def describe(self) -> list[Description]:
        return [family.description for family in self._families]

    # --- sources -------------------------------------------------------------------------------------------------

    def declare_source(self, source: str) -> None:
        """Starts the source's counters."""
        for result in REFRESH_RESULTS:
            self._refreshes.of(source, result)
        for reason in Reason:
            self._refresh_failures.of(source, reason)
        for state in State:
            self._served.of(source, state)
        for condenser in CONDENSERS:
            self._condensations.of(source, condenser)
        self._avoided.of(source)
        self._refresh_seconds.of(source)
        self._breaker.of(source).set(0)

    def forget_source(self, source: str) -> None:
        """Ends all series of a source that left the workspace."""
        for family in self._families:
            if family.description.labels[:1] == ("source",):
                family.drop(source)

    def schedule(self, spec: Source) -> None:
        """What the loop's holder keeps to: whoever watches needs it to tell late from slow."""
        self._ttl.of(spec.name).set(spec.ttl_seconds)
        self._interval.of(spec.name).set(spec.discovery_interval_seconds)
        self._sweep.of(spec.name).set(spec.sweep_seconds)

    def census(self, source: str, *, fresh: int, stale: int, oldest_confirmed: float | None) -> None:
        """What the loop's holder counted; `oldest_confirmed` is None where the source has no object."""
        self._objects.of(source, "fresh").set(fresh)
        self._objects.of(source, "stale").set(stale)
        _set_or_drop(self._oldest_confirmed, source, oldest_confirmed)

    def source_state(self, source: str, state: SourceState) -> None:
        _set_or_drop(self._last_success, source, state.last_success)
        _set_or_drop(self._last_listing, source, state.last_list)

    def breaker(self, source: str, *, is_open: bool) -> None:
        self._breaker.of(source).set(is_open)

    def hold_loop(self, *, held: bool) -> None:
        """Only the holder speaks for the sources: two pods must not tell two ages of one thing."""
        self._loop_holder.of().set(held)
        if not held:
            for family in self._of_holder:
                family.drop()

    # --- refreshing ----------------------------------------------------------------------------------------------

    def refreshed(self, source: str, result: str) -> None:
        self._refreshes.of(source, result).inc()

    def refresh_failed(self, source: str, reason: Reason) -> None:
        self._refresh_failures.of(source, reason).inc()

    def time_refresh(self, source: str) -> AbstractContextManager[object]:
        return self._refresh_seconds.of(source).time()

    def condensed(self, source: str, condenser: str) -> None:
        self._condensations.of(source, condenser).inc()

    def condensation_avoided(self, source: str) -> None:
        self._avoided.of(source).inc()

    def condense_tokens(self, tokens: int) -> None:
        self._tokens.of().inc(tokens)

    # --- answering -----------------------------------------------------------------------------------------------

    def declare_route(self, route: str, codes: Iterable[int]) -> None:
        """Starts the route's counters, one for each code it can answer with."""
        for code in codes:
            self._requests.of(route, str(code))

    def request(self, route: str, code: int) -> None:
        self._requests.of(route, str(code)).inc()

    def served(self, source: str, state: State, items: int = 1) -> None:
        self._served.of(source, state).inc(items)

    def query_seconds(self, stage: str, seconds: float) -> None:
        self._query_seconds.of(stage).observe(seconds)

    def time_stage(self, stage: str) -> AbstractContextManager[object]:
        return self._query_seconds.of(stage).time()

    def invariant_violated(self) -> None:
        self._violations.of().inc()

    # --- configuration -------------------------------------------------------------------------------------------

    def config_in_force(self, revision: Revision, config_format: int) -> None:
        self._config.drop()
        self._config.of(str(revision.counter), str(config_format)).set(1)

    def config_rejected(self) -> None:
        self._config_rejected.of().inc()

    def entitlements_stamped(self, stamp: float, max_age_seconds: float) -> None:
        self._valid_until.of().set(stamp + max_age_seconds)
        self._max_age.of().set(max_age_seconds)

    # --- defining them -------------------------------------------------------------------------------------------

    def _gauge(self, name: str, text: str, *labels: str) -> Family[Gauge]:
        return self._keep(Family(Description(name, "gauge", text, labels), self._workspace, Gauge))

    def _counter(self, name: str, text: str, *labels: str) -> Family[Counter]:
        return self._keep(Family(Description(name, "counter", text, labels), self._workspace, Counter))

    def _histogram(self, name: str, text: str, *labels: str, buckets: Sequence[float]) -> Family[Histogram]:
        new = partial(Histogram, buckets)
        return self._keep(Family(Description(name, "histogram", text, labels), self._workspace, new))

    def _keep(self, family: Family[S]) -> Family[S]:
        self._registry.register(family)
        self._families.append(family)
        return family


def _set_or_drop(gauge: Family[Gauge], source: str, value: float | None) -> None:
    """A time that never happened is no series; a 0 would read as 1970."""
    if value is None:
        gauge.drop(source)
    else:
        gauge.of(source).set(value)
