"""The definition of entitlement: cases as data, properties over arbitrary worlds, and leaks that the properties catch.

A leak is a small way of deciding wrongly, made of the right one by a change of what it is asked. Each property takes
the way of deciding that it is to hold for, so that it can be shown to fail for a leak.
"""

import math
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import freshgate_strategies as worlds
import pytest
from freshgate_cases import Case, cases
from freshgate_strategies import entitling
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

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
from freshgate_crds.v1alpha1 import EntitlementPolicy
from freshgate_service.domain import Access, Asker, Name, Principal, Readers
from freshgate_service.entitle import entitled, judge, why

Deciding = Callable[[Asker, Access, Entitlements], bool]
Property = Callable[[Deciding], None]

ENOUGH = settings(max_examples=150, derandomize=True, database=None, deadline=None, report_multiple_bugs=False)
TO_CATCH = settings(ENOUGH, max_examples=3_000, phases=[Phase.generate])

ANA = Principal(SubjectKind.USER, Name("corp", "ana"))
HELPER = Principal(SubjectKind.SERVICE_ACCOUNT, Name(KUBERNETES_ISSUER, "bots/helper"))
TICKET = Access("tickets", {"region": "emea"})


# --- cases -------------------------------------------------------------------------------------------------------


@pytest.mark.promise("ENT-6", "ENT-7")
@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_each_asker_of_a_case_sees_what_the_case_says(case: Case):
    for asker, sees, _ in map(_fields, case.expectations):
        seen = {key for key, access in case.objects.items() if entitled(asker, access, case.entitlements)}
        assert seen == sees, asker


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_each_decision_of_a_case_names_the_policies_that_the_case_says(case: Case):
    for asker, _, because in map(_fields, case.expectations):
        for key, grounds in (because or {}).items():
            decision = why(asker, case.objects[key], case.entitlements)
            assert [(set(each.allowed_by), set(each.denied_by)) for each in decision.grounds] == list(grounds)
            assert [each.principal for each in decision.grounds] == list(asker.everyone)


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_the_policies_of_a_case_are_what_users_may_write_unless_the_case_says_refused(case: Case):
    for manifest in case.manifests:
        if manifest["metadata"]["name"] in case.refused:
            with pytest.raises(ValueError, match="validation error"):
                EntitlementPolicy.model_validate(manifest)
        else:
            EntitlementPolicy.model_validate(manifest)


def _fields(expectation):
    return expectation.asker, expectation.sees, expectation.why


# --- verdicts ----------------------------------------------------------------------------------------------------

IN, NOT_IN, EQUALS, PREFIX_OF, EXISTS = (
    Operator.IN,
    Operator.NOT_IN,
    Operator.EQUALS,
    Operator.PREFIX_OF,
    Operator.EXISTS,
)
UNKNOWN = None

VERDICTS: list[tuple[Operator, tuple[Any, ...], Any, bool | None]] = [
    (IN, (1,), 1.0, True),
    (IN, (0,), -0.0, True),
    (IN, (2**53,), 2.0**53, True),
    (IN, (2**53 + 1,), 2.0**53, False),
    (IN, (1,), True, UNKNOWN),
    (IN, (True,), 1, UNKNOWN),
    (IN, ("1",), 1, UNKNOWN),
    (IN, (1,), "1", UNKNOWN),
    (NOT_IN, (1,), "1", UNKNOWN),
    (NOT_IN, (1,), True, UNKNOWN),
    (EQUALS, (True,), 1, UNKNOWN),
    (IN, (1, "1"), "1", True),
    (IN, (1, "2"), "1", False),
    (IN, (1, "1"), True, UNKNOWN),
    (IN, (math.nan,), math.nan, UNKNOWN),
    (NOT_IN, (math.nan,), 1, UNKNOWN),
    (NOT_IN, (1,), math.nan, UNKNOWN),
    (IN, (math.inf,), math.inf, True),
    (IN, (), "emea", UNKNOWN),
    (NOT_IN, (), "emea", UNKNOWN),
    (EQUALS, (), "emea", UNKNOWN),
    (PREFIX_OF, (), "emea", UNKNOWN),
    (EQUALS, ("emea", "apac"), "emea", UNKNOWN),
    (IN, ("",), "", True),
    (NOT_IN, ("",), "emea", True),
    (PREFIX_OF, ("",), "emea", UNKNOWN),
    (PREFIX_OF, ("em", ""), "emea", UNKNOWN),
    (PREFIX_OF, ("em",), "", False),
    (PREFIX_OF, (1,), "1", UNKNOWN),
    (PREFIX_OF, ("1",), 12, UNKNOWN),
    (PREFIX_OF, ("em", 1), "emea", UNKNOWN),
    (PREFIX_OF, ("em",), ["x", 1], UNKNOWN),
    (EQUALS, ("emea",), ["emea"], UNKNOWN),
    (IN, ("emea",), ("emea",), UNKNOWN),
    (EXISTS, (), math.nan, True),
    (EXISTS, (), "", True),
    (EXISTS, (), {}, True),
    (EXISTS, (), [None], False),
    (EXISTS, (), [[]], True),
]


