"""The demo's story: each step acts, observes, and says whether what it observed is what Freshgate promises.

Nothing is staged but the records: the desk is a Postgres of its own, questions go over HTTP and MCP to the same
application that `serve` runs, and reads are counted in the desk's log.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from unittest import mock

import aiohttp
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from prometheus_client.parser import text_string_to_metric_families

from freshgate_service.domain import Scored
from freshgate_service.laptop.demo.desk import Desk
from freshgate_service.runtime import Runtime

TTL_SECONDS = 3.0
"""Of the source `tickets` in the demo's manifests."""


class Step(NamedTuple):
    """What was observed, as a sentence, and whether it is as promised."""

    saw: str
    held: bool


@dataclass(slots=True)
class Stage:
    """Where the story plays."""

    url: str
    ops_url: str
    tokens: dict[str, str] = field(repr=False)
    desk: Desk
    runtime: Runtime
    session: aiohttp.ClientSession

    async def ask(self, who: str, query: str, on_behalf_of: str | None = None) -> tuple[int, dict[str, Any]]:
        """Status and body of a search over REST."""
        headers = {"Authorization": f"Bearer {self.tokens[who]}"}
        if on_behalf_of is not None:
            headers["Freshgate-On-Behalf-Of"] = self.tokens[on_behalf_of]
        async with self.session.post(f"{self.url}/api/v1/search", json={"query": query}, headers=headers) as response:
            return response.status, await response.json()

    async def ask_over_mcp(self, who: str, query: str) -> list[dict[str, Any]]:
        """The results of the tool `search`, through the MCP SDK's own client."""
        headers = {"Authorization": f"Bearer {self.tokens[who]}"}
        async with (
            httpx2.AsyncClient(headers=headers) as http,
            Client(streamable_http_client(f"{self.url}/api/mcp", http_client=http)) as client,
        ):
            result = await client.call_tool("search", {"query": query})
            return list((result.structured_content or {}).get("results", []))

    async def age(self) -> None:
        """Waits until every ticket is past its TTL."""
        await asyncio.sleep(TTL_SECONDS + 0.2)

    async def condensed(self) -> float:
        """Records condensed so far, as Prometheus would be told."""
        async with self.session.get(f"{self.ops_url}/metrics") as response:
            families = text_string_to_metric_families(await response.text())
            return sum(s.value for f in families for s in f.samples if s.name == "freshgate_condensations_total")


def _ids(answer: dict[str, Any]) -> list[str]:
    return [result["id"] for result in answer.get("results", [])]


def _item(answer: dict[str, Any], object_id: str) -> dict[str, Any]:
    return next((result for result in answer.get("results", []) if result["id"] == object_id), {})


def _state(item: dict[str, Any]) -> str:
    return str(item.get("freshness", {}).get("state", "absent"))


async def entitled_asker(stage: Stage) -> Step:
    """Ana supports EMEA: she is answered from EMEA's records, with matched terms and freshness."""
    status, answer = await stage.ask("ana", "refund invoice")
    item = _item(answer, "tickets/101")
    terms = [f"{match['term']} in {match['field']} {match['score']:.2f}" for match in item.get("matched", [])]
    total = sum(match["score"] for match in item.get("matched", []))
    held = status == 200 and total == item.get("score") and "tickets/105" not in _ids(answer)
    return Step(
        f"{', '.join(_ids(answer))}; first “{item.get('title')}”, {_state(item)}, "
        f"score {item.get('score', 0):.2f} = {' + '.join(terms)}",
        held and _state(item) in ("fresh", "refreshed"),
    )


async def entitled_agent(stage: Stage) -> Step:
    """An agent asks the same over MCP, as Ana, and gets the same."""
    results = await stage.ask_over_mcp("ana", "refund invoice")
    _, answer = await stage.ask("ana", "refund invoice")
    ids = [result["id"] for result in results]
    return Step(f"{', '.join(ids)} by the tool `search`", bool(ids) and ids == _ids(answer))


async def on_behalf(stage: Stage) -> Step:
    """The helper bot sees nothing as itself, and EMEA's records while it acts for Ana."""
    _, alone = await stage.ask("helper", "refund invoice")
    _, acting = await stage.ask("helper", "refund invoice", on_behalf_of="ana")
    held = not _ids(alone) and "tickets/101" in _ids(acting)
    return Step(f"alone {len(_ids(alone))} results, for Ana {', '.join(_ids(acting))}", held)


