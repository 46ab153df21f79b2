"""Slices to score: objects with few and common terms, so that queries, fields and ties meet often.

Ids are chosen to sort differently as text, as numbers and as pairs.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st

from freshgate_service.domain import ObjectKey, Scored
from freshgate_service.score import Analysed, Document, View, Vocabulary, Weights

ENOUGH = settings(max_examples=150, derandomize=True, database=None, deadline=None)

WEIGHTS = Weights(title=3.0)

TERMS = ["refund", "polici", "invoic", "late", "fee", "東京", "café"]
SOURCES = ["tickets", "tickets-eu", "accounts"]  # as text, "tickets-eu/1" comes before "tickets/1"
RECORD_IDS = ["1", "2", "10", "a", "A", "ä", "a/1", " ", "é", "e\u0301", "東京", "4711"]

Entitled = Callable[[ObjectKey], bool]
Scorer = Callable[[Sequence[str], Sequence[Analysed], Entitled, Weights], dict[ObjectKey, Scored]]


class World(NamedTuple):
    """All objects there are, and which of them the asker may see."""

    documents: list[Analysed]
    visible: frozenset[ObjectKey]

    def entitled(self, key: ObjectKey) -> bool:
        return key in self.visible

    @property
    def slice_(self) -> list[Analysed]:
        return [document for document in self.documents if self.entitled(document.key)]


def keys() -> st.SearchStrategy[ObjectKey]:
    return st.builds(ObjectKey, st.sampled_from(SOURCES), st.sampled_from(RECORD_IDS))


def fields() -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(TERMS), max_size=6)


def analysed(key: st.SearchStrategy[ObjectKey] | None = None) -> st.SearchStrategy[Analysed]:
    return st.builds(Analysed, key or keys(), fields(), fields())


def queries() -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from([*TERMS, "unheard"]), unique=True, max_size=5)


def worlds() -> st.SearchStrategy[World]:
    several = st.lists(analysed(), unique_by=lambda document: document.key, max_size=24)
    return several.flatmap(
        lambda documents: (
            st.builds(World, st.just(documents), st.frozensets(st.sampled_from([each.key for each in documents])))
            if documents
            else st.just(World([], frozenset()))
        )
    )


def compact(vocabulary: Vocabulary, document: Analysed) -> tuple[ObjectKey, Document]:
    return document.key, vocabulary.document(document.title, document.body)


def view(documents: Iterable[Analysed], weights: Weights = WEIGHTS, vocabulary: Vocabulary | None = None) -> View:
    words = vocabulary or Vocabulary()
    return View([compact(words, document) for document in documents], weights, words)
