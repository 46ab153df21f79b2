"""Every entrance that an asker can reach, used and misused, and all that a request shows, does and leaves behind.

A request about a name is made of that name alone, so that two of them differ in nothing else.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import quote

from aiohttp.client import URL
from freshgate_serve import Service, served
from freshgate_twins import taken_reads
from freshgate_world import World

from freshgate_crds.compiled import Issuer
from freshgate_service.domain import Asker, Item, ObjectKey, SourceInfo
from freshgate_service.pipeline import Pipeline
from freshgate_service.serve import ops
from freshgate_service.serve.app import Settings
from freshgate_service.serve.listen import listening

ERAS = ("2025-11-25", "2026-07-28")
AUDIT_KEY = b"the same in both worlds"
SEARCH, OBJECTS, MCP = "/api/v1/search", "/api/v1/objects", "/api/mcp"
TELLING = ("object", "search in its source", *(f"fetch {era}" for era in ERAS))
"""Of the requests about a name, those that reach the pipeline by the shortest way."""


# --- what can be asked -----------------------------------------------------------------------------------------------


class Request(NamedTuple):
    """`bearer`: it carries the asker's token. `ops`: it goes to the other port."""

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = {}
    bearer: bool = True
    ops: bool = False


def post(path: str, body: Any, **headers: str) -> Request:
    return Request("POST", path, json.dumps(body).encode(), {"Content-Type": "application/json", **headers})


def rpc(era: str, method: str, params: Mapping[str, Any], **headers: str) -> Request:
    meta = {"io.modelcontextprotocol/protocolVersion": era, "io.modelcontextprotocol/clientCapabilities": {}}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    spoken = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": era}
    if era != ERAS[0]:
        spoken["Mcp-Method"] = method
    return post(MCP, body, **spoken, **headers)


def tool(era: str, name: str, **arguments: Any) -> Request:
    named = {} if era == ERAS[0] else {"Mcp-Name": name}
    return rpc(era, "tools/call", {"name": name, "arguments": arguments}, **named)


def about(key: ObjectKey) -> dict[str, Request]:
    """Everything that can be said with the name of a record, sensible or not."""
    path = f"{quote(key.source, safe='')}/{quote(key.record_id, safe='')}"
    named = {
        "object": Request("GET", f"{OBJECTS}/{path}"),
        "object, deleted": Request("DELETE", f"{OBJECTS}/{path}"),
        "object, beyond it": Request("GET", f"{OBJECTS}/{path}/comments"),
        "object without a token": Request("GET", f"{OBJECTS}/{path}", bearer=False),
        "path that is none": Request("GET", f"/api/v1/{path}"),
        "search for the name": post(SEARCH, {"query": key.text}),
        "search in its source": post(SEARCH, {"query": "refund", "sources": [key.source]}),
        "search with a wrong limit": post(SEARCH, {"query": key.text, "sources": [key.source], "limit": 0}),
        "search with a field more": post(SEARCH, {"query": "refund", "id": key.text}),
        "ops": Request("GET", f"/status/{path}", ops=True),
    }
    for era in ERAS:
        named |= {
            f"fetch {era}": tool(era, "fetch", id=key.text),
            f"fetch with a field more {era}": tool(era, "fetch", id=key.text, source=key.source),
            f"search tool {era}": tool(era, "search", query=key.text, sources=[key.source]),
            f"tool of that name {era}": tool(era, key.source, id=key.record_id),
        }
    return named


def at_large() -> dict[str, Request]:
    """What can be asked without naming a record."""
    return {
        **{f"search {query}": post(SEARCH, {"query": query}) for query in ("refund", "invoice refund", "東京", "zzz")},
        "search for one": post(SEARCH, {"query": "refund webhook", "limit": 1}),
        "search for many": post(SEARCH, {"query": "refund webhook", "limit": 50}),
        "search in several": post(SEARCH, {"query": "refund", "sources": ["accounts", "payroll", "nowhere"]}),
        "sources": Request("GET", "/api/v1/sources"),
        **{f"search tool {era}": tool(era, "search", query="invoice refund", limit=2) for era in ERAS},
        **{f"sources tool {era}": tool(era, "sources") for era in ERAS},
    }


def besides() -> dict[str, Request]:
    """What never comes to the pipeline, sensible or not."""
    return dict([*_documentation(), *_misuses(), *(each for era in ERAS for each in _over_mcp(era))])


def _documentation() -> Iterator[tuple[str, Request]]:
    yield "whoami", Request("GET", "/api/v1/whoami")
    yield "openapi", Request("GET", "/openapi.json", bearer=False)
    yield "where tokens are given", Request("GET", f"/.well-known/oauth-protected-resource{MCP}", bearer=False)


def _misuses() -> Iterator[tuple[str, Request]]:
    for body in (b"", b"{", b"[]", b'{"query": null}', b'{"query": ""}', b'{"query": "refund", "sources": []}'):
        yield f"body {body!r}", Request("POST", SEARCH, body)
    yield "compressed body", post(SEARCH, {"query": "refund"}, **{"Content-Encoding": "gzip"})
    yield "large body", Request("POST", SEARCH, b" " * 300_000)
    yield "no token", post(SEARCH, {"query": "refund"})._replace(bearer=False)
    yield "bad token", Request("GET", "/api/v1/sources", headers={"Authorization": "Bearer x.y.z"}, bearer=False)
    for method, path in (("GET", SEARCH), ("HEAD", "/api/v1/sources"), ("PUT", "/api/v1/whoami"), ("GET", MCP)):
        yield f"{method} {path}", Request(method, path)
    for path in ("/", "/api/v1", f"{OBJECTS}/tickets/", "/api/v1/explain", "/api/v1/export", "/metrics", "/status"):
        yield f"path {path}", Request("GET", path)
    for path in ("/livez", "/readyz", "/metrics", "/status"):
        yield f"ops {path}", Request("GET", path, ops=True)


