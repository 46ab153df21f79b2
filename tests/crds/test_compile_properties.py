"""Compiling never widens: whatever is broken, taken away or moved about, nobody sees more than before."""

import copy
from collections.abc import Iterator
from itertools import combinations, product
from typing import Any

import pytest
from freshgate_strategies import ATTRIBUTES, CLAIMS, GROUPS_NAMED, PEOPLE_NAMED, SOURCES, accesses, askers
from freshgate_written import NAMESPACE, Body, compiled, config, desk, manifests, policy, resource, source, workspace
from hypothesis import assume, given
from hypothesis import strategies as st

from freshgate_crds.compile import Standing
from freshgate_crds.compiled import KUBERNETES_ISSUER, Config, Subject
from freshgate_crds.manifests import KINDS
from freshgate_service.domain import Access, Asker
from freshgate_service.entitle.decide import entitled

CORP = workspace()["spec"]["authentication"]["oidc"][0]
PARTNER = {**CORP, "name": "partner", "issuer": "https://partner.example"}
SEVERAL = workspace(authentication={"kubernetes": {"audience": "a"}, "oidc": [CORP, PARTNER]})
DESK = [source("tickets"), source("accounts"), SEVERAL]
assert tuple(DESK[0]["spec"]["object"]["attributes"]) == ATTRIBUTES

# --- policies as users write them --------------------------------------------------------------------------------

GIVEN: list[Body] = [
    {"operator": "Exists"},
    *({"operator": operator, "values": ["emea"]} for operator in ("In", "NotIn", "Equals", "PrefixOf")),
    *({"operator": operator, "values": ["emea", "apac"]} for operator in ("In", "NotIn", "PrefixOf")),
    *({"operator": operator, "numbers": [1]} for operator in ("In", "NotIn", "Equals")),
    *({"operator": operator, "booleans": [True]} for operator in ("In", "NotIn", "Equals")),
    *({"operator": operator, "valuesFromClaim": claim} for operator in ("In", "NotIn") for claim in CLAIMS),
]


CONDITIONS = [{"attribute": attribute, **given} for attribute, given in product(ATTRIBUTES, GIVEN)]
EXTENTS: list[Body] = [
    *[{"everything": True}] * 20,
    *({"where": [condition]} for condition in CONDITIONS),
    *({"where": [*both]} for both in combinations(CONDITIONS, 2)),
]
NAMED_SOURCES = ([*SOURCES], [SOURCES[0]], [SOURCES[1]])
RULES: list[Body] = [{"sources": sources, **extent} for sources, extent in product(NAMED_SOURCES, EXTENTS)]


def _subject(subject: Subject) -> Body:
    issuer = {} if subject.issuer == KUBERNETES_ISSUER else {"issuer": subject.issuer}
    return {"kind": subject.kind.value, "name": subject.name, **issuer}


PEOPLE_AND_GROUPS = [_subject(subject) for subject in (*PEOPLE_NAMED, *GROUPS_NAMED)]
AGENT: Body = {"kind": "ServiceAccount", "name": "bots/helper"}
SUBJECTS = {
    "Deny": [*PEOPLE_AND_GROUPS, *[AGENT] * 20],
    "Allow": [*PEOPLE_AND_GROUPS, *[AGENT, {**AGENT, "use": "OnBehalfOnly"}] * 10],
}


@st.composite
def policies(draw: st.DrawFn, name: str, effects: tuple[str, ...] = ("Allow", "Allow", "Deny")) -> Body:
    effect = draw(st.sampled_from(effects))
    rules = [draw(st.sampled_from(RULES)) for _ in range(draw(st.integers(1, 2)))]
    if effect == "Allow" and draw(st.integers(0, 3)) == 3:
        rules[0] = {**rules[0], "asker": "MustBeReader"}
    return policy(
        name,
        effect,
        workspaces=draw(st.sampled_from([["support"], ["support", "sales"]])),
        subjects=[draw(st.sampled_from(SUBJECTS[effect])) for _ in range(draw(st.integers(1, 3)))],
        rules=rules,
    )


@st.composite
def policy_sets(draw: st.DrawFn) -> list[Body]:
    """At least one, and none of them refused."""
    return [draw(policies(f"policy-{place}")) for place in range(draw(st.integers(1, 5)))]


def seen(made: Config, asker: Asker, records: list[Access]) -> list[int]:
    return [place for place, record in enumerate(records) if entitled(asker, record, made.entitlements)]


# --- ways to break them ------------------------------------------------------------------------------------------

JUNK: list[Any] = [None, [], {}, "", 0, -1.5, True, False, "x y", [None], [[]], {"x": {}}, ["x y"]]
REMOVED = object()


def spots(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to everything inside a JSON value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in pairs:
        yield (*path, step)
        yield from spots(item, (*path, step))


def broken_at(body: Body, path: tuple[Any, ...], junk: Any) -> Body:
    result = copy.deepcopy(body)
    *parents, last = path
    holder: Any = result
    for step in parents:
        holder = holder[step]
    if junk is REMOVED:
        del holder[last]
    else:
        holder[last] = junk
    return result


@st.composite
def broken(draw: st.DrawFn, body: Body) -> Body:
    path = draw(st.sampled_from([path for path in spots(body) if path[0] in ("apiVersion", "spec")]))
    return broken_at(body, path, draw(st.sampled_from([REMOVED, *JUNK])))


def json_values() -> st.SearchStrategy[Any]:
    words = st.sampled_from(
        [
            "Allow",
            "Deny",
            "support",
            "tickets",
            "effect",
            "rules",
            "sources",
            "everything",
            "where",
            "ttl",
            "5m",
            "spec",
        ]
    )
    plain = st.none() | st.booleans() | st.integers(-2, 2) | st.floats(allow_nan=False) | words | st.text(max_size=3)
    return st.recursive(
        plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=4), max_leaves=12
    )