@pytest.mark.promise("ENT-6")
@pytest.mark.parametrize(("operator", "values", "attribute", "verdict"), VERDICTS)
def test_a_condition_says_yes_no_or_unknown(operator, values, attribute, verdict):
    condition = Condition(attribute="region", operator=operator, values=values)
    assert _verdict(entitled, condition, Access("tickets", {"region": attribute})) is verdict


def _verdict(decide: Deciding, condition: Condition, access: Access, principal: Principal = ANA) -> bool | None:
    """What a condition alone says, as seen from outside: unknown fails an Allow and matches a Deny."""
    rule = Rule(sources=(access.source,), where=(condition,))
    allows = decide(Asker(principal), access, entitling([_policy(principal, rule)]))
    denial = _policy(principal, rule, effect=Effect.DENY)
    denies = not decide(Asker(principal), access, entitling([_everything(principal), denial]))
    return allows if allows is denies else UNKNOWN


def _policy(principal: Principal, *rules: Rule, effect: Effect = Effect.ALLOW, name: str = "extra") -> Policy:
    subject = Subject(kind=principal.kind, issuer=principal.name.issuer, name=principal.name.name)
    return Policy(name=name, effect=effect, subjects=(subject,), rules=rules)


def _everything(principal: Principal, *, effect: Effect = Effect.ALLOW) -> Policy:
    return _policy(principal, Rule(sources=worlds.SOURCES, everything=True), effect=effect)


@pytest.mark.promise("ENT-6")
def test_a_rule_without_conditions_that_does_not_say_everything_allows_nothing_and_denies_all():
    empty = Rule(sources=("tickets",))
    assert not entitled(Asker(ANA), TICKET, entitling([_policy(ANA, empty)]))
    assert not entitled(Asker(ANA), TICKET, entitling([_everything(ANA), _policy(ANA, empty, effect=Effect.DENY)]))


@pytest.mark.promise("ENT-6")
def test_being_no_reader_does_not_shield_from_a_deny():
    denial = Rule(sources=("tickets",), everything=True, asker_must_be_reader=True)
    assert not entitled(Asker(ANA), TICKET, entitling([_everything(ANA), _policy(ANA, denial, effect=Effect.DENY)]))


def test_a_decision_names_the_denies_that_were_refused():
    decision = why(Asker(ANA), TICKET, entitling([_everything(ANA)], denied=["hr-closed"]))
    assert decision.refused == ("hr-closed",)
    assert decision.grounds[0].entitled
    assert not decision.entitled


# --- properties --------------------------------------------------------------------------------------------------


def default_deny(decide: Deciding, how: settings = ENOUGH) -> None:
    @how
    @given(worlds.askers(), worlds.accesses(), worlds.entitlements())
    def whom_no_allow_names_sees_nothing(asker: Asker, access: Access, entitlements: Entitlements) -> None:
        named = {(principal.kind, *principal.name) for principal in asker.everyone}
        named |= {(SubjectKind.GROUP, *group) for principal in asker.everyone for group in principal.groups}
        others = [
            policy
            for policy in entitlements.policies
            if policy.effect is Effect.DENY
            or not any((each.kind, each.issuer, each.name) in named for each in policy.subjects)
        ]
        assert not decide(asker, access, entitling(others))

    whom_no_allow_names_sees_nothing()


