"""What can be told of the chart without Helm: its rights as agreed on, its CRDs, its values and their schema."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from freshgate_operator import children, kinds, names

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "freshgate"
TEMPLATES = CHART / "templates"
RIGHTS: dict[str, dict[str, dict[str, list[str]]]] = yaml.safe_load(
    (ROOT / "tests/helm/rights.yaml").read_text("utf-8")
)
OPERATOR = "freshgate-operator"


def rights(scope: str) -> Iterator[tuple[str, str, list[str]]]:
    for role, rules in RIGHTS[scope].items():
        for resource, verbs in rules.items():
            yield role, resource, verbs


def test_no_right_is_a_wildcard_and_the_operator_deletes_nothing() -> None:
    for scope in RIGHTS:
        for role, resource, verbs in rights(scope):
            assert "*" not in resource
            assert "*" not in verbs
            assert not (
                OPERATOR in role and {"delete", "deletecollection", "impersonate", "bind", "escalate"} & {*verbs}
            )


def test_an_install_for_namespaces_has_roles_alone_and_never_more_than_one_for_the_cluster() -> None:
    (everywhere,) = [rules for role, rules in RIGHTS["cluster"].items() if role == f"ClusterRole {OPERATOR}"]
    assert all(role.startswith("Role ") for role in RIGHTS["namespaces"])
    for role, resource, verbs in rights("namespaces"):
        if not role.endswith("heartbeat"):
            assert {*verbs} <= {*everywhere[resource]}
    assert "patch" not in RIGHTS["namespaces"]["Role acme freshgate-operator"]["core/pods"]


def test_the_operator_has_a_right_to_each_kind_that_it_makes_and_to_none_besides() -> None:
    made = {kind for kind in vars(kinds).values() if isinstance(kind, kinds.Kind)}
    named = {f"{kind.group or 'core'}/{kind.plural}" for kind in made}
    granted = {
        resource.split()[0].removesuffix("/status") for role, resource, _ in rights("cluster") if OPERATOR in role
    }
    assert granted == named


def test_whoever_edits_a_namespace_is_not_by_that_the_one_who_writes_policies() -> None:
    policies = "freshgate.dev/entitlementpolicies"
    assert policies not in RIGHTS["cluster"]["ClusterRole freshgate-editor"]
    people = (TEMPLATES / "roles" / "people.yaml").read_text("utf-8")
    policy_editor = people.partition("name: freshgate-policy-editor")[2]
    assert policy_editor
    assert "aggregate-to" not in policy_editor


def test_the_crds_are_those_that_were_rendered_and_are_kept_when_the_chart_goes() -> None:
    rendered = {path.name: yaml.safe_load(path.read_text("utf-8")) for path in (ROOT / "crds").glob("*.yaml")}
    templates = {path.name: path.read_text("utf-8") for path in (TEMPLATES / "crds").glob("*.yaml")}
    assert rendered.keys() == templates.keys()
    for name, text in templates.items():
        lines = text.splitlines()
        assert lines[0] == "{{- if .Values.crds.install }}"
        assert lines[-1] == "{{- end }}"
        crd = yaml.safe_load("\n".join(lines[1:-1]))
        assert crd["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
        assert crd == rendered[name]


def test_the_default_values_are_valid_and_each_of_them_is_known_to_the_schema() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    schema = yaml.safe_load((CHART / "values.schema.json").read_text("utf-8"))
    Draft7Validator.check_schema(schema)
    Draft7Validator(schema).validate(values)
    assert {*_paths(values, schema)} == set()


def _paths(values: dict[str, Any], schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Values that no property of the schema describes."""
    for name, value in values.items():
        described = schema.get("properties", {}).get(name)
        if described is None:
            yield f"{path}.{name}"
        elif isinstance(value, dict) and "properties" in described:
            yield from _paths(value, described, f"{path}.{name}")


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("admission/operator-pods.yaml", names.TOUCHED),
        ("admission/sidecars.yaml", names.INJECTED),
        ("admission/sidecars.yaml", f'name: "{names.SIDECAR_CONTAINER}"'),
        ("admission/sidecars.yaml", f"--config={children.MOUNT}"),
        ("admission/sidecars.yaml", f"{children.MOUNT}/{children.SCRAPE_FILE}"),
        ("admission/sidecars.yaml", f'params.metadata.name + "{names.child("")}"'),
        ("operator/networkpolicy.yaml", names.SERVES),
        ("_helpers.tpl", f"app.kubernetes.io/name: {names.OPERATOR_PODS['app.kubernetes.io/name']}"),
    ],
)
def test_the_chart_names_things_as_the_operator_does(template: str, name: str) -> None:
    assert name in (TEMPLATES / template).read_text("utf-8")
