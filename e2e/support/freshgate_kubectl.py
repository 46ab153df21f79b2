"""kubectl and helm as functions, with bounds on how long they may take."""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

COMMAND_SECONDS = 180
PAUSE_SECONDS = 0.2


class Refused(Exception):
    """What kubectl or helm said when it failed."""


def kubectl(*words: str | Path, stdin: str | None = None) -> str:
    return _run("kubectl", *words, stdin=stdin)


def helm(*words: str | Path) -> str:
    return _run("helm", *words)


def get(kind: str, name: str = "", *, namespace: str = "", selector: str = "") -> Any:
    where = [f"--namespace={namespace}"] if namespace else []
    which = [f"--selector={selector}"] if selector else []
    return json.loads(kubectl("get", kind, *([name] if name else []), *where, *which, "--output=json"))


def apply(manifests: str, *options: str) -> str:
    return kubectl("apply", *options, "--filename=-", stdin=manifests)


def wait(condition: str, *what: str, namespace: str, seconds: int) -> str:
    return kubectl("wait", f"--for={condition}", *what, f"--namespace={namespace}", f"--timeout={seconds}s")


def eventually(attempt: Callable[[], T], *, seconds: float, what: str) -> T:
    """The first result that is true. What kubectl refuses meanwhile counts as not yet."""
    end = time.monotonic() + seconds
    last: object = None
    while time.monotonic() < end:
        try:
            result = attempt()
        except Refused as refusal:
            last = refusal
        else:
            if result:
                return result
            last = result
        time.sleep(PAUSE_SECONDS)
    raise AssertionError(f"not within {seconds} s: {what}; the last was {last!r}")


def _run(*words: str | Path, stdin: str | None = None) -> str:
    command = list(map(str, words))
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=COMMAND_SECONDS)
    if done.returncode != 0:
        raise Refused(done.stderr.strip() or done.stdout.strip())
    return done.stdout