def _over_mcp(era: str) -> Iterator[tuple[str, Request]]:
    client = {"protocolVersion": era, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    yield f"initialize {era}", rpc(era, "initialize", client)
    yield f"discover {era}", rpc(era, "server/discover", {})
    for method in ("ping", "tools/list", "resources/list", "prompts/list", "logging/setLevel", "no/such"):
        yield f"{method} {era}", rpc(era, method, {})
    yield f"search tool, malformed {era}", tool(era, "search", query="refund", limit="2")
    yield f"sources tool, malformed {era}", tool(era, "sources", of="refund")
    yield f"no such tool {era}", tool(era, "explain", id="tickets/1")
    yield f"no json {era}", rpc(era, "ping", {})._replace(body=b"{")
    yield f"no token {era}", tool(era, "sources")._replace(bearer=False)


# --- what comes of it ------------------------------------------------------------------------------------------------


class Noticed(NamedTuple):
    """All that comes of a request, but for the clock on the wall and how long it took."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    lines: list[dict[str, Any]]
    reads: list[tuple[str, tuple[str, ...]]]
    counted: dict[str, float]

    @property
    def without_the_question(self) -> "Noticed":
        """For requests that differ in the name they ask about: the audit trail keeps a hash of it."""
        return self._replace(
            lines=[{name: each for name, each in line.items() if name != "asked"} for line in self.lines]
        )


def _without(line: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name not in names}


class Visitor:
    """One asker at a service of a world; `who` is the headers that say so."""

    def __init__(self, made: World, service: Service, bell: "Bell", ops_url: str, who: Mapping[str, str]) -> None:
        self._made = made
        self._service = service
        self._bell = bell
        self._ops_url = ops_url
        self._who = who

    async def all(self, requests: Mapping[str, Request]) -> dict[str, Noticed]:
        return {name: await self.ask(request) for name, request in requests.items()}

    async def ask(self, request: Request) -> Noticed:
        self._forget()
        before = self._counts()
        status, headers, body = await self._send(request)
        after = self._counts()
        counted = {name: value - before.get(name, 0) for name, value in after.items() if value != before.get(name, 0)}
        return Noticed(status, headers, body, self._lines(), taken_reads(self._made), counted)

    async def ask_while_reading(self, request: Request) -> Noticed:
        """Lets the reads that are under way end once the request has got as far as it can without them. What those
        count is nobody's request's."""
        self._forget()
        self._bell.rung.clear()
        task = asyncio.create_task(self._send(request))
        ringing = asyncio.create_task(self._bell.rung.wait())
        await asyncio.wait({task, ringing}, return_when=asyncio.FIRST_COMPLETED)
        ringing.cancel()
        for upstream in self._made.upstreams.values():
            upstream.gate.set()
        return Noticed(*await task, self._lines(), taken_reads(self._made), {})

    async def _send(self, request: Request) -> tuple[int, list[tuple[str, str]], bytes]:
        url = self._ops_url if request.ops else self._service.url
        headers = {**(self._who if request.bearer else {}), **request.headers}
        target = URL(url + request.path, encoded=True)
        async with self._service.http.request(
            request.method, target, data=request.body, headers=headers, skip_auto_headers=["Content-Type"]
        ) as response:
            told = [(name, value) for name, value in response.headers.items() if name != "Date"]
            return response.status, told, await response.read()

    def _forget(self) -> None:
        taken_reads(self._made)
        self._service.log.seek(0)
        self._service.log.truncate()

    def _lines(self) -> list[dict[str, Any]]:
        left_out = ("time", "milliseconds")
        return [
            {name: value for name, value in line.items() if name not in left_out} for line in self._service.logged()
        ]

    def _counts(self) -> dict[str, float]:
        """What is counted, of all that is measured: not how long anything took."""
        rendered = self._service.metrics.render() + self._made.metrics.render()
        samples = [line.rpartition(" ") for line in rendered.decode().splitlines() if not line.startswith("#")]
        counts: dict[str, float] = {}
        for name, _, value in samples:
            if name.partition("{")[0].endswith(("_total", "_count")):
                counts[name] = counts.get(name, 0) + float(value)
        return counts


class Bell:
    """A pipeline that rings when it is asked."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self.rung = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pipeline, name)

    async def search(
        self, asker: Asker, query: str, limit: int | None, sources: Sequence[str] | None
    ) -> Sequence[Item]:
        self.rung.set()
        return await self._pipeline.search(asker, query, limit, sources)

    async def fetch(self, asker: Asker, source: str, record_id: str) -> Item | None:
        self.rung.set()
        return await self._pipeline.fetch(asker, source, record_id)

    async def sources(self, asker: Asker) -> Sequence[SourceInfo]:
        self.rung.set()
        return await self._pipeline.sources(asker)


@asynccontextmanager
async def visiting(made: World, issuers: Sequence[Issuer], who: Mapping[str, str]) -> AsyncIterator[Visitor]:
    """A service in front of a world, on both ports."""
    bell = Bell(made.engine.pipeline)
    async with served(bell, issuers, Settings(audit_key=AUDIT_KEY)) as service:
        operations = ops.build(service.metrics, service.verifier, lambda: _status(made), ops.Access("scrape"))
        async with listening(operations, "127.0.0.1", 0) as port:
            yield Visitor(made, service, bell, f"http://127.0.0.1:{port}", who)


def _status(made: World) -> ops.Status:
    sources = [ops.SourceStatus(name, one.objects, one.stale) for name, one in made.engine.census.items()]
    return ops.Status(ready=True, revision=made.config.revision, config_format=made.config.format, sources=sources)
