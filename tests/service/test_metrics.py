"""Metrics: there from the start, bounded in their labels, true in their numbers."""

import inspect

import pytest
from freshgate_world import source
from prometheus_client.parser import text_string_to_metric_families

from freshgate_crds.compiled import Revision
from freshgate_service.domain import Reason, SourceState, State
from freshgate_service.metrics import CONDENSERS, REFRESH_RESULTS, STAGES, Metrics

NAMES = {
    "freshgate_objects",
    "freshgate_source_ttl_seconds",
    "freshgate_source_discovery_interval_seconds",
    "freshgate_source_sweep_seconds",
    "freshgate_source_last_success_timestamp_seconds",
    "freshgate_source_last_listing_timestamp_seconds",
    "freshgate_source_oldest_confirmed_timestamp_seconds",
    "freshgate_source_breaker_open",
    "freshgate_loop_holder",
    "freshgate_refresh_total",
    "freshgate_refresh_failures_total",
    "freshgate_refresh_duration_seconds",
    "freshgate_served_total",
    "freshgate_condensations_total",
    "freshgate_condensations_avoided_total",
    "freshgate_condense_tokens_total",
    "freshgate_requests_total",
    "freshgate_query_duration_seconds",
    "freshgate_config_info",
    "freshgate_config_rejected_total",
    "freshgate_entitlements_valid_until_timestamp_seconds",
    "freshgate_entitlements_max_age_seconds",
    "freshgate_invariant_violations_total",
}


@pytest.fixture
def metrics() -> Metrics:
    found = Metrics("support")
    found.declare_source("tickets")
    return found


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """What Prometheus reads, by name and labels."""
    text = metrics.render().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return samples(metrics).get((name, tuple(sorted({"workspace": "support", **labels}.items()))))


def test_these_are_all_metrics_and_each_is_described(metrics: Metrics):
    described = metrics.describe()
    assert {description.name for description in described} == NAMES
    assert len(described) == len(NAMES)
    assert all(description.help.endswith(".") for description in described)
    assert {description.kind for description in described} == {"gauge", "counter", "histogram"}


def test_what_is_described_is_what_is_rendered(metrics: Metrics):
    exercise(metrics)
    families = {family.name: family for family in text_string_to_metric_families(metrics.render().decode())}
    for description in metrics.describe():
        family = families.pop(description.name.removesuffix("_total"))
        assert (family.type, family.documentation) == (description.kind, description.help)
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == {"workspace", *description.labels}
    assert families == {}


def exercise(metrics: Metrics) -> None:
    """Everything there is to tell."""
    metrics.schedule(source("tickets", ttl_seconds=300.0))
    metrics.census("tickets", fresh=3, stale=1, oldest_confirmed=5.0)
    metrics.source_state("tickets", SourceState(last_success=9.0, last_list=8.0))
    metrics.hold_loop(held=True)
    metrics.breaker("tickets", is_open=True)
    metrics.declare_route("/api/v1/search", (200, 400))
    metrics.config_in_force(Revision(workspace_uid="u", counter=7), 1)
    metrics.entitlements_stamped(99.0, 600.0)


def test_labels_are_the_workspace_the_source_and_short_fixed_lists(metrics: Metrics):
    allowed = {"source", "state", "result", "reason", "condenser", "route", "code", "stage", "revision", "format"}
    assert {label for description in metrics.describe() for label in description.labels} == allowed


def test_counters_exist_at_zero_from_the_start(metrics: Metrics):
    metrics.declare_route("/api/v1/search", (200, 503))
    for name, labels in [
        *(("freshgate_refresh_total", {"source": "tickets", "result": result}) for result in REFRESH_RESULTS),
        *(("freshgate_refresh_failures_total", {"source": "tickets", "reason": reason}) for reason in Reason),
        *(("freshgate_served_total", {"source": "tickets", "state": state}) for state in State),
        *(("freshgate_condensations_total", {"source": "tickets", "condenser": name}) for name in CONDENSERS),
        *(("freshgate_query_duration_seconds_count", {"stage": stage}) for stage in STAGES),
        *(("freshgate_requests_total", {"route": "/api/v1/search", "code": code}) for code in ("200", "503")),
        ("freshgate_condensations_avoided_total", {"source": "tickets"}),
        ("freshgate_refresh_duration_seconds_count", {"source": "tickets"}),
        ("freshgate_source_breaker_open", {"source": "tickets"}),
        ("freshgate_condense_tokens_total", {}),
        ("freshgate_config_rejected_total", {}),
        ("freshgate_invariant_violations_total", {}),
        ("freshgate_loop_holder", {}),
    ]:
        assert value(metrics, name, **labels) == 0, name


