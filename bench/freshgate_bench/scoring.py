"""Entitle, score, explain: beside other engines, for new askers, after changes, and beside what nobody asked for."""

import multiprocessing
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from multiprocessing.connection import Connection

import numpy as np

from freshgate_bench import postgres
from freshgate_bench.corpus import REGIONS, Entry, Question, entries, questions
from freshgate_bench.engines import TEAMS, Engine, Freshgate, Fts5, PostgresRls, Tantivy, member
from freshgate_bench.measure import blocks, difference_of_medians, figure, progress, seconds
from freshgate_bench.rows import Figure, Row
from freshgate_service.serve.listen import settle_memory

SIZES = (1_000, 10_000, 100_000)
PATIENCE = 20.0
"""Seconds of searching after which a slow engine is asked no more: it has been asked the same questions until then."""

BLOCK = 20
MICRO, MILLI = 1e6, 1e3
BAR = "faster than each, p50 and p99"


def run(*, quick: bool) -> Iterator[Row]:
    with postgres.server() as dsn:
        for size in SIZES[:2] if quick else SIZES:
            records = list(entries(size))
            with _engines(records, dsn) as (ours, peers):
                _agree(records, ours, peers)
                yield _warm(size, questions(records, 400 if quick else 3_000), ours, peers)
                yield _first(size, questions(records, TEAMS, seed=2), ours, 5 if quick else TEAMS)
                yield _changed(size, records, ours, peers, 20 if quick else 200)


@contextmanager
def _engines(records: Sequence[Entry], dsn: str) -> Iterator[tuple[Freshgate, list[Engine]]]:
    ours = Freshgate(records)
    makers: list[Callable[[], Engine]] = [
        lambda: Fts5(records),
        lambda: Tantivy(records),
        lambda: PostgresRls(records, dsn),
    ]
    peers = [make() for make in progress(makers, f"{len(records):,} records into four engines")]
    settle_memory()
    try:
        yield ours, peers
    finally:
        for engine in peers:
            engine.close()


def _agree(records: Sequence[Entry], ours: Freshgate, peers: Sequence[Engine]) -> None:
    """All must find something for each question, and nothing of another region: else the comparison is none."""
    for question in questions(records, 20, seed=3):
        found = {engine.name: engine.numbers(question) for engine in (ours, *peers)}
        if any(
            not numbers or any(records[each].region != REGIONS[0] for each in numbers) for numbers in found.values()
        ):
            raise RuntimeError(f"the engines do not answer the same question: {found}")


