"""Starts the long-running programs of a cluster, and ends exactly those.

A process is known by its id and its start time together, so that an id which the kernel gave to somebody else is never
signalled.
"""

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .commands import tail, wait_for
from .errors import NotReady
from .layout import Layout


@dataclass(frozen=True)
class Process:
    name: str
    pid: int
    started: str

    @property
    def alive(self) -> bool:
        return _start_time(self.pid) == self.started


def start(layout: Layout, name: str, argv: Sequence[str | Path]) -> Process:
    layout.logs.mkdir(parents=True, exist_ok=True)
    layout.pids.mkdir(parents=True, exist_ok=True)
    with (layout.logs / f"{name}.log").open("wb") as log:
        child = subprocess.Popen(
            [str(word) for word in argv],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd="/",
        )
    process = Process(name, child.pid, _start_time(child.pid))
    (layout.pids / name).write_text(json.dumps({"pid": process.pid, "started": process.started}))
    return process


def known(layout: Layout) -> list[Process]:
    """In the order in which they were started."""
    files = sorted(layout.pids.glob("*"), key=lambda path: path.stat().st_mtime_ns)
    return [Process(name=path.name, **json.loads(path.read_text())) for path in files]


def insist_alive(layout: Layout) -> None:
    for process in known(layout):
        if not process.alive:
            log = layout.logs / f"{process.name}.log"
            raise NotReady(f"{process.name} died; {log} ends with\n{tail(log.read_text(errors='replace'))}")


def stop_all(layout: Layout) -> None:
    """At once: what they would save on a polite request is removed next."""
    for process in known(layout):
        if process.alive:
            os.kill(process.pid, signal.SIGKILL)
        wait_for(f"the end of {process.name}", partial(_gone, process), seconds=10)
        (layout.pids / process.name).unlink()


def _gone(process: Process) -> bool:
    return not process.alive


def _start_time(pid: int) -> str:
    """Clock ticks since boot, field 22 of proc_pid_stat(5); empty where the process is gone, or waits to be reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if fields[0] == "Z" else fields[19]
