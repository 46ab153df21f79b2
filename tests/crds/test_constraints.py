"""Every constraint of the rendered CRDs accepts and refuses what the table says, and pydantic agrees.

The table alone would let a case be refused for the wrong reason. So what a schema's keywords refuse is asked of a plain
JSON Schema validator over the rendered schema, and what a CEL rule refuses must carry that rule's message.
"""

import re
from collections import defaultdict
from datetime import UTC, datetime
from typing import Any, get_args

import freshgate_constraints
import jsonschema
import pytest
import Stemmer
from pydantic import ValidationError

from freshgate_crds import durations
from freshgate_crds.v1alpha1 import KINDS, Condition, EntitlementPolicy, MemorySource
from freshgate_crds.v1alpha1.workspaces import Language

CONSTRAINTS = freshgate_constraints.constraints()
CASES = freshgate_constraints.cases()
BASES = {case.id.removeprefix("base "): case.manifest for case in CASES if case.id.startswith("base ")}
KIND = {kind.__name__: kind for kind in KINDS}


def _list_type(_: Any, list_type: str, items: list[Any], schema: dict[str, Any]) -> Any:
    keys = schema.get("x-kubernetes-list-map-keys", ())
    kind = str if list_type == "set" else dict
    if not isinstance(items, list):
        return
    seen = [item if kind is str else tuple(map(item.get, keys)) for item in items if isinstance(item, kind)]
    if any(seen.count(item) > 1 for item in seen):
        yield jsonschema.ValidationError("duplicate")


def _pattern(_: Any, pattern: str, text: Any, __: Any) -> Any:
    """Python alone lets `$` stand before a last line break."""
    if isinstance(text, str) and not re.fullmatch(pattern, text):
        yield jsonschema.ValidationError("pattern")


Validator = jsonschema.validators.extend(
    jsonschema.Draft202012Validator, {"x-kubernetes-list-type": _list_type, "pattern": _pattern}
)
SCHEMA = {kind: Validator(schema) for kind, schema in freshgate_constraints.schemas().items()}


def _name(error: jsonschema.ValidationError) -> str:
    match error.validator:
        case "anyOf":
            return "type int-or-string"
        case "type":
            return f"type {error.validator_value}"
    return str(error.validator)


@pytest.mark.parametrize("case", [case for case in CASES if case.broken is None], ids=lambda case: case.id)
def test_what_the_table_accepts_is_accepted(case):
    KIND[case.manifest["kind"]].model_validate(case.manifest)


@pytest.mark.parametrize("case", [case for case in CASES if case.broken is not None], ids=lambda case: case.id)
def test_what_the_table_refuses_is_refused_for_the_reason_it_gives(case):
    with pytest.raises(ValidationError) as refused:
        KIND[case.manifest["kind"]].model_validate(case.manifest)
    errors = list(SCHEMA[case.manifest["kind"]].iter_errors(case.manifest))
    kinds = {error["type"] for error in refused.value.errors()}
    if case.broken == "required":
        assert kinds == {"missing"}
    elif case.broken == "closed":
        assert kinds == {"extra_forbidden"}
    elif case.says is not None:
        assert not errors
        assert case.says in str(refused.value)
    else:
        assert case.broken in {_name(error) for error in errors}
        assert len({tuple(error.absolute_path) for error in errors}) == 1


def test_every_constraint_has_a_case_that_it_accepts_and_one_that_it_refuses():
    accepted = {case.field for case in CASES if case.broken is None}
    refused = {(case.field, case.broken) for case in CASES if case.broken is not None}
    assert {(one.field, one.name) for one in CONSTRAINTS} == refused
    # For presence, type and choice of names the bases do: they hold every field, or the table could not be unfolded.
    assert {one.field for one in CONSTRAINTS if not _shown_by_the_bases(one)} <= accepted


def _shown_by_the_bases(constraint: Any) -> bool:
    return constraint.name in {"required", "enum", "closed"} or constraint.name.startswith("type ")


DURATIONS = {one.field for one in CONSTRAINTS if one.bound == durations.PATTERN}
"""Their longest text is too long a time for any field."""
MEASURES = {
    "maxItems": (list, len),
    "maxLength": (str, len),
    "maxProperties": (dict, len),
    "maximum": (int | float, float),
    "minimum": (int | float, float),
}


@pytest.mark.parametrize("name", sorted(MEASURES))
def test_a_bound_is_accepted_itself_and_refused_just_past_it(name):
    kind, measure = MEASURES[name]
    accepted, refused = defaultdict(set), defaultdict(set)
    for case in CASES:
        if isinstance(case.value, kind) and case.broken in {None, name}:
            (refused if case.broken else accepted)[case.field].add(measure(case.value))
    past = -1 if name == "minimum" else 1
    for one in CONSTRAINTS:
        if one.name == name and one.field not in DURATIONS:
            assert one.bound in accepted[one.field], one
            assert any(0 < (value - one.bound) * past <= 1 for value in refused[one.field]), one


# --- beside the table ---


@pytest.mark.promise("FRE-1")
def test_a_source_without_a_ttl_is_refused():
    source = BASES["smallest-source"]
    silent = {**source, "spec": {name: value for name, value in source["spec"].items() if name != "ttl"}}
    with pytest.raises(ValidationError, match=r"spec\.ttl\n  Field required"):
        MemorySource.model_validate(silent)


@pytest.mark.promise("ENT-6")
def test_no_part_of_a_policy_may_be_empty():
    refused = [case for case in CASES if case.field.startswith("EntitlementPolicy.spec") and case.broken == "minItems"]
    lists = {one.field for one in CONSTRAINTS if one.field.startswith("EntitlementPolicy.spec") and "array" in one.name}
    assert {case.field for case in refused if case.value == []} == lists


def test_what_a_policy_says_in_any_type_is_read_as_that_type():
    where = EntitlementPolicy.model_validate(BASES["policy"]).spec.rules[0].where
    assert where is not None
    assert [condition.literals for condition in where] == [["emea"], [1, 2.5], [True], []]
    assert [type(one) for condition in where for one in condition.literals] == [str, int, float, bool]


def test_users_write_the_names_of_yaml_and_only_those():
    source = BASES["smallest-source"]
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        MemorySource.model_validate({**source, "spec": {**source["spec"], "condense": {"max_words": 100}}})


def test_programs_write_a_status_in_their_own_names_and_it_is_read_back():
    base = BASES["smallest-source"]
    now = datetime(2026, 11, 30, 10, tzinfo=UTC)
    accepted = Condition(type="Accepted", status="True", last_transition_time=now, reason="Accepted", message="")
    source = MemorySource.model_validate({**base, "status": {"conditions": [accepted]}})
    written = source.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert written["status"]["conditions"][0]["lastTransitionTime"] == "2026-11-30T10:00:00Z"
    assert MemorySource.model_validate(written) == source


def test_every_language_of_a_ranking_has_a_stemmer():
    assert set(get_args(Language)) <= set(Stemmer.algorithms())
