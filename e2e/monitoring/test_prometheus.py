"""A real Prometheus scrapes a real service: what rules, dashboard and runbooks ask for is there, and is true.

The service is the demo's, which has just lived through a story: reads that failed, a scorer that leaked. The operator
has no cluster here; it is its registry that is scraped.
"""

import contextlib
import json
import math
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml
from freshgate_laptop import free_port
from freshgate_monitoring import RULES, chosen, dashboard_queries, recorded, runbook_queries

from freshgate_operator.metrics import Metrics as OperatorMetrics

T = TypeVar("T")

HOST = "127.0.0.1"
FRESHGATE = Path(sys.executable).parent / "freshgate"
START_SECONDS = 120.0
SOON_SECONDS = 30.0
WINDOW = "1m"
Sample = dict[str, Any]


def eventually(look: Callable[[], T], seconds: float = SOON_SECONDS, *, why: Callable[[], object] = lambda: "") -> T:
    """What `look` gives once that is true."""
    until = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < until, why()
        time.sleep(0.2)
    return found


def get(url: str, **headers: str) -> Any:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
        return json.load(answer)


@contextlib.contextmanager
def running(*command: str | Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Ended by its process id, however the context is left."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


# --- what is scraped -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Service:
    data: Path
    port: int
    ops_port: int

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = get(f"http://{HOST}:{self.ops_port}/status")
        return found

    def token(self) -> str:
        who = ["--user", "ana@desk.example", "--group", "emea-support"]
        done = subprocess.run(
            [FRESHGATE, "token", "--data", self.data, *who], capture_output=True, text=True, check=True, timeout=60
        )
        return done.stdout.strip()

    def ask(self, token: str) -> None:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        request = urllib.request.Request(
            f"http://{HOST}:{self.port}/api/v1/search", data=b'{"query": "refund invoice"}', headers=headers
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert json.load(answer)["results"]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("demo")
    log = folder / "log"
    made = Service(folder / "data", free_port(), free_port())
    ports = ["--port", str(made.port), "--ops-port", str(made.ops_port)]
    with running(FRESHGATE, "demo", "--stay", "--data", made.data, *ports, log=log) as process:

        def settled() -> bool:
            assert process.poll() is None, log.read_text()
            return "All of it runs on" in log.read_text()

        eventually(settled, START_SECONDS, why=log.read_text)
        assert "9 of 9 as promised" in log.read_text()
        yield made


@pytest.fixture(scope="module")
def operator_port() -> Iterator[int]:
    metrics = OperatorMetrics()
    metrics.watch_queue(lambda: 0.0, lambda: 0.0)
    metrics.watch_heartbeat(lambda: 4.0)
    metrics.wrote("leases")
    with metrics.reconciling():
        pass

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name that http.server calls
            self.send_response(200)
            self.end_headers()
            self.wfile.write(metrics.render())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join(10)


# --- who scrapes -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prometheus:
    port: int

    def api(self, path: str, **query: str) -> Any:
        answer = get(f"http://{HOST}:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}")
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expr: str) -> list[Sample]:
        """Raises HTTPError where it cannot be parsed."""
        found: list[Sample] = self.api("query", query=expr)["result"]
        return found

    def value(self, expr: str) -> float:
        """Of the one series, once it is there."""
        [sample] = eventually(lambda: self.query(expr), why=lambda: expr)
        return float(sample["value"][1])

    def is_ready(self) -> bool:
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://{HOST}:{self.port}/-/ready", timeout=5) as at,
        ):
            return bool(at.status == 200)
        return False


@pytest.fixture(scope="module")
def prometheus(
    service: Service, operator_port: int, tmp_path_factory: pytest.TempPathFactory, program: Callable[[str], str]
) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("prometheus")
    log = folder / "log"
    (folder / "prometheus.yml").write_text(configuration(service.ops_port, operator_port))
    made = Prometheus(free_port())
    options = [
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={HOST}:{made.port}",
    ]
    with running(program("prometheus"), *options, log=log) as process:

        def ready() -> bool:
            assert process.poll() is None, log.read_text()
            return made.is_ready()

        eventually(ready, why=log.read_text)
        eventually(lambda: len(made.query("up == 1")) == 2, why=lambda: made.query("up"))
        yield made


def configuration(ops_port: int, operator_port: int) -> str:
    jobs = {"service": ops_port, "operator": operator_port}
    scrapes = [{"job_name": job, "static_configs": [{"targets": [f"{HOST}:{port}"]}]} for job, port in jobs.items()]
    every = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    return yaml.safe_dump({"global": every, "rule_files": [str(RULES)], "scrape_configs": scrapes})


