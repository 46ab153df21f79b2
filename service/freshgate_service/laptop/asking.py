"""A question to a running service, and its answer on a terminal."""

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
from rich.console import Console
from rich.table import Table
from rich.text import Text

from freshgate_service.errors import FreshgateError


class NotAnswered(FreshgateError):
    """The service did not answer, or refused; the message says what it said."""


async def ask(
    url: str,
    token: str,
    query: str,
    *,
    on_behalf_of: str | None = None,
    limit: int | None = None,
    sources: Sequence[str] = (),
) -> dict[str, Any]:
    """The answer to a search over REST. Raises NotAnswered."""
    body: dict[str, Any] = {"query": query}
    if limit is not None:
        body["limit"] = limit
    if sources:
        body["sources"] = list(sources)
    headers = {"Authorization": f"Bearer {token}"}
    if on_behalf_of is not None:
        headers["Freshgate-On-Behalf-Of"] = on_behalf_of
    try:
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.post(f"{url.rstrip('/')}/api/v1/search", json=body) as response,
        ):
            answer = await response.json()
            if response.status == 200:
                return dict(answer)
            problem = f"{answer['error']['code']}: {answer['error']['message']}"
            raise NotAnswered(f"{response.status} {printable(problem)}")
    except (aiohttp.ClientError, TimeoutError, KeyError, ValueError) as error:
        raise NotAnswered(f"{url} does not answer as a Freshgate service: {type(error).__name__}") from None


def program() -> str:
    """How the reader can call this program from where they are, to be shown in a hint."""
    if shutil.which("freshgate"):
        return "freshgate"
    called = Path(sys.argv[0])
    return str(called.relative_to(Path.cwd()) if called.is_relative_to(Path.cwd()) else called)


def printable(text: str) -> str:
    """For a terminal: what is no character to be seen is written out, for ids are whatever the source made them."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def table(answer: Mapping[str, Any]) -> None:
    """Prints one row a result. Record text is printed as text, whatever it looks like."""
    rows = Table("object", "title", "score", "matched", "freshness", box=None, pad_edge=False)
    for result in answer["results"]:
        rows.add_row(
            Text(printable(result["id"])),
            Text(printable(result.get("title", "—"))),
            f"{result['score']:.3f}" if "score" in result else "—",
            Text(printable(matches(result.get("matched", [])))),
            Text(printable(freshness(result["freshness"]))),
        )
    console = Console()
    console.print(rows if answer["results"] else "nothing that this asker may see matches")


def matches(matched: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{match['term']} ({match['field']} {match['score']:.2f})" for match in matched)


def freshness(of: Mapping[str, Any]) -> str:
    reason = f": {of['reason']}" if "reason" in of else ""
    return f"{of['state']}{reason} {of['score']:.2f}"
