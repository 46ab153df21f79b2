"""A load generator in a process of its own: keep-alive connections that each wait for an answer before they ask again.

It reads no more of an answer than tells where it ends, so that one process keeps a Python server busy.
"""

import asyncio
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import NamedTuple

from freshgate_bench.processes import HOST

CONNECTIONS = 8
_LENGTH = b"content-length:"


class Round(NamedTuple):
    """Latencies are in seconds."""

    seconds: float
    latencies: list[float]

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds


@dataclass(frozen=True)
class Generator:
    worker: Connection

    def run(self, port: int, requests: Sequence[bytes], seconds: float) -> Round:
        """Raises RuntimeError where anything but a 200 came."""
        self.worker.send((port, requests, seconds))
        failure, round_ = self.worker.recv()
        if failure:
            raise RuntimeError(failure)
        return Round(*round_)


@contextmanager
def generator() -> Iterator[Generator]:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_work, args=(there,), daemon=True)
    process.start()
    try:
        yield Generator(here)
    finally:
        here.send(None)
        process.join(10)


def request(path: str, body: bytes, headers: Sequence[tuple[str, str]]) -> bytes:
    lines = [("Host", "localhost"), ("Content-Type", "application/json"), ("Content-Length", str(len(body))), *headers]
    head = "".join(f"{name}: {value}\r\n" for name, value in lines)
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def _work(commands: Connection) -> None:
    while (command := commands.recv()) is not None:
        commands.send(asyncio.run(_round(*command)))


async def _round(port: int, requests: Sequence[bytes], seconds: float) -> tuple[str, Round]:
    loop = asyncio.get_running_loop()
    started = time.perf_counter()
    clients = [_Client([*requests[place:], *requests[:place]], started + seconds) for place in range(CONNECTIONS)]
    for client in clients:
        await loop.create_connection(lambda client=client: client, HOST, port)  # type: ignore[misc]
    await asyncio.wait([client.done for client in clients])
    took = time.perf_counter() - started
    failure = next((client.failure for client in clients if client.failure), "")
    return failure, Round(took, [each for client in clients for each in client.latencies])


class _Client(asyncio.Protocol):
    def __init__(self, requests: Sequence[bytes], until: float) -> None:
        self.latencies: list[float] = []
        self.failure = ""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._requests = requests
        self._until = until
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head = self._received.find(b"\r\n\r\n")
        if head < 0 or len(self._received) < head + 4 + self._length(head):
            return
        now = time.perf_counter()
        self.latencies.append(now - self._asked)
        if not self._received.startswith(b"HTTP/1.1 200"):
            self.failure = f"a server answered {self._received[:300]!r}"
        self._received = b""
        if self.failure or now >= self._until:
            self._transport.close()
        else:
            self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.failure and time.perf_counter() < self._until:
            self.failure = "a server closed a connection"
        if not self.done.done():
            self.done.set_result(None)

    def _ask(self) -> None:
        self._asked = time.perf_counter()
        self._transport.write(self._requests[len(self.latencies) % len(self._requests)])

    def _length(self, head: int) -> int:
        headers = self._received[:head].lower()
        at = headers.index(_LENGTH) + len(_LENGTH)
        return int(headers[at : headers.find(b"\r\n", at) if headers.find(b"\r\n", at) >= 0 else None])