@pytest.fixture(scope="module")
def asked(service: Service, prometheus: Prometheus) -> None:
    """Questions were asked between one scrape and another, so that rates are above 0."""
    token = service.token()
    scraped = "count_over_time(freshgate_loop_holder[5m]) >= 2"
    eventually(lambda: prometheus.query(scraped))

    def counted() -> list[Sample]:
        service.ask(token)
        return prometheus.query(f'sum(rate(freshgate_query_duration_seconds_count{{stage="total"}}[{WINDOW}])) > 0')

    eventually(counted)


# --- what is found ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize("query", dashboard_queries(), ids=lambda query: query.where)
def test_a_query_of_the_dashboard_gives_a_series(query: Any, prometheus: Prometheus) -> None:
    expr = chosen(query.expr, window=WINDOW)
    assert eventually(lambda: prometheus.query(expr), why=lambda: expr)


@pytest.mark.usefixtures("asked")
def test_times_of_queries_are_numbers(prometheus: Prometheus) -> None:
    [(_, median), (_, slowest)] = [query for query in dashboard_queries() if "query_duration" in query.expr]
    for expr in (median, slowest):
        samples = prometheus.query(chosen(expr, window=WINDOW))
        values = {sample["metric"]["stage"]: float(sample["value"][1]) for sample in samples}
        assert set(values) == {"entitle", "score", "refresh", "check", "total"}
        assert 0 < values["total"] < 10


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize("name", recorded())
def test_a_recording_rule_gives_a_series(name: str, prometheus: Prometheus) -> None:
    assert eventually(lambda: prometheus.query(name), why=lambda: name)


@pytest.mark.parametrize("query", runbook_queries(), ids=lambda query: query.where)
def test_a_query_of_a_runbook_can_be_asked(query: Any, prometheus: Prometheus) -> None:
    prometheus.query(query.expr)


@pytest.mark.usefixtures("asked")
def test_every_rule_is_evaluated_without_an_error(prometheus: Prometheus) -> None:
    def evaluated() -> list[dict[str, Any]]:
        found = [rule for group in prometheus.api("rules")["groups"] for rule in group["rules"]]
        return found if all(rule["health"] != "unknown" for rule in found) else []

    assert {rule["name"]: rule.get("lastError") for rule in eventually(evaluated) if rule["health"] != "ok"} == {}


@pytest.mark.usefixtures("asked")
def test_the_leak_that_the_demo_plays_alerts_and_nothing_else_does(prometheus: Prometheus) -> None:
    firing = 'ALERTS{alertstate="firing"}'
    [alert] = eventually(lambda: prometheus.query(firing))
    assert alert["metric"]["alertname"] == "FreshgateInvariantViolated"
    assert (alert["metric"]["workspace"], alert["metric"]["severity"]) == ("support", "critical")
    [told] = [one for one in prometheus.api("alerts")["alerts"] if one["state"] == "firing"]
    assert "/support the runtime check found" in told["annotations"]["description"]


def test_replay_37_gauges_and_status_tell_the_same(service: Service, prometheus: Prometheus) -> None:
    def both() -> tuple[object, object]:
        return told_by_status(service.status()), told_by_gauges(prometheus)

    def same() -> bool:
        status, gauges = both()
        return status == gauges

    eventually(same, why=both)
    assert set(told_by_gauges(prometheus)) == {"accounts", "tickets"}


def told_by_status(status: dict[str, Any]) -> dict[str, tuple[int, int, int]]:
    """Of each source: objects, stale ones, and the second of the last success."""
    return {
        row["name"]: (row["objects"], row["stale"], int(datetime.fromisoformat(row["last_success"]).timestamp()))
        for row in status["sources"]
    }


def told_by_gauges(prometheus: Prometheus) -> dict[str, tuple[int, int, int]]:
    def by_source(expr: str) -> dict[str, float]:
        return {sample["metric"]["source"]: float(sample["value"][1]) for sample in prometheus.query(expr)}

    objects = by_source("sum by (source) (freshgate_objects)")
    stale = by_source('sum by (source) (freshgate_objects{state="stale"})')
    success = by_source("freshgate_source_last_success_timestamp_seconds")
    return {name: (int(objects[name]), int(stale[name]), int(success[name])) for name in success if name in objects}


def test_replay_37_the_age_of_a_source_rises_although_nothing_happens(prometheus: Prometheus) -> None:
    age = 'namespace_workspace_source:freshgate_confirmation_age:seconds{source="accounts"}'
    before = prometheus.value(age)
    assert 0 < before < 600
    eventually(lambda: prometheus.value(age) > before + 2)


def test_what_is_left_of_the_entitlements_is_a_share_of_their_validity(prometheus: Prometheus) -> None:
    left = prometheus.value("namespace_workspace:freshgate_entitlements_remaining:ratio")
    assert 0.7 < left <= 1.0
    assert math.isclose(prometheus.value("freshgate_entitlements_max_age_seconds"), 86_400)
