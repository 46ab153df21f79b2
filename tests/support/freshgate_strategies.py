"""Worlds to decide over: askers, accesses and entitlements, from pools that are small and full of look-alikes.

Names differ by case, normal form, trailing space, script and delimiters; values differ by type alone. The first entries
of a pool are plain and stand in it several times, so that askers, records and policies meet often. Pools hold finished
pieces because drawing is what takes the time.
"""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import combinations, product
from typing import Any

from hypothesis import strategies as st

from freshgate_crds.compiled import (
    KUBERNETES_ISSUER,
    Condition,
    Effect,
    Entitlements,
    Operator,
    Policy,
    Rule,
    Scalar,
    Subject,
    SubjectKind,
)
from freshgate_service.domain import Access, Asker, Name, Principal, Readers

SOURCES = ("tickets", "accounts")
ATTRIBUTES = ("region", "owner")
CLAIMS = ("regions", "level")

# --- pools -------------------------------------------------------------------------------------------------------

PEOPLE = [
    *[Name("corp", "ana")] * 8,
    *(Name("corp", each) for each in ("bo", "Ana", "ana ", "\u0430na", "jos\u00e9", "jose\u0301", "ana,bo", "sales")),
    Name("partner", "ana"),
]
GROUPS = [*[Name("corp", "sales")] * 6, *(Name("corp", each) for each in ("hr", "Sales", "sales,hr", "ana"))]
GROUPS += [Name("partner", "sales")]
AGENTS = [
    Name(KUBERNETES_ISSUER, each) for each in ("bots/helper", "bots/helper", "bots/helper", "bots/Helper", "bots")
]

SCALARS: list[Scalar] = ["emea", "emea", "emea", "emea/de", "apac", "EMEA", "", 1, 1.0, True, "1", "True", 0, False, 2]
LISTS: list[list[Scalar]] = [
    ["emea"],
    ["emea", "apac"],
    ["apac", "emea/de"],
    [1, True],
    ["emea", 1],
    [2, 1.0],
    ["", "x"],
]
ABSENT: list[Any] = [None, [], [None]]
MISSHAPEN: list[Any] = [math.nan, {}, {"emea": "emea"}, [["emea"]], ["emea", None], ["emea", {}], [1, math.nan]]
VALUES: list[Any] = [*["emea"] * 20, *[["emea", "apac"]] * 5, *SCALARS, *LISTS, *ABSENT, *MISSHAPEN]

LITERALS: list[tuple[Scalar, ...]] = [
    *((each,) for each in SCALARS),
    *(tuple(each) for each in LISTS),
    ("em",),
    ("em", 1),
]
GIVEN: list[dict[str, Any]] = [{"values": each} for each in LITERALS] + [
    {"values_from_claim": each} for each in CLAIMS * 6
]
COMPARING = (Operator.IN, Operator.IN, Operator.NOT_IN, Operator.EQUALS, Operator.PREFIX_OF)
CONDITIONS = [
    Condition(attribute=attribute, operator=operator, **given)
    for attribute, operator, given in product(ATTRIBUTES, COMPARING, GIVEN)
    if operator is not Operator.EQUALS or len(given.get("values", ())) < 2
] + [Condition(attribute=each, operator=Operator.EXISTS) for each in ATTRIBUTES * 20]


def _subjects(kind: SubjectKind, names: Sequence[Name]) -> list[Subject]:
    always = [Subject(kind=kind, issuer=each.issuer, name=each.name) for each in names]
    return [
        *always,
        *always,
        *always,
        *(each.model_copy(update={"on_behalf_only": True}) for each in dict.fromkeys(always)),
    ]


PEOPLE_NAMED = _subjects(SubjectKind.USER, PEOPLE)
GROUPS_NAMED = _subjects(SubjectKind.GROUP, GROUPS)
AGENTS_NAMED = _subjects(SubjectKind.SERVICE_ACCOUNT, AGENTS)

# --- who asks ----------------------------------------------------------------------------------------------------

CARRIED = (
    [frozenset({group}) for group in GROUPS] + [frozenset(both) for both in combinations(GROUPS, 2)] + [frozenset()]
)


