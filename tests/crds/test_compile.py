"""What compiling gives: defaults, last good forms, and a refusal for each thing that can be wrong."""

import ast
from pathlib import Path
from typing import Any

import pytest
from freshgate_written import (
    KEYS,
    NAMESPACE,
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

from freshgate_crds import compile as compiler
from freshgate_crds.compile import Compilation, IssuerKeys, Outcome, declared_issuers
from freshgate_crds.compiled import Config, Credential, Effect, Limits, Scalar

EVERYBODY = policy("everybody", rules=[{"sources": ["tickets", "accounts"], "everything": True}])
POSTGRES = source()["spec"]["postgres"]
OBJECT = source()["spec"]["object"]
CORP = workspace()["spec"]["authentication"]["oidc"][0]
PARTNER = {**CORP, "name": "partner", "issuer": "https://login.partner.example"}
LOCAL = {
    name: IssuerKeys(f"https://{name}.invalid", f'{{"keys": ["{name}"]}}') for name in ("kubernetes", "corp", "local")
}


def desk_with(**changes: Any) -> list[Body]:
    """The desk, its tickets written otherwise."""
    return [source("tickets", **changes), *desk()[1:]]


def workspace_with(**changes: Any) -> list[Body]:
    return [*desk()[:2], workspace(**changes)]


def source_of(made: Config, name: str) -> Any:
    return {source.name: source for source in made.sources}.get(name)


def outcome_of(compilation: Compilation, kind: str, name: str) -> Outcome:
    return next(outcome for outcome in compilation.outcomes if outcome.identity == (kind, NAMESPACE, name))


def allowed_by(made: Config) -> list[str]:
    return [policy.name for policy in made.entitlements.policies if policy.effect is Effect.ALLOW]


# --- what is obeyed ----------------------------------------------------------------------------------------------


def test_a_desk_that_is_written_well_is_compiled_without_a_refusal():
    compilation = compiled(manifests(*desk(), EVERYBODY))
    assert compilation.config is not None
    assert compilation.refusals == ()
    assert all(outcome.accepted and outcome.resolved for outcome in compilation.outcomes)
    assert [source.name for source in compilation.config.sources] == ["accounts", "tickets"]
    assert allowed_by(compilation.config) == ["everybody"]
    assert compilation.credentials == (
        Credential(secret="store", key="dsn"),
        Credential(secret="support-db", key="dsn"),
    )


def test_what_is_absent_gets_its_default():
    made = config(*desk())
    tickets = source_of(made, "tickets")
    assert tickets.condense_max_words == 200
    assert tickets.limits == Limits(timeout_seconds=10, concurrency=4, requests_per_minute=600, max_objects=20_000)
    assert (made.ranking.title_weight, made.ranking.limit, made.ranking.language) == (3, 10, "english")
    assert made.entitlements.max_age_seconds == 24 * 3600
    assert made.deadline_seconds == 5
    assert made.condenser.anthropic_model is None


@pytest.mark.promise("FRE-1")
@pytest.mark.parametrize(
    ("ttl", "seconds", "interval", "sweep"),
    [("1s", 1, 1, 3600), ("5m", 300, 300, 3600), ("2h", 7200, 3600, 7200), ("7d", 604_800, 3600, 86_400)],
)
def test_discovery_follows_the_ttl_within_its_bounds(ttl, seconds, interval, sweep):
    tickets = source_of(config(*desk_with(ttl=ttl)), "tickets")
    assert tickets.ttl_seconds == seconds
    assert (tickets.discovery_interval_seconds, tickets.sweep_seconds) == (interval, sweep)


def test_discovery_that_is_written_is_obeyed():
    tickets = source_of(config(*desk_with(discovery={"interval": "7s", "sweep": "9s"})), "tickets")
    assert (tickets.discovery_interval_seconds, tickets.sweep_seconds) == (7, 9)


def test_a_statement_loses_its_last_semicolon():
    made = config(
        *desk_with(postgres={**POSTGRES, "list": " SELECT id FROM tickets; ", "versionCovers": "ContentAndAccess"})
    )
    assert source_of(made, "tickets").postgres.list == "SELECT id FROM tickets"
    assert source_of(made, "tickets").postgres.version_covers_access


LISTING = {"path": "/tickets/", "items": "results", "next": "next", "id": "id", "version": "modified"}
REST = {"url": "https://desk.example/api", "list": LISTING, "fetch": {"path": "/tickets/{id}/"}}
TOOL = {"name": "list", "items": "notes", "id": "id", "cursor": {"argument": "after", "result": "nextCursor"}}
MCP = {"url": "http://notes.acme.svc/mcp", "listTool": TOOL, "fetchTool": {"name": "get", "idArgument": "id"}}


def test_a_rest_source_is_compiled_whole():
    made = source_of(
        config(*desk_with(postgres=None, rest={**REST, "list": {**LISTING, "versionCovers": "Content"}})), "tickets"
    )
    assert made.postgres is None
    assert made.rest.model_dump(mode="json") == {
        "url": "https://desk.example/api",
        "auth": None,
        "list": {**LISTING, "version_covers_access": False},
        "fetch": {"path": "/tickets/{id}/"},
    }


def test_an_mcp_source_is_compiled_whole():
    made = source_of(config(*desk_with(postgres=None, mcp=MCP)), "tickets")
    assert made.mcp.model_dump(mode="json") == {
        "url": "http://notes.acme.svc/mcp",
        "auth": None,
        "list_tool": {**TOOL, "version": None, "version_covers_access": False},
        "fetch_tool": {"name": "get", "id_argument": "id"},
    }


@pytest.mark.parametrize(
    ("auth", "made"),
    [
        ({"bearer": secret("desk", "token")}, {"kind": "bearer", "token": {"secret": "desk", "key": "token"}}),
        (
            {"basic": {"username": secret("desk", "u"), "password": secret("desk", "p")}},
            {"kind": "basic", "username": {"secret": "desk", "key": "u"}, "password": {"secret": "desk", "key": "p"}},
        ),
        (
            {"header": {"name": "X-Key", "value": secret("desk", "k")}},
            {"kind": "header", "name": "X-Key", "value": {"secret": "desk", "key": "k"}},
        ),
        (
            {
                "oauth2": {
                    "tokenUrl": "https://id.example/t",
                    "clientId": secret("o", "i"),
                    "clientSecret": secret("o", "s"),
                }
            },
            {
                "kind": "oauth2",
                "token_url": "https://id.example/t",
                "client_id": {"secret": "o", "key": "i"},
                "client_secret": {"secret": "o", "key": "s"},
                "scopes": [],
            },
        ),
    ],
)
def test_each_way_to_authenticate_is_compiled_and_its_credentials_are_named(auth, made):
    compilation = compiled(manifests(*desk_with(postgres=None, rest={**REST, "auth": auth})))
    assert compilation.config is not None
    assert source_of(compilation.config, "tickets").rest.auth.model_dump(mode="json") == made
    named = {(credential.secret, credential.key) for credential in compilation.credentials}
    assert {(value["secret"], value["key"]) for value in made.values() if isinstance(value, dict)} <= named


def test_conditions_keep_the_type_of_their_values():
    def values(**given: Any) -> tuple[Scalar, ...]:
        where = [{"attribute": "region", "operator": "In", **given}]
        made = config(*desk(), policy(rules=[{"sources": ["tickets"], "where": where}]))
        return made.entitlements.policies[0].rules[0].where[0].values

    for given, expected in (({"values": ["1"]}, "1"), ({"numbers": [1]}, 1), ({"booleans": [True]}, True)):
        assert [repr(value) for value in values(**given)] == [repr(expected)]


def test_the_condensers_key_is_a_credential():
    anthropic = {"model": "claude", "apiKey": secret("models", "key"), "tokensPerDay": 5}
    made = config(*workspace_with(condenser={"provider": "Anthropic", "anthropic": anthropic}))
    assert made.condenser.model_dump() == {
        "anthropic_model": "claude",
        "anthropic_api_key": {"secret": "models", "key": "key"},
        "tokens_per_day": 5,
    }


# --- the hash of what decides how a record is read ---------------------------------------------------------------


@pytest.mark.promise("FRE-5")
@pytest.mark.parametrize(
    "changes",
    [
        {"postgres": {**POSTGRES, "dsn": secret("other", "dsn")}},
        {"postgres": {**POSTGRES, "list": "SELECT id FROM other"}},
        {"postgres": {**POSTGRES, "fetch": "SELECT 1 FROM tickets WHERE id = ANY($1)"}},
        {"postgres": None, "rest": REST},
        {"object": {**OBJECT, "title": "name"}},
        {"object": {**OBJECT, "attributes": {"region": "region"}}},
        {"object": {**OBJECT, "readers": {"issuer": "kubernetes", "users": "[assignee]"}}},
    ],
)
def test_the_hash_changes_with_what_decides_how_a_record_is_read(changes):
    assert (
        source_of(config(*desk_with(**changes)), "tickets").spec_hash != source_of(config(*desk()), "tickets").spec_hash
    )


@pytest.mark.promise("FRE-5")
@pytest.mark.parametrize(
    "changes",
    [{"ttl": "9m"}, {"discovery": {"sweep": "9h"}}, {"limits": {"timeout": "1s"}}, {"condense": {"maxWords": 20}}],
)
def test_the_hash_stays_where_reading_stays(changes):
    assert (
        source_of(config(*desk_with(**changes)), "tickets").spec_hash == source_of(config(*desk()), "tickets").spec_hash
    )


def test_the_hash_is_the_same_in_any_process():
    assert source_of(config(*desk()), "tickets").spec_hash == (
        "282c49ef03ba07f69ace6439be68e9bc8b9d9afe8e84fdf4ec1284954638bdfa"
    )


# --- issuers -----------------------------------------------------------------------------------------------------


def test_local_issuers_stand_in_the_place_of_declared_ones_and_keep_their_names():
    claims = {"user": "email", "groups": "groups"}
    made = config(
        *workspace_with(authentication={"kubernetes": {"audience": "k"}, "oidc": [{**CORP, "claims": claims}]}),
        issuer_keys=LOCAL,
    )
    kubernetes, corp = made.issuers
    assert (kubernetes.name, kubernetes.url, kubernetes.kubernetes) == (
        "kubernetes",
        "https://kubernetes.invalid",
        True,
    )
    assert (corp.name, corp.url, corp.audience) == ("corp", "https://corp.invalid", "freshgate")
    assert (corp.claims.user, corp.claims.groups) == ("email", "groups")
    assert [issuer.jwks for issuer in made.issuers] == [LOCAL["kubernetes"].jwks, LOCAL["corp"].jwks]


def test_where_no_issuer_is_declared_the_local_one_is_added_and_asserts_all_names():
    tickets = source("tickets", object={**OBJECT, "readers": {"users": "[assignee]"}})
    unnamed = policy(subjects=[{"kind": "User", "name": "ana"}])
    made = config(tickets, workspace(sources=["tickets"], authentication=None), unnamed, issuer_keys=LOCAL)
    (issuer,) = made.issuers
    assert (issuer.name, issuer.url, issuer.audience) == ("local", "https://local.invalid", "freshgate")
    assert made.entitlements.policies[0].subjects[0].issuer == "local"
    assert source_of(made, "tickets").object.readers.issuer == "local"


def test_a_declared_issuer_without_keys_is_asked_for_them_by_its_own_url():
    corp = config(*desk()).issuers[1]
    assert (corp.url, corp.jwks) == ("https://login.example", None)


def test_a_laptop_learns_for_which_issuers_it_needs_keys():
    assert declared_issuers(manifests(*desk()), "support", NAMESPACE) == ("kubernetes", "corp")
    assert declared_issuers(manifests(workspace(authentication=None)), "support", NAMESPACE) == ("local",)
    assert declared_issuers(manifests(), "support", NAMESPACE) == ()


# --- what is refused ---------------------------------------------------------------------------------------------


def paths(**changes: Any) -> list[Body]:
    return desk_with(object={**OBJECT, **changes})


def statements(**changes: Any) -> list[Body]:
    return desk_with(postgres={**POSTGRES, **changes})


def with_policy(**changes: Any) -> list[Body]:
    return [*desk(), policy(**changes)]


def with_rule(**rule: Any) -> list[Body]:
    return with_policy(rules=[{"sources": ["tickets"], "everything": True, **rule}])


def where(**condition: Any) -> dict[str, Any]:
    return {"everything": None, "where": [{"attribute": "region", "operator": "Exists", **condition}]}


SOURCE, POLICY, WORKSPACE = ("MemorySource", "tickets"), ("EntitlementPolicy", "emea"), ("Workspace", "support")

REFUSED: dict[str, tuple[list[Body], tuple[str, str], str, str]] = {
    "a field that is missing": (desk_with(ttl=None), SOURCE, "spec.ttl", "FieldRequired"),
    "a field that does not exist": (desk_with(tll="5m"), SOURCE, "spec.tll", "UnknownField"),
    "a value that does not fit": (desk_with(ttl="soon"), SOURCE, "spec.ttl", "InvalidValue"),
    "a value of a constraint": (desk_with(rest=REST), SOURCE, "spec", "InvalidValue"),
    "a version that is not known": (
        [{**source("tickets"), "apiVersion": "freshgate.dev/v9"}, *desk()[1:]],
        SOURCE,
        "apiVersion",
        "UnknownApiVersion",
    ),
    "no version at all": (
        [{name: value for name, value in source("tickets").items() if name != "apiVersion"}, *desk()[1:]],
        SOURCE,
        "apiVersion",
        "UnknownApiVersion",
    ),
    "two of one name": ([source("tickets"), *desk()], SOURCE, "metadata.name", "DuplicateResource"),
    "a title that is no path": (paths(title="a..b"), SOURCE, "spec.object.title", "InvalidPath"),
    "a body that is no path": (paths(body=["a", "b["]), SOURCE, "spec.object.body[1]", "InvalidPath"),
    "a url that is no path": (paths(url="a b"), SOURCE, "spec.object.url", "InvalidPath"),
    "an attribute that is no path": (
        paths(attributes={"region": "}"}),
        SOURCE,
        "spec.object.attributes.region",
        "InvalidPath",
    ),
    "an attribute of an odd name": (
        paths(attributes={"a b": "}"}),
        SOURCE,
        'spec.object.attributes["a b"]',
        "InvalidPath",
    ),
    "readers that are no path": (paths(readers={"users": "["}), SOURCE, "spec.object.readers.users", "InvalidPath"),
    "reading groups that are no path": (
        paths(readers={"groups": "["}),
        SOURCE,
        "spec.object.readers.groups",
        "InvalidPath",
    ),
    "a function that does not exist": (paths(title="x[].upper(y)"), SOURCE, "spec.object.title", "InvalidPath"),
    "a function with too few arguments": (paths(title="[join(a)]"), SOURCE, "spec.object.title", "InvalidPath"),
    "a function with too many": (paths(title="{x: length(a, b)}"), SOURCE, "spec.object.title", "InvalidPath"),
    "a variadic function with none": (paths(title="not_null()"), SOURCE, "spec.object.title", "InvalidPath"),
    "a path without an end": (paths(title="(" * 900), SOURCE, "spec.object.title", "InvalidPath"),
    "a listing that is no path": (
        desk_with(postgres=None, rest={**REST, "list": {**LISTING, "items": "["}}),
        SOURCE,
        "spec.rest.list.items",
        "InvalidPath",
    ),
    "a next page that is no path": (
        desk_with(postgres=None, rest={**REST, "list": {**LISTING, "next": "["}}),
        SOURCE,
        "spec.rest.list.next",
        "InvalidPath",
    ),
    "a tool's id that is no path": (
        desk_with(postgres=None, mcp={**MCP, "listTool": {**TOOL, "id": "["}}),
        SOURCE,
        "spec.mcp.listTool.id",
        "InvalidPath",
    ),
    "a cursor that is no path": (
        desk_with(postgres=None, mcp={**MCP, "listTool": {**TOOL, "cursor": {"argument": "a", "result": "["}}}),
        SOURCE,
        "spec.mcp.listTool.cursor.result",
        "InvalidPath",
    ),
    "two statements": (
        statements(list="SELECT 1; DROP TABLE tickets"),
        SOURCE,
        "spec.postgres.list",
        "InvalidStatement",
    ),
    "a statement that ends before its text": (
        statements(list="SELECT 1; -- the list"),
        SOURCE,
        "spec.postgres.list",
        "InvalidStatement",
    ),
    "a statement that writes": (
        statements(list="DELETE FROM tickets"),
        SOURCE,
        "spec.postgres.list",
        "InvalidStatement",
    ),
    "a listing that binds ids": (
        statements(list="SELECT id FROM tickets WHERE id = $1"),
        SOURCE,
        "spec.postgres.list",
        "InvalidStatement",
    ),
    "a fetch that only seems to bind ids": (
        statements(fetch="SELECT * FROM tickets -- WHERE id = ANY($1)"),
        SOURCE,
        "spec.postgres.fetch",
        "InvalidStatement",
    ),
    "a fetch that binds more": (
        statements(fetch="SELECT * FROM tickets WHERE id = ANY($1) AND a = $2"),
        SOURCE,
        "spec.postgres.fetch",
        "InvalidStatement",
    ),
    "readers of an issuer that is not declared": (
        paths(readers={"issuer": "corpp", "users": "[a]"}),
        SOURCE,
        "spec.object.readers.issuer",
        "UnknownIssuer",
    ),
    "readers of one issuer of several": (
        [
            source("tickets", object={**OBJECT, "readers": {"users": "[a]"}}),
            workspace(authentication={"oidc": [CORP, PARTNER]}),
        ],
        SOURCE,
        "spec.object.readers.issuer",
        "IssuerRequired",
    ),
    "a subject of an issuer that is not declared": (
        with_policy(subjects=[{"kind": "User", "name": "ana", "issuer": "corpp"}]),
        POLICY,
        "spec.subjects[0].issuer",
        "UnknownIssuer",
    ),
    "a subject of one issuer of several": (
        [
            *desk()[:2],
            workspace(authentication={"oidc": [CORP, PARTNER]}),
            policy(subjects=[{"kind": "Group", "name": "x"}]),
        ],
        POLICY,
        "spec.subjects[0].issuer",
        "IssuerRequired",
    ),
    "a subject of no issuer": (
        [
            *desk()[:2],
            workspace(authentication={"kubernetes": {"audience": "a"}}),
            policy(subjects=[{"kind": "User", "name": "x"}]),
        ],
        POLICY,
        "spec.subjects[0].issuer",
        "IssuerRequired",
    ),
    "an agent where no cluster vouches": (
        [
            *desk()[:2],
            workspace(authentication={"oidc": [CORP]}),
            policy(subjects=[{"kind": "ServiceAccount", "name": "a/b"}]),
        ],
        POLICY,
        "spec.subjects[0].kind",
        "UnknownIssuer",
    ),
    "a rule about a source that does not exist": (
        with_rule(sources=["tickets", "ticket"]),
        POLICY,
        "spec.rules[0].sources[1]",
        "SourceNotFound",
    ),
    "an attribute that a source does not map": (
        with_rule(sources=["accounts"], **where(attribute="regoin")),
        POLICY,
        "spec.rules[0].where[0].attribute",
        "AttributeNotMapped",
    ),
    "readers that a source does not map": (
        [*paths(readers=None), policy(rules=[{"sources": ["tickets"], "everything": True, "asker": "MustBeReader"}])],
        POLICY,
        "spec.rules[0].asker",
        "ReadersNotMapped",
    ),
    "a workspace's source that does not exist": (
        workspace_with(sources=["tickets", "ticket"]),
        WORKSPACE,
        "spec.sources[1]",
        "SourceNotFound",
    ),
    "a workspace that nobody may ask": (
        workspace_with(authentication=None),
        WORKSPACE,
        "spec.authentication",
        "IssuerRequired",
    ),
    "one issuer by two names": (
        workspace_with(authentication={"oidc": [CORP, {**PARTNER, "issuer": CORP["issuer"]}]}),
        WORKSPACE,
        "spec.authentication.oidc[1].issuer",
        "IssuerRepeated",
    ),
    "the cluster as one more issuer": (
        workspace_with(
            authentication={"kubernetes": {"audience": "a"}, "oidc": [{**CORP, "issuer": KEYS["kubernetes"].url}]}
        ),
        WORKSPACE,
        "spec.authentication.oidc[0].issuer",
        "IssuerRepeated",
    ),
    "a workspace that does not exist": (desk()[:2], WORKSPACE, "metadata.name", "WorkspaceNotFound"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_names_the_resource_the_field_the_reason_and_the_mend(case):
    bodies, (kind, name), field, reason = REFUSED[case]
    refusals = [refusal for refusal in compiled(manifests(*bodies)).refusals if refusal.name == name]
    assert [(refusal.kind, refusal.field, refusal.reason) for refusal in refusals] == [(kind, field, reason)]
    (refusal,) = refusals
    assert f"{kind} {NAMESPACE}/{name}: {field}: " in refusal.message
    assert refusal.problem
    assert refusal.mend
    assert refusal.message.endswith(f"{refusal.mend}.")


@pytest.mark.parametrize(
    ("available", "field"),
    [
        ([("support-db", "other"), ("store", "dsn")], "spec.postgres.dsn.secretKeyRef"),
        ([("support-db", "dsn")], "spec.store.dsn.secretKeyRef"),
    ],
)
def test_a_credential_that_is_not_there_is_missed_where_it_is_referred_to(available, field):
    credentials = [Credential(secret=secret, key=key) for secret, key in available]
    found = compiled(manifests(*desk()), available=credentials).refusals
    assert {(refusal.field, refusal.reason, refusal.condition) for refusal in found} == {
        (field, "CredentialNotFound", "ResolvedRefs")
    }
    assert all("freshgate.dev/credential" in refusal.mend for refusal in found)


def test_a_cluster_whose_keys_are_not_known_vouches_for_nobody():
    compilation = compiled(manifests(*desk()), issuer_keys={})
    assert compilation.config is None
    (refusal,) = compilation.refusals
    assert (refusal.field, refusal.reason, refusal.condition) == (
        "spec.authentication.kubernetes",
        "KeysNotFound",
        "ResolvedRefs",
    )


def test_every_reason_that_can_be_given_has_a_case():
    shown = {reason for *_, reason in REFUSED.values()} | {"CredentialNotFound", "KeysNotFound"}
    calls = (
        node
        for module in Path(compiler.__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Trouble"
    )
    assert {ast.literal_eval(call.args[1]) for call in calls} == shown


def test_a_misspelt_field_is_met_with_the_one_that_was_meant():
    (refusal,) = compiled(manifests(*desk_with(discvery={}))).refusals
    assert "Did you mean discovery?" in refusal.mend


def test_a_refusal_never_repeats_what_was_written_in_the_place_of_a_secret():
    bodies = desk_with(postgres={**POSTGRES, "dsn": "postgres://desk:hunter2@db/desk"})
    assert all("hunter2" not in refusal.message for refusal in compiled(manifests(*bodies)).refusals)


@pytest.mark.parametrize(
    "statement",
    [
        "WITH x AS (SELECT 1 AS id) SELECT id FROM x",
        "(SELECT id FROM a) UNION (SELECT id FROM b)",
        "SELECT id FROM a WHERE b <> ';' AND c <> $$;$1$$ AND d <> E'\\';$1' -- ; $1",
        "/* ; */ select id from a;",
        'SELECT id FROM "a;b" WHERE c = $x$ ; $x$',
    ],
)
def test_a_statement_that_reads_is_taken(statement):
    assert compiled(manifests(*statements(list=statement))).refusals == ()


def test_what_nobody_wrote_is_not_looked_at():
    bodies = [{**body, "status": {"conditions": "of another version"}} for body in (*desk(), EVERYBODY)]
    assert compiled(manifests(*bodies)).refusals == ()


@pytest.mark.parametrize(
    "spec", [None, [], "x", {}, {"sources": 3}, {"effect": {}}, {"postgres": []}, {"ttl": {"a": 1}}]
)
@pytest.mark.parametrize("kind", ["MemorySource", "EntitlementPolicy", "Workspace"])
def test_replay_47_a_resource_of_blank_fields_is_refused_and_never_a_crash(kind, spec):
    name = "support" if kind == "Workspace" else "tickets"
    assert compiled(
        manifests(resource(kind, name, spec), *(body for body in desk() if body["metadata"]["name"] != name))
    ).refusals
