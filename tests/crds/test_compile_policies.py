"""What a refused policy means, in each way in which it can be broken."""

import pytest
from freshgate_written import Body, compiled, config, desk, manifests, policy, resource, source, workspace

from freshgate_crds.compile import Standing
from freshgate_crds.compiled import Effect

GOOD = policy("good")
pytestmark = pytest.mark.promise("ENT-6")


def denied(*bodies: Body, unreadable: str | None = None) -> tuple[str, ...]:
    made = compiled(manifests(*desk(), GOOD, *bodies, unreadable=unreadable)).config
    assert made is not None
    return made.entitlements.denied


def standing(*bodies: Body) -> Standing | None:
    """Of the policy `bad`."""
    outcomes = compiled(manifests(*desk(), GOOD, *bodies)).outcomes
    return next((outcome.standing for outcome in outcomes if outcome.name == "bad"), None)


BROKEN = {
    "a subject without a name": {"subjects": [{"kind": "User"}]},
    "no subject": {"subjects": []},
    "no rule": {"rules": []},
    "a rule for nothing": {"rules": [{"sources": [], "everything": True}]},
    "a rule without a condition": {"rules": [{"sources": ["tickets"], "where": []}]},
    "a rule of both kinds": {
        "rules": [
            {"sources": ["tickets"], "everything": True, "where": [{"attribute": "region", "operator": "Exists"}]}
        ]
    },
    "an attribute that is not mapped": {
        "rules": [{"sources": ["tickets"], "where": [{"attribute": "regoin", "operator": "Exists"}]}]
    },
    "a source that does not exist": {"rules": [{"sources": ["ticket"], "everything": True}]},
    "an issuer that does not exist": {"subjects": [{"kind": "User", "name": "ana", "issuer": "crop"}]},
    "a field that does not exist": {"rule": []},
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_refused_allow_grants_nothing_and_takes_nothing_from_the_others(broken):
    bodies = [*desk(), GOOD, policy("bad", **BROKEN[broken])]
    assert config(*bodies).entitlements == config(*desk(), GOOD).entitlements
    assert standing(policy("bad", **BROKEN[broken])) is Standing.GRANTS_NOTHING


@pytest.mark.parametrize("broken", BROKEN)
def test_a_refused_deny_denies_everything_in_its_workspaces(broken):
    assert denied(policy("bad", "Deny", **BROKEN[broken])) == ("bad",)
    assert standing(policy("bad", "Deny", **BROKEN[broken])) is Standing.DENIES_ALL


@pytest.mark.parametrize("effect", ["Deny", "Allow"])
def test_a_refused_policy_of_other_workspaces_means_nothing_here(effect):
    assert denied(policy("bad", effect, workspaces=["sales"], subjects=[])) == ()
    assert standing(policy("bad", effect, workspaces=["sales"], subjects=[])) is None


UNTOLD = {
    "no effect": policy("bad", effect=None, workspaces=["sales"]),  # type: ignore[arg-type]  # what users may write
    "an effect that does not exist": policy("bad", "allow", workspaces=["sales"]),
    "no workspaces": policy("bad", workspaces=None),
    "an empty list of workspaces": policy("bad", workspaces=[]),
    "workspaces that are no list": policy("bad", workspaces="sales"),
    "workspaces of which one is no name": policy("bad", workspaces=["sales", None]),
    "a workspace that cannot exist": policy("bad", workspaces=["Support"]),
    "no spec": resource("EntitlementPolicy", "bad", None),
    "a spec that is a list": resource("EntitlementPolicy", "bad", [{"effect": "Allow"}]),
    "a version that is not known": {**policy("bad", workspaces=["sales"]), "apiVersion": "freshgate.dev/v9"},
    "another group": {**policy("bad", workspaces=["sales"]), "apiVersion": "freshgate.example/v1alpha1"},
}


@pytest.mark.parametrize("untold", UNTOLD)
def test_a_policy_too_broken_to_tell_what_it_is_for_counts_as_a_deny_of_every_workspace(untold):
    assert denied(UNTOLD[untold]) == ("bad",)
    assert standing(UNTOLD[untold]) is Standing.DENIES_ALL


def test_a_policy_of_another_namespace_means_nothing_here_however_broken():
    bodies = [{**body, "metadata": {"name": "bad", "namespace": "other"}} for body in UNTOLD.values()]
    assert denied(*bodies) == ()
    whole = {**policy("all"), "metadata": {"name": "all", "namespace": "other"}}
    assert config(*desk(), GOOD, whole).entitlements == config(*desk(), GOOD).entitlements


def test_a_file_that_was_never_read_could_hold_a_deny():
    assert denied(unreadable="b.yaml") == ("b.yaml",)


@pytest.mark.parametrize(
    ("bodies", "meaning"),
    [
        ([policy("bad"), policy("bad")], Standing.GRANTS_NOTHING),
        ([policy("bad"), policy("bad", "Deny")], Standing.DENIES_ALL),
        ([policy("bad", "Deny"), policy("bad")], Standing.DENIES_ALL),
        ([policy("bad"), policy("bad", "Deny", workspaces=["sales"])], Standing.GRANTS_NOTHING),
        ([policy("bad", workspaces=["sales"]), policy("bad", workspaces=["sales"])], None),
    ],
)
def test_replay_47_of_two_policies_by_one_name_neither_is_obeyed_and_the_worst_is_taken(bodies, meaning):
    assert standing(*bodies) is meaning
    made = config(*desk(), GOOD, *bodies)
    assert [each.name for each in made.entitlements.policies] == ["good"]
    assert made.entitlements.denied == (("bad",) if meaning is Standing.DENIES_ALL else ())


def test_a_good_policy_is_in_force_only_in_the_workspaces_that_it_names():
    elsewhere = policy("elsewhere", workspaces=["sales"])
    assert [each.name for each in config(*desk(), GOOD, elsewhere).entitlements.policies] == ["good"]


def test_of_a_source_that_is_not_in_the_workspace_a_rule_says_nothing():
    sources = [source("tickets"), source("accounts"), source("orders")]
    both = policy("both", rules=[{"sources": ["orders", "tickets"], "everything": True}])
    none = policy("none", "Deny", rules=[{"sources": ["orders"], "everything": True}])
    made = config(*sources, workspace(sources=["tickets"]), both, none)
    assert [each.name for each in made.entitlements.policies] == ["both"]
    assert [rule.sources for rule in made.entitlements.policies[0].rules] == [("tickets",)]
    assert made.entitlements.denied == ()


def test_attributes_are_those_of_the_form_that_is_in_force():
    before = config(*desk())
    mapping = {**source()["spec"]["object"], "attributes": {"area": "area"}}
    renamed = source("tickets", ttl="soon", object=mapping)
    by_area = policy(
        "bad", "Deny", rules=[{"sources": ["tickets"], "where": [{"attribute": "area", "operator": "Exists"}]}]
    )
    assert config(renamed, *desk()[1:], by_area, previous=before).entitlements.denied == ("bad",)
    assert config(source("tickets", object=mapping), *desk()[1:], by_area, previous=before).entitlements.denied == ()


def test_a_second_issuer_turns_names_without_one_into_refusals_and_never_into_somebody_elses():
    unnamed = policy("bad", "Deny", subjects=[{"kind": "Group", "name": "sales"}])
    assert config(*desk(), unnamed).entitlements.policies[0].subjects[0].issuer == "corp"
    corp = workspace()["spec"]["authentication"]["oidc"][0]
    partner = {**corp, "name": "partner", "issuer": "https://partner.example"}
    made = config(*desk()[:2], workspace(authentication={"oidc": [corp, partner]}), unnamed)
    assert made.entitlements.denied == ("bad",)


def test_agents_are_the_clusters_and_count_as_it_is_written():
    subjects = [{"kind": "ServiceAccount", "name": "bots/helper", "use": "OnBehalfOnly"}]
    (made,) = config(*desk(), policy(subjects=subjects)).entitlements.policies
    assert made.effect is Effect.ALLOW
    assert [(each.issuer, each.name, each.on_behalf_only) for each in made.subjects] == [
        ("kubernetes", "bots/helper", True)
    ]
