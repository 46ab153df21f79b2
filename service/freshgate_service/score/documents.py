"""What the fast scorer keeps of each object, entitled or not: its terms as numbers, in eight bytes each.

No statistic lives here: a count over all objects would tell an asker of what they may not see.
"""

import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from freshgate_service.score.bm25f import MAX_FREQUENCY

POSTING = np.dtype([("term", "<u4"), ("title", "<u2"), ("body", "<u2")])
_TITLE, _BODY = 32, 48
"""By how many bits a posting, taken as one number, has its frequencies shifted."""

NO_TERM = 0
"""A number that no term has."""


@dataclass(frozen=True, slots=True)
class Document:
    """Forward form of one object: `postings` are POSTINGs, one for each distinct term; lengths are in terms."""

    postings: bytes
    title_length: int
    body_length: int


class Vocabulary:
    """Numbers terms. A number is never given twice, so an index that still holds a forgotten one cannot mistake it."""

    def __init__(self) -> None:
        self._unused = count(NO_TERM + 1)
        self._numbers: defaultdict[str, int] = defaultdict(self._unused.__next__)
        self._size_when_pruned = 10_000

    def document(self, title: Sequence[str], body: Sequence[str]) -> Document:
        # Plain arithmetic: numpy's arrays cost more to fill than a summary's few terms to pack.
        numbers, in_title, in_body = self._numbers, _counted(title), _counted(body)
        both = [
            numbers[term] | frequency << _TITLE | in_body.pop(term, 0) << _BODY for term, frequency in in_title.items()
        ]
        packed = both + [numbers[term] | frequency << _BODY for term, frequency in in_body.items()]
        return Document(struct.pack(f"<{len(packed)}Q", *packed), len(title), len(body))

    def number(self, term: str) -> int:
        """NO_TERM where no document has it: a query never adds one."""
        return self._numbers.get(term, NO_TERM)

    @property
    def overgrown(self) -> bool:
        """Whether it is time to prune: terms of records that changed or went stay until then."""
        return len(self._numbers) > 2 * self._size_when_pruned

    def prune(self, documents: Iterable[Document]) -> None:
        """Forgets the terms that none of `documents`, which are all there are, has."""
        postings = np.frombuffer(b"".join(document.postings for document in documents), POSTING)
        used = set(np.unique(postings["term"]).tolist())
        kept = {term: number for term, number in self._numbers.items() if number in used}
        self._numbers = defaultdict(self._unused.__next__, kept)
        self._size_when_pruned = max(self._size_when_pruned, len(kept))


def _counted(terms: Sequence[str]) -> dict[str, int]:
    counts: dict[str, int] = Counter(terms)
    if len(terms) > MAX_FREQUENCY:
        return {term: min(frequency, MAX_FREQUENCY) for term, frequency in counts.items()}
    return counts
