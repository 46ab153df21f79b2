"""`make prove`: the promises are kept by the product, broken by every mutant of it, and a test tells the difference.

First the tests that guard the promises must be green, the twin worlds among them with many more examples than usual.
Then each mutant is switched in, in a process of its own, and every test that it names must turn red. A mutant that is
not caught is a promise that nobody guards: the exit status is 1, as it is where a promise has no mutant at all.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Column, Table

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
REPORT = ROOT / "build" / "prove.json"
sys.path.insert(0, str(TESTS / "support"))

from freshgate_mutants import MUTANTS, Mutant  # noqa: E402 - found by the line above
from freshgate_requirements import declared, marked  # noqa: E402

AT_A_TIME = 2
SECONDS = 600
"""After which a run is given up, and counts as nothing."""

THOROUGH = ("service/test_twins.py", "service/test_replays.py", "service/test_replays_truth.py")
"""Run whole, with many examples, unless the short form is asked for."""

_RED = re.compile(r"^(?:SUB)?FAILED.*? tests/(\S+?::\w+)", re.MULTILINE)
_BROKEN = re.compile(r"^\S*freshgate_mutants\.py:\d+: (?:Type|Attribute|Name|Key|Index|Import)Error.*", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Run:
    """What came of one run of tests. With a `problem` it went wrong itself, and says nothing of them."""

    red: frozenset[str]
    problem: str
    seconds: float

    @property
    def green(self) -> bool:
        return not self.red and not self.problem


@dataclass(frozen=True, slots=True)
class Row:
    """One mutant. `tests` is how many guard the promise; `caught` are those that turned red, `missed` those that should
    have and did not."""

    promise: str
    tests: int
    mutant: str
    fault: str
    caught: Sequence[str] = ()
    missed: Sequence[str] = ()
    problem: str = ""
    seconds: float = 0.0

    @property
    def holds(self) -> bool:
        return bool(self.caught) and not self.missed and not self.problem


Chosen = Mapping[str, Sequence[str]]
"""Names of mutants, each with the tests that must catch it."""


def chosen(*, short: bool, names: Sequence[str]) -> Chosen:
    """In short: the first mutant of each promise, with the first of its tests."""
    if names:
        return {name: MUTANTS[name].tests for name in names}
    if not short:
        return {name: mutant.tests for name, mutant in MUTANTS.items()}
    last_to_first = {mutant.promise: mutant for mutant in reversed(MUTANTS.values())}
    return {mutant.name: mutant.tests[:1] for mutant in last_to_first.values()}


# --- running ---------------------------------------------------------------------------------------------------------


def run(tests: Iterable[str], *options: str) -> Run:
    """pytest in a process of its own."""
    command = [sys.executable, "-m", "pytest", "-q", "--tb=line", "-rfE", "-p", "no:cacheprovider", *options]
    paths = [f"tests/{test}" for test in tests]
    started = time.monotonic()
    try:
        ended = subprocess.run(
            [*command, *paths], cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return Run(frozenset(), f"given up after {SECONDS} s", SECONDS)
    red = frozenset(_RED.findall(ended.stdout))
    return Run(red, _problem(ended), round(time.monotonic() - started, 1))


def _problem(ended: subprocess.CompletedProcess[str]) -> str:
    """A mutant that stumbles turns tests red as well, but not for what it is there to show."""
    if ended.returncode not in (0, 1):
        return (ended.stdout + ended.stderr)[-2000:]
    stumbled = _BROKEN.search(ended.stdout)
    return stumbled[0] if stumbled else ""


def examine(mutant: Mutant, tests: Sequence[str]) -> Row:
    ended = run(tests, "--mutant", mutant.name, "--hypothesis-profile", "mutant")
    caught = [test for test in tests if test in ended.red]
    missed = [test for test in tests if test not in ended.red]
    guarding = len(marked().get(mutant.promise, ()))
    return Row(mutant.promise, guarding, mutant.name, mutant.fault, caught, missed, ended.problem, ended.seconds)


def prove(mutants: Chosen, *, thorough: bool) -> tuple[Run, list[Row]]:
    """The run without a mutant, and a row for each mutant."""
    named = dict.fromkeys(test for tests in mutants.values() for test in tests)
    whole = THOROUGH if thorough else ()
    baseline = [*whole, *(test for test in named if not test.startswith(whole))]
    options = ("--hypothesis-profile", "prove") if thorough else ()
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        green = pool.submit(run, baseline, *options)
        rows = [pool.submit(examine, MUTANTS[name], tests) for name, tests in mutants.items()]
        _watch([green, *rows])
    return green.result(), [row.result() for row in rows] + list(_unbroken())


def _watch(runs: "Sequence[Future[Run] | Future[Row]]") -> None:
    with Progress(console=Console(stderr=True), transient=True) as progress:
        shown = progress.add_task("proving", total=len(runs))
        for _ in as_completed(runs):
            progress.advance(shown)


def _unbroken() -> Iterator[Row]:
    broken = {mutant.promise for mutant in MUTANTS.values()}
    for promise in declared().keys() - broken:
        yield Row(promise, len(marked().get(promise, ())), "none", "Nobody has tried to break it.")


# --- telling ---------------------------------------------------------------------------------------------------------


def report(green: Run, rows: Sequence[Row]) -> None:
    baseline = {"green": green.green, "red": sorted(green.red), "problem": green.problem, "seconds": green.seconds}
    mutants = [{**asdict(row), "holds": row.holds} for row in rows]
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps({"baseline": baseline, "mutants": mutants}, indent=2) + "\n")


def show(green: Run, rows: Sequence[Row], console: Console) -> None:
    by = Column("caught by", overflow="fold")
    table = Table("promise", "tests", Column("mutant", overflow="fold"), by, "s", title="What the tests would notice")
    order = list(declared())
    for row in sorted(rows, key=lambda row: order.index(row.promise)):
        mutant = f"{row.mutant}\n[dim]{escape(row.fault)}[/]"
        table.add_row(row.promise, str(row.tests), mutant, "\n".join(_ends(row)), f"{row.seconds:.0f}")
    console.print(table)
    for test in sorted(green.red):
        console.print(f"[red]Red without a mutant; for the reason run[/] pytest tests/{escape(test)}", soft_wrap=True)
    if green.problem:
        console.print(f"[red]{escape(green.problem)}[/]")
    console.print(
        f"Without a mutant the tests are {'green' if green.green else 'RED'} ({green.seconds:.0f} s); "
        f"{sum(row.holds for row in rows)} of {len(rows)} mutants are caught by every test that they name.",
        highlight=False,
    )


def _ends(row: Row) -> Iterator[str]:
    yield from (test.rpartition("::")[2] for test in row.caught)
    yield from (f"[red]not by {test.rpartition('::')[2]}[/]" for test in row.missed)
    if row.problem:
        yield f"[red]{escape(row.problem)}[/]"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="one mutant a promise, and no more examples than usual")
    parser.add_argument("mutants", nargs="*", metavar="MUTANT", help="only these")
    asked = parser.parse_args()
    if unknown := set(asked.mutants) - MUTANTS.keys():
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    mutants = chosen(short=asked.short, names=asked.mutants)
    green, rows = prove(mutants, thorough=not (asked.short or asked.mutants))
    report(green, rows)
    show(green, rows, Console() if sys.stdout.isatty() else Console(width=160))
    return 0 if green.green and all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
