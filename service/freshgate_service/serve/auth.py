"""Who asks: bearer tokens, verified offline, turned into an asker.

Every entrance comes through `Verifier.asker`. A name counts only together with the issuer that asserts it, exactly as
it stands in the token. What is missing, malformed or ambiguous gives no principal at all, never a lesser one: a Deny
may hang on just the group that went missing. Why a token was refused is for the log; the asker learns only that it was.
"""

import asyncio
import hashlib
import math
import re
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import jwt
from multidict import CIMultiDictProxy

from freshgate_crds.compiled import KUBERNETES_ISSUER, Issuer, SubjectKind
from freshgate_service.domain import Asker, Name, Now, Principal
from freshgate_service.errors import ConfigRefused, InvalidRequest, Unauthenticated
from freshgate_service.serve.keys import Fetch, KeyRing, fetch_document, new_session

ON_BEHALF_OF = "Freshgate-On-Behalf-Of"
LEEWAY_SECONDS = 30.0
"""How far an issuer's clock may be from ours."""
SERVICE_ACCOUNT_SECONDS = 3600.0
"""The longest lifetime of a ServiceAccount token: it outlives its deleted pod by no more than this."""
REMEMBERED_TOKENS = 4096

_TOKEN_TYPES = {"jwt", "at+jwt", "application/at+jwt"}
"""What `typ` may say, where it says anything: an issuer also signs things that are no tokens for us."""
_SERVICE_ACCOUNT = re.compile(
    r"system:serviceaccount:(?P<namespace>[a-z0-9](?:[-a-z0-9]*[a-z0-9])?):(?P<name>[a-z0-9](?:[-.a-z0-9]*[a-z0-9])?)"
)
_OPTIONS: jwt.types.Options = {
    "require": ["exp", "iss", "aud", "sub"],
    "enforce_minimum_key_length": True,
    # Times are checked here, each time a token is used, also when its verification is remembered.
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
}


@dataclass(frozen=True, slots=True)
class Verified:
    """An asker, and the seconds between which its tokens say so."""

    asker: Asker
    not_before: float
    expires_at: float

    def check(self, now: float) -> None:
        if not self.not_before <= now < self.expires_at:
            raise Unauthenticated("a token is expired or not valid yet")


