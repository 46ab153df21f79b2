"""Tokens: who is believed to ask, and who is not."""

import base64
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from freshgate_serve import (
    AUDIENCE,
    CLUSTER_URL,
    CORP_URL,
    ISSUED,
    Signer,
    account,
    cluster,
    corp,
    ec_signer,
    ed_signer,
    jwks,
    rsa_signer,
    user,
    user_claims,
)
from jwt.algorithms import ECAlgorithm
from multidict import CIMultiDict, CIMultiDictProxy

from freshgate_crds.compiled import KUBERNETES_ISSUER, ClaimMapping, SubjectKind
from freshgate_service.domain import Asker, Name
from freshgate_service.errors import ConfigRefused, InvalidRequest, Unauthenticated
from freshgate_service.serve.auth import LEEWAY_SECONDS, REMEMBERED_TOKENS, Verifier


class Clock:
    def __init__(self) -> None:
        self.now = float(ISSUED)

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def verifier(clock: Clock) -> Verifier:
    return Verifier((corp(), cluster()), now=clock)


def headers(bearer: str | None = None, person: str | None = None) -> CIMultiDictProxy[str]:
    found: CIMultiDict[str] = CIMultiDict()
    if bearer is not None:
        found.add("Authorization", f"Bearer {bearer}")
    if person is not None:
        found.add("Freshgate-On-Behalf-Of", person)
    return CIMultiDictProxy(found)


def ask(verifier: Verifier, bearer: str, person: str | None = None) -> Asker:
    return verifier.asker(headers(bearer, person))


def refused(verifier: Verifier, bearer: str, person: str | None = None) -> None:
    with pytest.raises(Unauthenticated):
        ask(verifier, bearer, person)


# --- who is believed -------------------------------------------------------------------------------------------------


def test_a_users_token_names_the_user_and_groups_as_its_issuer_asserts_them(verifier: Verifier):
    asker = ask(verifier, user("ana@corp.example", "emea", "leads"))
    assert asker.principal.kind is SubjectKind.USER
    assert asker.principal.name == Name("corp", "ana@corp.example")
    assert asker.principal.groups == {Name("corp", "emea"), Name("corp", "leads")}
    assert asker.principal.claims["sub"] == "id-of-ana@corp.example"
    assert asker.on_behalf_of is None


def test_a_service_account_is_named_by_namespace_and_name(verifier: Verifier):
    principal = ask(verifier, account("bots:helper")).principal
    assert (principal.kind, principal.name) == (
        SubjectKind.SERVICE_ACCOUNT,
        Name(KUBERNETES_ISSUER, "bots/helper"),
    )
    assert principal.groups == frozenset()


@pytest.mark.parametrize("signer", [rsa_signer(), ec_signer(), ed_signer()], ids=lambda signer: signer.algorithm)
def test_each_kind_of_asymmetric_key_verifies(verifier: Verifier, signer: Signer):
    assert ask(verifier, signer.sign(user_claims())).principal.name.name == "ana@corp.example"


def test_an_rsa_key_without_alg_takes_pss_and_one_with_alg_takes_only_that():
    pss = Signer("rsa-1", "PS384", rsa_signer().private)
    assert ask(Verifier([corp()]), pss.sign(user_claims()))
    pinned = corp(jwks=json.dumps({"keys": [rsa_signer().jwk(alg="RS256")]}))
    refused(Verifier([pinned]), pss.sign(user_claims()))


def test_a_token_for_several_audiences_is_taken_when_ours_is_among_them(verifier: Verifier):
    assert ask(verifier, user(aud=["other", AUDIENCE]))


def test_without_a_groups_claim_there_are_no_groups(verifier: Verifier):
    assert ask(verifier, user(groups=None)).principal.groups == frozenset()


def test_the_scheme_of_the_header_may_be_in_any_case(verifier: Verifier):
    assert verifier.asker(CIMultiDictProxy(CIMultiDict({"authorization": f"bEARER {user()}"})))


# replay 12 and 13
NAMES = ["a,b", "a", "b", "a/b", "a|b", "a\nb", 'a"b', "a:b", "[]", "Ana", "ana", "ana ", " ana", "\u0430na"]
NAMES += ["caf\u00e9", "cafe\u0301"]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_kept_exactly_as_the_token_has_them(verifier: Verifier, name: str):
    principal = ask(verifier, user(name, name, f"{name},{name}")).principal
    assert principal.name == Name("corp", name)
    assert principal.groups == {Name("corp", name), Name("corp", f"{name},{name}")}


def test_names_that_look_alike_are_different_principals(verifier: Verifier):
    assert len({ask(verifier, user(name)).principal.name for name in NAMES}) == len(NAMES)


