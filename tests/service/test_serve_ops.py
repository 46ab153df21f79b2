"""The ops port: who may look, and what is shown."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
import pytest
from freshgate_serve import account, cluster, corp, user

from freshgate_crds.compiled import KUBERNETES_ISSUER, Revision
from freshgate_service.domain import Name
from freshgate_service.metrics import Metrics
from freshgate_service.serve import ops
from freshgate_service.serve.auth import Verifier
from freshgate_service.serve.listen import listening
from freshgate_service.serve.ops import Access, SourceStatus, Status

LOADED = Status(
    ready=True,
    revision=Revision(workspace_uid="uid-1", counter=7),
    config_format=1,
    sources=[
        SourceStatus("accounts", 0, 0),
        SourceStatus("tickets", 12, 3, 1_795_000_000.4, "source_timeout: the source took too long"),
    ],
)


@dataclass
class Ops:
    url: str
    http: aiohttp.ClientSession
    status: Status

    async def get(self, path: str, token: str | None = None) -> tuple[int, dict[str, str], bytes]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self.http.get(self.url + path, headers=headers) as response:
            return response.status, dict(response.headers), await response.read()


@asynccontextmanager
async def running(access: Access) -> AsyncIterator[Ops]:
    metrics = Metrics("support")
    metrics.declare_source("tickets")
    found = Ops("", None, LOADED)  # type: ignore[arg-type]
    app = ops.build(metrics, Verifier([corp(), cluster()]), lambda: found.status, access)
    async with listening(app, "127.0.0.1", 0) as port, aiohttp.ClientSession() as http:
        found.url, found.http = f"http://127.0.0.1:{port}", http
        yield found


GUARDED = Access("scrape-me", frozenset({Name(KUBERNETES_ISSUER, "monitoring/prometheus")}))


@pytest.fixture
async def guarded() -> AsyncIterator[Ops]:
    async with running(GUARDED) as found:
        yield found


async def test_liveness_says_nothing_and_needs_no_token(guarded: Ops):
    for status in (LOADED, replace(LOADED, ready=False)):
        guarded.status = status
        code, _, body = await guarded.get("/livez")
        assert (code, body) == (200, b"")


async def test_readiness_says_nothing_but_its_status(guarded: Ops):
    assert (await guarded.get("/readyz"))[::2] == (200, b"")
    guarded.status = replace(LOADED, ready=False)
    assert (await guarded.get("/readyz"))[::2] == (503, b"")


@pytest.mark.parametrize("path", ["/metrics", "/status"])
@pytest.mark.parametrize("token", ["scrape-me", account("monitoring:prometheus")])
async def test_the_scrape_token_and_allowed_accounts_may_look(guarded: Ops, path: str, token: str):
    assert (await guarded.get(path, token))[0] == 200


@pytest.mark.parametrize("path", ["/metrics", "/status"])
async def test_nobody_else_may_and_all_are_told_the_same(guarded: Ops, path: str):
    strangers = [None, "scrape-me2", "scrape-m", "", account("bots:helper"), account("prometheus:monitoring")]
    strangers += [user("monitoring/prometheus"), account("monitoring:prometheus", exp=1)]
    answers = [await guarded.get(path, token) for token in strangers]
    assert {status for status, _, _ in answers} == {401}
    assert len({body for _, _, body in answers}) == 1


@pytest.mark.parametrize("path", ["/metrics", "/status"])
async def test_without_any_grant_nobody_may_look(path: str):
    async with running(Access()) as closed:
        for token in (None, "", "None", account("monitoring:prometheus")):
            assert (await closed.get(path, token))[0] == 401


@pytest.mark.parametrize("path", ["/metrics", "/status"])
async def test_on_a_laptop_everybody_may(path: str):
    async with running(Access(everybody=True)) as laptop:
        assert (await laptop.get(path))[0] == 200


async def test_metrics_are_prometheus_text(guarded: Ops):
    _, headers, body = await guarded.get("/metrics", "scrape-me")
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert b'freshgate_served_total{source="tickets",state="fresh",workspace="support"} 0.0' in body


async def test_status_tells_revision_readiness_and_each_source(guarded: Ops):
    _, _, body = await guarded.get("/status", "scrape-me")
    assert json.loads(body) == {
        "ready": True,
        "revision": {"workspace_uid": "uid-1", "counter": 7},
        "format": 1,
        "sources": [
            {"name": "accounts", "objects": 0, "stale": 0},
            {
                "name": "tickets",
                "objects": 12,
                "stale": 3,
                "last_success": "2026-11-18T11:06:40Z",
                "last_error": "source_timeout: the source took too long",
            },
        ],
    }


async def test_before_anything_is_loaded_status_says_so(guarded: Ops):
    guarded.status = Status(ready=False, revision=None, config_format=None)
    _, _, body = await guarded.get("/status", "scrape-me")
    assert json.loads(body) == {"ready": False, "sources": []}


@pytest.mark.parametrize("path", ["/", "/explain", "/api/v1/whoami", "/debug", "/metrics/"])
async def test_there_is_nothing_else(guarded: Ops, path: str):
    status, headers, body = await guarded.get(path, "scrape-me")
    assert (status, headers["Content-Type"]) == (404, "application/json")
    assert json.loads(body)["error"]["code"] == "not_found"


async def test_a_failing_status_is_an_error_without_its_text(guarded: Ops):
    def fail() -> Any:
        raise RuntimeError("secret")

    class Failing:
        ready = property(lambda _self: fail())

    guarded.status = Failing()  # type: ignore[assignment]
    status, _, body = await guarded.get("/readyz")
    assert (status, json.loads(body)["error"]["code"]) == (500, "internal")
    assert b"secret" not in body