class Verifier:
    """Verifies tokens of the workspace's issuers. As a context manager it keeps their keys up to date.

    A verified token is remembered by its hash until it expires or any issuer's keys change.
    """

    def __init__(self, issuers: Sequence[Issuer], *, now: Now = time.time) -> None:
        self._now = now
        self._remembered: OrderedDict[bytes, Verified] = OrderedDict()
        self._keepers: dict[KeyRing, asyncio.Task[None]] = {}
        self._rings: dict[tuple[str, str | None], KeyRing] = {}
        self._issuers: dict[tuple[str, str], Issuer] = {}
        self._fetch: Fetch | None = None
        self._was_ready = False
        self.replace(issuers)

    @property
    def ready(self) -> bool:
        """Once every issuer was asked for its keys and one of them had some. One issuer's outage, or a new one that
        cannot be reached, does not take the service from the others' askers."""
        rings = self._rings.values()
        self._was_ready = self._was_ready or (all(r.tried for r in rings) and any(r.loaded for r in rings))
        return self._was_ready

    @property
    def authorization_servers(self) -> list[str]:
        """Where people's clients get tokens: the issuers that publish their own keys."""
        return sorted({issuer.url for issuer in self._issuers.values() if issuer.jwks is None})

    def replace(self, issuers: Sequence[Issuer]) -> None:
        """Takes over a new configuration; raises ConfigRefused and changes nothing where it is ambiguous."""
        check_issuers(issuers)
        by_claims = {(issuer.url, issuer.audience): issuer for issuer in issuers}
        if by_claims == self._issuers:
            return
        self._rings = {
            where: self._rings.get(where) or KeyRing(*where, changed=self._remembered.clear)
            for where in {(issuer.url, issuer.jwks) for issuer in issuers}
        }
        self._issuers = by_claims
        self._remembered.clear()
        self._keep()

    # --- keeping keys --------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._session = new_session()
        self._fetch = partial(fetch_document, self._session)
        self._keep()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._fetch = None
        for task in self._keepers.values():
            task.cancel()
        await asyncio.gather(*self._keepers.values(), return_exceptions=True)
        self._keepers.clear()
        await self._session.close()

    def _keep(self) -> None:
        """Starts a keeper for each new ring and ends those of rings that are gone."""
        if self._fetch is None:
            return
        for ring in set(self._keepers) - set(self._rings.values()):
            self._keepers.pop(ring).cancel()
        for ring in set(self._rings.values()) - set(self._keepers):
            self._keepers[ring] = asyncio.create_task(ring.keep(self._fetch), name="issuer keys")

    # --- verifying -----------------------------------------------------------------------------------------------

    def asker(self, headers: CIMultiDictProxy[str]) -> Asker:
        """Who sends a request with these headers. Raises Unauthenticated, or InvalidRequest where two verified tokens
        do not fit together."""
        now, digest = self._now(), _digest(headers)
        known = self._remembered.get(digest)
        if known is None:
            known = self._verify_all(bearer_of(headers), _only(headers, ON_BEHALF_OF))
            known.check(now)
            self._remember(digest, known)
        else:
            self._remembered.move_to_end(digest)
            known.check(now)
        return known.asker

    def _remember(self, digest: bytes, verified: Verified) -> None:
        self._remembered[digest] = verified
        if len(self._remembered) > REMEMBERED_TOKENS:
            self._remembered.popitem(last=False)

    def _verify_all(self, bearer: str, on_behalf_of: str | None) -> Verified:
        if on_behalf_of is None:
            return self._verify(bearer)
        agent, person = self._verify(bearer), self._verify(on_behalf_of)
        if agent.asker.on_behalf_of or person.asker.on_behalf_of:
            raise InvalidRequest(f"name the person either by a token with `act` or by {ON_BEHALF_OF}, not by both")
        if person.asker.principal.kind is not SubjectKind.USER:
            raise InvalidRequest(f"the token in {ON_BEHALF_OF} must be a person's")
        return Verified(
            Asker(agent.asker.principal, person.asker.principal),
            max(agent.not_before, person.not_before),
            min(agent.expires_at, person.expires_at),
        )

    def _verify(self, token: str) -> Verified:
        try:
            unverified = jwt.decode_complete(token, options={"verify_signature": False})
            issuer = self._issuer(unverified["payload"])
            claims = self._claims(token, unverified["header"], issuer)
        except jwt.PyJWTError as error:
            raise Unauthenticated(f"a token does not verify ({type(error).__name__})") from None
        return Verified(asker_of(issuer, claims), *_window(issuer, claims))

    def _issuer(self, claims: Mapping[str, Any]) -> Issuer:
        """The one issuer that the token claims to be from and for. Not verified yet."""
        audiences = claims.get("aud")
        named = audiences if isinstance(audiences, list) else [audiences]
        found = [issuer for issuer in self._issuers.values() if claims.get("iss") == issuer.url]
        found = [issuer for issuer in found if issuer.audience in named]
        if len(found) != 1:
            raise Unauthenticated("a token is from or for nobody known here, or for two at once")
        return found[0]

    def _claims(self, token: str, header: Mapping[str, Any], issuer: Issuer) -> dict[str, Any]:
        if str(header.get("typ", "JWT")).lower() not in _TOKEN_TYPES:
            raise Unauthenticated("a token is of another type")
        keys = self._rings[issuer.url, issuer.jwks].find(header.get("kid"), str(header.get("alg")))
        for position, key in enumerate(keys, start=1):
            try:
                return jwt.decode(token, key, issuer=issuer.url, audience=issuer.audience, options=_OPTIONS)
            except jwt.InvalidSignatureError:
                if position == len(keys):
                    raise
        raise Unauthenticated("a token names no key of its issuer")


def check_issuers(issuers: Sequence[Issuer]) -> None:
    """Each issuer must be told from the others, by its name and by what its tokens say."""
    if not issuers:
        raise ConfigRefused("the workspace has no issuer: nobody could ask")
    if any(not issuer.url or not issuer.audience for issuer in issuers):
        raise ConfigRefused("an issuer needs a URL and an audience")
    if len({issuer.name for issuer in issuers}) < len(issuers):
        raise ConfigRefused("two issuers have one name: their users would be the same")
    if len({(issuer.url, issuer.audience) for issuer in issuers}) < len(issuers):
        raise ConfigRefused("two issuers have one URL and one audience: their tokens could not be told apart")
    if any(issuer.kubernetes != (issuer.name == KUBERNETES_ISSUER) for issuer in issuers):
        raise ConfigRefused(f"the name {KUBERNETES_ISSUER} is the cluster's own, and its only one")


