"""An inverted index over documents of one entitled slice: built at once, then only ever losing documents.

Its size and its cost follow those documents alone: nothing in it is as large as the vocabulary.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from copy import copy
from operator import attrgetter
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from freshgate_service.domain import ObjectKey
from freshgate_service.score.documents import NO_TERM, POSTING, Document

_TEXT = attrgetter("text")


class Postings(NamedTuple):
    """Where one term occurs: places of documents, ascending, and its frequencies there, a row a field."""

    places: NDArray[np.uint32]
    frequencies: NDArray[np.uint16]


class Segment:
    """A document's place is its rank by id, so ascending places are the order in which ties break."""

    def __init__(self, documents: Mapping[ObjectKey, Document]) -> None:
        self.keys = sorted(documents, key=_TEXT)
        self._documents = [documents[key] for key in self.keys]
        self.lengths = (
            np.array([(document.title_length, document.body_length) for document in self._documents], np.uint32)
            .reshape(-1, 2)
            .T
        )
        self.live = np.ones(len(self.keys), np.bool_)
        self.dead = 0
        self._invert()

    def __len__(self) -> int:
        return len(self.keys)

    def fork(self) -> Self:
        """Another that loses documents on its own; all else is shared."""
        other = copy(self)
        other.live = self.live.copy()
        return other

    def documents(self) -> Iterator[tuple[ObjectKey, Document]]:
        """The live ones."""
        return (
            (key, document)
            for key, document, live in zip(self.keys, self._documents, self.live.tolist(), strict=True)
            if live
        )

    def bury(self, key: ObjectKey) -> None:
        place = bisect_left(self.keys, key.text, key=_TEXT)
        if place < len(self.keys) and self.keys[place] == key and self.live[place]:
            self.live[place] = False
            self.dead += 1

    def postings(self, term: int) -> Postings:
        """Of live documents."""
        at = int(self._terms.searchsorted(np.uint32(term)))
        if at == len(self._terms) or self._terms[at] != term:
            return Postings(self._places[:0], self._frequencies[:, :0])
        span = slice(self._starts[at], self._starts[at + 1])
        found = Postings(self._places[span], self._frequencies[:, span])
        if not self.dead:
            return found
        live = self.live[found.places]
        return Postings(found.places[live], found.frequencies[:, live])

    @property
    def nbytes(self) -> int:
        arrays = (self._terms, self._starts, self._places, self._frequencies, self.lengths, self.live)
        return sum(array.nbytes for array in arrays) + 16 * len(self.keys)

    def _invert(self) -> None:
        forward = np.frombuffer(b"".join(document.postings for document in self._documents), POSTING)
        sizes = [len(document.postings) // POSTING.itemsize for document in self._documents]
        places = np.repeat(np.arange(len(sizes), dtype=np.uint32), sizes)
        # Term and position in one integer: sorting plain integers is many times faster than a stable argsort, and
        # positions, whose places ascend, keep each term's documents in order.
        ordered = forward["term"].astype(np.uint64)
        ordered <<= np.uint64(32)
        ordered |= np.arange(len(forward), dtype=np.uint64)
        ordered.sort()
        order = (ordered & np.uint64(0xFFFF_FFFF)).astype(np.intp)
        terms = (ordered >> np.uint64(32)).astype(np.uint32)
        firsts = np.flatnonzero(np.diff(terms, prepend=np.uint32(NO_TERM)))
        self._terms, self._starts = terms[firsts], np.append(firsts, len(terms))
        inverted = forward.view(np.uint64)[order].view(POSTING)  # whole postings at once: one walk through memory
        self._places, self._frequencies = places[order], np.stack((inverted["title"], inverted["body"]))
