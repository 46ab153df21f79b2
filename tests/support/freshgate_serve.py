"""What tests of serving stand on: signed tokens of made-up issuers, scripted answers, real listening."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from io import BytesIO
from typing import Any

import aiohttp
import jwt
import structlog
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from freshgate_crds.compiled import KUBERNETES_ISSUER, ClaimMapping, Issuer, Revision
from freshgate_service import logs
from freshgate_service.domain import (
    Access,
    Asker,
    Clock,
    Freshness,
    Item,
    Match,
    MemoryObject,
    ObjectKey,
    Reason,
    SourceInfo,
    State,
)
from freshgate_service.metrics import Metrics
from freshgate_service.serve import app as serve_app
from freshgate_service.serve.auth import Verifier
from freshgate_service.serve.listen import listening

ERAS = ("legacy", "2026-07-28")
CORP_URL = "https://login.corp.example"
CLUSTER_URL = "https://kubernetes.default.svc"
AUDIENCE = "freshgate"
CONFIRMED_AT = 1_795_000_000.0
PATIENCE = aiohttp.ClientTimeout(total=15)
"""A request that is never answered fails its test, and does not hang it."""


# --- keys and tokens -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Signer:
    """A private key under a name, as an issuer has it."""

    kid: str
    algorithm: str
    private: Any

    def jwk(self, **members: Any) -> dict[str, Any]:
        kinds = {"R": RSAAlgorithm, "P": RSAAlgorithm, "E": ECAlgorithm}
        kind = OKPAlgorithm if self.algorithm == "EdDSA" else kinds[self.algorithm[0]]
        return {**kind.to_jwk(self.private.public_key(), as_dict=True), "kid": self.kid, "use": "sig", **members}

    def sign(self, claims: Mapping[str, Any], **headers: Any) -> str:
        """Headers with the value None are left out."""
        headers = {name: value for name, value in {"kid": self.kid, **headers}.items() if value is not None}
        return jwt.encode(dict(claims), self.private, self.algorithm, headers=headers)


@cache
def rsa_signer(kid: str = "rsa-1", algorithm: str = "RS256") -> Signer:
    return Signer(kid, algorithm, rsa.generate_private_key(65537, 2048))


@cache
def ec_signer(kid: str = "ec-1") -> Signer:
    return Signer(kid, "ES256", ec.generate_private_key(ec.SECP256R1()))


@cache
def ed_signer(kid: str = "ed-1") -> Signer:
    return Signer(kid, "EdDSA", ed25519.Ed25519PrivateKey.generate())


def jwks(*signers: Signer) -> str:
    return json.dumps({"keys": [signer.jwk() for signer in signers]})


def corp(**changes: Any) -> Issuer:
    """A company's issuer: users by e-mail address, groups."""
    values: dict[str, Any] = {
        "name": "corp",
        "url": CORP_URL,
        "audience": AUDIENCE,
        "claims": ClaimMapping(user="email", groups="groups"),
        "jwks": jwks(rsa_signer(), ec_signer(), ed_signer()),
    }
    return Issuer(**{**values, **changes})


def cluster(**changes: Any) -> Issuer:
    """The cluster's issuer of ServiceAccount tokens."""
    values: dict[str, Any] = {
        "name": KUBERNETES_ISSUER,
        "url": CLUSTER_URL,
        "audience": AUDIENCE,
        "kubernetes": True,
        "jwks": jwks(ec_signer("cluster-1")),
    }
    return Issuer(**{**values, **changes})


ISSUED = int(time.time())
"""When all tokens of a run were issued: a token made at collection and one made in a test are of one time."""


def user_claims(email: str = "ana@corp.example", *groups: str, **changes: Any) -> dict[str, Any]:
    """Changes with the value None take the claim away."""
    now = ISSUED
    claims: dict[str, Any] = {
        "iss": CORP_URL,
        "aud": AUDIENCE,
        "sub": f"id-of-{email}",
        "email": email,
        "iat": now,
        "exp": now + 3600,
        "groups": list(groups),
        **changes,
    }
    return {name: value for name, value in claims.items() if value is not None}


def user(email: str = "ana@corp.example", *groups: str, **changes: Any) -> str:
    return ec_signer().sign(user_claims(email, *groups, **changes))


def account(name: str = "bots:helper", **changes: Any) -> str:
    now = ISSUED
    claims = {"iss": CLUSTER_URL, "aud": [AUDIENCE], "sub": f"system:serviceaccount:{name}", "iat": now, "nbf": now}
    claims = {**claims, "exp": now + 3600, **changes}
    return ec_signer("cluster-1").sign({name: value for name, value in claims.items() if value is not None})


# --- a pipeline ------------------------------------------------------------------------------------------------------


def item(source: str = "tickets", record_id: str = "4711", **changes: Any) -> Item:
    """A confirmed item; `title`, `summary` and `url` can be changed."""
    key = ObjectKey(source, record_id)
    content = MemoryObject(
        key=key,
        title=changes.get("title", "Refund for order 12"),
        summary=changes.get("summary", "The customer asks for a refund."),
        url=changes.get("url", f"https://desk.example/{record_id}"),
        access=Access(source, {}),
        content_hash="c",
        access_hash="a",
        spec_hash="s",
        condenser="extractive",
        version=None,
        clock=Clock(CONFIRMED_AT),
        change=1,
    )
    matched = (Match("refund", "title", 4.125), Match("order", "title", 2.0))
    return Item(key, Freshness(State.FRESH, 0.75, CONFIRMED_AT, 300.0), content, 6.125, matched)


