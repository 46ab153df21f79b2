"""Runs commands and prints progress: the one place that knows how a failed command is reported."""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .errors import CommandFailed, NotReady

_BEGAN = time.monotonic()
_SHOWN_LINES = 30


def say(line: str) -> None:
    print(f"[{time.monotonic() - _BEGAN:6.1f}s] {line}", file=sys.stderr, flush=True)


def run(
    argv: Sequence[str | Path],
    *,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> str:
    """Standard output of a command; CommandFailed, with the end of what it said, where it fails."""
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(words, input=stdin, capture_output=True, text=True, env=env, cwd=cwd, check=False)
    except FileNotFoundError as error:
        raise CommandFailed(f"{words[0]}: not found") from error
    if done.returncode != 0:
        raise CommandFailed(f"{' '.join(words)}: exit status {done.returncode}\n{tail(done.stderr or done.stdout)}")
    return done.stdout


def tail(text: str) -> str:
    return "\n".join(text.splitlines()[-_SHOWN_LINES:])


def wait_for(what: str, ready: Callable[[], bool], *, seconds: float) -> None:
    """`ready` may itself raise NotReady to end the wait at once, as when a process has died."""
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise NotReady(f"{what}: not ready after {seconds:.0f} s")
        time.sleep(0.1)