def _warm(size: int, asked: Sequence[Question], ours: Freshgate, peers: Sequence[Engine]) -> Row:
    """Every question is new, and the first third warms up. The engines take turns at blocks of questions: at single
    ones, each would find the processor's caches full of the others."""
    engines: list[Engine] = [ours, *peers]
    warm_up, *timed = blocks(asked, len(asked) // 3)
    for engine in engines:
        _ask(engine, warm_up, PATIENCE / 4)
    times: dict[str, list[float]] = {engine.name: [] for engine in engines}
    checks: list[float] = []
    for place, block in enumerate(progress(blocks(list(chain(*timed)), BLOCK), f"{size:,}: questions to four engines")):
        for engine in engines[place % 4 :] + engines[: place % 4]:
            times[engine.name] += _ask(engine, block, PATIENCE - sum(times[engine.name]))
        checks += [seconds(ours.check, found) for found in map(ours.search, block)]
    figures = {name: _micro(each) for name, each in times.items()}
    own = figures.pop(ours.name)
    return Row(
        "scoring",
        "entitle + score + explain",
        size,
        "µs",
        own,
        figures,
        own.median / min(each.median for each in figures.values()),
        bar=BAR,
        holds=all(own.median < each.median and (own.p99 or 0) < (each.p99 or 0) for each in figures.values()),
        notes={"the check at the border, on top of it, µs": figure(checks).median * MICRO},
    )


def _ask(engine: Engine, asked: Sequence[Question], patience: float) -> list[float]:
    """Times of the questions, or of as many of them as `patience` seconds allow."""
    times: list[float] = []
    for question in asked:
        if sum(times) < patience:
            times.append(seconds(engine.search, question))
    return times


def _micro(times: Sequence[float]) -> Figure:
    return figure([each * MICRO for each in times])


def _first(size: int, asked: Sequence[Question], ours: Freshgate, teams: int) -> Row:
    """Askers of whom no two see the same, and whose slices nobody had asked for before."""
    times = [
        seconds(ours.search, question, member(team)) * MILLI
        for team, question in enumerate(progress(asked[:teams], f"{size:,}: askers' first questions"))
    ]
    return Row("scoring", "an asker's first query", size, "ms", figure(times))


def _changed(size: int, records: Sequence[Entry], ours: Freshgate, peers: Sequence[Engine], count: int) -> Row:
    """One entitled record gets another's text and the next question is asked: both together, since engines divide that
    work differently."""
    engines: list[Engine] = [ours, *peers]
    asked = questions(records, count, seed=4)
    chance = random.Random(5)
    visible = [record for record in records if record.region == REGIONS[0]]
    times: dict[str, list[float]] = {engine.name: [] for engine in engines}
    alone: list[float] = []
    for question in progress(asked, f"{size:,}: questions after a change"):
        target, text = chance.choice(visible), chance.choice(visible)
        record = target._replace(title=text.title, body=text.body)
        for engine in engines:
            if sum(times[engine.name]) < PATIENCE:
                changing = seconds(engine.change, record)
                asking = seconds(engine.search, question)
                times[engine.name].append(changing + asking)
                if engine is ours:
                    alone.append(asking)
    figures = {name: figure([each * MILLI for each in values]) for name, values in times.items()}
    own = figures.pop(ours.name)
    best = min(each.median for each in figures.values())
    notes = {"of it the query, ms": figure(alone).median * MILLI}
    return Row(
        "scoring",
        "one object changed, and the first query after",
        size,
        "ms",
        own,
        figures,
        own.median / best,
        notes=notes,
    )


# --- beside what the asker may not see -------------------------------------------------------------------------------

ENTITLED = 2_000
UNENTITLED = 200_000
TOLERANCE = 0.02


def run_unentitled(*, quick: bool) -> Iterator[Row]:
    """Two processes with the same entitled objects, forked from one so that these lie at the same addresses; one takes
    in as many others as there is to measure. They answer the same questions in turns, a block each."""
    unentitled, pairs, count = (20_000, 1, 40) if quick else (UNENTITLED, 3, 400)
    records = list(entries(ENTITLED, region=REGIONS[0]))
    asked = questions(records, BLOCK * 40)
    base: list[list[float]] = []
    other: list[list[float]] = []
    for pair in range(pairs):
        ours = Freshgate(records)
        with _asking(ours, asked, 0) as without, _asking(ours, asked, unentitled) as beside:
            for block in progress(range(count), f"pair {pair + 1} of {pairs}: beside {unentitled:,} others"):
                for side, times in ((without, base), (beside, other))[:: -1 if block % 2 else 1]:
                    side.send(block)
                    times.append(side.recv())
    change = difference_of_medians(base, other)
    low, high = np.percentile(change, (2.5, 97.5)).tolist()
    flat = [each for block in base for each in block]
    beside_all = [each for block in other for each in block]
    yield Row(
        "unentitled",
        "cost beside unentitled objects, all matching",
        unentitled,
        "µs",
        _micro(beside_all),
        {"without them": _micro(flat)},
        float(np.median(beside_all) / np.median(flat)),
        (1 + low, 1 + high),
        f"95% interval of the difference within ±{TOLERANCE:.0%}",
        holds=low >= -TOLERANCE and high <= TOLERANCE,
    )


@contextmanager
def _asking(ours: Freshgate, asked: Sequence[Question], unentitled: int) -> Iterator[Connection]:
    """A fork that answers a block of questions for each number that is sent, and gives their times."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    process = context.Process(target=_answer, args=(there, ours, asked, unentitled), daemon=True)
    process.start()
    try:
        here.recv()
        yield here
    finally:
        here.send(None)
        process.join(10)


def _answer(there: Connection, ours: Freshgate, asked: Sequence[Question], unentitled: int) -> None:
    for record in _matching(asked, unentitled):
        ours.change(record)
    settle_memory()
    for question in asked:
        ours.search(question)
    there.send(None)
    while (block := there.recv()) is not None:
        at = block * BLOCK % len(asked)
        there.send([seconds(ours.search, question) for question in asked[at : at + BLOCK]])


def _matching(asked: Sequence[Question], count: int) -> Iterator[Entry]:
    """Each record of another region gets the words of a few questions, all questions in turn: so all match."""
    texts = [" ".join(question.text for question in asked[at : at + 8]) for at in range(0, len(asked), 8)]
    for place, record in enumerate(islice(entries(count, first=ENTITLED, region=REGIONS[1]), count)):
        yield record._replace(body=f"{texts[place % len(texts)]} {record.body}")