# --- from a request to tokens ----------------------------------------------------------------------------------------


def bearer_of(headers: CIMultiDictProxy[str]) -> str:
    value = _only(headers, "Authorization") or ""
    scheme, _, token = value.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated("there is no bearer token")
    return token.strip()


def _only(headers: CIMultiDictProxy[str], name: str) -> str | None:
    values = headers.getall(name, ())
    if len(values) > 1 or any(not value.isascii() for value in values):
        raise Unauthenticated(f"{name} is given twice, or is no token")
    return values[0] if values else None


def _digest(headers: CIMultiDictProxy[str]) -> bytes:
    """Of all that says who asks. No header holds a line feed, so no two requests share one by chance of their parts."""
    said = [*headers.getall("Authorization", ()), "", *headers.getall(ON_BEHALF_OF, ())]
    return hashlib.sha256("\n".join(said).encode("utf-8", "surrogateescape")).digest()


# --- from claims to askers -------------------------------------------------------------------------------------------


def asker_of(issuer: Issuer, claims: Mapping[str, Any]) -> Asker:
    """In a token with `act`, its `sub` is the person and `act.sub` the agent, both as this issuer names them."""
    principal = _service_account(claims) if issuer.kubernetes else _user(issuer, claims)
    if "act" not in claims:
        return Asker(principal)
    if issuer.kubernetes:
        raise Unauthenticated("a ServiceAccount token acts for nobody")
    return Asker(_agent(issuer, claims["act"]), on_behalf_of=principal)


def _user(issuer: Issuer, claims: Mapping[str, Any]) -> Principal:
    name = claims.get(issuer.claims.user)
    if not isinstance(name, str) or not name:
        raise Unauthenticated(f"a token has no text in its claim {issuer.claims.user}")
    if issuer.claims.user == "email" and claims.get("email_verified", True) is not True:
        raise Unauthenticated("a token's e-mail address is not verified")
    return Principal(SubjectKind.USER, Name(issuer.name, name), _groups(issuer, claims), claims)


def _groups(issuer: Issuer, claims: Mapping[str, Any]) -> frozenset[Name]:
    """No claim is no group. A claim of another form, or one that is kept elsewhere (`_claim_names`), makes the token
    useless: a Deny may name its groups."""
    claim, elsewhere = issuer.claims.groups, claims.get("_claim_names", {})
    if claim is None or (claim not in claims and isinstance(elsewhere, dict) and claim not in elsewhere):
        return frozenset()
    groups = claims.get(claim)
    if not isinstance(groups, list) or not all(isinstance(group, str) for group in groups):
        raise Unauthenticated(f"a token's claim {claim} is no list of texts")
    return frozenset(Name(issuer.name, group) for group in groups)


def _service_account(claims: Mapping[str, Any]) -> Principal:
    found = _SERVICE_ACCOUNT.fullmatch(str(claims["sub"]))
    if found is None:
        raise Unauthenticated("a cluster's token is not a ServiceAccount's")
    name = Name(KUBERNETES_ISSUER, f"{found['namespace']}/{found['name']}")
    return Principal(SubjectKind.SERVICE_ACCOUNT, name, claims=claims)


def _agent(issuer: Issuer, act: object) -> Principal:
    """One agent, named by the token's own issuer: chains of agents and foreign names are not taken."""
    if not isinstance(act, dict) or "act" in act or act.get("iss", issuer.url) != issuer.url:
        raise Unauthenticated("a token's `act` is no agent of its issuer")
    name = act.get("sub")
    if not isinstance(name, str) or not name:
        raise Unauthenticated("a token's `act` has no `sub`")
    return Principal(SubjectKind.USER, Name(issuer.name, name), claims=act)


def _window(issuer: Issuer, claims: Mapping[str, Any]) -> tuple[float, float]:
    expires, not_before, issued = (_seconds(claims, name) for name in ("exp", "nbf", "iat"))
    if expires is None:
        raise Unauthenticated("a token never expires")
    if issuer.kubernetes and (issued is None or expires - issued > SERVICE_ACCOUNT_SECONDS):
        raise Unauthenticated("a ServiceAccount token lives for more than an hour")
    return (not_before if not_before is not None else -math.inf) - LEEWAY_SECONDS, expires + LEEWAY_SECONDS


def _seconds(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e15:
        raise Unauthenticated(f"a token's {name} is no time")
    return float(value)
