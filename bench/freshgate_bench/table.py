"""Rows as a table on the terminal."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table

from freshgate_bench.rows import Circumstances, Figure, Row

COLUMNS = ("", "median", "middle half", "p99", "ratio", "bar")
HOLDS = {True: "holds: ", False: "MISSED: ", None: ""}


def show(rows: Sequence[Row], circumstances: Circumstances) -> None:
    form = ", quick form" if circumstances.quick else ""
    title = f"{rows[0].bench}{form}: on {circumstances.cores} cores, load {circumstances.load} at its start"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in ("", "bar") else "right", overflow="fold")
    for row in rows:
        for line in _lines(row):
            table.add_row(*line)
        table.add_section()
    console = Console()
    console.width = max(console.width, 120)
    console.print(table)


def _lines(row: Row) -> Iterator[Sequence[str]]:
    size = "" if row.size is None else f", {row.size:,} objects"
    bar = f"{HOLDS[row.holds]}{row.bar}" if row.bar else ""
    yield f"{row.name}{size}", *figures(row.ours, row.unit), ratio(row), bar
    for name, peer in row.peers.items():
        yield f"  {name}", *figures(peer, row.unit)
    for name, value in row.notes.items():
        yield f"  {name}", number(value)


def figures(figure: Figure, unit: str) -> tuple[str, str, str]:
    spread = "" if figure.samples == 1 else f"{number(figure.low)}–{number(figure.high)}"
    return f"{number(figure.median)} {unit}", spread, "" if figure.p99 is None else number(figure.p99)


def number(value: float) -> str:
    """Three digits that count."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"


def ratio(row: Row) -> str:
    if row.ratio is None:
        return ""
    interval = "" if row.ratio_interval is None else f" ({row.ratio_interval[0]:.3f}–{row.ratio_interval[1]:.3f})"
    return f"{row.ratio:.3g}{interval}"
