"""Answers over HTTP: the service as its image runs it, and a bare server that gives the same answers.

Both run all the time and are asked in turns, so that their rates can be compared whatever else the machine does.
"""

import asyncio
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from freshgate_bench import postgres, processes, stored
from freshgate_bench.corpus import Question, entries, questions
from freshgate_bench.load import CONNECTIONS, Round, generator, request
from freshgate_bench.measure import figure, progress, ratio_of
from freshgate_bench.rows import Row

OBJECTS = 1_000
QUESTIONS = 64
REST_BAR, MCP_BAR = 0.50, 0.75
Headers = Sequence[tuple[str, str]]

LEGACY, MODERN = "2025-11-25", "2026-07-28"
VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"


class Pair(NamedTuple):
    service: processes.Server
    bare: processes.Server
    token: str
    asked: Sequence[Question]


class Target(NamedTuple):
    """One server, and the requests that it is sent."""

    server: processes.Server
    requests: Sequence[bytes]


def run_rest(*, quick: bool) -> Iterator[Row]:
    with _pair("rest") as pair:
        targets = {
            "freshgate": _target(pair.service, pair, _rest_request, _bearer(pair.token)),
            "bare": _target(pair.bare, pair, _rest_request),
            "bare, with orjson": _target(pair.bare, pair, _lean_request),
        }
        yield _row("rest", "REST answer, nothing stale", targets, REST_BAR, quick=quick)


def run_mcp(*, quick: bool) -> Iterator[Row]:
    with _pair("mcp") as pair:
        for version, form, bar in ((MODERN, _modern_call, MCP_BAR), (LEGACY, _legacy_call, None)):
            targets = {
                "freshgate": _target(pair.service, pair, form, _bearer(pair.token)),
                "bare": _target(pair.bare, pair, form),
            }
            yield _row("mcp", f"MCP tools/call, {version}", targets, bar, quick=quick)


def _target(
    server: processes.Server, pair: Pair, form: Callable[[str, Headers], bytes], headers: Headers = ()
) -> Target:
    return Target(server, [form(question.text, headers) for question in pair.asked])


@contextmanager
def _pair(kind: str) -> Iterator[Pair]:
    asked = questions(list(entries(OBJECTS)), QUESTIONS)
    with tempfile.TemporaryDirectory(prefix="fgb-") as made, postgres.server() as dsn:
        folder, token, config = Path(made), stored.token(), stored.config()
        store = postgres.database(dsn, "store")
        asyncio.run(stored.fill(store, config, list(entries(OBJECTS))))
        stored.publish(folder / "published", config, store)
        with processes.freshgate(folder / "published", folder / "service.log") as service:
            answers = {question.text: _answer(service, token, question.text) for question in asked}
            (folder / "answers.json").write_bytes(orjson.dumps(answers))
            command = (sys.executable, "-m", "freshgate_bench.bare", kind, "{port}", str(folder / "answers.json"))
            with processes.running(*command, log=folder / "bare.log") as bare:
                bare.wait_ready(bare.port, "/readyz")
                yield Pair(service, bare, token, asked)


def _answer(service: processes.Server, token: str, query: str) -> Any:
    body = orjson.dumps({"query": query})
    headers = (*_bearer(token), ("Content-Type", "application/json"))
    answer = orjson.loads(processes.ask(service.port, "POST", "/api/v1/search", body, headers))
    if any(result["freshness"]["state"] != "fresh" for result in answer["results"]) or not answer["results"]:
        raise RuntimeError("an answer is empty or not fresh")
    return answer


def _row(bench: str, name: str, targets: Mapping[str, Target], bar: float | None, *, quick: bool) -> Row:
    """`bar` is for the ratio of the service's rate to that of `bare`."""
    rounds, seconds = (3, 1.0) if quick else (10, 2.0)
    results: dict[str, list[Round]] = {each: [] for each in targets}
    cpu = dict.fromkeys(targets, 0.0)
    with generator() as load:
        for server, asked in targets.values():
            load.run(server.port, asked, seconds)
        for _ in progress(range(rounds), name):
            for each, (server, asked) in targets.items():
                before = server.cpu_seconds
                results[each].append(load.run(server.port, asked, seconds))
                cpu[each] += server.cpu_seconds - before
    rates = {each: [round_.rate for round_ in of] for each, of in results.items()}
    ratio, interval = ratio_of(rates["freshgate"], rates["bare"])
    figures = {each: figure(of, with_p99=False) for each, of in rates.items()}
    return Row(
        bench,
        name,
        OBJECTS,
        "/s",
        figures.pop("freshgate"),
        figures,
        ratio,
        interval,
        None if bar is None else f"≥ {bar:.0%} of the bare one's rate",
        None if bar is None else ratio >= bar,
        _notes(results, cpu),
    )


def _notes(results: Mapping[str, Sequence[Round]], cpu: Mapping[str, float]) -> dict[str, float]:
    """The processor's time for an answer says the same as a rate, and other work on the machine hardly moves it."""
    cost = {name: cpu[name] / sum(len(each.latencies) for each in of) * 1e6 for name, of in results.items()}
    latencies = {name: figure([x * 1e3 for each in of for x in each.latencies]) for name, of in results.items()}
    return {
        "connections": CONNECTIONS,
        **{f"{name}: processor time an answer, µs": value for name, value in cost.items()},
        **{f"{name}: latency p99, ms": value.p99 or 0.0 for name, value in latencies.items()},
        **{
            f"{name} to freshgate, by processor time": cost[name] / cost["freshgate"]
            for name in cost
            if name != "freshgate"
        },
    }


# --- requests --------------------------------------------------------------------------------------------------------


def _bearer(token: str) -> Headers:
    return (("Authorization", f"Bearer {token}"),)


def _rest_request(query: str, headers: Headers) -> bytes:
    return request("/api/v1/search", orjson.dumps({"query": query}), headers)


def _lean_request(query: str, headers: Headers) -> bytes:
    return request("/lean", orjson.dumps({"query": query}), headers)


def _modern_call(query: str, headers: Headers) -> bytes:
    """No handshake: every request says what it speaks."""
    meta = {VERSION: MODERN, CAPABILITIES: {}}
    return _call(query, {"_meta": meta}, (*headers, ("Mcp-Method", "tools/call"), ("Mcp-Name", "search")), MODERN)


def _legacy_call(query: str, headers: Headers) -> bytes:
    return _call(query, {}, headers, LEGACY)


def _call(query: str, more: Mapping[str, Any], headers: Headers, version: str) -> bytes:
    params = {"name": "search", "arguments": {"query": query}, **more}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    accept = ("Accept", "application/json, text/event-stream")
    return request("/api/mcp", orjson.dumps(body), (*headers, accept, ("MCP-Protocol-Version", version)))