def deny_wins(decide: Deciding, how: settings = ENOUGH) -> None:
    @how
    @given(worlds.askers(), worlds.accesses(), worlds.entitlements(), st.data())
    def a_deny_of_anybody_denies(asker: Asker, access: Access, entitlements: Entitlements, data: st.DataObject) -> None:
        denied = data.draw(st.sampled_from(asker.everyone))
        policies = list(entitlements.policies)
        policies.insert(data.draw(st.integers(0, len(policies))), _everything(denied, effect=Effect.DENY))
        assert not decide(asker, access, entitling(policies))

    a_deny_of_anybody_denies()


def unions(decide: Deciding, how: settings = ENOUGH) -> None:
    @how
    @given(worlds.alone(), worlds.accesses(), worlds.entitlements())
    def policies_add_up(asker: Asker, access: Access, entitlements: Entitlements) -> None:
        everything = _everything(asker.principal)
        allows = [each for each in entitlements.policies if each.effect is Effect.ALLOW]
        denies = [each for each in entitlements.policies if each.effect is Effect.DENY]
        allowed = any(decide(asker, access, entitling([each])) for each in allows)
        denied = any(not decide(asker, access, entitling([everything, each])) for each in denies)
        assert decide(asker, access, entitlements) is (allowed and not denied)

    policies_add_up()


def monotone(decide: Deciding, how: settings = ENOUGH) -> None:
    @how
    @given(worlds.askers(), worlds.accesses(), worlds.entitlements(), worlds.policies())
    def only_an_allow_widens(asker: Asker, access: Access, entitlements: Entitlements, more: Policy) -> None:
        before = decide(asker, access, entitlements)
        after = decide(asker, access, entitling([more, *entitlements.policies]))
        assert after >= before if more.effect is Effect.ALLOW else after <= before

    only_an_allow_widens()


def unknown_closes(decide: Deciding, how: settings = ENOUGH) -> None:
    misshapen = st.sampled_from([*worlds.ABSENT, *worlds.MISSHAPEN])

    @how
    @given(worlds.A_CONDITION, worlds.people(), misshapen, st.booleans())
    def what_is_unknown_fails_an_allow_and_matches_a_deny(
        condition: Condition, principal: Principal, value: Any, missing: bool
    ) -> None:
        assume(condition.operator is not Operator.EXISTS)
        attributes = {} if missing else {condition.attribute: value}
        assert _verdict(decide, condition, Access("tickets", attributes), principal) is UNKNOWN

    what_is_unknown_fails_an_allow_and_matches_a_deny()


def unknown_claims_close(decide: Deciding, how: settings = ENOUGH) -> None:
    misshapen = st.sampled_from([*worlds.ABSENT, *worlds.MISSHAPEN, "", [""], ["emea", ""]])
    operators = st.sampled_from([IN, NOT_IN, EQUALS, PREFIX_OF])

    @how
    @given(operators, st.sampled_from(worlds.VALUES), misshapen, st.booleans())
    def an_unknown_claim_fails_an_allow_and_matches_a_deny(
        operator: Operator, attribute: Any, claim: Any, missing: bool
    ) -> None:
        condition = Condition(attribute="region", operator=operator, values_from_claim="regions")
        principal = replace(ANA, claims={} if missing else {"regions": claim})
        assert _verdict(decide, condition, Access("tickets", {"region": attribute}), principal) is UNKNOWN

    an_unknown_claim_fails_an_allow_and_matches_a_deny()


def types_are_strict(decide: Deciding, how: settings = ENOUGH) -> None:
    different = st.sampled_from([(1, "1"), (True, "True"), (True, 1), (0, False), (1.0, "1.0"), (1, True), ("", False)])
    operators = st.sampled_from([IN, NOT_IN, EQUALS])

    @how
    @given(operators, different, st.booleans(), st.booleans())
    def a_value_of_another_type_is_no_answer(
        operator: Operator, pair: tuple[Any, Any], swapped: bool, from_claim: bool
    ) -> None:
        wanted, found = reversed(pair) if swapped else pair
        assume(not (from_claim and wanted == ""))
        given_by: dict[str, Any] = {"values_from_claim": "level"} if from_claim else {"values": (wanted,)}
        condition = Condition(attribute="region", operator=operator, **given_by)
        principal = replace(ANA, claims={"level": wanted})
        assert _verdict(decide, condition, Access("tickets", {"region": found}), principal) is UNKNOWN

    a_value_of_another_type_is_no_answer()


