"""A made-up workspace's records, the same in every run, and questions that somebody could ask about them.

Words follow Zipf's law without its first ranks, which are function words in a language and stand in no question. A
question is two to four words of one record that the asker may see, as often as they occur there.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

import numpy as np

from freshgate_service.domain import Access, Clock, MemoryObject, ObjectKey
from freshgate_service.score import Analyser

SOURCE = "tickets"
SPEC_HASH = "tickets one"
REGIONS = ("emea", "amer", "apac", "mena")
ACCOUNTS = 50
VOCABULARY = 30_000
COMMONEST = 30
"""The rank at which the words begin."""

ANALYSER = Analyser("english")


class Entry(NamedTuple):
    """One record, condensed: 4 to 10 words of title, 30 to 90 of summary."""

    number: int
    title: str
    body: str
    region: str
    account: str

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(SOURCE, str(self.number))

    def object(self, change: int, *, confirmed_at: float = 0.0) -> MemoryObject:
        return MemoryObject(
            key=self.key,
            title=self.title,
            summary=self.body,
            url=f"https://desk.example/tickets/{self.number}",
            access=Access(SOURCE, {"region": self.region, "account": self.account}),
            content_hash=f"{crc32(f'{self.title} {self.body}'.encode()):x}",
            access_hash=f"{self.region} {self.account}",
            spec_hash=SPEC_HASH,
            condenser="extractive",
            version=None,
            clock=Clock(confirmed_at),
            change=change,
        )


@dataclass(frozen=True)
class Question:
    """`terms` are what the analyser makes of the text: peers are handed them, and are spared the analysis."""

    text: str
    terms: tuple[str, ...]


def entries(count: int, *, first: int = 0, region: str | None = None) -> Iterator[Entry]:
    """Regions take turns, so a quarter is in each; or all are in `region`."""
    chance = np.random.default_rng(first + 1)
    titles, bodies = chance.integers(4, 11, count), chance.integers(30, 91, count)
    rarity = 1 / (np.arange(VOCABULARY) + COMMONEST)
    drawn = chance.choice(VOCABULARY, int(titles.sum() + bodies.sum()), p=rarity / rarity.sum()).tolist()
    words, at = _vocabulary(), 0
    for place, (title, body) in enumerate(zip(titles.tolist(), bodies.tolist(), strict=True)):
        text = [words[each] for each in drawn[at : at + title + body]]
        at += title + body
        number = first + place
        where = region or REGIONS[number % len(REGIONS)]
        yield Entry(number, " ".join(text[:title]), " ".join(text[title:]), where, str(number // 4 % ACCOUNTS))


def questions(records: Sequence[Entry], count: int, region: str = REGIONS[0], seed: int = 1) -> list[Question]:
    chance = random.Random(seed)
    seen = [record for record in records if record.region == region]
    texts = (_asked(chance.choice(seen), chance) for _ in range(count))
    return [Question(text, ANALYSER.query_terms(text)) for text in texts]


def _asked(record: Entry, chance: random.Random) -> str:
    words = f"{record.title} {record.body}".split()
    return " ".join(dict.fromkeys(chance.choices(words, k=chance.randint(2, 4))))


def _vocabulary() -> list[str]:
    chance = random.Random(1)
    syllables = [consonant + vowel for consonant in "bcdfghjklmnprstvwz" for vowel in "aeiou"]
    words: dict[str, None] = {}
    while len(words) < VOCABULARY:
        words["".join(chance.choices(syllables, k=chance.choice((2, 3, 3, 4))))] = None
    return list(words)
