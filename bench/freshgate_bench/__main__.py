"""`python -m freshgate_bench [--quick] [NAME …]`: measures, shows a table, keeps the rows.

Each benchmark has a process of its own, so that what one leaves in memory is not in another's way. The exit status
tells whether all could be measured; a bar that is missed is a result.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module

from freshgate_bench.rows import Circumstances, Row, keep
from freshgate_bench.table import show

Benchmark = Callable[..., Iterator[Row]]

BENCHMARKS = {
    "scoring": "freshgate_bench.scoring:run",
    "unentitled": "freshgate_bench.scoring:run_unentitled",
    "quality": "freshgate_bench.quality:run",
    "rest": "freshgate_bench.serving:run_rest",
    "mcp": "freshgate_bench.serving:run_mcp",
    "refresh": "freshgate_bench.refreshing:run",
    "start": "freshgate_bench.starting:run",
    "loop": "freshgate_bench.lasting:run_loop",
    "memory": "freshgate_bench.lasting:run_memory",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="freshgate_bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; all if none is named")
    parser.add_argument("--quick", action="store_true", help="fewer samples and sizes: to see that it works")
    asked = parser.parse_args()
    if unknown := set(asked.names) - BENCHMARKS.keys():
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    names = asked.names or list(BENCHMARKS)
    if len(names) == 1:
        measure(names[0], quick=asked.quick)
        return 0
    failed = [name for name in names if not _measured(name, quick=asked.quick)]
    if failed:
        print(f"could not be measured: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def measure(name: str, *, quick: bool) -> None:
    module, function = BENCHMARKS[name].split(":")
    benchmark: Benchmark = getattr(import_module(module), function)
    circumstances = Circumstances.now(quick=quick)
    rows = list(benchmark(quick=quick))
    keep(name, rows, circumstances)
    show(rows, circumstances)


def _measured(name: str, *, quick: bool) -> bool:
    command = [sys.executable, "-m", "freshgate_bench", name, *(["--quick"] if quick else [])]
    return subprocess.run(command, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
