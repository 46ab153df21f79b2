"""The Cranfield collection, for measuring how well a ranking ranks. Only read where it lies, beside the project."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "cranfield"


class Abstract(NamedTuple):
    number: int
    title: str
    body: str


def abstracts() -> list[Abstract]:
    records = re.split(r"^\.I ", (FOLDER / "cran.all.1400").read_text(encoding="ascii"), flags=re.MULTILINE)[1:]
    fields = re.compile(r"(\d+)\s+\.T\n(.*?)\.A\n.*?\.B\n.*?\.W\n(.*)", re.DOTALL)
    return [
        Abstract(int(number), title, body) for number, title, body in (fields.match(each).groups() for each in records)
    ]


def questions() -> list[str]:
    """In the order of the file, which is how the judgements number them: from 1."""
    records = re.split(r"^\.I ", (FOLDER / "cran.qry").read_text(encoding="ascii"), flags=re.MULTILINE)[1:]
    return [each.split(".W\n", 1)[1] for each in records]


def judgements() -> dict[int, dict[int, int]]:
    """Question → abstract → gain: 4 for a complete answer down to 1 for minimum interest; codes beyond that are 0."""
    gains: dict[int, dict[int, int]] = {}
    for line in (FOLDER / "cranqrel").read_text(encoding="ascii").splitlines():
        question, abstract, code = map(int, line.split())
        gains.setdefault(question, {})[abstract] = 5 - code if 1 <= code <= 4 else 0
    return gains


def mean_ndcg(rank: Callable[[str], Sequence[int]], depth: int = 10) -> float:
    """`rank` gives the numbers of the best `depth` abstracts for a question."""
    gains = judgements()
    scores = [_ndcg(rank(text), gains[number], depth) for number, text in enumerate(questions(), 1)]
    return sum(scores) / len(scores)


def _ndcg(ranked: Sequence[int], gains: Mapping[int, int], depth: int) -> float:
    reached = _discounted([gains.get(number, 0) for number in ranked[:depth]])
    ideal = _discounted(sorted(gains.values(), reverse=True)[:depth])
    return reached / ideal if ideal else 0.0


def _discounted(gains: Sequence[int]) -> float:
    return sum(gain / math.log2(place + 2) for place, gain in enumerate(gains))
