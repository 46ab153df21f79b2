"""The scorer that says what is right: total, plain, and never used to answer.

Every object gets a score, and one that the asker may not see gets exactly 0.0. Nothing of such an object is looked at:
the statistics are counted over the others alone. It must stay so simple that reading it is proof enough; speed is the
fast scorer's business, which has to give the same floats.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from freshgate_service.domain import Match, ObjectKey, Scored
from freshgate_service.score.bm25f import K1, MAX_FREQUENCY, QUANTUM, B, Weights, idf

FIELDS = ("title", "body")


class Analysed(NamedTuple):
    """One object as the analyser reads it: the terms of each field."""

    key: ObjectKey
    title: Sequence[str]
    body: Sequence[str]

    def field(self, name: str) -> Sequence[str]:
        return self.title if name == "title" else self.body


def score_all(
    query_terms: Sequence[str],
    documents: Sequence[Analysed],
    entitled: Callable[[ObjectKey], bool],
    weights: Weights,
) -> dict[ObjectKey, Scored]:
    """`query_terms` are distinct."""
    visible = {document.key: document for document in documents if entitled(document.key)}
    slice_ = _Slice(list(visible.values()), weights)
    return {
        document.key: slice_.scored(document, query_terms) if document.key in visible else Scored(document.key, 0.0, ())
        for document in documents
    }


def cut(scored: Mapping[ObjectKey, Scored], limit: int) -> list[Scored]:
    """What is answered: the only filter there is."""
    matching = [one for one in scored.values() if one.score > 0]
    return sorted(matching, key=_best_first)[:limit]


def _best_first(one: Scored) -> tuple[float, str]:
    return -one.score, one.key.text


class _Slice:
    """The objects that one asker may see, and the only ones whose words count for anything."""

    def __init__(self, documents: Sequence[Analysed], weights: Weights) -> None:
        self._documents = documents
        self._weights = {"title": weights.title, "body": weights.body}
        self._average = {name: _mean(len(document.field(name)) for document in documents) for name in FIELDS}
        self._having: dict[str, int] = {}

    def scored(self, document: Analysed, query_terms: Sequence[str]) -> Scored:
        matched = tuple(match for term in query_terms for match in self._matches(term, document))
        return Scored(document.key, sum(match.score for match in matched), matched)

    def _matches(self, term: str, document: Analysed) -> Iterator[Match]:
        weighted = {name: self._weighted(term, document, name) for name in FIELDS}
        for name in FIELDS:
            if weighted[name] > 0:
                share = self._idf(term) * weighted[name] / (K1 + (weighted["title"] + weighted["body"]))
                yield Match(term, name, max(1, round(share / QUANTUM)) * QUANTUM)

    def _weighted(self, term: str, document: Analysed, name: str) -> float:
        frequency = min(document.field(name).count(term), MAX_FREQUENCY)
        if frequency == 0:
            return 0.0
        length_norm = (1 - B) + B * len(document.field(name)) / self._average[name]
        return self._weights[name] * frequency / length_norm

    def _idf(self, term: str) -> float:
        if term not in self._having:
            self._having[term] = sum(term in document.title or term in document.body for document in self._documents)
        return idf(len(self._documents), self._having[term])


def _mean(lengths: Iterable[int]) -> float:
    counted = list(lengths)
    return sum(counted) / len(counted) if counted else 0.0
