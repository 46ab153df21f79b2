"""How well the ranking ranks: the Cranfield collection, each engine handed the same tokens.

Where an engine cannot weigh fields, it gets the title in several ways, and the best of them counts.
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence

import bm25s  # type: ignore[import-untyped]
import freshgate_cranfield as cranfield
import numpy as np

from freshgate_bench.engines import LIMIT, TITLE_WEIGHT
from freshgate_bench.measure import progress
from freshgate_bench.rows import Row, exact
from freshgate_service.domain import ObjectKey
from freshgate_service.score import Analyser, View, Vocabulary, Weights

ANALYSER = Analyser("english")
Fields = Mapping[int, tuple[list[str], list[str]]]
"""Title and body of each abstract, as terms."""

Rank = Callable[[str], Sequence[int]]


def run(*, quick: bool) -> Iterator[Row]:
    fields: Fields = {
        each.number: (ANALYSER.terms(each.title), ANALYSER.terms(each.body)) for each in cranfield.abstracts()
    }
    rankings = {"freshgate": _freshgate(fields), "fts5": _fts5(fields)}
    for name, repeats in (("bm25s, body", 0), ("bm25s, title + body", 1), ("bm25s, 3 × title + body", 3)):
        rankings[name] = _bm25s(fields, repeats)
    reached = {name: cranfield.mean_ndcg(rank, LIMIT) for name, rank in progress(rankings.items(), "Cranfield")}
    ours = reached.pop("freshgate")
    best = max(reached.values())
    yield Row(
        "quality",
        "Cranfield nDCG@10, titles weighted 3",
        len(fields),
        "",
        exact(ours),
        {name: exact(each) for name, each in reached.items()},
        ours / best,
        bar="above each, on the same tokens",
        holds=ours > best,
    )


def _freshgate(fields: Fields) -> Rank:
    words = Vocabulary()
    documents = [(ObjectKey("cranfield", str(number)), words.document(*each)) for number, each in fields.items()]
    view = View(documents, Weights(title=TITLE_WEIGHT), words)
    return lambda text: [int(one.key.record_id) for one in view.top(ANALYSER.query_terms(text), LIMIT)]


def _fts5(fields: Fields) -> Rank:
    db = sqlite3.connect(":memory:")
    db.execute("CREATE VIRTUAL TABLE abstracts USING fts5(title, body)")
    rows = ((number, " ".join(title), " ".join(body)) for number, (title, body) in fields.items())
    db.executemany("INSERT INTO abstracts (rowid, title, body) VALUES (?, ?, ?)", rows)
    order = f"bm25(abstracts, {TITLE_WEIGHT}, 1.0) LIMIT {LIMIT}"
    statement = f"SELECT rowid FROM abstracts WHERE abstracts MATCH ? ORDER BY {order}"

    def rank(text: str) -> list[int]:
        words = " OR ".join(f'"{term}"' for term in ANALYSER.query_terms(text))
        return [number for (number,) in db.execute(statement, (words,))]

    return rank


def _bm25s(fields: Fields, repeats: int) -> Rank:
    engine = bm25s.BM25()
    engine.index([title * repeats + body for title, body in fields.values()], show_progress=False)
    numbers = np.array(list(fields))

    def rank(text: str) -> list[int]:
        terms = [term for term in ANALYSER.query_terms(text) if term in engine.vocab_dict]
        found, scores = engine.retrieve([terms], k=LIMIT, show_progress=False)
        return [int(number) for number, score in zip(numbers[found[0]], scores[0], strict=True) if score > 0]

    return rank