def test_each_event_counts_where_it_belongs(metrics: Metrics):
    metrics.refreshed("tickets", "changed")
    metrics.refresh_failed("tickets", Reason.DEADLINE)
    metrics.condensed("tickets", "extractive")
    metrics.condensation_avoided("tickets")
    metrics.condense_tokens(120)
    metrics.served("tickets", State.REFRESHED, 3)
    metrics.request("/api/v1/search", 200)
    metrics.config_rejected()
    metrics.invariant_violated()
    changed = {key: number for key, number in samples(metrics).items() if number and not key[0].endswith("_bucket")}
    flat = {(name, *dict(labels[:-1]).values()): number for (name, labels), number in changed.items()}
    assert flat == {
        ("freshgate_refresh_total", "changed", "tickets"): 1,
        ("freshgate_refresh_failures_total", "deadline", "tickets"): 1,
        ("freshgate_condensations_total", "extractive", "tickets"): 1,
        ("freshgate_condensations_avoided_total", "tickets"): 1,
        ("freshgate_condense_tokens_total",): 120,
        ("freshgate_served_total", "tickets", "refreshed"): 3,
        ("freshgate_requests_total", "200", "/api/v1/search"): 1,
        ("freshgate_config_rejected_total",): 1,
        ("freshgate_invariant_violations_total",): 1,
    }


def test_histograms_count_each_value_in_every_bucket_that_holds_it(metrics: Metrics):
    values = [1.01**power / 1000 for power in range(1200)] + [0.0, 0.25, 1e9]
    for seconds in values:
        metrics.query_seconds("total", seconds)
    found = samples(metrics)
    buckets = {
        dict(labels)["le"]: number
        for (name, labels), number in found.items()
        if name == "freshgate_query_duration_seconds_bucket" and ("stage", "total") in labels
    }
    assert buckets == {le: sum(seconds <= float(le) for seconds in values) for le in buckets}
    assert buckets["+Inf"] == len(values) == value(metrics, "freshgate_query_duration_seconds_count", stage="total")
    assert value(metrics, "freshgate_query_duration_seconds_sum", stage="total") == pytest.approx(sum(values))


def test_timers_observe_also_what_fails(metrics: Metrics):
    with metrics.time_stage("score"):
        pass
    with pytest.raises(ValueError, match="x"), metrics.time_refresh("tickets"):
        raise ValueError("x")
    assert value(metrics, "freshgate_query_duration_seconds_count", stage="score") == 1
    assert value(metrics, "freshgate_refresh_duration_seconds_count", source="tickets") == 1


def test_only_the_loops_holder_speaks_for_the_sources(metrics: Metrics):
    exercise(metrics)
    assert value(metrics, "freshgate_objects", source="tickets", state="stale") == 1
    assert value(metrics, "freshgate_source_last_success_timestamp_seconds", source="tickets") == 9
    metrics.hold_loop(held=False)
    assert value(metrics, "freshgate_loop_holder") == 0
    spoken = {name for name, _ in samples(metrics)}
    assert not spoken & {
        "freshgate_objects",
        "freshgate_source_ttl_seconds",
        "freshgate_source_discovery_interval_seconds",
        "freshgate_source_sweep_seconds",
        "freshgate_source_last_success_timestamp_seconds",
        "freshgate_source_last_listing_timestamp_seconds",
        "freshgate_source_oldest_confirmed_timestamp_seconds",
    }
    assert value(metrics, "freshgate_source_breaker_open", source="tickets") == 1


def test_what_is_late_and_what_is_half_spent_can_be_told_from_gauges_alone(metrics: Metrics):
    exercise(metrics)
    assert value(metrics, "freshgate_source_ttl_seconds", source="tickets") == 300
    assert value(metrics, "freshgate_source_discovery_interval_seconds", source="tickets") == 60
    assert value(metrics, "freshgate_source_sweep_seconds", source="tickets") == 3600
    assert value(metrics, "freshgate_entitlements_valid_until_timestamp_seconds") == 699
    assert value(metrics, "freshgate_entitlements_max_age_seconds") == 600


def test_a_time_that_never_happened_is_no_series(metrics: Metrics):
    exercise(metrics)
    metrics.source_state("tickets", SourceState())
    metrics.census("tickets", fresh=0, stale=0, oldest_confirmed=None)
    assert value(metrics, "freshgate_source_last_success_timestamp_seconds", source="tickets") is None
    assert value(metrics, "freshgate_source_last_listing_timestamp_seconds", source="tickets") is None
    assert value(metrics, "freshgate_source_oldest_confirmed_timestamp_seconds", source="tickets") is None


def test_a_source_that_left_leaves_no_series(metrics: Metrics):
    metrics.declare_source("accounts")
    exercise(metrics)
    metrics.forget_source("tickets")
    assert not [labels for _, labels in samples(metrics) if ("source", "tickets") in labels]
    assert [labels for _, labels in samples(metrics) if ("source", "accounts") in labels]


def test_one_configuration_is_in_force_at_a_time(metrics: Metrics):
    for counter in (7, 8):
        metrics.config_in_force(Revision(workspace_uid="u", counter=counter), 1)
    found = [labels for name, labels in samples(metrics) if name == "freshgate_config_info"]
    assert found == [(("format", "1"), ("revision", "8"), ("workspace", "support"))]


def test_no_event_takes_free_text():
    """What is told is names of sources, states and numbers; none of these could be a person, a query or a record."""
    taken = {
        name
        for _, method in inspect.getmembers(Metrics, inspect.isfunction)
        if not method.__name__.startswith("_")
        for name in inspect.signature(method).parameters
    }
    assert not taken & {"query", "asker", "principal", "user", "key", "record", "record_id", "message", "error", "text"}
