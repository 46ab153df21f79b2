"""The public keys of issuers: read, kept, and found again by a token's header.

An issuer's keys come with the configuration, or from its own discovery document, which is read in the background and
never on a request's account. Only asymmetric keys are kept, each with the algorithms that its type allows: a token
cannot choose how it is verified. Keys that were read stay until a later reading succeeds.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import jwt
import orjson

from freshgate_service.errors import ConfigRefused, SourceUnavailable
from freshgate_service.logs import get_logger

MAX_DOCUMENT_BYTES = 256 * 1024
MAX_KEYS = 100
FETCH_SECONDS = 10.0
RENEW_SECONDS = 3600.0
UNKNOWN_KEY_SECONDS = 60.0
"""A token that names an unknown key makes its issuer's keys be read anew, but not more often than this."""
FIRST_RETRY_SECONDS = 5.0
"""How soon an issuer is asked again that has not given any keys yet."""

_ALGORITHMS: Mapping[tuple[str, str | None], tuple[str, ...]] = {
    ("RSA", None): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
"""By key type and curve. Symmetric keys are missing on purpose."""

log = get_logger(__name__)

Fetch = Callable[[str], Awaitable[bytes]]


class Key(NamedTuple):
    kid: str | None
    by_algorithm: Mapping[str, jwt.PyJWK]


class Keys:
    """The usable keys of one JWK set."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self._keys = tuple(keys)

    def knows(self, kid: str | None) -> bool:
        return bool(self._named(kid))

    def find(self, kid: str | None, algorithm: str) -> list[jwt.PyJWK]:
        return [key.by_algorithm[algorithm] for key in self._named(kid) if algorithm in key.by_algorithm]

    def _named(self, kid: str | None) -> Sequence[Key]:
        """A token need not name its key where the issuer has only one."""
        if kid is None:
            return self._keys if len(self._keys) == 1 else ()
        return [key for key in self._keys if key.kid == kid]


def parse_keys(document: str | bytes) -> Keys:
    """Raises ConfigRefused where there is not one usable key."""
    try:
        members = orjson.loads(document)["keys"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise ConfigRefused("the key set is no JWK set") from None
    keys = list(_usable(members)) if isinstance(members, list) else []
    if not keys:
        raise ConfigRefused("the key set has no key that can be used")
    return Keys(keys)


def _usable(members: Sequence[Any]) -> Iterable[Key]:
    for member in members[:MAX_KEYS]:
        if isinstance(member, dict) and (algorithms := _algorithms(member)):
            try:
                yield Key(member.get("kid"), {name: jwt.PyJWK(member, name) for name in algorithms})
            except jwt.PyJWTError:
                continue  # a key this service cannot read verifies nothing


def _algorithms(jwk: Mapping[str, Any]) -> list[str]:
    """None for a key that is not for verifying signatures, or that is not a public one."""
    uses = jwk.get("key_ops", ["verify"])
    if jwk.get("use", "sig") != "sig" or not isinstance(uses, list) or "verify" not in uses or "d" in jwk:
        return []
    curve = None if jwk.get("kty") == "RSA" else str(jwk.get("crv"))
    allowed = _ALGORITHMS.get((str(jwk.get("kty")), curve), ())
    return [name for name in allowed if jwk.get("alg", name) == name]


class KeyRing:
    """One issuer's keys, as they are now."""

    def __init__(self, url: str, jwks: str | None, *, changed: Callable[[], None]) -> None:
        self.url = url
        self._discovered = jwks is None
        self._changed = changed
        self._missed = asyncio.Event()
        self._document = jwks.encode() if jwks is not None else b""
        self.keys = parse_keys(jwks) if jwks is not None else Keys(())
        self.loaded = jwks is not None
        self.tried = jwks is not None

    def find(self, kid: str | None, algorithm: str) -> list[jwt.PyJWK]:
        if not self.keys.knows(kid):
            self._missed.set()
        return self.keys.find(kid, algorithm)

    async def keep(self, fetch: Fetch) -> None:
        """Reads the keys now and then, until cancelled. Returns at once where they came with the configuration."""
        while self._discovered:
            await self.read(fetch)
            await asyncio.sleep(UNKNOWN_KEY_SECONDS if self.loaded else FIRST_RETRY_SECONDS)
            if self.loaded:
                await self._wait_for_miss()

    async def read(self, fetch: Fetch) -> None:
        """Reads the issuer's keys once; what is known stays where that fails."""
        self._missed.clear()
        try:
            document = await fetch(await self._jwks_uri(fetch))
            keys = parse_keys(document)
        except (SourceUnavailable, ConfigRefused) as error:
            log.warning("issuer_keys_not_read", issuer=self.url, detail=str(error))
        else:
            self._take(document, keys)
        finally:
            self.tried = True

    async def _jwks_uri(self, fetch: Fetch) -> str:
        try:
            found = orjson.loads(await fetch(f"{self.url.rstrip('/')}/.well-known/openid-configuration"))
            issuer, uri = found["issuer"], found["jwks_uri"]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            raise SourceUnavailable("the discovery document names no issuer and keys") from None
        if issuer != self.url:
            raise SourceUnavailable("the discovery document is another issuer's")
        return str(uri)

    def _take(self, document: bytes, keys: Keys) -> None:
        self.loaded = True
        if document != self._document:
            self._document, self.keys = document, keys
            self._changed()

    async def _wait_for_miss(self) -> None:
        try:
            async with asyncio.timeout(RENEW_SECONDS - UNKNOWN_KEY_SECONDS):
                await self._missed.wait()
        except TimeoutError:
            return


def new_session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=FETCH_SECONDS),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        headers={"Accept": "application/json", "Accept-Encoding": "identity"},
    )


async def fetch_document(session: aiohttp.ClientSession, url: str) -> bytes:
    """One document of an issuer: over TLS, from where it was asked, of bounded size."""
    try:
        if not _trustworthy(url):
            raise SourceUnavailable("keys are read over https only")
        async with session.get(url, allow_redirects=False) as response:
            if response.status != 200 or "Content-Encoding" in response.headers:
                raise SourceUnavailable(f"the issuer answered {response.status}")
            return await _read(response.content)
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise SourceUnavailable(f"the issuer did not answer ({type(error).__name__})") from None


async def _read(content: aiohttp.StreamReader) -> bytes:
    document = bytearray()
    async for chunk in content.iter_any():
        document += chunk
        if len(document) > MAX_DOCUMENT_BYTES:
            raise SourceUnavailable("the issuer's document is too large")
    return bytes(document)


def _trustworthy(url: str) -> bool:
    """Plain http only to this machine: on any other way the keys could be exchanged."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1"))
