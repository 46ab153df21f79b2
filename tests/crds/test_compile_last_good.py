"""What a refusal leaves in force: last good forms for sources and settings, and never a say in who is entitled."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from freshgate_written import (
    KEYS,
    NAMESPACE,
    STAMP,
    Body,
    compiled,
    config,
    desk,
    manifests,
    policy,
    resource,
    secret,
    source,
    workspace,
)

from freshgate_crds.compile import Compilation, IssuerKeys, Standing, merged, remarks, unclaimed
from freshgate_crds.compiled import Config, Credential, Revision

ALLOW = policy("everybody", rules=[{"sources": ["tickets", "accounts"], "everything": True}])
DENY = policy("not-ana", "Deny")
BROKEN = source("tickets", ttl="soon")


def standing(compilation: Compilation, kind: str, name: str) -> Standing:
    return next(each.standing for each in compilation.outcomes if each.identity == (kind, NAMESPACE, name))


def names(made: Config) -> list[str]:
    return [source.name for source in made.sources]


def allows(made: Config) -> list[str]:
    return [policy.name for policy in made.entitlements.policies if policy.effect == "Allow"]


# --- sources -----------------------------------------------------------------------------------------------------


@pytest.mark.promise("CON-1")
def test_a_refused_source_keeps_its_last_good_form_and_the_others_move_on():
    before = config(*desk())
    after = compiled(manifests(BROKEN, source("accounts", ttl="9m"), workspace()), previous=before)
    assert after.config is not None
    assert {each.name: each.ttl_seconds for each in after.config.sources} == {"accounts": 540, "tickets": 300}
    assert standing(after, "MemorySource", "tickets") is Standing.LAST_GOOD
    assert standing(after, "MemorySource", "accounts") is Standing.CURRENT


@pytest.mark.promise("CON-1")
def test_a_refused_source_that_never_had_a_good_form_is_left_out():
    compilation = compiled(manifests(BROKEN, source("accounts"), workspace(), ALLOW))
    assert compilation.config is not None
    assert names(compilation.config) == ["accounts"]
    assert compilation.config.entitlements.policies[0].rules[0].sources == ("accounts",)
    assert standing(compilation, "MemorySource", "tickets") is Standing.LEFT_OUT


@pytest.mark.promise("CON-1")
@pytest.mark.parametrize("revocation", [[], [ALLOW, DENY], [policy("everybody", effect="Alow")]])
def test_a_refused_source_never_holds_back_a_revocation(revocation):
    before = config(*desk(), ALLOW)
    after = config(BROKEN, *desk()[1:], *revocation, previous=before)
    assert names(after) == ["accounts", "tickets"]
    assert after.entitlements == config(*desk(), *revocation).entitlements
    assert after.entitlements != before.entitlements


@pytest.mark.promise("CON-1")
def test_a_refused_workspace_never_holds_back_a_revocation_nor_a_source():
    before = config(*desk(), ALLOW)
    after = config(
        source("tickets", ttl="9m"), source("accounts"), resource("Workspace", "support", []), previous=before
    )
    assert after.entitlements.policies == ()
    assert [each.ttl_seconds for each in after.sources] == [300, 540]


def test_a_source_that_was_deleted_leaves_although_the_workspace_still_names_it():
    before = config(*desk())
    after = compiled(manifests(*desk()[1:]), previous=before)
    assert after.config is not None
    assert names(after.config) == ["accounts"]
    assert [(refusal.field, refusal.reason) for refusal in after.refusals] == [("spec.sources[0]", "SourceNotFound")]


def test_a_source_that_the_workspace_no_longer_names_leaves():
    assert names(config(*desk()[:2], workspace(sources=["tickets"]), previous=config(*desk()))) == ["tickets"]


@pytest.mark.promise("CON-1")
def test_a_source_whose_credential_went_away_keeps_its_last_good_form():
    before = config(*desk())
    moved = source("tickets", postgres={**source()["spec"]["postgres"], "dsn": secret("new", "dsn")})
    available = before_credentials = [Credential(secret="support-db", key="dsn"), Credential(secret="store", key="dsn")]
    after = compiled(manifests(moved, *desk()[1:]), previous=before, available=available)
    assert after.config is not None
    assert after.config.sources == before.sources
    assert set(after.credentials) == set(before_credentials)
    outcome = next(each for each in after.outcomes if each.name == "tickets")
    assert (outcome.accepted, outcome.resolved) == (True, False)


def test_the_last_good_form_outlives_many_refusals_and_ends_with_a_good_one():
    made = config(*desk())
    for ttl in ("soon", "later", "now"):
        made = config(source("tickets", ttl=ttl), *desk()[1:], previous=made)
    assert [each.ttl_seconds for each in made.sources] == [300, 300]
    made = config(source("tickets", ttl="9m"), *desk()[1:], previous=made)
    assert [each.ttl_seconds for each in made.sources] == [300, 540]


# --- settings ----------------------------------------------------------------------------------------------------

GOOD: dict[str, Any] = {
    "ranking": {"limit": 7, "titleWeight": 2, "language": "french"},
    "entitlements": {"maxAge": "1h"},
    "service": {"deadline": "3s"},
    "condenser": {"provider": "Anthropic", "anthropic": {"model": "claude", "apiKey": secret("models", "key")}},
}
HELD: dict[str, Callable[[Config], Any]] = {
    "ranking": lambda made: made.ranking,
    "entitlements": lambda made: made.entitlements.max_age_seconds,
    "service": lambda made: made.deadline_seconds,
    "condenser": lambda made: made.condenser,
    "store": lambda made: made.store_dsn,
    "authentication": lambda made: made.issuers,
}
WRONG: dict[str, Any] = {
    "ranking": {"limit": 99},
    "entitlements": {"maxAge": "1s"},
    "service": {"deadlin": "3s"},
    "condenser": {"provider": "Anthropic"},
    "store": {},
    "authentication": {"oidc": []},
}


@pytest.mark.promise("CON-1")
@pytest.mark.parametrize("setting", HELD)
def test_a_refused_setting_keeps_its_last_good_form_and_the_others_move_on(setting):
    before = config(*desk()[:2], workspace(**GOOD))
    others = {name: value for name, value in GOOD.items() if name != "ranking"} | {"ranking": {"limit": 3}}
    after = compiled(
        manifests(*desk()[:2], workspace(**{**others, "sources": ["tickets"], setting: WRONG[setting]})),
        previous=before,
    )
    assert after.config is not None
    assert HELD[setting](after.config) == HELD[setting](before)
    assert names(after.config) == ["tickets"]
    assert after.config.ranking.limit == (7 if setting == "ranking" else 3)
    assert {refusal.field.split(".")[1] for refusal in after.refusals} == {setting}


@pytest.mark.promise("CON-1")
@pytest.mark.parametrize("setting", HELD)
def test_a_refused_setting_of_a_workspace_that_never_was_good_gives_no_configuration(setting):
    compilation = compiled(manifests(*desk()[:2], workspace(**{**GOOD, setting: WRONG[setting]})))
    assert compilation.config is None
    assert compilation.credentials == ()
    assert standing(compilation, "Workspace", "support") is Standing.LEFT_OUT


@pytest.mark.promise("CON-1")
@pytest.mark.parametrize("spec", [{"rankng": {"limit": 3}}, {"sources": ["tickets", "tickets"]}])
def test_a_workspace_that_could_mean_anything_stays_as_it_was(spec):
    before = config(*desk()[:2], workspace(**GOOD))
    after = compiled(manifests(*desk()[:2], workspace(**spec)), previous=before)
    assert after.config == before
    assert standing(after, "Workspace", "support") is Standing.LAST_GOOD


def test_a_condenser_whose_key_is_missing_is_left_out_where_it_never_had_one():
    available = [Credential(secret="support-db", key="dsn"), Credential(secret="store", key="dsn")]
    compilation = compiled(manifests(*desk()[:2], workspace(condenser=GOOD["condenser"])), available=available)
    assert compilation.config is not None
    assert compilation.config.condenser.anthropic_model is None
    assert [refusal.field for refusal in compilation.refusals] == ["spec.condenser.anthropic.apiKey.secretKeyRef"]


def test_a_workspace_that_was_deleted_does_not_hold_back_a_revocation():
    before = config(*desk(), ALLOW)
    after = config(*desk()[:2], previous=before)
    assert after.entitlements.policies == ()
    assert after.sources == before.sources


def test_keys_rotate_although_the_workspace_is_refused():
    rotated = {"kubernetes": IssuerKeys(KEYS["kubernetes"].url, '{"keys": ["new"]}')}
    after = config(*desk()[:2], resource("Workspace", "support", {}), previous=config(*desk()), issuer_keys=rotated)
    assert after.issuers[0].jwks == '{"keys": ["new"]}'


def test_the_stamp_and_the_revision_are_those_that_are_given_also_where_all_else_is_kept():
    later, second = STAMP + timedelta(hours=1), Revision(workspace_uid="workspace", counter=2)
    after = config(resource("Workspace", "support", {}), previous=config(*desk()), stamp=later, revision=second)
    assert (after.entitlements.stamp, after.revision) == (later, second)


def test_the_configuration_of_another_workspace_is_never_taken_for_the_last_good_one():
    other = config(*desk()).model_copy(update={"workspace": "sales"})
    with pytest.raises(ValueError, match="acme/support"):
        compiled(manifests(*desk()), previous=other)


# --- several workspaces, and none --------------------------------------------------------------------------------


def test_outcomes_of_several_workspaces_are_merged_to_the_worst_with_every_refusal_once():
    good, broken = compiled(manifests(*desk())), compiled(manifests(BROKEN, *desk()[1:]))
    both = {outcome.name: outcome for outcome in merged([*good.outcomes, *broken.outcomes, *broken.outcomes])}
    assert both["tickets"].standing is Standing.LEFT_OUT
    assert [refusal.field for refusal in both["tickets"].refusals] == ["spec.ttl"]
    assert both["accounts"].standing is Standing.CURRENT


def test_what_no_workspace_speaks_of_is_still_looked_at():
    bodies: list[Body] = [
        source("good"),
        source("bad", ttl="soon"),
        policy("fine", rules=[{"sources": ["good"], "everything": True}]),
        policy("lost", rules=[{"sources": ["gone"], "everything": True}]),
    ]
    outcomes = {
        outcome.name: outcome
        for outcome in unclaimed(manifests(*bodies), NAMESPACE, {("MemorySource", NAMESPACE, "x")})
    }
    assert {name: [refusal.reason for refusal in outcome.refusals] for name, outcome in outcomes.items()} == {
        "good": [],
        "bad": ["InvalidValue"],
        "fine": [],
        "lost": ["SourceNotFound"],
    }
    claimed = [outcome.identity for outcome in outcomes.values()]
    assert list(unclaimed(manifests(*bodies), NAMESPACE, claimed)) == []


def test_what_is_probably_not_meant_is_pointed_out():
    bodies = [source(), workspace(store=None, authentication=None), policy(workspaces=["support", "suport"])]
    texts = [note.text for note in remarks(manifests(*bodies))]
    assert [text.split(": ")[1] for text in texts] == ["spec.store", "spec.authentication", "spec.workspaces[1]"]
    assert list(remarks(manifests(*desk(), ALLOW))) == []
