"""Manifests as users write them, for tests: a support desk whose parts are changed one at a time."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from freshgate_crds.compile import Compilation, IssuerKeys, compile_workspace
from freshgate_crds.compiled import KUBERNETES_ISSUER, Config, Revision
from freshgate_crds.manifests import Document, Manifests, Place, Problem

NAMESPACE = "acme"
STAMP = datetime(2026, 11, 30, tzinfo=UTC)
KEYS = {KUBERNETES_ISSUER: IssuerKeys("https://cluster.example", '{"keys": []}')}

Body = dict[str, Any]


def resource(kind: str, name: str, spec: Any, *, namespace: str = NAMESPACE) -> Body:
    return {
        "apiVersion": "freshgate.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def secret(name: str, key: str) -> Body:
    return {"secretKeyRef": {"name": name, "key": key}}


def source(name: str = "tickets", **changes: Any) -> Body:
    spec = {
        "ttl": "5m",
        "postgres": {
            "dsn": secret("support-db", "dsn"),
            "list": f"SELECT id FROM {name}",
            "fetch": f"SELECT * FROM {name} WHERE id = ANY($1)",
        },
        "object": {
            "title": "subject",
            "body": ["description"],
            "attributes": {"region": "region", "owner": "owner"},
            "readers": {"issuer": "corp", "users": "[assignee]"},
        },
    }
    return resource("MemorySource", name, without_absent({**spec, **changes}))


def policy(name: str = "emea", effect: str = "Allow", **changes: Any) -> Body:
    spec = {
        "workspaces": ["support"],
        "effect": effect,
        "subjects": [{"kind": "User", "name": "ana", "issuer": "corp"}],
        "rules": [{"sources": ["tickets"], "everything": True}],
    }
    return resource("EntitlementPolicy", name, without_absent({**spec, **changes}))


def workspace(name: str = "support", **changes: Any) -> Body:
    spec = {
        "sources": ["tickets", "accounts"],
        "store": {"dsn": secret("store", "dsn")},
        "authentication": {
            "kubernetes": {"audience": "freshgate"},
            "oidc": [{"name": "corp", "issuer": "https://login.example", "audience": "freshgate"}],
        },
    }
    return resource("Workspace", name, without_absent({**spec, **changes}))


def without_absent(spec: Mapping[str, Any]) -> Body:
    return {name: value for name, value in spec.items() if value is not None}


def desk() -> list[Body]:
    """Nothing of it is refused."""
    return [source("tickets"), source("accounts"), workspace()]


def manifests(*bodies: Body, unreadable: str | None = None) -> Manifests:
    documents = tuple(Document.of(body, Place("desk.yaml", line)) for line, body in enumerate(bodies, 1))
    problems = (Problem(Place(unreadable, 1), "NotYaml", "it is broken", kept=False),) if unreadable else ()
    return Manifests(documents, problems)


def compiled(written: Manifests, *, previous: Config | None = None, **arguments: Any) -> Compilation:
    given: dict[str, Any] = {
        "cluster_uid": "cluster",
        "revision": Revision(workspace_uid="workspace", counter=1),
        "stamp": STAMP,
        "issuer_keys": KEYS,
    }
    return compile_workspace(written, "support", NAMESPACE, previous=previous, **{**given, **arguments})


def config(*bodies: Body, previous: Config | None = None, **arguments: Any) -> Config:
    result = compiled(manifests(*bodies), previous=previous, **arguments).config
    assert result is not None
    return result
