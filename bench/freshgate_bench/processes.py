"""Servers in processes of their own, and what they cost."""

import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"
FRESHGATE = str(Path(sys.executable).with_name("freshgate"))
PATIENCE = 60.0
STEP = 0.01


@dataclass(frozen=True)
class Server:
    process: subprocess.Popen[bytes]
    port: int
    ops_port: int

    @property
    def cpu_seconds(self) -> float:
        """Of all its threads so far."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

    def wait_ready(self, port: int, path: str) -> None:
        until = time.monotonic() + PATIENCE
        while not _answers(port, path):
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"a server did not get ready: exit status {self.process.poll()}")
            time.sleep(STEP)


@contextmanager
def running(*command: str, log: Path) -> Iterator[Server]:
    """`{port}` and `{ops_port}` in the command stand for free ports. Ended by SIGTERM."""
    port, ops_port = free_port(), free_port()
    filled = [part.format(port=port, ops_port=ops_port) for part in command]
    with log.open("wb") as out:
        process = subprocess.Popen(filled, stdout=out, stderr=out)
    try:
        yield Server(process, port, ops_port)
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def freshgate(published: Path, log: Path) -> Iterator[Server]:
    """What the image runs, as a sidecar: without the background loop, which would ask a source that is not there."""
    command = [FRESHGATE, "service", "--config", str(published), "--sidecar"]
    with running(*command, "--port", "{port}", "--ops-port", "{ops_port}", log=log) as server:
        server.wait_ready(server.ops_port, "/readyz")
        yield server


def free_port() -> int:
    with socket.create_server((HOST, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def ask(port: int, method: str, path: str, body: bytes, headers: Sequence[tuple[str, str]]) -> bytes:
    connection = http.client.HTTPConnection(HOST, port, timeout=PATIENCE)
    try:
        connection.request(method, path, body, dict(headers))
        response = connection.getresponse()
        content = response.read()
        if response.status != 200:
            raise RuntimeError(f"{path} answered {response.status}: {content[:200]!r}")
        return content
    finally:
        connection.close()


def _answers(port: int, path: str) -> bool:
    try:
        ask(port, "GET", path, b"", ())
    except (OSError, RuntimeError):
        return False
    return True
