"""Finds access classes by what policies ask of them, without a look at any other class.

What it finds is a superset of what the policies allow: it proposes and `decide` disposes. It must never propose too
few, and must not walk over classes that no rule of the asker could allow.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TypeVar

from freshgate_crds.compiled import Operator, Scalar
from freshgate_service.domain import Access, Name
from freshgate_service.entitle.decide import Clause, Demand, Party
from freshgate_service.entitle.values import ByType, Typed, is_present, scalars

Posting = set[int]
"""Ids of the classes that share something; never empty."""

Key = TypeVar("Key")


class Index:
    """Postings by source, by typed attribute value, by the beginning of a string, and by reader."""

    def __init__(self) -> None:
        self._by_source: defaultdict[str, Posting] = defaultdict(set)
        self._by_reader: defaultdict[tuple[str, str, Name], Posting] = defaultdict(set)
        self._columns: defaultdict[tuple[str, str], _Column] = defaultdict(_Column)

    def add(self, class_id: int, access: Access) -> None:
        self._by_source[access.source].add(class_id)
        for reader in _readers(access):
            self._by_reader[reader].add(class_id)
        for attribute, values in _present(access):
            self._columns[access.source, attribute].add(class_id, values)

    def remove(self, class_id: int, access: Access) -> None:
        _discard(self._by_source, access.source, class_id)
        for reader in _readers(access):
            _discard(self._by_reader, reader, class_id)
        for attribute, values in _present(access):
            column = self._columns[access.source, attribute]
            column.remove(class_id, values)
            if not column.present:
                del self._columns[access.source, attribute]

    def candidates(self, parties: Iterable[Party]) -> set[int]:
        """All classes that every party could be allowed, looked up for the party that could be allowed the fewest."""
        return set().union(*_narrowest([self._allowed(party) for party in parties]))

    def _allowed(self, party: Party) -> Iterator[Posting]:
        for clause in party.allows:
            for source in clause.rule.sources:
                yield from _narrowest(list(self._routes(clause, source, party)))

    def _routes(self, clause: Clause, source: str, party: Party) -> Iterator[Iterator[Posting]]:
        """The ways to all that the clause could allow: by any one of the things that it demands."""
        if clause.rule.everything:
            yield _found(self._by_source, (source,))
        if clause.rule.asker_must_be_reader:
            yield _found(self._by_reader, _reader_names(source, party))
        for demand in clause.demands:
            column = self._columns.get((source, demand.attribute))
            yield iter(()) if column is None else column.matching(demand)


class _Column:
    """The values of one attribute in one source, apart by their type."""

    def __init__(self) -> None:
        self.present: Posting = set()
        self._by_value: defaultdict[str, dict[Scalar, Posting]] = defaultdict(dict)
        self._texts: list[str] = []

    def add(self, class_id: int, values: Iterable[Typed]) -> None:
        self.present.add(class_id)
        for kind, value in values:
            postings = self._by_value[kind]
            if value not in postings:
                postings[value] = set()
                if isinstance(value, str):
                    insort(self._texts, value)
            postings[value].add(class_id)

    def remove(self, class_id: int, values: Iterable[Typed]) -> None:
        self.present.discard(class_id)
        for kind, value in values:
            postings = self._by_value[kind]
            _discard(postings, value, class_id)
            if value not in postings and isinstance(value, str):
                del self._texts[bisect_left(self._texts, value)]

    def matching(self, demand: Demand) -> Iterator[Posting]:
        if demand.operator is Operator.EXISTS:
            return iter((self.present,))
        if demand.values is None:
            return iter(())
        match demand.operator:
            case Operator.NOT_IN:
                return self._outside(demand.values)
            case Operator.PREFIX_OF:
                return self._beginning_with(demand.values.get("string", ()))
            case _:
                return self._among(demand.values)

    def _among(self, values: ByType) -> Iterator[Posting]:
        for kind, wanted in values.items():
            yield from _found(self._by_value[kind], wanted)

    def _outside(self, values: ByType) -> Iterator[Posting]:
        for kind, unwanted in values.items():
            yield from (posting for value, posting in self._by_value[kind].items() if value not in unwanted)

    def _beginning_with(self, prefixes: Iterable[Scalar]) -> Iterator[Posting]:
        for prefix in map(str, prefixes):
            for place in range(bisect_left(self._texts, prefix), len(self._texts)):
                text = self._texts[place]
                if not text.startswith(prefix):
                    break
                yield self._by_value["string"][text]


def _present(access: Access) -> Iterator[tuple[str, frozenset[Typed]]]:
    """The attributes that have a value, with what can be compared of it."""
    for attribute, value in access.attributes.items():
        if is_present(value):
            yield attribute, frozenset(scalars(value) or ())


def _readers(access: Access) -> Iterator[tuple[str, str, Name]]:
    yield from ((access.source, "user", name) for name in access.readers.users)
    yield from ((access.source, "group", name) for name in access.readers.groups)


def _reader_names(source: str, party: Party) -> Iterator[tuple[str, str, Name]]:
    yield source, "user", party.principal.name
    yield from ((source, "group", name) for name in party.principal.groups)


def _narrowest(routes: list[Iterator[Posting]]) -> list[Posting]:
    """The postings of the route that leads to the fewest classes.

    All are followed at once, always the one with the least so far, until one ends. So the choice costs no more than
    what it finds, times the number of routes, however much the others hold.
    """
    taken: list[list[Posting]] = [[] for _ in routes]
    sizes = [0] * len(routes)
    while routes:
        least = sizes.index(min(sizes))
        posting = next(routes[least], None)
        if posting is None:
            return taken[least]
        taken[least].append(posting)
        sizes[least] += len(posting)
    return []


def _found(postings: dict[Key, Posting], keys: Iterable[Key]) -> Iterator[Posting]:
    return (postings[key] for key in keys if key in postings)


def _discard(postings: dict[Key, Posting], key: Key, class_id: int) -> None:
    posting = postings[key]
    posting.discard(class_id)
    if not posting:
        del postings[key]