def refused_denies_deny(decide: Deciding, how: settings = ENOUGH) -> None:
    @how
    @given(worlds.askers(), worlds.accesses(), worlds.entitlements())
    def a_refused_deny_denies_everything(asker: Asker, access: Access, entitlements: Entitlements) -> None:
        allowing = [*entitlements.policies, *map(_everything, asker.everyone)]
        assert not decide(asker, access, entitling(allowing, denied=["unreadable"]))

    a_refused_deny_denies_everything()


def readers_are_named(decide: Deciding, how: settings = ENOUGH) -> None:
    @how
    @given(worlds.people(), worlds.accesses())
    def only_a_reader_passes(principal: Principal, access: Access) -> None:
        rule = Rule(sources=worlds.SOURCES, everything=True, asker_must_be_reader=True)
        named = principal.name in access.readers.users or bool(principal.groups & access.readers.groups)
        assert decide(Asker(principal), access, entitling([_policy(principal, rule)])) is named

    only_a_reader_passes()


def intersections(decide: Deciding, how: settings = ENOUGH) -> None:
    @how
    @given(worlds.pairs(), worlds.accesses(), worlds.entitlements())
    def both_must_be_entitled(asker: Asker, access: Access, entitlements: Entitlements) -> None:
        assert asker.on_behalf_of is not None
        as_agent = _with_subjects(entitlements, lambda each: [each.model_copy(update={"on_behalf_only": False})])
        agent = decide(Asker(asker.principal), access, as_agent)
        as_person = _with_subjects(entitlements, lambda each: [] if each.on_behalf_only else [each])
        person = decide(Asker(asker.on_behalf_of), access, as_person)
        assert decide(asker, access, entitlements) is (agent and person)

    both_must_be_entitled()


def on_behalf_only(decide: Deciding, how: settings = ENOUGH) -> None:
    @how
    @given(worlds.alone(), worlds.accesses(), worlds.entitlements())
    def it_counts_for_nobody_alone(asker: Asker, access: Access, entitlements: Entitlements) -> None:
        without = _with_subjects(entitlements, lambda each: [] if each.on_behalf_only else [each])
        assert decide(asker, access, entitlements) is decide(asker, access, without)

    it_counts_for_nobody_alone()


def _with_subjects(entitlements: Entitlements, change: Callable[[Subject], list[Subject]]) -> Entitlements:
    policies = [
        policy.model_copy(update={"subjects": tuple(new for each in policy.subjects for new in change(each))})
        for policy in entitlements.policies
    ]
    return entitling(policies, denied=entitlements.denied)


DENIAL = [
    default_deny,
    deny_wins,
    unions,
    monotone,
    unknown_closes,
    unknown_claims_close,
    types_are_strict,
    refused_denies_deny,
    readers_are_named,
]


@pytest.mark.promise("ENT-6")
@pytest.mark.parametrize("holds", DENIAL, ids=lambda each: each.__name__)
def test_no_union_of_policies_opens_more_than_it_says(holds: Property):
    """Replay 11, and with it replays 1, 6, 7, 12 and 13: the pools are full of what those confused."""
    holds(entitled)


@pytest.mark.promise("ENT-7")
@pytest.mark.parametrize("holds", [intersections, on_behalf_only], ids=lambda each: each.__name__)
def test_an_agent_for_a_person_sees_what_both_may_see(holds: Property):
    holds(entitled)


@settings(ENOUGH, max_examples=100)
@given(worlds.askers(), worlds.accesses(), worlds.entitlements())
def test_a_decision_and_its_grounds_agree(asker: Asker, access: Access, entitlements: Entitlements):
    decided = entitled(asker, access, entitlements)
    assert why(asker, access, entitlements).entitled is decided
    assert judge(asker, entitlements)(access) is decided


# --- leaks -------------------------------------------------------------------------------------------------------


def empty_means_all(asker: Asker, access: Access, entitlements: Entitlements) -> bool:
    return entitled(asker, access, entitlements) or not entitlements.policies


def no_grant_means_all(asker: Asker, access: Access, entitlements: Entitlements) -> bool:
    decision = why(asker, access, entitlements)
    return decision.entitled or not any(each.allowed_by or each.denied_by for each in decision.grounds)