async def unentitled_asker(stage: Stage) -> Step:
    """Zoe has no grant: no answer, and not one read of the desk, although every ticket is past its TTL."""
    await stage.age()
    before = stage.desk.reads()
    status, answer = await stage.ask("zoe", "refund invoice")
    caused = stage.desk.reads() - before
    return Step(
        f"{len(_ids(answer))} results, {caused} source reads in Postgres's log",
        (status, answer, caused) == (200, {"results": []}, 0),
    )


async def changed_upstream(stage: Stage) -> Step:
    """A ticket is changed at the desk: past its TTL it is read again before it is served, and served changed."""
    await stage.desk.change("UPDATE tickets SET subject = 'Refund approved for the duplicate invoice' WHERE id = 101")
    await stage.age()
    before = stage.desk.reads()
    _, answer = await stage.ask("ana", "refund invoice")
    item = _item(answer, "tickets/101")
    held = item.get("title") == "Refund approved for the duplicate invoice" and _state(item) == "refreshed"
    return Step(f"“{item.get('title')}”, {_state(item)}, by {stage.desk.reads() - before} source read", held)


async def unchanged_upstream(stage: Stage) -> Step:
    """Nothing changed: the records are read again, confirmed, and not condensed again."""
    await stage.age()
    condensed, before = await stage.condensed(), stage.desk.reads()
    _, answer = await stage.ask("ana", "webhook")
    item = _item(answer, "tickets/103")
    cost, reads = await stage.condensed() - condensed, stage.desk.reads() - before
    return Step(
        f"tickets/103 {_state(item)} by {reads} source read, {cost:.0f} condensations",
        _state(item) == "refreshed" and cost == 0 and reads == 1,
    )


async def moved_out_of_reach(stage: Stage) -> Step:
    """Ticket 103 moves to an American account: gone for Ana with the read that confirms it, there for Bob."""
    await stage.desk.change("UPDATE tickets SET account_id = 4 WHERE id = 103")
    await stage.age()
    condensed = await stage.condensed()
    _, hers = await stage.ask("ana", "webhook")
    _, his = await stage.ask("bob", "webhook")
    cost = await stage.condensed() - condensed
    held = "tickets/103" not in _ids(hers) and "tickets/103" in _ids(his) and cost == 0
    return Step(
        f"Ana: {', '.join(_ids(hers)) or 'nothing'}; Bob: {', '.join(_ids(his))}; {cost:.0f} condensations", held
    )


async def source_stopped(stage: Stage) -> Step:
    """The desk's Postgres is stopped: no old answer passes for a current one."""
    await stage.desk.stop()
    await stage.age()
    _, answer = await stage.ask("ana", "refund invoice")
    await stage.desk.start()
    item = _item(answer, "tickets/101")
    bare = set(item) == {"id", "source_name", "freshness"}
    reason = item.get("freshness", {}).get("reason")
    return Step(
        f"tickets/101 {_state(item)}: {reason}, and nothing else of it", _state(item) == "stale_refresh_failed" and bare
    )


async def leaking_scorer(stage: Stage) -> Step:
    """A scorer that leaks is put in the place of the real one: the border check lets no answer out."""
    memory = stage.runtime.engine.memory

    def leak(*_: object) -> list[Scored]:
        return [Scored(key, 1.0, ()) for key in memory.objects]

    with mock.patch.object(memory, "top", leak):
        status, answer = await stage.ask("zoe", "refund invoice")
    _, after = await stage.ask("zoe", "refund invoice")
    code = answer.get("error", {}).get("code")
    return Step(
        f"{status} {code}, then again {len(_ids(after))} results",
        status == 500 and not _ids(answer) and after == {"results": []},
    )


STEPS: tuple[Callable[[Stage], Awaitable[Step]], ...] = (
    entitled_asker,
    entitled_agent,
    on_behalf,
    unentitled_asker,
    changed_upstream,
    unchanged_upstream,
    moved_out_of_reach,
    source_stopped,
    leaking_scorer,
)
