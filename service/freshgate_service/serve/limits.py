"""Shedding: load past a bound is refused before any work is done for it."""

from types import TracebackType

from freshgate_service.domain import Principal
from freshgate_service.errors import Overloaded

MANY_PRINCIPALS = 4096


class Bound:
    """A context manager that lets at most `limit` in at a time."""

    __slots__ = ("_limit", "under_way")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.under_way = 0

    def __enter__(self) -> None:
        if self.under_way >= self._limit:
            raise Overloaded("too many requests are under way")
        self.under_way += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.under_way -= 1


class Limiter:
    """How many requests may be under way, in all and for one principal: who sends them, not on whose behalf."""

    def __init__(self, in_all: int, for_one: int) -> None:
        self.in_all = Bound(in_all)
        self._for_one = for_one
        self._bounds: dict[tuple[str, ...], Bound] = {}

    def of(self, principal: Principal) -> Bound:
        who = (principal.kind, *principal.name)
        bound = self._bounds.get(who)
        if bound is None:
            self._forget_idle()
            bound = self._bounds[who] = Bound(self._for_one)
        return bound

    def _forget_idle(self) -> None:
        if len(self._bounds) >= MANY_PRINCIPALS:
            self._bounds = {who: bound for who, bound in self._bounds.items() if bound.under_way}
