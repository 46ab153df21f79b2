"""What the fast scorer keeps of each object, entitled or not: its terms as numbers, in eight bytes each.

No statistic lives here: a count over all objects would tell an asker of what they may not see.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from freshgate_service.score.bm25f import MAX_FREQUENCY

POSTING = np.dtype([("term", np.uint32), ("title", np.uint16), ("body", np.uint16)])

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
        self._numbers: dict[str, int] = {}
        self._unused = count(NO_TERM + 1)
        self._size_when_pruned = 10_000

    def document(self, title: Sequence[str], body: Sequence[str]) -> Document:
        in_title, in_body = Counter(title), Counter(body)
        terms = {**in_title, **in_body}
        postings = np.empty(len(terms), POSTING)
        postings["term"] = [self._number(term) for term in terms]
        postings["title"] = np.minimum([in_title.get(term, 0) for term in terms], MAX_FREQUENCY)
        postings["body"] = np.minimum([in_body.get(term, 0) for term in terms], MAX_FREQUENCY)
        return Document(postings.tobytes(), len(title), len(body))

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
        self._numbers = {term: number for term, number in self._numbers.items() if number in used}
        self._size_when_pruned = max(self._size_when_pruned, len(self._numbers))

    def _number(self, term: str) -> int:
        number = self._numbers.get(term)
        if number is None:
            number = self._numbers[term] = next(self._unused)
        return number