def test_a_list_of_groups_is_no_group_of_the_joined_name(verifier: Verifier):
    listed, joined = (ask(verifier, user("ana", *groups)).principal for groups in (("a", "b"), ("a,b",)))
    assert listed.groups.isdisjoint(joined.groups)


def test_equal_names_of_two_issuers_are_different_principals():
    other = corp(name="other", url="https://other.example", jwks=jwks(rsa_signer("other")))
    verifier = Verifier([corp(), other])
    foreign = rsa_signer("other").sign(user_claims("ana", "emea", iss="https://other.example"))
    assert ask(verifier, foreign).principal.name == Name("other", "ana")
    assert ask(verifier, user("ana", "emea")).principal.groups == {Name("corp", "emea")}
    assert ask(verifier, foreign).principal.groups == {Name("other", "emea")}


def test_two_audiences_of_one_issuer_are_told_apart():
    verifier = Verifier([corp(), corp(name="guests", audience="guests")])
    assert ask(verifier, user()).principal.name.issuer == "corp"
    assert ask(verifier, user(aud="guests")).principal.name.issuer == "guests"
    refused(verifier, user(aud=["guests", AUDIENCE]))


# --- who is not ------------------------------------------------------------------------------------------------------


def unsigned(claims: dict[str, Any]) -> str:
    return jwt.encode(claims, "", "none")


def signed_with_the_public_key_as_secret() -> str:
    """What a verifier takes that lets the token choose how it is verified."""
    public = rsa_signer().private.public_key()
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    header, payload = (_part(part) for part in ({"alg": "HS256", "kid": "rsa-1", "typ": "JWT"}, user_claims()))
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(
        f"{header}.{payload}".encode(), pem
    )
    return f"{header}.{payload}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def _part(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def tampered(token: str) -> str:
    header, payload, signature = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    return f"{header}.{_part({**claims, 'email': 'boss@corp.example'})}.{signature}"


NOW = ISSUED
STRANGER = Signer("ec-1", "ES256", ec_signer("stranger").private)
ATTACKS = {
    "empty": "",
    "not a token": "abc",
    "two parts": "abc.def",
    "five parts": "a.b.c.d.e",
    "not ASCII": "é.é.é",
    "unsigned": unsigned(user_claims()),
    "public key as secret": signed_with_the_public_key_as_secret(),
    "changed payload": tampered(user()),
    "another's key under our kid": STRANGER.sign(user_claims()),
    "unknown kid": Signer("nobody", "ES256", ec_signer().private).sign(user_claims()),
    "kid of a key of another type": Signer("rsa-1", "ES256", ec_signer().private).sign(user_claims()),
    "no kid among several keys": ec_signer().sign(user_claims(), kid=None),
    "key of another issuer": ec_signer("cluster-1").sign(user_claims()),
    "its own key in the header": STRANGER.sign(user_claims(), jwk=STRANGER.jwk()),
    "a critical extension": ec_signer().sign(user_claims(), crit=["exp"], exp=1),
    "another type": ec_signer().sign(user_claims(), typ="logout+jwt"),
    "wrong issuer": user(iss="https://evil.example"),
    "issuer with a slash more": user(iss=CORP_URL + "/"),
    "no issuer": user(iss=None),
    "wrong audience": user(aud="other"),
    "part of our audience": user(aud=AUDIENCE[:-1]),
    "no audience": user(aud=None),
    "audience of a wrong type": user(aud={"freshgate": True}),
    "expired": user(exp=NOW - LEEWAY_SECONDS - 60),
    "no expiry": user(exp=None),
    "expiry as text": user(exp=str(NOW + 600)),
    "expiry that is true": user(exp=True),
    "expiry that is no number": user(exp=float("nan")),
    "endless expiry": user(exp=float("inf")),
    "huge expiry": user(exp=10**400),
    "not valid yet": user(nbf=NOW + LEEWAY_SECONDS + 60),
    "no subject": user(sub=None),
    "subject of a wrong type": user(sub=5),
    "no user claim": user(email=None),
    "empty user claim": user(email=""),
    "user claim of a wrong type": user(email=["ana@corp.example"]),
    "address nobody verified": user(email_verified=False),
    "groups as one text": user(groups="emea"),
    "groups of numbers": user(groups=[1]),
    "groups as an object": user(groups={"emea": True}),
    "groups kept elsewhere": user(groups=None, _claim_names={"groups": "src1"}),
    "actor of a wrong type": user(act="agent"),
    "empty actor": user(act={}),
    "null actor": user(act=None) and ec_signer().sign({**user_claims(), "act": None}),
    "actor without a name": user(act={"sub": ""}),
    "actor behind an actor": user(act={"sub": "agent", "act": {"sub": "other"}}),
    "actor of another issuer": user(act={"sub": "system:serviceaccount:bots:helper", "iss": CLUSTER_URL}),
    "account for over an hour": account(exp=NOW + 3700),
    "account without a time of issue": account(iat=None),
    "cluster's token of no account": account(sub="system:node:n1"),
    "account with a slash in its name": account("bots:a/b"),
    "account of three parts": account("bots:a:b"),
    "account that acts": account(act={"sub": "x"}),
    "account for another audience": account(aud=["https://kubernetes.default.svc"]),
}