# --- what must hold ----------------------------------------------------------------------------------------------


@pytest.mark.promise("ENT-6")
@given(st.data(), policy_sets(), askers(), st.lists(accesses(), min_size=1, max_size=5))
def test_replay_11_a_policy_that_is_refused_never_lets_anybody_see_more(data, written, asker, records):
    place = data.draw(st.integers(0, len(written) - 1))
    others = [*written[:place], *written[place + 1 :]]
    wrong = data.draw(broken(written[place]))
    compilation = compiled(manifests(*DESK, *others, wrong))
    assume(compilation.refusals)
    assert compilation.config is not None
    visible = seen(compilation.config, asker, records)
    assert set(visible) <= set(seen(config(*DESK, *others), asker, records))
    assert set(visible) <= set(seen(config(*DESK, *written), asker, records))
    if written[place]["spec"]["effect"] == "Deny":
        assert visible == []


@pytest.mark.promise("ENT-6")
@given(policy_sets(), json_values(), askers(), st.lists(accesses(), min_size=1, max_size=5))
def test_a_policy_of_anything_at_all_never_lets_anybody_see_more(written, anything, asker, records):
    wrong = resource("EntitlementPolicy", "anything", anything)
    compilation = compiled(manifests(*DESK, *written, wrong))
    assert compilation.refusals
    assert compilation.config is not None
    assert set(seen(compilation.config, asker, records)) <= set(seen(config(*DESK, *written), asker, records))


@pytest.mark.promise("ENT-6")
@given(st.data(), policy_sets(), askers(), st.lists(accesses(), min_size=1, max_size=5))
def test_an_allow_less_or_a_deny_more_never_lets_anybody_see_more(data, written, asker, records):
    before = seen(config(*DESK, *written), asker, records)
    fewer = [body for body in written if body["spec"]["effect"] == "Deny" or data.draw(st.booleans())]
    deny = data.draw(policies("deny", ("Deny",)))
    assert set(seen(config(*DESK, *fewer, deny), asker, records)) <= set(before)


@pytest.mark.promise("CON-1", "ENT-6")
@given(st.data(), policy_sets(), askers(), st.lists(accesses(), min_size=1, max_size=5))
def test_a_source_that_is_refused_or_gone_never_lets_anybody_see_more(data, written, asker, records):
    good = config(*DESK, *written)
    wrong = data.draw(st.sampled_from([source("tickets", ttl="soon"), source("tickets", object={}), None]))
    bodies = [*DESK[1:], *written, *([wrong] if wrong else [])]
    for previous in (None, good):
        assert set(seen(config(*bodies, previous=previous), asker, records)) <= set(seen(good, asker, records))
    if wrong:
        assert config(*bodies, previous=good).entitlements == good.entitlements


@pytest.mark.promise("CON-1")
@given(st.data(), policy_sets(), policy_sets())
def test_no_refused_source_or_workspace_ever_holds_back_a_policy(data, before, after):
    last = config(*DESK, *before)
    wrong = [data.draw(broken(body) | st.just(body)) for body in DESK]
    compilation = compiled(manifests(*wrong, *after), previous=last)
    assert compilation.config is not None
    fresh = compiled(manifests(*wrong, *after), previous=config(*DESK)).config
    assert fresh is not None
    assert compilation.config == fresh, "what was entitled before has a say in what is entitled now"


@given(st.data(), policy_sets())
def test_the_order_of_the_files_makes_no_difference(data, written):
    twice = data.draw(st.lists(st.sampled_from(written), max_size=1))
    wrong = [data.draw(broken(body)) for body in data.draw(st.lists(st.sampled_from(written), max_size=1))]
    bodies = [*DESK, *written, *twice, *wrong]
    moved = data.draw(st.permutations(bodies))
    first, second = compiled(manifests(*bodies)), compiled(manifests(*moved))
    assert first.config == second.config
    assert first.config is not None
    assert second.config is not None
    assert first.config.model_dump_json() == second.config.model_dump_json()
    assert {outcome.identity: outcome.standing for outcome in first.outcomes} == {
        outcome.identity: outcome.standing for outcome in second.outcomes
    }


@given(st.data(), st.lists(st.tuples(st.sampled_from(KINDS), json_values()), max_size=4))
def test_replay_47_nothing_that_can_be_written_makes_compiling_fail(data, anything):
    wrong = [data.draw(broken(body)) for body in DESK]
    extra = [resource(kind, data.draw(st.sampled_from(["tickets", "support", "x"])), spec) for kind, spec in anything]
    for previous in (None, config(*desk())):
        compilation = compiled(manifests(*wrong, *extra), previous=previous)
        assert all(refusal.mend and refusal.field for refusal in compilation.refusals)
        assert previous is None or compilation.config is not None
        for outcome in compilation.outcomes:
            assert outcome.namespace == NAMESPACE
            assert outcome.refusals or outcome.standing is Standing.CURRENT
