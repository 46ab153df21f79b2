"""Rules, dashboard and runbooks speak of the same things, and of metrics that exist."""

import re
from itertools import combinations

import pytest
import yaml
from freshgate_monitoring import (
    CASES,
    ROOT,
    RULES,
    RUNBOOKS,
    alerts,
    dashboard,
    dashboard_queries,
    panels,
    recorded,
    rules,
    runbook_queries,
)
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from freshgate_operator.metrics import Metrics as OperatorMetrics
from freshgate_service.domain import Reason, State
from freshgate_service.metrics import CONDENSERS, REFRESH_RESULTS
from freshgate_service.metrics import Metrics as ServiceMetrics

OF_TARGETS = {"namespace", "pod", "instance"}
"""Labels that Prometheus itself puts on what it scrapes."""

RECORDED = re.compile(r"\b[a-z_]+:freshgate_\w+:\w+")
NAMED = re.compile(r"(?<![:\w])freshgate_\w+")
SELECTED = re.compile(r"(?<![:\w])(?P<metric>freshgate_\w+)\{(?P<matchers>[^}]*)\}")
MATCHER = re.compile(r"(?P<label>\w+)\s*(?:=~|!~|!=|=)\s*\"(?P<value>[^\"]*)\"")
GROUPED = re.compile(r"\bby\s*\((?P<labels>[^)]*)\)")
USED = re.compile(r"\$labels\.(\w+)")

FIXED = {"condenser": set(CONDENSERS), "result": set(REFRESH_RESULTS), "reason": {*Reason}}
STATES = {"freshgate_objects": {"fresh", "stale"}, "freshgate_served_total": {*State}}

SUFFIXES = {"histogram": ("_bucket", "_count", "_sum"), "counter": ("_total",), "gauge": ("",)}


def series() -> dict[str, set[str]]:
    """Labels by the name of each series that a process of either kind can tell."""
    found: dict[str, set[str]] = {}
    for described in ServiceMetrics("support").describe():
        for suffix in SUFFIXES[described.kind]:
            name = described.name.removesuffix("_total") + suffix
            found[name] = {"workspace", *described.labels, *(("le",) if suffix == "_bucket" else ())}
    for metric in text_string_to_metric_families(OperatorMetrics().render().decode()):
        for suffix in SUFFIXES[metric.type]:
            found[metric.name + suffix] = labels_of(metric) | ({"le"} if suffix == "_bucket" else set())
    return found


def labels_of(metric: Metric) -> set[str]:
    """A counter by resource has no sample before the first write, so its labels are named here."""
    by_resource = {"resource"} if metric.name == "freshgate_operator_writes" else set()
    return by_resource | {label for sample in metric.samples for label in sample.labels}


SERIES = series()
QUERIES = [
    *((rule.get("alert", rule.get("record")), rule["expr"]) for rule in rules()),
    *dashboard_queries(),
    *runbook_queries(),
]
every_query = pytest.mark.parametrize(
    ("where", "expr"), QUERIES, ids=[f"{where} {n}" for n, (where, _) in enumerate(QUERIES)]
)
every_alert = pytest.mark.parametrize("name", alerts())


def test_every_alert_has_a_page_and_every_page_an_alert():
    assert {page.stem for page in RUNBOOKS} == set(alerts())


@every_alert
def test_an_alert_says_how_bad_it_is_what_it_is_and_where_to_read_on(name):
    alert = alerts()[name]
    assert alert["labels"]["severity"] in {"critical", "warning"}
    assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}
    assert alert["annotations"]["runbook_url"] == f"docs/runbooks/{name}.md"
    assert alert["annotations"]["summary"].endswith(".")


@every_alert
def test_an_alert_speaks_of_labels_that_it_has(name):
    alert = alerts()[name]
    levels = {word for found in RECORDED.findall(alert["expr"]) for word in found.partition(":")[0].split("_")}
    kept = grouped_by(alert["expr"]) | levels
    assert set(USED.findall(str(alert["annotations"]))) <= (kept or OF_TARGETS)


@pytest.mark.parametrize("page", RUNBOOKS, ids=lambda page: page.stem)
def test_a_page_says_what_it_means_how_to_look_what_to_do_and_when_it_is_mended(page):
    text = page.read_text("utf-8")
    assert text.startswith(f"# {page.stem}\n")
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings == ["What it means for answers", "Look", "Do", "Mended when"]
    assert "```promql" in text
    assert "kubectl" in text


