"""The scorer that answers: the non-zero part of what the reference says, to the last bit, in microseconds.

A view indexes one entitled slice and is told of nothing else, so neither its scores nor its costs can depend on what
the asker may not see. It must not decide who may see what, nor let an object that left the slice count for anything.
"""

from collections.abc import Iterable, Sequence
from copy import copy
from math import isqrt
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from freshgate_service.domain import Match, ObjectKey, Scored
from freshgate_service.score.bm25f import K1, QUANTUM, B, Weights, idf
from freshgate_service.score.documents import Document, Vocabulary
from freshgate_service.score.segments import Postings, Segment

Floats = NDArray[np.float64]
Places = NDArray[np.intp]

_LEADERS = 50
"""How many of a term's best scores are kept: no answer is longer. A longer cut is right too, only slower."""

_SPARE_BYTES = 4 << 20
"""What the impacts that an index remembers may take beyond its size. All that it can have take three times as much."""

_match, _scored = Match._make, Scored._make  # a third faster than the constructors, and a query makes dozens


class View:
    """One entitled slice: a large segment, and a small one of the documents that came or changed since it was built."""

    def __init__(
        self, documents: Iterable[tuple[ObjectKey, Document]], weights: Weights, vocabulary: Vocabulary
    ) -> None:
        self._weights = weights
        self._vocabulary = vocabulary
        self._base = Segment(dict(documents))
        self._changed: dict[ObjectKey, Document] = {}
        self._index: _Index | None = None

    def replace(self, key: ObjectKey, document: Document | None) -> None:
        """The object changed, joined the slice, or (None) left it."""
        self._base.bury(key)
        if document is None:
            self._changed.pop(key, None)
        else:
            self._changed[key] = document
        self._index = None

    def fork(self) -> Self:
        """A view of the same slice that changes on its own; it shares the large segment, so it costs the small one."""
        other = copy(self)
        other._base, other._changed, other._index = self._base.fork(), self._changed.copy(), None  # noqa: SLF001 - own copy
        return other

    def top(self, query_terms: Sequence[str], limit: int) -> list[Scored]:
        """The best `limit` objects that match any of the distinct `query_terms`; equal scores in the order of ids."""
        if self._index is None:
            self._index = self._indexed()
        return self._index.top(query_terms, limit)

    @property
    def nbytes(self) -> int:
        """An estimate, without the documents, which all views share."""
        return self._base.nbytes if self._index is None else self._index.nbytes

    def _indexed(self) -> "_Index":
        # A change costs the small segment's size, and building anew costs the large one's once in so many changes:
        # the square root balances the two.
        if len(self._changed) + self._base.dead > 64 + 8 * isqrt(len(self._base)):
            self._base = Segment(dict(self._base.documents()) | self._changed)
            self._changed = {}
        return _Index(self._base, Segment(self._changed), self._weights, self._vocabulary)


class _Impact(NamedTuple):
    """One term's scores, and what the titles add to them."""

    places: Places
    scores: Floats
    titles: Floats
    leaders: list[float]

    @property
    def nbytes(self) -> int:
        return self.places.nbytes + self.scores.nbytes + self.titles.nbytes + 32 * len(self.leaders)