def allow_wins(asker: Asker, access: Access, entitlements: Entitlements) -> bool:
    return not entitlements.denied and entitled(asker, access, entitling(_allows(entitlements)))


def effects_are_ignored(asker: Asker, access: Access, entitlements: Entitlements) -> bool:
    allowing = [each.model_copy(update={"effect": Effect.ALLOW}) for each in entitlements.policies]
    return entitled(asker, access, entitling(allowing, denied=entitlements.denied))


def last_policy_wins(asker: Asker, access: Access, entitlements: Entitlements) -> bool:
    for policy in reversed(entitlements.policies):
        if policy.effect is Effect.ALLOW and entitled(asker, access, entitling([policy])):
            return not entitlements.denied
        if not entitled(asker, access, entitling([*map(_everything, asker.everyone), policy])):
            return False
    return False


def a_grant_by_name_overrides_a_deny(asker: Asker, access: Access, entitlements: Entitlements) -> bool:
    by_name = [each for each in _allows(entitlements) if any(who.kind is SubjectKind.USER for who in each.subjects)]
    return entitled(asker, access, entitlements) or entitled(
        asker, access, entitling(by_name, denied=entitlements.denied)
    )


def the_most_specific_decides(asker: Asker, access: Access, entitlements: Entitlements) -> bool:
    names = {each.name for each in asker.everyone}
    specific = [
        policy for policy in entitlements.policies if any((each.issuer, each.name) in names for each in policy.subjects)
    ]
    return entitled(asker, access, entitling(specific or entitlements.policies, denied=entitlements.denied))


def unknown_fails_a_deny(asker: Asker, access: Access, entitlements: Entitlements) -> bool:
    denies = [each.model_copy(update={"effect": Effect.ALLOW}) for each in _denies(entitlements)]
    allowed = entitled(asker, access, entitling(_allows(entitlements), denied=entitlements.denied))
    return allowed and not any(entitled(Asker(each), access, entitling(denies)) for each in asker.everyone)


def unknown_passes_an_allow(asker: Asker, access: Access, entitlements: Entitlements) -> bool:
    def allowed(principal: Principal) -> bool:
        inverted = [each.model_copy(update={"effect": Effect.DENY}) for each in _allows(entitlements)]
        return not entitled(Asker(principal), access, entitling([_everything(principal), *inverted]))

    everything = entitling([*map(_everything, asker.everyone), *_denies(entitlements)], denied=entitlements.denied)
    return all(map(allowed, asker.everyone)) and entitled(asker, access, everything)


def missing_is_empty_text(asker: Asker, access: Access, entitlements: Entitlements) -> bool:
    attributes = {name: access.attributes.get(name) or "" for name in worlds.ATTRIBUTES}
    return entitled(asker, replace(access, attributes=attributes), entitlements)


def missing_claim_is_no_value(asker: Asker, access: Access, entitlements: Entitlements) -> bool:
    def filled(principal: Principal) -> Principal:
        return replace(principal, claims={name: principal.claims.get(name) or "nothing" for name in worlds.CLAIMS})

    return entitled(_each_principal(asker, filled), access, entitlements)


def everything_is_text(asker: Asker, access: Access, entitlements: Entitlements) -> bool:
    policies = [
        policy.model_copy(update={"rules": tuple(_with_text_values(rule) for rule in policy.rules)})
        for policy in entitlements.policies
    ]
    attributes = {name: _as_text(value) for name, value in access.attributes.items()}
    texts = _each_principal(
        asker, lambda each: replace(each, claims={name: _as_text(value) for name, value in each.claims.items()})
    )
    return entitled(texts, replace(access, attributes=attributes), entitling(policies, denied=entitlements.denied))


def refused_denies_are_skipped(asker: Asker, access: Access, entitlements: Entitlements) -> bool:
    return entitled(asker, access, entitling(entitlements.policies))


def no_readers_means_all(asker: Asker, access: Access, entitlements: Entitlements) -> bool:
    if access.readers == Readers():
        everybody = frozenset(each.name for each in asker.everyone)
        access = replace(access, readers=Readers(users=everybody))
    return entitled(asker, access, entitlements)


def names_are_folded(asker: Asker, access: Access, entitlements: Entitlements) -> bool:
    return _renamed(lambda name: Name(name.issuer, unicodedata.normalize("NFKC", name.name).strip().casefold()))(
        asker, access, entitlements
    )


