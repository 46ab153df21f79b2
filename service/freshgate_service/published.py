"""What was published for this process: a configuration and the credentials it names, always swapped together.

In a cluster both stand in one mounted Secret; on a laptop they are compiled from manifests. The runtime only knows
this form, and asks for the next one.
"""

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from freshgate_crds.compiled import FORMAT, Config
from freshgate_service.errors import ConfigRefused

CONFIG_FILE = "config.json.gz"
POLL_SECONDS = 0.5
READABLE_FORMATS = (FORMAT, FORMAT - 1)


@dataclass(frozen=True, slots=True)
class Published:
    """`credentials` are secret values by `Credential.file_name`; they are kept out of every representation."""

    config: Config
    credentials: Mapping[str, str] = field(repr=False)


class Publisher(Protocol):
    def current(self) -> Published:
        """What is published now. Raises ConfigRefused, naming the mend."""

    def changes(self) -> AsyncIterator[Published | ConfigRefused]:
        """What is published from now on, and what is refused of it."""


def parse(text: bytes) -> Config:
    """A configuration from its JSON. Anything that this version does not know is refused, never skipped."""
    try:
        config = Config.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(step) for step in first["loc"]) or CONFIG_FILE
        raise ConfigRefused(f"{where}: {first['msg']}; publish with an operator of this version") from None
    if config.format not in READABLE_FORMATS:
        readable = " or ".join(map(str, READABLE_FORMATS))
        raise ConfigRefused(f"format: {config.format} is not known to this version, which reads {readable}")
    return config


class MountedSecret:
    """A Secret mounted as a folder. The kubelet swaps all files at once, by a link that they are reached through."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = ("", 0)

    def current(self) -> Published:
        self._seen = self._signature()  # before it is read: what is swapped in meanwhile is told as a change
        folder = self._folder.resolve()
        # One real folder for all files: read through the link, they could come from two publications.
        data = (folder / "..data").resolve() if (folder / "..data").exists() else folder
        try:
            files = {path.name: path.read_bytes() for path in data.iterdir() if path.is_file()}
            text = gzip.decompress(files.pop(CONFIG_FILE))
        except KeyError:
            raise ConfigRefused(f"{CONFIG_FILE} is missing from the mounted Secret") from None
        except (OSError, EOFError, zlib.error) as error:
            raise ConfigRefused(f"{CONFIG_FILE} cannot be read: {type(error).__name__}") from None
        credentials = {name: value.decode(errors="replace").strip() for name, value in files.items()}
        return Published(parse(text), credentials)

    async def changes(self) -> AsyncIterator[Published | ConfigRefused]:
        """What was swapped in since `current` was called last, by whomever."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            if self._signature() != self._seen:
                try:
                    yield self.current()
                except ConfigRefused as refused:
                    yield refused

    def _signature(self) -> tuple[str, int]:
        path = self._folder / CONFIG_FILE
        try:
            return str(path.resolve()), path.stat().st_mtime_ns
        except OSError:
            return "", 0
