"""Every constraint of the three kinds, asked of a real API server: the same table that pydantic is asked."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from freshgate_api import Server, connected
from freshgate_clusters import MADE_HERE, ROOT
from freshgate_constraints import Case, cases
from freshgate_kubectl import kubectl

NAMESPACE, STORED = "constraints", "constraints-stored"
"""Nothing is stored in the first one: each manifest there is a dry run, of the same few names."""
PLURALS = {"MemorySource": "memorysources", "EntitlementPolicy": "entitlementpolicies", "Workspace": "workspaces"}
EXAMPLES = (
    ROOT / "service" / "freshgate_service" / "laptop" / "demo" / "manifests",
    ROOT / "tests" / "northwind" / "manifests",
    ROOT / "e2e" / "stories" / "manifests" / "memory.yaml",
)
DRY = "?dryRun=All&fieldValidation=Strict"
ATTEMPTS = 5
TYPE_WORDS = ("must be of type", "invalid data, expected", "unknown field")
# Of a constraint that is a schema's keyword, words of the API server's own refusal: it was refused for that alone.
WORDS = {
    "closed": ("unknown field",),
    "enum": ("Unsupported value",),
    "format": ("must be of type",),
    "maxItems": ("Too many",),
    "maxLength": ("Too long",),
    "maxProperties": ("at most",),
    "maximum": ("less than or equal",),
    "minItems": ("at least",),
    "minLength": ("at least",),
    "minProperties": ("at least",),
    "minimum": ("greater than or equal",),
    # A server looks at lengths first, and at a name that is not there before it looks at any.
    "pattern": ("should match", "chars long", "name or generateName is required"),
    "required": ("Required value",),
    "x-kubernetes-list-type": ("Duplicate",),
}


@pytest.fixture(scope="module")
def server(installed: str) -> Iterator[Server]:
    for namespace in (NAMESPACE, STORED):
        kubectl("create", "namespace", namespace)
        kubectl("label", "namespace", namespace, f"{MADE_HERE}=here")
    try:
        with connected() as server:
            yield server
    finally:
        kubectl("delete", "namespace", NAMESPACE, STORED)


def _difference(server: Server, case: Case) -> str | None:
    """What the server said otherwise than the table."""
    status, answer = _write(server, case)
    said = answer.get("message", "")
    if case.broken is None:
        return None if status in (200, 201) else f"refused: {said}"
    if status in (200, 201):
        return "accepted"
    expected = (case.says,) if case.says else WORDS.get(case.broken) or TYPE_WORDS
    return None if any(words in said for words in expected) else f"refused for something else than {expected}: {said}"


def _write(server: Server, case: Case) -> tuple[int, dict[str, Any]]:
    namespace = STORED if case.subresource else NAMESPACE
    manifest = {**case.manifest, "metadata": {**case.manifest["metadata"], "namespace": namespace}}
    path = f"/apis/freshgate.dev/v1alpha1/namespaces/{namespace}/{PLURALS[manifest['kind']]}"
    if case.subresource is None:
        return server.call("POST", path + DRY, manifest)
    # A status is written to what exists; and the operator writes there too.
    here = f"{path}/{manifest['metadata']['name']}"
    for _ in range(ATTEMPTS):
        status, stored = server.call("GET", here)
        if status == 404:
            _, stored = server.call("POST", path, {key: value for key, value in manifest.items() if key != "status"})
        manifest["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]
        status, answer = server.call("PUT", f"{here}/{case.subresource}{DRY}", manifest)
        if status != 409:
            break
    return status, answer


def test_every_constraint_accepts_and_refuses_on_a_real_api_server_what_the_table_says(server: Server) -> None:
    """Replay 45: validation that was never active."""
    table = cases()
    found = {case.id: difference for case in table if (difference := _difference(server, case)) is not None}
    assert not found, "\n".join(f"{case}: {difference}" for case, difference in found.items())
    assert sum(case.broken is not None for case in table) > 500


@pytest.mark.parametrize("place", EXAMPLES, ids=lambda place: str(place.relative_to(ROOT)))
def test_every_example_is_accepted_by_a_real_api_server(server: Server, place: Path) -> None:
    files = sorted(place.glob("*.yaml")) if place.is_dir() else [place]
    for document in (one for file in files for one in yaml.safe_load_all(file.read_text("utf-8")) if one):
        document["metadata"]["namespace"] = NAMESPACE
        kubectl("apply", "--dry-run=server", "--validate=strict", "--filename=-", stdin=json.dumps(document))