@pytest.mark.parametrize("page", [RULES, *RUNBOOKS], ids=lambda page: page.stem)
def test_every_metric_that_is_named_exists(page):
    text = page.read_text("utf-8")
    assert set(NAMED.findall(text)) - SERIES.keys() == set()
    assert set(RECORDED.findall(text)) - recorded().keys() == set()


@every_query
def test_every_query_asks_for_series_and_labels_that_exist(where, expr):
    assert set(NAMED.findall(expr)) - SERIES.keys() == set()
    assert set(RECORDED.findall(expr)) - recorded().keys() == set()
    for selected in SELECTED.finditer(expr):
        labels = SERIES[selected["metric"]] | OF_TARGETS
        for matcher in MATCHER.finditer(selected["matchers"]):
            assert matcher["label"] in labels
            values = STATES[selected["metric"]] if matcher["label"] == "state" else FIXED.get(matcher["label"])
            assert values is None or matcher["value"] in values
    assert grouped_by(expr) <= OF_TARGETS.union(*SERIES.values())


def grouped_by(expr: str) -> set[str]:
    return {label.strip() for found in GROUPED.finditer(expr) for label in found["labels"].split(",")}


def test_every_recording_rule_is_used_and_named_by_what_it_is_grouped_by():
    alerting = " ".join(alert["expr"] for alert in alerts().values())
    for name, rule in recorded().items():
        assert name in alerting
        for found in GROUPED.finditer(rule["expr"]):
            assert found["labels"].replace(", ", "_") == name.partition(":")[0]


def test_every_alert_is_shown_to_fire_and_to_be_silent_where_all_is_well_and_where_series_are_absent():
    cases = [case for file in CASES for case in yaml.safe_load(file.read_text("utf-8"))["tests"]]
    fired = {name: fires(case) for case in cases if (name := case["name"])}
    assert set.union(*fired.values()) == set(alerts())
    assert set.union(*(fired[name] for name in fired if name.startswith("healthy"))) == set()
    absent = [case for case in cases if case["name"].startswith("absent")]
    assert any(case["input_series"] == [] for case in absent)
    assert set.union(*map(fires, absent)) == {"FreshgateLoopNotHeld", "FreshgateNotScraped", "FreshgateOperatorMissing"}


def fires(case) -> set[str]:
    samples = [sample["labels"] for test in case["promql_expr_test"] for sample in test["exp_samples"]]
    return {found[1] for labels in samples if (found := re.search(r'alertname="(\w+)"', labels))}


def test_a_healthy_case_holds_every_series_that_an_alert_looks_at():
    """Silence that comes from a series which is not there shows nothing."""
    cases = [case for file in CASES for case in yaml.safe_load(file.read_text("utf-8"))["tests"]]
    held = {
        series["series"].partition("{")[0]
        for case in cases
        if case["name"].startswith("healthy")
        for series in case["input_series"]
    }
    assert {name for rule in rules() for name in NAMED.findall(rule["expr"])} - held == set()


def test_the_dashboards_panels_say_what_they_show_in_which_unit_and_do_not_overlap():
    everything = dashboard()["panels"]
    assert len({panel["id"] for panel in everything}) == len(everything)
    for panel in panels():
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    cells = [cells_of(panel["gridPos"]) for panel in everything]
    assert all(one.isdisjoint(other) for one, other in combinations(cells, 2))


def cells_of(place: dict[str, int]) -> set[tuple[int, int]]:
    across, down = range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
    assert across.stop <= 24
    return {(x, y) for x in across for y in down}


def test_the_dashboard_shows_the_chosen_workspaces_alone_and_the_one_operator():
    for where, expr in dashboard_queries():
        for metric in NAMED.findall(expr):
            if metric.startswith("freshgate_operator_"):
                assert "$namespace" not in expr, where
            else:
                matchers = [found["matchers"] for found in SELECTED.finditer(expr) if found["metric"] == metric]
                assert matchers, where
                assert all('namespace=~"$namespace", workspace=~"$workspace"' in each for each in matchers), where


def test_a_legend_speaks_of_labels_that_its_query_keeps():
    for panel in panels():
        for target in panel["targets"]:
            used = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert used <= grouped_by(target["expr"]), panel["title"]


def test_the_chart_brings_rules_and_dashboard_as_they_are_tested():
    templates = ROOT / "helm" / "freshgate" / "templates" / "monitoring"
    assert '.Files.Get "monitoring/rules.yaml"' in (templates / "prometheusrule.yaml").read_text("utf-8")
    assert '.Files.Get "monitoring/dashboard.json"' in (templates / "dashboard.yaml").read_text("utf-8")
