"""Shedding: load past a bound is refused before any work is done for it."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from freshgate_service.domain import Principal
from freshgate_service.errors import Overloaded


class Limiter:
    """How many requests are under way, in all and for one principal: who sends them, not on whose behalf."""

    def __init__(self, in_all: int, for_one: int) -> None:
        self._in_all = in_all
        self._for_one = for_one
        self._under_way = 0
        self._by_principal: Counter[tuple[str, ...]] = Counter()

    @contextmanager
    def place(self) -> Iterator[None]:
        if self._under_way >= self._in_all:
            raise Overloaded("too many requests in all")
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    @contextmanager
    def place_of(self, principal: Principal) -> Iterator[None]:
        who = (principal.kind, *principal.name)
        if self._by_principal[who] >= self._for_one:
            raise Overloaded("too many requests of one principal")
        self._by_principal[who] += 1
        try:
            yield
        finally:
            self._by_principal[who] -= 1
            if not self._by_principal[who]:
                del self._by_principal[who]
