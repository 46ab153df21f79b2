"""Writes the figures into docs/benchmarks.md, and draws its charts, from build/bench.json.

The page's sentences are people's; what stands between `<!-- bench: NAME -->` and `<!-- end -->` is made here, a table
of that benchmark's rows.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure as Canvas

from freshgate_bench.rows import Figure, Row, kept
from freshgate_bench.table import figures, number, ratio

PAGE = Path("docs/benchmarks.md")
CHARTS = Path("docs/benchmarks")
PLACE = re.compile(r"<!-- bench: (?P<name>\w+) -->\n.*?<!-- end -->", re.DOTALL)
COLORS = {"freshgate": "#0b6e4f", "tantivy": "#c8553d", "fts5": "#8d99ae", "postgres": "#3d5a80"}
HOLDS = {True: "holds", False: "**missed**", None: ""}

Kept = Mapping[str, Any]


def main() -> int:
    rows = kept()
    missing = [name for name in PLACE.findall(PAGE.read_text("utf-8")) if not _of(rows, name) and name != "machine"]
    if missing:
        print(f"not measured yet: {', '.join(missing)}; run `make bench`", file=sys.stderr)
        return 1
    text = PLACE.sub(lambda found: _filled(rows, found["name"]), PAGE.read_text("utf-8"))
    PAGE.write_text(text, "utf-8")
    CHARTS.mkdir(parents=True, exist_ok=True)
    _bars(_named(rows, "entitle + score + explain"), "Entitle, score, explain: median, and p99", "scoring.svg")
    _bars(_named(rows, "one object changed, and the first query after"), "One change and the next query", "changed.svg")
    _against(rows, "serving.svg")
    return 0


def _of(rows: Sequence[Kept], bench: str) -> list[Kept]:
    return [row for row in rows if row["bench"] == bench]


def _named(rows: Sequence[Kept], name: str) -> list[Kept]:
    return [row for row in rows if row["name"] == name]


# --- tables ----------------------------------------------------------------------------------------------------------


def _filled(rows: Sequence[Kept], name: str) -> str:
    lines = _machines(rows) if name == "machine" else _table(_of(rows, name))
    return "\n".join([f"<!-- bench: {name} -->", *lines, "<!-- end -->"])


def _machines(rows: Sequence[Kept]) -> list[str]:
    lines = ["| benchmark | taken | processor | cores | Python | load at its start |", "|---|---|---|---|---|---|"]
    for name in dict.fromkeys(row["bench"] for row in rows):
        row = _of(rows, name)[0]
        form = " (quick form)" if row["quick"] else ""
        facts = (row["taken"], row["processor"], row["cores"], row["python"], row["load"])
        lines.append(f"| {name}{form} | {' | '.join(map(str, facts))} |")
    return lines


def _table(rows: Sequence[Kept]) -> list[str]:
    lines = ["| | median | middle half | p99 | ratio | bar |", "|---|--:|--:|--:|--:|---|"]
    for each in rows:
        row = _row(each)
        size = "" if row.size is None else f", {row.size:,} objects"
        bar = "" if row.bar is None else f"{HOLDS[row.holds]}: {row.bar}"
        lines.append(_line(f"**{row.name}{size}**", *figures(row.ours, row.unit), ratio(row), bar))
        lines += [_line(name, *figures(peer, row.unit), "", "") for name, peer in row.peers.items()]
        lines += [_line(name, number(value), "", "", "", "") for name, value in row.notes.items()]
    return lines


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _row(kept_row: Kept) -> Row:
    fields = {name: kept_row[name] for name in Row.__dataclass_fields__}
    peers = {name: Figure(**figure) for name, figure in kept_row["peers"].items()}
    return Row(**{**fields, "ours": Figure(**kept_row["ours"]), "peers": peers})


# --- charts ----------------------------------------------------------------------------------------------------------


def _bars(rows: Sequence[Kept], title: str, file: str) -> None:
    """A group of bars for each size, on a logarithmic scale; a line rises from each bar to its p99."""
    names = ["freshgate", *rows[0]["peers"]]
    canvas, axes = _canvas(title, f"{rows[0]['unit']}, logarithmic")
    for place, name in enumerate(names):
        figures_ = [row["ours"] if name == "freshgate" else row["peers"][name] for row in rows]
        at = [group + (place - (len(names) - 1) / 2) * 0.2 for group in range(len(rows))]
        medians = [figure["median"] for figure in figures_]
        above = [max(0.0, figure["p99"] - figure["median"]) for figure in figures_]
        axes.bar(at, medians, 0.18, yerr=[[0.0] * len(rows), above], label=name, color=COLORS[name], ecolor="#555555")
    axes.set_yscale("log")
    axes.set_xticks(range(len(rows)), [f"{row['size']:,} objects" for row in rows])
    axes.legend(frameon=False)
    _save(canvas, file)


def _against(rows: Sequence[Kept], file: str) -> None:
    served = [*_of(rows, "rest"), *_of(rows, "mcp")]
    canvas, axes = _canvas("Answers a second, one process, beside a bare server", "answers a second")
    for offset, name, color in ((-0.2, "freshgate", COLORS["freshgate"]), (0.2, "bare", COLORS["fts5"])):
        values = [(row["ours"] if name == "freshgate" else row["peers"][name])["median"] for row in served]
        axes.bar([place + offset for place in range(len(served))], values, 0.36, label=name, color=color)
    axes.set_xticks(range(len(served)), [row["name"].split(",")[0] + row["name"][-12:] for row in served])
    axes.legend(frameon=False)
    _save(canvas, file)


def _canvas(title: str, unit: str) -> tuple[Canvas, Any]:
    canvas = Canvas(figsize=(8, 4), layout="constrained")
    axes = canvas.subplots()
    axes.set_title(title, loc="left")
    axes.set_ylabel(unit)
    axes.spines[["top", "right"]].set_visible(False)
    return canvas, axes


def _save(canvas: Canvas, file: str) -> None:
    """The same figures give the same file."""
    with mpl.rc_context({"svg.hashsalt": "freshgate", "svg.fonttype": "none"}):
        canvas.savefig(CHARTS / file, metadata={"Date": None})


if __name__ == "__main__":
    sys.exit(main())
