"""Keys that issuers publish themselves: read in the background, from a real server, and kept."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from freshgate_serve import Signer, corp, ec_signer, jwks, rsa_signer, user_claims
from multidict import CIMultiDict, CIMultiDictProxy

from freshgate_service.errors import SourceUnavailable, Unauthenticated
from freshgate_service.serve import keys
from freshgate_service.serve.auth import Verifier
from freshgate_service.serve.keys import KeyRing, fetch_document, new_session


@dataclass
class IssuerServer:
    """An issuer's discovery document and keys, as they are now."""

    url: str = ""
    names: Any = None
    keys: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    reads: int = 0
    read: asyncio.Event = field(default_factory=asyncio.Event)

    async def discovery(self, _request: web.Request) -> web.Response:
        return web.json_response(self.names or {"issuer": self.url, "jwks_uri": f"{self.url}/keys"})

    async def elsewhere(self, _request: web.Request) -> web.Response:
        return web.Response(body=NEW_KEYS)

    async def jwks(self, _request: web.Request) -> web.Response:
        self.reads += 1
        self.read.set()
        return web.Response(body=self.keys, status=self.status, headers=self.headers)


@pytest.fixture
async def issuer() -> AsyncIterator[IssuerServer]:
    server = IssuerServer(keys=jwks(ec_signer()).encode())
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", server.discovery)
    app.router.add_get("/keys", server.jwks)
    app.router.add_get("/elsewhere", server.elsewhere)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{site.port}"
    yield server
    await runner.cleanup()


@dataclass
class Ring:
    """One key ring, and one reading of it."""

    ring: KeyRing
    changes: list[None]

    async def read(self) -> None:
        async with new_session() as session:
            await self.ring.read(lambda url: fetch_document(session, url))

    def knows(self, kid: str, algorithm: str = "ES256") -> bool:
        return bool(self.ring.find(kid, algorithm))


@pytest.fixture
def ring(issuer: IssuerServer) -> Ring:
    changes: list[None] = []
    return Ring(KeyRing(issuer.url, None, changed=lambda: changes.append(None)), changes)


def token_of(issuer: IssuerServer, signer: Signer) -> CIMultiDictProxy[str]:
    token = signer.sign(user_claims(iss=issuer.url))
    return CIMultiDictProxy(CIMultiDict({"Authorization": f"Bearer {token}"}))


async def until_read(issuer: IssuerServer, times: int) -> None:
    async with asyncio.timeout(5):
        while issuer.reads < times:
            await issuer.read.wait()
            issuer.read.clear()


async def until(condition: Any) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


async def test_keys_are_found_by_the_discovery_document(ring: Ring):
    await ring.read()
    assert (ring.ring.loaded, ring.ring.tried, len(ring.changes)) == (True, True, 1)
    assert ring.knows("ec-1")
    assert not ring.knows("ec-1", "RS256")


async def test_reading_the_same_keys_again_changes_nothing(ring: Ring):
    await ring.read()
    await ring.read()
    assert len(ring.changes) == 1


async def test_keys_that_the_issuer_withdrew_are_gone(ring: Ring, issuer: IssuerServer):
    await ring.read()
    issuer.keys = jwks(rsa_signer()).encode()
    await ring.read()
    assert ring.knows("rsa-1", "RS256")
    assert not ring.knows("ec-1")
    assert len(ring.changes) == 2


NEW_KEYS = jwks(rsa_signer("new")).encode()
BAD_ANSWERS: dict[str, dict[str, Any]] = {
    "an error": {"status": 500},
    "a redirect": {"status": 302, "headers": {"Location": "/elsewhere"}},
    "no JSON": {"keys": b"<html>"},
    "no set": {"keys": b"[]"},
    "a set that is no list": {"keys": b'{"keys": {"kid": "x"}}'},
    "no keys": {"keys": b'{"keys": []}'},
    "odd forms of keys": {"keys": b'{"keys": [1, {"kty": ["RSA"]}, {"kty": "EC", "crv": {}}, {"key_ops": 5}]}'},
    "too much": {"keys": NEW_KEYS + b" " * keys.MAX_DOCUMENT_BYTES},
    "compressed": {"keys": gzip.compress(NEW_KEYS), "headers": {"Content-Encoding": "gzip"}},
    "too much, compressed": {"keys": gzip.compress(b" " * 50_000_000), "headers": {"Content-Encoding": "gzip"}},
    "no object in discovery": {"names": "x"},
    "another issuer": {"names": {"issuer": "https://evil.example", "jwks_uri": "URL/keys"}},
    "keys over plain http": {"names": {"issuer": "URL", "jwks_uri": "http://keys.example/keys"}},
    "keys in a file": {"names": {"issuer": "URL", "jwks_uri": "file:///etc/passwd"}},
    "keys nowhere": {"names": {"issuer": "URL"}},
}