def failed_item(source: str = "tickets", record_id: str = "12", reason: Reason = Reason.SOURCE_TIMEOUT) -> Item:
    freshness = Freshness(State.STALE_REFRESH_FAILED, 0.0, CONFIRMED_AT, 300.0, reason)
    return Item(ObjectKey(source, record_id), freshness)


@dataclass
class ScriptedPipeline:
    """Answers every question with the items that `sees` lets through; notes who asked what."""

    items: Sequence[Item] = field(default_factory=lambda: [item(), failed_item()])
    sees: Callable[[Asker, Item], bool] = lambda _asker, _item: True
    error: Exception | None = None
    revision: Revision = field(default_factory=lambda: Revision(workspace_uid="uid-1", counter=7))
    ranking_limit: int = 10
    asked: list[tuple[Any, ...]] = field(default_factory=list)
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    open: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.open.set()

    async def search(
        self, asker: Asker, query: str, limit: int | None, sources: Sequence[str] | None
    ) -> Sequence[Item]:
        await self._enter("search", asker, query, limit, sources)
        return [found for found in self._visible(asker) if sources is None or found.key.source in sources]

    async def fetch(self, asker: Asker, source: str, record_id: str) -> Item | None:
        await self._enter("fetch", asker, source, record_id)
        return next((i for i in self._visible(asker) if i.key == ObjectKey(source, record_id)), None)

    async def sources(self, asker: Asker) -> Sequence[SourceInfo]:
        await self._enter("sources", asker)
        return [SourceInfo(name, 300.0, True) for name in sorted({i.key.source for i in self._visible(asker)})]

    def _visible(self, asker: Asker) -> list[Item]:
        return [found for found in self.items if self.sees(asker, found)]

    async def _enter(self, *question: Any) -> None:
        self.asked.append(question)
        self.entered.set()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        if self.error:
            raise self.error


# --- a service -------------------------------------------------------------------------------------------------------


@dataclass
class Service:
    """A service on a port of its own, and clients of it."""

    url: str
    pipeline: ScriptedPipeline
    verifier: Verifier
    metrics: Metrics
    http: aiohttp.ClientSession
    log: BytesIO

    async def ask(
        self, method: str, path: str, token: str | None = None, **options: Any
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body. The path is sent as it stands."""
        headers = {**({"Authorization": f"Bearer {token}"} if token else {}), **options.pop("headers", {})}
        target = aiohttp.client.URL(self.url + path, encoded=True)
        async with self.http.request(method, target, headers=headers, **options) as response:
            return response.status, dict(response.headers), await response.read()

    async def json(self, method: str, path: str, token: str | None = None, **options: Any) -> tuple[int, Any]:
        status, _, body = await self.ask(method, path, token, **options)
        return status, json.loads(body)

    async def search(self, token: str, query: str = "refund", **fields: Any) -> tuple[int, Any]:
        return await self.json("POST", "/api/v1/search", token, json={"query": query, **fields})

    @asynccontextmanager
    async def mcp(self, era: str, token: str | None, **headers: str) -> AsyncIterator[Client]:
        """The SDK's own client."""
        bearer = {"Authorization": f"Bearer {token}"} if token else {}
        http = create_mcp_http_client(headers={**bearer, **headers})
        async with http, Client(streamable_http_client(f"{self.url}/api/mcp", http_client=http), mode=era) as client:
            yield client

    def logged(self, event: str | None = None) -> list[dict[str, Any]]:
        """The log's lines, or those of one event."""
        lines = [json.loads(line) for line in self.log.getvalue().splitlines()]
        return [line for line in lines if event in (None, line["event"])]

    def counted(self, name: str, **labels: str) -> float | None:
        """A sample's value, as it is scraped."""
        wanted = {f'{key}="{value}"' for key, value in labels.items()}
        for line in self.metrics.render().decode().splitlines():
            series, _, value = line.rpartition(" ")
            sample, _, inside = series.partition("{")
            if sample == name and wanted <= set(inside.rstrip("}").split(",")):
                return float(value)
        return None


@asynccontextmanager
async def served(
    pipeline: ScriptedPipeline | None = None,
    issuers: Sequence[Issuer] | None = None,
    settings: serve_app.Settings | None = None,
    **verifier: Any,
) -> AsyncIterator[Service]:
    pipeline = pipeline or ScriptedPipeline()
    checker = Verifier(issuers or (corp(), cluster()), **verifier)
    metrics = Metrics("support")
    for source in ("tickets", "accounts"):
        metrics.declare_source(source)
    with logs_in_memory() as log:
        app = serve_app.build(pipeline, checker, metrics, settings)
        async with listening(app, "127.0.0.1", 0) as port, aiohttp.ClientSession(timeout=PATIENCE) as http:
            yield Service(f"http://127.0.0.1:{port}", pipeline, checker, metrics, http, log)


@contextmanager
def logs_in_memory() -> Iterator[BytesIO]:
    """What would be on stdout."""
    stream, root = BytesIO(), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    logs.configure("debug", stream)
    try:
        yield stream
    finally:
        root.handlers[:], root.level = handlers, level
        structlog.reset_defaults()
