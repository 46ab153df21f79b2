"""A workspace on a machine, run as people run it: a folder of manifests, one of secrets, and the real command.

Everything that a process says is kept, and looked through for secrets when the process has ended: whatever a test is
about, none may be in it.
"""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

FRESHGATE = Path(sys.executable).parent / "freshgate"
HOST = "127.0.0.1"
PASSWORD = "p4ssw0rd-of-the-dsn"
"""Stands in every DSN; the servers let anybody in."""

SOON = 5.0
START = 30.0
"""Seconds that something may take at most, on a machine that is busy."""

_SECRETS = re.compile(rf"{PASSWORD}|PRIVATE KEY|eyJ[\w-]+\.[\w-]+\.[\w-]+")
"""The password, a private key, a signed token."""


def free_port() -> int:
    with socket.create_server((HOST, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def write_secret(folder: Path, name: str, key: str, value: str) -> None:
    path = folder / name / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value)


def with_password(dsn: str) -> str:
    return dsn.replace("@", f":{PASSWORD}@", 1)


async def until(holds: Callable[[], Awaitable[Any]], seconds: float = SOON) -> Any:
    """What it gives once that is true; asks again and again until then."""
    async with asyncio.timeout(seconds):
        while not (found := await holds()):
            await asyncio.sleep(0.01)
    return found


def reveals(text: str) -> str | None:
    """A secret that stands in the text, and what stands around it."""
    found = _SECRETS.search(text)
    return None if found is None else text[max(0, found.start() - 200) : found.end() + 20]


# --- a folder --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Laptop:
    """`manifests` and `secrets` are what people write, `data` is what `freshgate serve` keeps."""

    folder: Path

    @property
    def manifests(self) -> Path:
        return self.folder / "manifests"

    @property
    def secrets(self) -> Path:
        return self.folder / "secrets"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def write(self, file: str, text: str) -> None:
        """Like an editor that saves: the file is whole at any time."""
        self.manifests.mkdir(parents=True, exist_ok=True)
        new = self.manifests / f".{file}.new"
        new.write_text(text)
        new.rename(self.manifests / file)

    def secret(self, name: str, dsn: str) -> None:
        write_secret(self.secrets, name, "dsn", with_password(dsn))

    def begin_revisions(self) -> None:
        """Whoever starts on a copy of `data` that is made now obeys the same revision."""
        path = self.data / "revisions" / "default_support.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"workspace_uid": "uid", "counter": 0}))

    async def command(self, *arguments: str, **environment: str) -> "Finished":
        """Runs a command to its end."""
        process = await asyncio.create_subprocess_exec(
            FRESHGATE, *arguments, cwd=self.folder, env=_environment(environment), **_CAPTURED
        )
        output, errors = await asyncio.wait_for(process.communicate(), START)
        finished = Finished(int(process.returncode or 0), output.decode(), errors.decode())
        assert "Traceback" not in finished.errors
        assert arguments[0] == "token" or reveals(finished.output + finished.errors) is None
        return finished

    @asynccontextmanager
    async def serving(self, *arguments: str, data: Path | None = None) -> AsyncIterator["Process"]:
        """`freshgate serve`, ready to be asked."""
        process = await self.start(*arguments, data=data)
        async with process:
            await process.ready()
            yield process

    async def start(self, *arguments: str, data: Path | None = None) -> "Process":
        given = ["-f", self.manifests, "--secrets", self.secrets, "--data", data or self.data, "--verbose"]
        return await Process.start(self.folder, "serve", *map(str, given), *arguments)


_CAPTURED: Mapping[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, "PYTHONWARNINGS": "error", **more}


@dataclass(frozen=True)
class Finished:
    status: int
    output: str
    errors: str


# --- a process -------------------------------------------------------------------------------------------------------


@dataclass
class Process:
    """A running service. However its context is left, it has ended then, and has told no secret."""

    port: int
    ops_port: int
    process: asyncio.subprocess.Process
    log: Path
    http: aiohttp.ClientSession = field(default_factory=aiohttp.ClientSession)

    @classmethod
    async def start(cls, folder: Path, command: str, *arguments: str) -> "Process":
        port, ops_port = free_port(), free_port()
        log = folder / f"{command}-{port}.log"
        ports = ["--port", str(port), "--ops-port", str(ops_port)]
        with log.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                FRESHGATE,
                *(command, *arguments, *ports),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=_environment({}),
            )
        return cls(port, ops_port, process, log)

    async def __aenter__(self) -> "Process":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.close()
        if self.process.returncode is None:
            with suppress(TimeoutError):
                await self.stop()
        if self.process.returncode is None:
            await self.kill()
        assert reveals(self.said) is None
        assert "Traceback" not in self.said

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def said(self) -> str:
        return self.log.read_text()

    def logged(self, event: str) -> list[dict[str, Any]]:
        lines = [line for line in self.said.splitlines() if line.startswith("{")]
        return [told for line in lines if (told := json.loads(line))["event"] == event]

    # its life

    async def ready(self) -> None:
        await until(self.is_ready, START)

    async def is_ready(self) -> bool:
        assert self.process.returncode is None, self.said
        return await self.ops("/readyz") == (200, "")

    async def stop(self) -> int:
        """Its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return await self.ended()

    async def kill(self) -> None:
        self.process.kill()
        await self.ended()

    async def ended(self) -> int:
        return await asyncio.wait_for(self.process.wait(), START)

    # what it answers

    async def ops(self, path: str, **headers: str) -> tuple[int, str]:
        """Status and body; 0 where nobody listens."""
        try:
            async with self.http.get(f"http://{HOST}:{self.ops_port}{path}", headers=headers) as response:
                return response.status, await response.text()
        except aiohttp.ClientConnectionError:
            return 0, ""

    async def counted(self, sample: str) -> float:
        """The sum over a metric's series."""
        _, text = await self.ops("/metrics")
        return sum(_samples(sample, text))

    async def ask(self, token: str, method: str, path: str, **options: Any) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token}"}
        async with self.http.request(method, f"{self.url}/api/v1/{path}", headers=headers, **options) as response:
            return response.status, await response.json()

    async def search(self, token: str, query: str = "refund", **options: Any) -> list[Any]:
        status, answer = await self.ask(token, "POST", "search", json={"query": query, **options})
        assert status == 200, (answer, self.said[-2000:])
        return list(answer["results"])


def _samples(name: str, text: str) -> Iterator[float]:
    for line in text.splitlines():
        series, _, value = line.rpartition(" ")
        if series.partition("{")[0] == name:
            yield float(value)


def ids(results: Sequence[Any]) -> set[str]:
    return {each["id"] for each in results}


def states(results: Sequence[Any]) -> dict[str, str]:
    return {each["id"]: each["freshness"].get("reason", each["freshness"]["state"]) for each in results}
