"""Listening: the end of a process, and what is not even HTTP."""

import asyncio
import json
import os
import signal
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from freshgate_serve import ScriptedPipeline, corp, logs_in_memory, served, user

from freshgate_service.metrics import Metrics
from freshgate_service.serve import app as serve_app
from freshgate_service.serve import ops
from freshgate_service.serve.auth import Verifier
from freshgate_service.serve.listen import listening, serve, stop_signals


async def raw(port: int, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """What a server answers to bytes, until it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    async with asyncio.timeout(5):
        answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    return int(status.split()[1]), dict(line.split(": ", 1) for line in lines), body


NOT_HTTP = {
    "nonsense": b"\x16\x03\x01\x02\x00\r\n\r\n",
    "an unknown version": b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
    "bad header": b"GET / HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "length and chunks": b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a huge header": b"GET / HTTP/1.1\r\nAuthorization: Bearer " + b"a" * 20_000 + b"\r\n\r\n",
}


@pytest.mark.parametrize("request_bytes", NOT_HTTP.values(), ids=NOT_HTTP)
async def test_what_is_no_http_is_refused_in_the_one_form_and_shown_to_nobody(request_bytes: bytes):
    async with served() as service:
        status, headers, body = await raw(int(service.url.rpartition(":")[2]), request_bytes)
        assert (status, json.loads(body)["error"]["code"]) == (400, "invalid_request")
        assert headers["Server"] == "freshgate"
        assert b"aaaa" not in service.log.getvalue()


async def test_an_expectation_nobody_meets_is_refused_in_the_one_form():
    async with served() as service:
        status, answer = await service.json("GET", "/api/v1/whoami", user(), headers={"Expect": "tea"})
        assert (status, answer["error"]["code"]) == (417, "expectation_failed")


async def test_a_long_token_is_read():
    async with served() as service:
        token = user("ana", *(f"group-{number:04}" for number in range(500)))
        assert len(token) > 8_190
        status, answer = await service.json("GET", "/api/v1/whoami", token)
        assert (status, len(answer["principal"]["groups"])) == (200, 500)


async def test_requests_under_way_are_answered_and_new_ones_not_taken():
    pipeline = ScriptedPipeline()
    pipeline.open.clear()
    application = serve_app.build(pipeline, Verifier([corp()]), Metrics("support"))
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        running = AsyncExitStack()
        port = await running.enter_async_context(listening(application, "127.0.0.1", 0))
        headers = {"Authorization": f"Bearer {user()}"}
        url = f"http://127.0.0.1:{port}/api/v1/search"
        waiting = asyncio.create_task(session.post(url, json={"query": "a"}, headers=headers))
        await pipeline.entered.wait()
        ending = asyncio.create_task(running.aclose())
        async with asyncio.timeout(5):
            while True:  # until the port is closed
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except ConnectionRefusedError:
                    break
                writer.close()
        assert not waiting.done()
        pipeline.open.set()
        response = await waiting
        assert response.status == 200
        assert response.headers["Connection"] == "close"
        assert len((await response.json())["results"]) == 2
        await ending


@dataclass
class Load:
    """Clients that ask over kept connections until nobody takes their connection any more."""

    url: str
    answered: int = 0
    cut_off: list[str] = field(default_factory=list)
    enough: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask(self, session: aiohttp.ClientSession) -> None:
        headers = {"Authorization": f"Bearer {user()}"}
        while True:
            try:
                async with session.post(self.url, json={"query": "a"}, headers=headers) as response:
                    answer: Any = await response.json()
            except aiohttp.ClientConnectorError:
                return
            except aiohttp.ClientError as error:
                self.cut_off.append(repr(error))
                return
            if response.status != 200 or len(answer["results"]) != 2:
                self.cut_off.append(f"{response.status}")
            self.answered += 1
            if self.answered == 200:
                self.enough.set()


@pytest.mark.parametrize("drain_seconds", [0.0, 0.1])
async def test_sigterm_under_load_cuts_no_request_off(drain_seconds: float):
    verifier, metrics = Verifier([corp()]), Metrics("support")
    application = serve_app.build(ScriptedPipeline(), verifier, metrics)
    operations = ops.build(metrics, verifier, lambda: ops.Status(True, None, None), ops.Access())
    with logs_in_memory() as log, stop_signals() as stop:
        where = {"host": "127.0.0.1", "port": 0, "ops_host": "127.0.0.1", "ops_port": 0}
        serving = asyncio.create_task(serve(application, operations, **where, stop=stop, drain_seconds=drain_seconds))
        async with asyncio.timeout(10):
            while b"listening" not in log.getvalue():
                await asyncio.sleep(0.01)
        (line,) = [json.loads(line) for line in log.getvalue().splitlines() if b'"listening"' in line]
        load = Load(f"http://127.0.0.1:{line['port']}/api/v1/search")
        async with aiohttp.ClientSession() as session, asyncio.timeout(30):
            clients = [asyncio.create_task(load.ask(session)) for _ in range(20)]
            await load.enough.wait()
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.gather(*clients)
            await serving
    assert load.answered >= 200
    assert load.cut_off == []
    assert b"secret" not in log.getvalue()


async def test_the_ops_port_answers_until_the_query_port_has_ended():
    verifier, metrics, pipeline = Verifier([corp()]), Metrics("support"), ScriptedPipeline()
    pipeline.open.clear()
    application = serve_app.build(pipeline, verifier, metrics)
    operations = ops.build(metrics, verifier, lambda: ops.Status(True, None, None), ops.Access())
    async with aiohttp.ClientSession() as session, listening(operations, "127.0.0.1", 0) as ops_port:
        running = AsyncExitStack()
        port = await running.enter_async_context(listening(application, "127.0.0.1", 0))
        waiting = asyncio.create_task(
            session.get(f"http://127.0.0.1:{port}/api/v1/sources", headers={"Authorization": f"Bearer {user()}"})
        )
        await pipeline.entered.wait()
        ending = asyncio.create_task(running.aclose())
        async with session.get(f"http://127.0.0.1:{ops_port}/livez") as live:
            assert live.status == 200
        pipeline.open.set()
        assert (await waiting).status == 200
        await ending
