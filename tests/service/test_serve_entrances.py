"""Every entrance, in two worlds: what is hidden from an asker and what does not exist must be one and the same."""

import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from freshgate_serve import ScriptedPipeline, Service, failed_item, item, served, user

from freshgate_service.domain import Asker, Item

HIDDEN = item("tickets", "hidden-1", title="Secret plan")
SOURCES = [HIDDEN, item("payroll", "1"), failed_item("payroll", "2"), item("tickets", "4711")]


class Request(NamedTuple):
    """One request, of which the names can be filled in."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any = None

    def about(self, source: str, record_id: str) -> "Request":
        def fill(text: str, quoted: bool = False) -> str:
            names = (quote(source), quote(record_id)) if quoted else (source, record_id)
            return text.replace("SOURCE", names[0]).replace("ID", names[1])

        body = json.loads(fill(json.dumps(self.body)))
        return self._replace(path=fill(self.path, quoted=True), body=body)


def tool(name: str, arguments: dict[str, Any], era: str) -> Request:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": name, "arguments": arguments, "_meta": meta}
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": era}
    if era == "2026-07-28":
        headers |= {"Mcp-Method": "tools/call", "Mcp-Name": name}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return Request("POST", "/api/mcp", headers, body)


ENTRANCES = {
    "object": Request("GET", "/api/v1/objects/SOURCE/ID", {}),
    "search within a source": Request("POST", "/api/v1/search", {}, {"query": "plan", "sources": ["SOURCE"]}),
    "search for an id": Request("POST", "/api/v1/search", {}, {"query": "ID", "sources": ["SOURCE"]}),
    "sources": Request("GET", "/api/v1/sources", {}),
    "unknown path": Request("GET", "/api/v1/SOURCE/ID", {}),
    "wrong method": Request("DELETE", "/api/v1/objects/SOURCE/ID", {}),
    "bad request": Request("POST", "/api/v1/search", {}, {"query": "plan", "sources": ["SOURCE"], "limit": 0}),
}
for era in ("2025-11-25", "2026-07-28"):
    ENTRANCES |= {
        f"fetch {era}": tool("fetch", {"id": "SOURCE/ID"}, era),
        f"search tool {era}": tool("search", {"query": "ID", "sources": ["SOURCE"]}, era),
        f"sources tool {era}": tool("sources", {}, era),
        f"bad arguments {era}": tool("fetch", {"id": "SOURCE/ID", "limit": 1}, era),
    }


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    def sees(asker: Asker, found: Item) -> bool:
        return found.key == ("tickets", "4711")

    async with served(ScriptedPipeline(items=SOURCES, sees=sees)) as running:
        yield running


async def outcome(service: Service, request: Request) -> tuple[Any, ...]:
    """All that the asker and the log get, but for the clock and the hash of what was asked."""
    service.log.seek(0)
    service.log.truncate()
    status, headers, body = await service.ask(
        request.method, request.path, user(exp=4_000_000_000, iat=1), json=request.body, headers=request.headers
    )
    headers.pop("Date")
    lines = [{k: v for k, v in line.items() if k not in ("time", "milliseconds", "asked")} for line in service.logged()]
    return status, sorted(headers.items()), body, lines


# replay 10
@pytest.mark.promise("ENT-4")
@pytest.mark.parametrize("entrance", ENTRANCES.values(), ids=ENTRANCES)
@pytest.mark.parametrize(
    ("hidden", "random"),
    [
        (("tickets", "hidden-1"), ("tickets", "random-1")),
        (("payroll", "1"), ("nothing", "1")),
        (("payroll", "2"), ("payroll", "3")),
    ],
)
async def test_hidden_and_random_names_get_the_same_status_headers_bytes_and_log(
    service: Service, entrance: Request, hidden: tuple[str, str], random: tuple[str, str]
):
    one, other = [await outcome(service, entrance.about(*names)) for names in (hidden, random)]
    assert one == other
    assert b"Secret plan" not in one[2]


async def test_what_the_asker_may_see_is_answered_at_every_entrance(service: Service):
    """The matrix above would also hold if nothing were ever answered."""
    for name in ("object", "search within a source", "fetch 2025-11-25", "fetch 2026-07-28"):
        status, _, body, _ = await outcome(service, ENTRANCES[name].about("tickets", "4711"))
        assert (status, b"Refund for order 12" in body) == (200, True), name
