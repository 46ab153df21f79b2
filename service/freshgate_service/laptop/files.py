"""What is kept under the data directory: written whole or not at all, and used by one service at a time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from freshgate_service.errors import FreshgateError


class DataInUse(FreshgateError):
    """Another process serves from this data directory."""


def write_whole(path: Path, text: str, *, mode: int = 0o644) -> None:
    """A crash, or somebody who reads meanwhile, finds the old text or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.touch(mode)
    new.write_text(text)
    new.replace(path)


@contextmanager
def in_use(data: Path) -> Iterator[None]:
    """Two services on one data directory would count revisions past each other, and each refuse to answer by what the
    other has published. Raises DataInUse."""
    data.mkdir(parents=True, exist_ok=True)
    with (data / ".in-use").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataInUse(f"{data} is in use by another service: stop that one, or give another --data") from None
        yield
