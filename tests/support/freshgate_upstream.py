"""A Postgres as a system of record, seen from its own side: what it was asked, by its own log.

A source's `fetch` names itself in a comment, `/* read tickets */`, and its database logs every statement (`LOGGED`), so
that a read is known by what the server wrote down and not by what the service says of itself.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

LOGGED = "ALTER DATABASE {database} SET log_statement = 'all'"

_ENTRY = re.compile(r"^\d{4}-\d\d-\d\d [^\[\n]*\[(\d+)\] (\w+):  ", re.MULTILINE)
_READ = re.compile(r"/\* read (\w+) \*/")
_IDS = re.compile(r"\$1 = '\{(.*)\}'", re.DOTALL)


class Read(NamedTuple):
    """One `fetch` that ran, with the ids that it asked for."""

    source: str
    ids: frozenset[str]


class ServerLog:
    """The log of a server, from now on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = 0
        self.forget()

    def forget(self) -> None:
        """Takes what was logged so far for another story."""
        self._seen = self._path.stat().st_size

    def reads(self) -> list[Read]:
        return list(self._reads())

    def _reads(self) -> Iterator[Read]:
        """A statement and its parameters are two entries, between which other sessions may write."""
        begun: dict[str, str] = {}
        for process, kind, text in self._entries():
            found = _READ.search(text)
            if kind == "LOG" and found and text.startswith("execute"):
                begun[process] = found[1]
            elif kind == "DETAIL" and process in begun and (ids := _IDS.search(text)):
                yield Read(begun.pop(process), frozenset(re.findall(r'[^,"]+', ids[1])))

    def _entries(self) -> Iterator[tuple[str, str, str]]:
        """Process, kind and text of each."""
        with self._path.open("rb") as log:
            log.seek(self._seen)
            _, *parts = _ENTRY.split(log.read().decode(errors="replace"))
        return zip(parts[::3], parts[1::3], parts[2::3], strict=True)
