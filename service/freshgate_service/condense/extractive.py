"""The default condenser: chooses sentences of the record, by arithmetic alone.

It makes nothing up: every sentence of a summary stands in the record word for word (white space aside), in the record's
order. A record that fits is kept whole; else its beginning is kept, and then what adds most to it: terms that weigh
much in the record and are not in the summary yet, per word spent.
"""

import asyncio
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import NamedTuple

from freshgate_service.condense.sentences import UNSPACED, Span, sentences, words
from freshgate_service.domain import Condensed, Record

LARGE = 2 * 1024
"""Characters from which a body is condensed off the event loop."""

MAX_READ = 128 * 1024
"""Characters of a body that are looked at: a bound on what one record can cost."""

PIECE_WORDS = 30
"""Into how many words at a time a sentence is cut that alone would be too long for a summary."""

OVERHEAD_WORDS = 8
"""Added to what a piece costs, so that a lone telling word does not beat a sentence that explains it."""

_TERM = re.compile(rf"([^\W_{UNSPACED}]+)|[{UNSPACED}]{{2,}}")


class Extractive:
    async def condense(self, record: Record, max_words: int) -> Condensed:
        if len(record.body) < LARGE:
            summary = summarise(record.body, max_words)
        else:
            summary = await asyncio.to_thread(summarise, record.body, max_words)
        return Condensed(summary, "extractive")


class Piece(NamedTuple):
    span: Span
    words: int
    terms: frozenset[str]


def summarise(text: str, max_words: int) -> str:
    """At most `max_words` words, as `sentences` counts them."""
    text = _head(text)
    pieces = list(_pieces(text, max_words))
    chosen: Sequence[int] = range(len(pieces))
    if sum(piece.words for piece in pieces) > max_words:
        lead = _lead(pieces, max_words // 4)
        chosen = sorted([*lead, *_most_telling(pieces, lead, max_words)])
    return _joined(text, [pieces[each].span for each in chosen])


def _head(text: str) -> str:
    """What is looked at; a word that the bound would cut is left out."""
    if len(text) <= MAX_READ:
        return text
    cut = max(text.rfind(" ", 0, MAX_READ), text.rfind("\n", 0, MAX_READ))
    return text[: cut if cut > 0 else MAX_READ]


def _pieces(text: str, max_words: int) -> Iterator[Piece]:
    """Sentences; one that is over the limit by itself, in parts."""
    for sentence in sentences(text):
        found = list(words(text, sentence))
        size = len(found) if len(found) <= max_words else min(PIECE_WORDS, max_words)
        for at in range(0, len(found), size):
            part = found[at : at + size]
            span = Span(part[0].start, part[-1].end)
            yield Piece(span, len(part), frozenset(_terms(text[span.start : span.end])))


def _terms(text: str) -> Iterator[str]:
    for match in _TERM.finditer(text.casefold()):
        if match[1]:
            yield match[1]
        else:
            yield from map("".join, pairwise(match[0]))


def _lead(pieces: Sequence[Piece], max_words: int) -> list[int]:
    """The first pieces, as far as they stay below `max_words`, but one at least."""
    room = max_words - pieces[0].words
    lead = [0]
    for each in range(1, len(pieces)):
        room -= pieces[each].words
        if room < 0:
            break
        lead.append(each)
    return lead


def _most_telling(pieces: Sequence[Piece], lead: Sequence[int], max_words: int) -> Iterator[int]:
    """Fills up what the lead leaves, the piece with the highest gain first.

    A piece only loses gain while others are chosen, so what the heap says of it is an upper bound, put right when the
    piece comes up.
    """
    weights = _weights(pieces)
    covered = set().union(*(pieces[each].terms for each in lead))
    room = max_words - sum(pieces[each].words for each in lead)

    def gain(piece: Piece) -> float:
        # fsum is exact: the order in which a set gives its terms must not decide.
        return math.fsum(weights[term] for term in piece.terms - covered) / (piece.words + OVERHEAD_WORDS)

    heap = [(-gain(pieces[each]), each) for each in range(len(lead), len(pieces)) if pieces[each].terms]
    heapify(heap)
    while heap:
        _, each = heappop(heap)
        entry = (-gain(pieces[each]), each)
        if pieces[each].words > room or entry[0] == 0:
            continue
        if heap and entry > heap[0]:
            heappush(heap, entry)
            continue
        covered |= pieces[each].terms
        room -= pieces[each].words
        yield each


def _weights(pieces: Sequence[Piece]) -> Mapping[str, float]:
    """Of terms: high for what many sentences speak of, low for what nearly all have."""
    spread = Counter(term for piece in pieces for term in piece.terms)
    return {term: math.log1p(count) * math.log1p(len(pieces) / count) for term, count in spread.items()}


def _joined(text: str, spans: Sequence[Span]) -> str:
    """On lines of their own where the record has them so."""
    parts: list[str] = []
    for before, span in pairwise([Span(0, 0), *spans]):
        parts.append("\n" if text.find("\n", before.end, span.start) >= 0 else " ")
        parts.append(" ".join(text[span.start : span.end].split()))
    return "".join(parts[1:])