SELDOM = st.sampled_from([False, False, False, True])
A_PERSON = st.sampled_from(PEOPLE)
AN_AGENT = st.sampled_from(AGENTS)
SOME_GROUPS = st.sampled_from(CARRIED)


@cache
@st.composite
def people(draw: st.DrawFn) -> Principal:
    return Principal(SubjectKind.USER, draw(A_PERSON), draw(SOME_GROUPS), draw(mappings(CLAIMS)))


@cache
@st.composite
def agents(draw: st.DrawFn) -> Principal:
    return Principal(SubjectKind.SERVICE_ACCOUNT, draw(AN_AGENT), claims=draw(mappings(CLAIMS)))


@cache
@st.composite
def alone(draw: st.DrawFn) -> Asker:
    return Asker(draw(agents() if draw(SELDOM) else people()))


@cache
@st.composite
def pairs(draw: st.DrawFn) -> Asker:
    """Agents that act for a person."""
    return Asker(draw(people() if draw(SELDOM) else agents()), draw(people()))


@cache
@st.composite
def askers(draw: st.DrawFn) -> Asker:
    return draw(pairs() if draw(SELDOM) else alone())


# --- what is asked about -----------------------------------------------------------------------------------------

A_SOURCE = st.sampled_from(SOURCES)
A_VALUE = st.sampled_from(VALUES)
READING_USERS = st.sampled_from([frozenset[Name](), *(frozenset({name}) for name in PEOPLE)])
READING_GROUPS = st.sampled_from([frozenset[Name](), *(frozenset({name}) for name in GROUPS)])


@cache
@st.composite
def accesses(draw: st.DrawFn) -> Access:
    return Access(draw(A_SOURCE), draw(mappings(ATTRIBUTES)), Readers(draw(READING_USERS), draw(READING_GROUPS)))


@cache
@st.composite
def mappings(draw: st.DrawFn, names: Sequence[str]) -> dict[str, Any]:
    """From each name to a value; now and then one is missing."""
    return {name: draw(A_VALUE) for name in names if not draw(SELDOM)}


# --- what policies say -------------------------------------------------------------------------------------------


A_CONDITION = st.sampled_from(CONDITIONS)
A_SUBJECT = st.sampled_from([*PEOPLE_NAMED, *PEOPLE_NAMED, *GROUPS_NAMED, *GROUPS_NAMED, *AGENTS_NAMED, *AGENTS_NAMED])
HOW_MANY_CONDITIONS = st.sampled_from([1, 0, 1, 0, 2])
HOW_MANY_SUBJECTS = st.sampled_from([2, 1, 3])
HOW_MANY_RULES = st.sampled_from([1, 1, 2])
HOW_MANY_POLICIES = st.sampled_from([3, 4, 5, 6, 2, 1, 0])
OF_WHICH_SOURCES = st.sampled_from([SOURCES, SOURCES[:1], SOURCES[1:]])


@cache
@st.composite
def rules(draw: st.DrawFn, effect: Effect) -> Rule:
    where = [draw(A_CONDITION) for _ in range(draw(HOW_MANY_CONDITIONS))]
    return Rule(
        sources=draw(OF_WHICH_SOURCES),
        where=tuple(where),
        everything=not where,
        asker_must_be_reader=effect is Effect.ALLOW and draw(SELDOM),
    )


@cache
@st.composite
def policies(draw: st.DrawFn, name: str = "policy") -> Policy:
    effect = Effect.DENY if draw(SELDOM) else Effect.ALLOW
    return Policy(
        name=name,
        effect=effect,
        subjects=tuple(draw(A_SUBJECT) for _ in range(draw(HOW_MANY_SUBJECTS))),
        rules=tuple(draw(rules(effect)) for _ in range(draw(HOW_MANY_RULES))),
    )


@cache
@st.composite
def entitlements(draw: st.DrawFn) -> Entitlements:
    """Of understood policies only."""
    return entitling([draw(policies(f"policy-{place}")) for place in range(draw(HOW_MANY_POLICIES))])


def entitling(policies: Sequence[Policy], *, denied: Sequence[str] = ()) -> Entitlements:
    stamp = datetime(2026, 11, 30, tzinfo=UTC)
    return Entitlements(policies=tuple(policies), denied=tuple(denied), stamp=stamp, max_age_seconds=86_400)
