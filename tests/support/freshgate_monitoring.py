"""The chart's monitoring as data: rules, alerts, dashboard queries, and the queries that runbooks show."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).resolve().parents[2]
MONITORING = ROOT / "helm" / "freshgate" / "monitoring"
RULES = MONITORING / "rules.yaml"
CASES = sorted((MONITORING / "tests").glob("*.yaml"))
RUNBOOKS = sorted((ROOT / "docs" / "runbooks").glob("*.md"))

_SHOWN = re.compile(r"^```promql\n(?P<queries>.*?)^```$", re.DOTALL | re.MULTILINE)

Rule = Mapping[str, Any]


class Query(NamedTuple):
    """`where` names the panel or the page."""

    where: str
    expr: str


def rules() -> list[Rule]:
    return [rule for group in yaml.safe_load(RULES.read_text("utf-8"))["groups"] for rule in group["rules"]]


def alerts() -> dict[str, Rule]:
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def recorded() -> dict[str, Rule]:
    return {rule["record"]: rule for rule in rules() if "record" in rule}


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text("utf-8"))
    return found


def panels() -> list[dict[str, Any]]:
    """Those that show something."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def dashboard_queries() -> list[Query]:
    return [Query(panel["title"], target["expr"]) for panel in panels() for target in panel["targets"]]


def runbook_queries() -> list[Query]:
    return [Query(page.stem, expr) for page in RUNBOOKS for expr in _shown(page.read_text("utf-8"))]


def _shown(page: str) -> Iterator[str]:
    for block in _SHOWN.finditer(page):
        yield from block["queries"].splitlines()


def chosen(expr: str, *, window: str) -> str:
    """As Grafana asks it, with All chosen and `window` for the time between points."""
    return re.sub(r"\$(namespace|workspace)", ".*", expr).replace("$__rate_interval", window)