@pytest.mark.parametrize("answer", BAD_ANSWERS.values(), ids=BAD_ANSWERS)
async def test_keys_stay_when_a_later_reading_fails(ring: Ring, issuer: IssuerServer, answer: dict[str, Any]):
    await ring.read()
    for name, value in {"keys": NEW_KEYS, **answer}.items():
        setattr(issuer, name, json.loads(json.dumps(value).replace("URL", issuer.url)) if name == "names" else value)
    await ring.read()
    assert ring.knows("ec-1")
    assert not ring.knows("new", "RS256")
    assert len(ring.changes) == 1


async def test_an_issuer_that_cannot_be_reached_gives_no_keys(ring: Ring, issuer: IssuerServer):
    issuer.status = 503
    await ring.read()
    assert (ring.ring.loaded, ring.ring.tried) == (False, True)
    assert not ring.knows("ec-1")


@pytest.mark.parametrize(
    "url", ["http://keys.example/jwks", "ftp://keys.example/jwks", "//keys.example", "", "http://"]
)
async def test_nothing_is_read_but_over_https_or_from_this_machine(url: str):
    async with new_session() as session:
        with pytest.raises(SourceUnavailable, match="https"):
            await fetch_document(session, url)


async def test_a_url_that_is_none_is_an_issuer_that_did_not_answer():
    async with new_session() as session:
        for url in ("https://[", "https://:x", "https://"):
            with pytest.raises(SourceUnavailable):
                await fetch_document(session, url)


async def test_a_verifier_takes_tokens_once_the_keys_are_read(issuer: IssuerServer):
    verifier = Verifier([corp(url=issuer.url, jwks=None)])
    assert not verifier.ready
    with pytest.raises(Unauthenticated):
        verifier.asker(token_of(issuer, ec_signer()))
    async with verifier:
        await until(lambda: verifier.ready)
        assert verifier.asker(token_of(issuer, ec_signer())).principal.name.name == "ana@corp.example"


async def test_a_thousand_tokens_with_unknown_keys_cause_one_reading_and_no_request_waits(
    issuer: IssuerServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(keys, "UNKNOWN_KEY_SECONDS", 0.05)
    async with Verifier([corp(url=issuer.url, jwks=None)]) as verifier:
        await until(lambda: verifier.ready)
        unknown = token_of(issuer, Signer("new", "ES256", ec_signer().private))
        for _ in range(1000):
            with pytest.raises(Unauthenticated):
                verifier.asker(unknown)
        assert issuer.reads == 1  # the loop has not run: nothing was read for a request
        await until_read(issuer, 2)
        assert not verifier._rings[issuer.url, None]._missed.is_set()  # nobody asks for a third


async def test_a_new_key_is_taken_after_a_token_named_it(issuer: IssuerServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(keys, "UNKNOWN_KEY_SECONDS", 0.01)
    async with Verifier([corp(url=issuer.url, jwks=None)]) as verifier:
        await until(lambda: verifier.ready)
        old, new = token_of(issuer, ec_signer()), token_of(issuer, rsa_signer())
        assert verifier.asker(old)
        issuer.keys = jwks(rsa_signer()).encode()
        with pytest.raises(Unauthenticated):
            verifier.asker(new)
        await until_read(issuer, 2)
        await until(lambda: verifier._rings[issuer.url, None].keys.knows("rsa-1"))
        assert verifier.asker(new)
        with pytest.raises(Unauthenticated):  # remembered until just now
            verifier.asker(old)


async def test_one_issuers_outage_keeps_nobody_elses_askers_away(issuer: IssuerServer, monkeypatch: pytest.MonkeyPatch):
    dead = corp(name="dead", url="http://127.0.0.1:1", jwks=None)
    async with Verifier([corp(url=issuer.url, jwks=None), dead]) as verifier:
        await until(lambda: verifier.ready)
        assert verifier.asker(token_of(issuer, ec_signer()))
        verifier.replace([corp(url=issuer.url, jwks=None), dead, corp(name="new", url="http://127.0.0.1:2", jwks=None)])
        assert verifier.ready


async def test_a_verifier_without_any_keys_is_not_ready(issuer: IssuerServer):
    issuer.status = 500
    async with Verifier([corp(url=issuer.url, jwks=None)]) as verifier:
        await until(lambda: verifier._rings[issuer.url, None].tried)
        assert not verifier.ready


async def test_an_issuer_that_leaves_is_not_read_any_more(issuer: IssuerServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(keys, "UNKNOWN_KEY_SECONDS", 0.0)
    monkeypatch.setattr(keys, "RENEW_SECONDS", 0.0)
    async with Verifier([corp(url=issuer.url, jwks=None)]) as verifier:
        await until_read(issuer, 3)
        verifier.replace([corp()])
        await asyncio.gather(*verifier._keepers.values())
        assert [ring.url for ring in verifier._keepers] == [corp().url]
