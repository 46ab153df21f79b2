"""Entitlement cases as data: policies and records, and for each asker what is seen and why.

The files are tests/cases/*.yaml. Every entrance that could show a record runs them all. A case reads:

    - case: a sentence
      policies:                    # name → spec of an EntitlementPolicy, but for `workspaces`
        emea-support: {effect: Allow, subjects: […], rules: […]}
      refused: [name]              # policies that `compile` does not accept
      objects:                     # source/id → attributes, and readers as the issuer READERS_ISSUER asserts them
        tickets/1: {attributes: {region: emea}, readers: {users: [ana], groups: [sales]}}
      askers:                      # user (of `issuer`, or ISSUER) or serviceAccount; groups, claims, onBehalfOf
      - asker: {user: ana, groups: [emea-support]}
        sees: [tickets/1]
        why: {tickets/1: {allow: [emea-support]}}   # all that match, of all objects; with onBehalfOf
                                                    # a list, the agent's first

Records hold JSON values only, and each one's title and body say QUERY, so that a search for it finds whatever may be
seen.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from freshgate_crds.compiled import (
    KUBERNETES_ISSUER,
    Condition,
    Effect,
    Entitlements,
    Operator,
    Policy,
    Rule,
    Subject,
    SubjectKind,
)
from freshgate_service.domain import Access, Asker, Name, ObjectKey, Principal, Readers

CASES = Path(__file__).resolve().parent.parent / "cases"
ISSUER = "corp"
READERS_ISSUER = ISSUER
WORKSPACE = "support"
NAMESPACE = "acme"
QUERY = "lantern"


class Because(NamedTuple):
    """Names of the policies that match for one principal."""

    allow: frozenset[str]
    deny: frozenset[str]


@dataclass(frozen=True)
class Expectation:
    """`why` has a Because for each principal of the asker, for each object; None where the case does not say."""

    asker: Asker
    sees: frozenset[ObjectKey]
    why: Mapping[ObjectKey, tuple[Because, ...]] | None


@dataclass(frozen=True)
class Case:
    name: str
    manifests: tuple[dict[str, Any], ...]
    refused: frozenset[str]
    objects: Mapping[ObjectKey, Access]
    expectations: tuple[Expectation, ...]

    @property
    def entitlements(self) -> Entitlements:
        accepted = [each for each in self.manifests if each["metadata"]["name"] not in self.refused]
        denied = [each for each in self.manifests if each not in accepted and each["spec"]["effect"] == "Deny"]
        return Entitlements(
            policies=tuple(_policy(each["metadata"]["name"], each["spec"]) for each in accepted),
            denied=tuple(each["metadata"]["name"] for each in denied),
            stamp=datetime.now(UTC),
            max_age_seconds=86_400,
        )

    @staticmethod
    def title(key: ObjectKey) -> str:
        return f"The {QUERY} of {key.text}"

    @staticmethod
    def body(key: ObjectKey) -> str:
        return f"What {key.text} says of its {QUERY}."


def cases() -> list[Case]:
    return [_case(each) for path in sorted(CASES.glob("*.yaml")) for each in yaml.safe_load(path.read_text("utf-8"))]


def _case(written: dict[str, Any]) -> Case:
    _only(written, "case", "policies", "refused", "objects", "askers")
    objects = {_key(name): _access(_key(name), each or {}) for name, each in written["objects"].items()}
    return Case(
        name=written["case"],
        manifests=tuple(_manifest(name, spec) for name, spec in written["policies"].items()),
        refused=frozenset(written.get("refused", ())),
        objects=objects,
        expectations=tuple(_expectation(each, objects) for each in written["askers"]),
    )


def _expectation(written: dict[str, Any], objects: Mapping[ObjectKey, Access]) -> Expectation:
    _only(written, "asker", "sees", "why")
    asker, why = _asker(written["asker"]), written.get("why")
    _only(why or {}, *(key.text for key in objects))
    because = None if why is None else {key: _because(why.get(key.text, {}), asker) for key in objects}
    return Expectation(asker, frozenset(map(_key, written["sees"])), because)


def _because(written: Any, asker: Asker) -> tuple[Because, ...]:
    """Of one object; what is no list holds for each principal."""
    each = written if isinstance(written, list) else [written] * len(asker.everyone)
    return tuple(Because(frozenset(one.get("allow", ())), frozenset(one.get("deny", ()))) for one in each)


# --- who and what ------------------------------------------------------------------------------------------------


def _asker(written: dict[str, Any]) -> Asker:
    person = written.get("onBehalfOf")
    agent = {name: value for name, value in written.items() if name != "onBehalfOf"}
    return Asker(_principal(agent), None if person is None else _principal(person))


def _principal(written: dict[str, Any]) -> Principal:
    _only(written, "user", "serviceAccount", "issuer", "groups", "claims")
    if "serviceAccount" in written:
        name = Name(KUBERNETES_ISSUER, written["serviceAccount"])
        return Principal(SubjectKind.SERVICE_ACCOUNT, name, claims=written.get("claims", {}))
    issuer = written.get("issuer", ISSUER)
    groups = frozenset(Name(issuer, group) for group in written.get("groups", ()))
    return Principal(SubjectKind.USER, Name(issuer, written["user"]), groups, written.get("claims", {}))


def _access(key: ObjectKey, written: dict[str, Any]) -> Access:
    _only(written, "attributes", "readers")
    named = written.get("readers", {})
    users, groups = (
        frozenset(Name(READERS_ISSUER, each) for each in named.get(kind, ())) for kind in ("users", "groups")
    )
    return Access(key.source, written.get("attributes", {}), Readers(users, groups))


def _key(text: str) -> ObjectKey:
    return ObjectKey(*text.split("/", 1))


# --- policies ----------------------------------------------------------------------------------------------------


def _manifest(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "freshgate.dev/v1alpha1",
        "kind": "EntitlementPolicy",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"workspaces": [WORKSPACE], **spec},
    }


def _policy(name: str, spec: dict[str, Any]) -> Policy:
    _only(spec, "workspaces", "effect", "subjects", "rules")
    return Policy(
        name=name,
        effect=Effect(spec["effect"]),
        subjects=tuple(map(_subject, spec["subjects"])),
        rules=tuple(map(_rule, spec["rules"])),
    )


def _subject(written: dict[str, Any]) -> Subject:
    _only(written, "kind", "name", "issuer", "use")
    kind = SubjectKind(written["kind"])
    issuer = KUBERNETES_ISSUER if kind is SubjectKind.SERVICE_ACCOUNT else written["issuer"]
    return Subject(kind=kind, issuer=issuer, name=written["name"], on_behalf_only="use" in written)


def _rule(written: dict[str, Any]) -> Rule:
    _only(written, "sources", "where", "everything", "asker")
    return Rule(
        sources=tuple(written["sources"]),
        where=tuple(map(_condition, written.get("where", ()))),
        everything=written.get("everything", False),
        asker_must_be_reader="asker" in written,
    )


def _condition(written: dict[str, Any]) -> Condition:
    _only(written, "attribute", "operator", "values", "numbers", "booleans", "valuesFromClaim")
    return Condition(
        attribute=written["attribute"],
        operator=Operator(written["operator"]),
        values=tuple(_literals(written)),
        values_from_claim=written.get("valuesFromClaim"),
    )


def _literals(written: dict[str, Any]) -> Iterator[Any]:
    for kind in ("values", "numbers", "booleans"):
        yield from written.get(kind, ())


def _only(written: dict[str, Any], *known: str) -> None:
    """A field that nobody reads could be the one that a case is about."""
    if unknown := written.keys() - set(known):
        raise ValueError(f"a case has fields that no reader knows: {', '.join(sorted(unknown))}")