@pytest.mark.parametrize("token", ATTACKS.values(), ids=ATTACKS)
def test_a_bad_token_gives_no_principal(verifier: Verifier, token: str):
    refused(verifier, token)


@pytest.mark.parametrize("token", ATTACKS.values(), ids=ATTACKS)
def test_a_bad_token_gives_no_person_either(verifier: Verifier, token: str):
    refused(verifier, account(), token)


@pytest.mark.parametrize(
    "found",
    [
        [],
        [("Authorization", "")],
        [("Authorization", "Bearer")],
        [("Authorization", f"Basic {user()}")],
        [("Authorization", user())],
        [("Authorization", f"Bearer {user()}"), ("Authorization", f"Bearer {user()}")],
        [("Authorization", f"Bearer {user()}"), ("Freshgate-On-Behalf-Of", "")],
        [("Authorization", f"Bearer {account()}")] + [("Freshgate-On-Behalf-Of", user())] * 2,
    ],
)
def test_headers_without_one_clear_token_give_no_principal(verifier: Verifier, found: list[tuple[str, str]]):
    for _ in range(2):  # nor the second time
        with pytest.raises(Unauthenticated):
            verifier.asker(CIMultiDictProxy(CIMultiDict(found)))


def test_symmetric_private_and_encryption_keys_of_a_set_verify_nothing():
    secret = base64.urlsafe_b64encode(b"0" * 32).decode().rstrip("=")
    private = {**ECAlgorithm.to_jwk(ec_signer("p").private, as_dict=True), "kid": "p"}
    keys = [{"kty": "oct", "k": secret, "kid": "o"}, private, ed_signer("e").jwk(use="enc"), ec_signer().jwk()]
    verifier = Verifier([corp(jwks=json.dumps({"keys": keys}))])
    refused(verifier, jwt.encode(user_claims(), b"0" * 32, "HS256", headers={"kid": "o"}))
    refused(verifier, ec_signer("p").sign(user_claims()))
    refused(verifier, ed_signer("e").sign(user_claims()))
    assert ask(verifier, user())


def test_two_keys_under_one_kid_are_both_tried():
    older, newer = ec_signer("x"), Signer("x", "ES256", ec_signer("y").private)
    verifier = Verifier([corp(jwks=jwks(older, newer))])
    assert ask(verifier, older.sign(user_claims()))
    assert ask(verifier, newer.sign(user_claims()))


def test_an_issuer_with_one_key_need_not_have_it_named():
    verifier = Verifier([corp(jwks=jwks(ec_signer()))])
    unnamed = jwt.encode(user_claims(), ec_signer().private, "ES256")
    assert ask(verifier, unnamed)


# --- on behalf of somebody -------------------------------------------------------------------------------------------


@pytest.mark.promise("ENT-7")
def test_in_a_token_with_act_the_subject_is_the_person_and_the_actor_the_agent(verifier: Verifier):
    asker = ask(verifier, user("ana@corp.example", "emea", act={"sub": "agent-7"}))
    assert asker.principal.name == Name("corp", "agent-7")
    assert asker.principal.groups == frozenset()
    assert asker.on_behalf_of is not None
    assert asker.on_behalf_of.name == Name("corp", "ana@corp.example")
    assert asker.on_behalf_of.groups == {Name("corp", "emea")}


@pytest.mark.promise("ENT-7")
def test_with_the_header_the_bearer_is_the_agent_and_its_token_the_person(verifier: Verifier):
    asker = ask(verifier, account("bots:helper"), user("ana@corp.example", "emea"))
    assert asker.principal.name == Name(KUBERNETES_ISSUER, "bots/helper")
    assert asker.on_behalf_of is not None
    assert asker.on_behalf_of.name == Name("corp", "ana@corp.example")


def test_an_agent_that_is_a_user_may_act_for_a_person_too(verifier: Verifier):
    asker = ask(verifier, user("robot@corp.example"), user("ana@corp.example"))
    assert [principal.name.name for principal in asker.everyone] == ["robot@corp.example", "ana@corp.example"]


