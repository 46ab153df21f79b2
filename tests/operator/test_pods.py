"""How pods are asked for their reports, and how little a strange answer can do."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from freshgate_operator.pods import Reporters, SeenPod, outdated_sidecars

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
Ask = Callable[[Answer], Awaitable[SeenPod]]


def pod(name: str = "support-1") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {}, "status": {"podIP": "127.0.0.1"}}


@pytest.fixture
async def ask() -> AsyncIterator[Ask]:
    """Asks a pod that answers so."""
    runners: list[web.AppRunner] = []
    async with aiohttp.ClientSession(auto_decompress=False) as session:

        async def asked(answer: Answer) -> SeenPod:
            application = web.Application()
            application.router.add_get("/status", answer)
            runner = web.AppRunner(application)
            runners.append(runner)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            (seen,) = await Reporters(session, site.port).look([pod()], "token")
            return seen

        yield asked
        for runner in runners:
            await runner.cleanup()


async def test_a_pod_is_asked_with_the_scrape_token_and_says_what_it_has_loaded(ask: Ask):
    async def answer(request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer token"
        return web.json_response(
            {
                "ready": True,
                "revision": {"workspace_uid": "uid", "counter": 7},
                "format": 1,
                "sources": [{"name": "tickets", "objects": 3, "stale": 1, "last_success": "2026-11-30T10:00:00.5Z"}],
                "of_a_later_version": {},
            }
        )

    seen = await ask(answer)
    assert seen.report is not None
    assert seen.report.revision.counter == 7
    assert seen.report.sources[0].stale == 1


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 200),
        (b"<html>", 200),
        (b"[]", 200),
        (json.dumps({"ready": True, "sources": "many"}).encode(), 200),
        (json.dumps({"ready": True, "sources": []}).encode(), 401),
        (json.dumps({"ready": True, "sources": []}).encode() + b" " * 2 * 1024 * 1024, 200),
    ],
)
async def test_whatever_else_comes_is_no_report(ask: Ask, body: bytes, status: int):
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=body, status=status)

    assert (await ask(answer)).report is None


async def test_a_redirect_is_not_followed(ask: Ask):
    async def answer(_request: web.Request) -> web.Response:
        raise web.HTTPFound("http://169.254.169.254/")

    assert (await ask(answer)).report is None


async def test_a_pod_that_is_not_there_is_no_failure():
    async with aiohttp.ClientSession() as session:
        (seen,) = await Reporters(session, 1).look([pod()], "token")
    assert seen == SeenPod("support-1", ready=False)


def test_only_sidecars_of_another_image_are_outdated():
    def injected(name: str, image: str | None, **metadata: Any) -> dict[str, Any]:
        containers = [{"name": "freshgate", "image": image}] if image else []
        return {"metadata": {"name": name, **metadata}, "spec": {"initContainers": containers}}

    pods = [
        injected("same", "service:2"),
        injected("old", "service:1"),
        injected("leaving", "service:1", deletionTimestamp="now"),
        injected("without", None),
    ]
    assert outdated_sidecars(pods, "service:2") == ("old", "without")
