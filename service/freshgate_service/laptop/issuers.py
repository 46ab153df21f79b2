"""Local issuers: whoever the manifests declare, asserted on this machine by keys under the data directory.

Their tokens are verified like any other's. The service gets the public halves only.
"""

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from freshgate_crds.compiled import KUBERNETES_ISSUER, Issuer
from freshgate_service.errors import FreshgateError
from freshgate_service.laptop.files import write_whole

ALGORITHM = "ES256"


class NoLocalIssuer(FreshgateError):
    """There is no such issuer under the data directory; the message says which there are."""


@dataclass(frozen=True, slots=True)
class Known:
    """What `freshgate token` must know of an issuer that `freshgate serve` put in place."""

    url: str
    audience: str
    user_claim: str
    groups_claim: str | None


class Issuers:
    """The folder DATA/issuers: a private key an issuer, and an index of what was served last."""

    def __init__(self, data: Path) -> None:
        self._folder = data / "issuers"
        self._index = self._folder / "index.json"

    def url(self, name: str) -> str:
        return f"https://{name}.issuer.invalid"

    def jwks(self, name: str) -> str:
        """The public key set of an issuer; its key is made where there is none."""
        public = json.loads(ECAlgorithm.to_jwk(self._key(name).public_key()))
        return json.dumps({"keys": [{**public, "kid": name, "use": "sig", "alg": ALGORITHM}]}, sort_keys=True)

    def remember(self, issuers: Iterable[Issuer]) -> None:
        """Writes down what tokens must look like from now on."""
        known = {
            issuer.name: asdict(Known(issuer.url, issuer.audience, issuer.claims.user, issuer.claims.groups))
            for issuer in issuers
        }
        write_whole(self._index, json.dumps(known, indent=2, sort_keys=True) + "\n")

    def names(self) -> list[str]:
        return sorted(self._read_index())

    def only(self) -> str:
        """The one issuer of people. Raises NoLocalIssuer where there are several, or none yet."""
        people = [name for name in self.names() if name != KUBERNETES_ISSUER]
        if len(people) == 1:
            return people[0]
        if people:
            raise NoLocalIssuer(f"there are several issuers; name one with --issuer: {', '.join(people)}")
        raise NoLocalIssuer("there is no local issuer yet; start `freshgate serve` with this --data first")

    def user_token(self, name: str, user: str, groups: Iterable[str], claims: Mapping[str, Any], seconds: float) -> str:
        known = self._known(name)
        asserted: dict[str, Any] = {"sub": user, **claims, known.user_claim: user}
        if listed := list(groups):
            asserted[known.groups_claim or "groups"] = listed
        return self._sign(name, known, asserted, seconds)

    def service_account_token(self, service_account: str, claims: Mapping[str, Any], seconds: float) -> str:
        """`service_account` is namespace/name."""
        namespace, _, account = service_account.partition("/")
        if not namespace or not account or "/" in account:
            raise NoLocalIssuer(f"{service_account!r} names no ServiceAccount; write it as namespace/name")
        asserted = {**claims, "sub": f"system:serviceaccount:{namespace}:{account}"}
        return self._sign(KUBERNETES_ISSUER, self._known(KUBERNETES_ISSUER), asserted, seconds)

    def _sign(self, name: str, known: Known, asserted: Mapping[str, Any], seconds: float) -> str:
        now = int(time.time())
        registered = {"iss": known.url, "aud": known.audience, "iat": now, "exp": now + int(seconds)}
        return jwt.encode({**asserted, **registered}, self._key(name), ALGORITHM, headers={"kid": name})

    def _known(self, name: str) -> Known:
        index = self._read_index()
        if name not in index:
            there = ", ".join(sorted(index)) or "none yet: start `freshgate serve` with this --data first"
            raise NoLocalIssuer(f"no local issuer {name!r}; there are: {there}")
        return Known(**index[name])

    def _read_index(self) -> dict[str, Any]:
        try:
            return dict(json.loads(self._index.read_bytes()))
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError):
            raise NoLocalIssuer(f"{self._index} is broken; start `freshgate serve`, which writes it anew") from None

    def _key(self, name: str) -> ec.EllipticCurvePrivateKey:
        path = self._folder / f"{name}.pem"
        if not path.exists():
            self._make_key(path)
        try:
            key = serialization.load_pem_private_key(path.read_bytes(), None)
        except (ValueError, TypeError):
            key = None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise NoLocalIssuer(f"{path} is not a P-256 key; delete it and a new one is made")
        return key

    def _make_key(self, path: Path) -> None:
        pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        write_whole(path, pem.decode(), mode=0o600)