@pytest.mark.parametrize(
    ("bearer", "person"),
    [
        (user(act={"sub": "agent"}), user()),
        (account(), user(act={"sub": "agent"})),
        (user(act={"sub": "agent"}), user(act={"sub": "agent"})),
        (user(), account()),
        (account(), account("bots:other")),
    ],
)
def test_tokens_that_do_not_fit_together_are_a_bad_request(verifier: Verifier, bearer: str, person: str):
    for _ in range(2):
        with pytest.raises(InvalidRequest):
            ask(verifier, bearer, person)


def test_a_pair_of_tokens_ends_with_the_first_of_them_to_expire(verifier: Verifier, clock: Clock):
    bearer, person = account(), user(exp=int(clock.now) + 60)
    assert ask(verifier, bearer, person)
    clock.now += 61 + LEEWAY_SECONDS
    refused(verifier, bearer, person)
    assert ask(verifier, bearer)


# --- what is remembered ----------------------------------------------------------------------------------------------


def test_a_remembered_token_is_refused_once_it_has_expired(verifier: Verifier, clock: Clock):
    token = user(exp=int(clock.now) + 60)
    assert ask(verifier, token)
    clock.now = int(clock.now) + 60 + LEEWAY_SECONDS - 0.1
    assert ask(verifier, token)
    clock.now += 0.2
    refused(verifier, token)


def test_a_remembered_token_is_refused_before_its_time(verifier: Verifier, clock: Clock):
    token = user(nbf=int(clock.now) - 5)
    assert ask(verifier, token)
    clock.now -= 60
    refused(verifier, token)


def test_a_remembered_token_is_not_verified_again(verifier: Verifier, monkeypatch: pytest.MonkeyPatch):
    token = user()
    first = ask(verifier, token)
    monkeypatch.setattr(jwt, "decode", lambda *_args, **_options: pytest.fail("verified again"))
    assert ask(verifier, token) is first


def test_a_remembered_token_is_refused_once_its_issuer_is_gone(verifier: Verifier):
    token = user()
    assert ask(verifier, token)
    verifier.replace([cluster()])
    refused(verifier, token)


def test_a_remembered_token_is_refused_once_its_key_is_gone(verifier: Verifier):
    token = user()
    assert ask(verifier, token)
    verifier.replace([corp(jwks=jwks(rsa_signer()))])
    refused(verifier, token)


def test_a_changed_claim_mapping_is_in_force_at_once(verifier: Verifier):
    token = user("ana@corp.example")
    assert ask(verifier, token).principal.name.name == "ana@corp.example"
    verifier.replace([corp(claims=ClaimMapping(user="sub"))])
    asker = ask(verifier, token)
    assert asker.principal.name.name == "id-of-ana@corp.example"
    assert asker.principal.groups == frozenset()


def test_the_pair_of_a_token_and_a_person_is_not_taken_for_the_token_alone(verifier: Verifier):
    bearer = account()
    assert ask(verifier, bearer).on_behalf_of is None
    assert ask(verifier, bearer, user()).on_behalf_of is not None
    assert ask(verifier, bearer).on_behalf_of is None


def test_no_more_than_so_many_tokens_are_remembered(verifier: Verifier, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("freshgate_service.serve.auth.REMEMBERED_TOKENS", 3)
    assert REMEMBERED_TOKENS > 3
    tokens = [user(f"{name}@corp.example") for name in "abcd"]
    askers = [ask(verifier, token) for token in tokens]
    assert ask(verifier, tokens[3]) is askers[3]
    assert ask(verifier, tokens[0]) is not askers[0]


# --- configuration ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "issuers",
    [
        [],
        [corp(audience="")],
        [corp(url="")],
        [corp(), corp(url="https://other.example")],
        [corp(), corp(name="other")],
        [corp(name=KUBERNETES_ISSUER)],
        [cluster(name="cluster")],
        [corp(jwks="{")],
        [corp(jwks='{"keys": []}')],
        [corp(jwks='{"keys": [{"kty": "oct", "k": "AAAA"}]}')],
    ],
    ids=[
        "none",
        "no audience",
        "no URL",
        "one name twice",
        "one URL and audience twice",
        "a company called as the cluster",
        "a cluster called otherwise",
        "keys that are no JSON",
        "no keys",
        "no usable key",
    ],
)
def test_issuers_that_could_be_mistaken_are_refused_and_the_last_good_ones_stay(verifier: Verifier, issuers: list[Any]):
    with pytest.raises(ConfigRefused):
        Verifier(issuers)
    with pytest.raises(ConfigRefused):
        verifier.replace(issuers)
    assert ask(verifier, user())


def test_why_a_token_was_refused_never_holds_the_token(verifier: Verifier):
    for name, token in ATTACKS.items():
        with pytest.raises(Unauthenticated) as refusal:
            ask(verifier, token)
        secrets = [part for part in token.split(".") if len(part) > 8] + ["ana@corp.example", "evil.example"]
        assert not any(secret in str(refusal.value) for secret in secrets), name