class _Index:
    """A slice between two changes: its statistics, and the impacts of the terms that were asked for. A place is a place
    in the base, or, past its end, in the overlay. What there is of both fields has two rows, title and body."""

    def __init__(self, base: Segment, overlay: Segment, weights: Weights, vocabulary: Vocabulary) -> None:
        self._base = base
        self._overlay = overlay
        self._weights = np.array([[weights.title], [weights.body]])
        self._vocabulary = vocabulary
        live = np.concatenate((base.live, overlay.live))
        self._count = int(live.sum())
        self._norms = _norms(np.concatenate((base.lengths, overlay.lengths), axis=1), live, self._count)
        self._impacts: dict[str, _Impact] = {}
        self._keys = base.keys + overlay.keys
        self._own_bytes = base.nbytes + overlay.nbytes + self._norms.nbytes + 8 * len(self._keys)
        self._impact_bytes = 0

    @property
    def nbytes(self) -> int:
        return self._own_bytes + self._impact_bytes

    def top(self, query_terms: Sequence[str], limit: int) -> list[Scored]:
        impacts = [(term, impact) for term in query_terms if (impact := self._impact(term)) is not None]
        if not impacts:
            return []
        scores = np.zeros(len(self._keys))
        for _, impact in impacts:
            np.add.at(scores, impact.places, impact.scores)
        # That many objects reach a term's limit-th best score by that term alone, so the cut cannot lie below it.
        floor = max(
            (impact.leaders[limit - 1] for _, impact in impacts if len(impact.leaders) >= limit), default=QUANTUM
        )
        best = self._best(scores, (scores >= floor).nonzero()[0], limit)
        return self._explained(best, scores[best].tolist(), impacts)

    def _best(self, scores: Floats, candidates: Places, limit: int) -> Places:
        """The best `limit` of the candidates, which ascend and hold every object whose score reaches the cut."""
        if len(candidates) > 10 * limit:  # fewer are sorted sooner than thinned out
            values = scores[candidates]
            candidates = candidates[values >= np.partition(values, -limit)[-limit]]
        if not len(self._overlay):
            return _ranked(scores, candidates, limit)
        border = candidates.searchsorted(len(self._base))
        both = np.append(_ranked(scores, candidates[:border], limit), _ranked(scores, candidates[border:], limit))
        ids = [self._keys[place].text for place in both.tolist()]
        return both[np.lexsort((np.array(ids), -scores[both]))[:limit]]

    def _explained(self, best: Places, totals: list[float], impacts: list[tuple[str, _Impact]]) -> list[Scored]:
        places = best.tolist()
        matched: list[list[Match]] = [[] for _ in places]
        for term, impact in impacts:
            at = impact.places.searchsorted(best)
            found = impact.places.take(at, mode="clip").tolist()
            scores = impact.scores.take(at, mode="clip").tolist()
            titles = impact.titles.take(at, mode="clip").tolist()
            for matches, place, there, score, title in zip(matched, places, found, scores, titles, strict=True):
                if there == place:
                    if title:
                        matches.append(_match((term, "title", title)))
                    if score > title:
                        matches.append(_match((term, "body", score - title)))
        return [
            _scored((self._keys[place], total, tuple(matches)))
            for place, total, matches in zip(places, totals, matched, strict=True)
        ]

    def _impact(self, term: str) -> _Impact | None:
        """None where the slice does not have the term, whether or not other objects do; that is not remembered."""
        impact = self._impacts.get(term)
        if impact is None:
            postings = self._postings(self._vocabulary.number(term))
            if len(postings.places):
                impact = self._weighed(postings)
                self._remember(term, impact)
        return impact

    def _postings(self, number: int) -> Postings:
        base = self._base.postings(number)
        if not len(self._overlay):
            return base
        overlay = self._overlay.postings(number)
        return Postings(
            np.append(base.places, overlay.places + np.uint32(len(self._base))),
            np.append(base.frequencies, overlay.frequencies, axis=1),
        )

    def _weighed(self, postings: Postings) -> _Impact:
        """The formula over all objects that have the term, with the reference's operations in the reference's order."""
        places = postings.places.astype(np.intp)
        weighted = self._weights * postings.frequencies / self._norms.take(places, axis=1)
        saturation = K1 + (weighted[0] + weighted[1])
        shares = _quantised(idf(self._count, len(places)) * weighted / saturation)
        scores = shares[0] + shares[1]
        leaders = np.sort(np.partition(scores, -_LEADERS)[-_LEADERS:] if len(scores) > _LEADERS else scores)
        return _Impact(places, scores, shares[0].copy(), leaders[::-1].tolist())

    def _remember(self, term: str, impact: _Impact) -> None:
        """The impacts that were weighed first go first where there is no room for all."""
        self._impacts[term] = impact
        self._impact_bytes += impact.nbytes
        while self._impact_bytes > self._own_bytes + _SPARE_BYTES:
            self._impact_bytes -= self._impacts.pop(next(iter(self._impacts))).nbytes


def _ranked(scores: Floats, places: Places, limit: int) -> Places:
    """The best of one segment: the sort is stable, so equal scores stay in the order of ids."""
    return places[(-scores[places]).argsort(kind="stable")[:limit]]


def _norms(lengths: NDArray[np.uint32], live: NDArray[np.bool_], count: int) -> Floats:
    """Where the average is 0, no object has the field, and any norm will do."""
    averages = lengths[:, live].sum(axis=1, dtype=np.uint64) / max(1, count)
    norms: Floats = (1 - B) + B * lengths / np.where(averages > 0, averages, 1.0)[:, np.newaxis]
    return norms


def _quantised(shares: Floats) -> Floats:
    """Positive shares as multiples of QUANTUM, one at least; np.rint rounds halves to even, as Python's round does."""
    quanta: Floats = np.maximum(np.rint(shares / QUANTUM), shares > 0)
    return quanta * QUANTUM