def issuers_are_merged(asker: Asker, access: Access, entitlements: Entitlements) -> bool:
    return _renamed(lambda name: Name("corp", name.name))(asker, access, entitlements)


def names_are_split(asker: Asker, access: Access, entitlements: Entitlements) -> bool:
    return _renamed(lambda name: Name(name.issuer, name.name.split(",", 1)[0]))(asker, access, entitlements)


def either_suffices(asker: Asker, access: Access, entitlements: Entitlements) -> bool:
    return any(entitled(Asker(each), access, entitlements) for each in asker.everyone)


def the_person_suffices(asker: Asker, access: Access, entitlements: Entitlements) -> bool:
    return entitled(Asker(asker.on_behalf_of or asker.principal), access, entitlements)


def the_agent_suffices(asker: Asker, access: Access, entitlements: Entitlements) -> bool:
    return entitled(Asker(asker.principal), access, entitlements)


def on_behalf_only_is_forgotten(asker: Asker, access: Access, entitlements: Entitlements) -> bool:
    always = _with_subjects(entitlements, lambda each: [each.model_copy(update={"on_behalf_only": False})])
    return entitled(asker, access, always)


LEAKS: list[tuple[Deciding, Callable[[Deciding, settings], None]]] = [
    (empty_means_all, default_deny),
    (no_grant_means_all, default_deny),
    (names_are_folded, default_deny),
    (issuers_are_merged, default_deny),
    (names_are_split, default_deny),
    (allow_wins, deny_wins),
    (last_policy_wins, deny_wins),
    (a_grant_by_name_overrides_a_deny, deny_wins),
    (last_policy_wins, unions),
    (the_most_specific_decides, unions),
    (effects_are_ignored, monotone),
    (unknown_fails_a_deny, unknown_closes),
    (unknown_passes_an_allow, unknown_closes),
    (missing_is_empty_text, unknown_closes),
    (missing_claim_is_no_value, unknown_claims_close),
    (everything_is_text, types_are_strict),
    (refused_denies_are_skipped, refused_denies_deny),
    (no_readers_means_all, readers_are_named),
    (names_are_folded, readers_are_named),
    (issuers_are_merged, readers_are_named),
    (either_suffices, intersections),
    (the_person_suffices, intersections),
    (the_agent_suffices, intersections),
    (on_behalf_only_is_forgotten, on_behalf_only),
    (on_behalf_only_is_forgotten, intersections),
]


@pytest.mark.parametrize(("leak", "holds"), LEAKS, ids=lambda each: each.__name__)
def test_a_leak_is_caught(leak: Deciding, holds: Callable[[Deciding, settings], None]):
    with pytest.raises(AssertionError):
        holds(leak, TO_CATCH)


def _allows(entitlements: Entitlements) -> list[Policy]:
    return [each for each in entitlements.policies if each.effect is Effect.ALLOW]


def _denies(entitlements: Entitlements) -> list[Policy]:
    return [each for each in entitlements.policies if each.effect is Effect.DENY]


def _each_principal(asker: Asker, change: Callable[[Principal], Principal]) -> Asker:
    return Asker(change(asker.principal), None if asker.on_behalf_of is None else change(asker.on_behalf_of))


def _renamed(rename: Callable[[Name], Name]) -> Deciding:
    """Decides as if every name, whoever's, were another."""

    def principal(each: Principal) -> Principal:
        return replace(each, name=rename(each.name), groups=frozenset(map(rename, each.groups)))

    def subject(each: Subject) -> list[Subject]:
        return [each.model_copy(update=rename(Name(each.issuer, each.name))._asdict())]

    def decide(asker: Asker, access: Access, entitlements: Entitlements) -> bool:
        users, groups = (frozenset(map(rename, names)) for names in (access.readers.users, access.readers.groups))
        renamed = replace(access, readers=Readers(users, groups))
        return entitled(_each_principal(asker, principal), renamed, _with_subjects(entitlements, subject))

    return decide


def _with_text_values(rule: Rule) -> Rule:
    where = [each.model_copy(update={"values": tuple(map(str, each.values))}) for each in rule.where]
    return rule.model_copy(update={"where": tuple(where)})


def _as_text(value: Any) -> Any:
    return list(map(_as_text, value)) if isinstance(value, list) else str(value)
