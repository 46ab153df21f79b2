"""The renderer emits what an API server enforces, and raises on the rest."""

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID

import pytest
import yaml
from pydantic import BaseModel, ConfigDict, Field, create_model

from freshgate_crds.durations import Duration
from freshgate_crds.errors import SchemaUnrenderable
from freshgate_crds.render import HEADER, definition, main, render, structural
from freshgate_crds.v1alpha1 import KINDS, Workspace
from freshgate_crds.v1alpha1.constraints import Constraint, between, exactly_one_of
from freshgate_crds.v1alpha1.models import Model

CRDS = Path(__file__).parents[2] / "crds"
Name = Annotated[str, Field(max_length=9)]


def rendered(annotation: Any, **field: Any) -> Any:
    """The structural schema of a field."""
    model = create_model("One", one=(annotation, Field(**field)))
    return structural(model.model_json_schema())["properties"]["one"]


class Leaf(BaseModel):
    name: Name


class Tree(BaseModel):
    child: "Tree | None" = None


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: Name


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


# --- what is said in other words ---


def test_a_reference_is_inlined_with_the_words_beside_it():
    schema = rendered(Leaf, description="A leaf.")
    assert schema == {
        "description": "A leaf.",
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 9}},
        "required": ["name"],
    }


def test_an_optional_field_is_one_that_is_not_required_and_never_null():
    model = create_model("One", one=(Name | None, None))
    assert structural(model.model_json_schema()) == {
        "type": "object",
        "properties": {"one": {"type": "string", "maxLength": 9}},
    }


def test_a_single_literal_becomes_an_enum_which_is_enforced():
    assert rendered(Literal["Only"]) == {"type": "string", "enum": ["Only"]}
    assert rendered(Colour) == {"type": "string", "enum": ["red", "blue"]}


def test_no_default_is_left_for_a_server_to_inject():
    assert rendered(Annotated[int, Field(ge=1)], default=5) == {"type": "integer", "minimum": 1}
    for path in CRDS.glob("*.yaml"):
        assert "default:" not in path.read_text(encoding="utf-8")


# --- what is refused: each was seen to be refused by a server or, worse, to be accepted and not enforced ---


@pytest.mark.parametrize(
    "annotation",
    [
        pytest.param(Tree, id="a model that holds itself"),
        pytest.param(Annotated[int, Field(gt=1)], id="an exclusive minimum"),
        pytest.param(Annotated[float, Field(lt=1)], id="an exclusive maximum"),
        pytest.param(Annotated[int, Field(multiple_of=2)], id="a multiple"),
        pytest.param(int | str, id="a union of types"),
        pytest.param(Leaf | Cat, id="a union of models"),
        pytest.param(Annotated[Cat | Dog, Field(discriminator="kind")], id="a tagged union"),
        pytest.param(Any, id="anything"),
        pytest.param(dict[str, Any], id="a map of anything"),
        pytest.param(dict, id="any map"),
        pytest.param(Open, id="a model open to more fields"),
        pytest.param(list[Name], id="a list without bounds"),
        pytest.param(Annotated[list[Name], Field(max_length=5)], id="a list that may be empty"),
        pytest.param(Annotated[list[Name], Field(min_length=1)], id="a list without end"),
        pytest.param(Annotated[list[Any], Field(min_length=1, max_length=5)], id="a list of anything"),
        pytest.param(Annotated[set[Name], Field(min_length=1, max_length=5)], id="a set"),
        pytest.param(tuple[Name, Name], id="a tuple"),
        pytest.param(dict[str, Name], id="a map without bounds"),
        pytest.param(Annotated[dict[Name, Name], Field(max_length=5)], id="a map whose names have a schema"),
        pytest.param(str, id="a text without end"),
        pytest.param(UUID, id="a format that a server may not know"),
        pytest.param(Duration, id="a format without a rule, beside which a list passes for a text"),
        pytest.param(
            Annotated[str, Field(max_length=9, pattern=r"^\w+$")], id="a pattern of other characters to a server"
        ),
        pytest.param(
            Annotated[str, Field(max_length=9, json_schema_extra={"pattern": "^(?=a)"})],
            id="a pattern that looks ahead",
        ),
        pytest.param(
            Annotated[str, Field(max_length=9, json_schema_extra={"x-kubernetes-int-or-string": True})],
            id="another form of int-or-string",
        ),
        pytest.param(
            Annotated[str, Field(max_length=9, json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})],
            id="fields that are kept unseen",
        ),
    ],
)
def test_what_a_server_would_not_enforce_is_refused(annotation):
    with pytest.raises(SchemaUnrenderable, match=r"^\.one"):
        rendered(annotation)


def test_a_field_that_must_be_there_and_may_be_null_is_refused():
    model = create_model("One", one=(Name | None, ...))
    with pytest.raises(SchemaUnrenderable, match="one type"):
        structural(model.model_json_schema())


class Guarded(Model):
    one: Name | None = None
    two: Name | None = None
    constraints: ClassVar = (exactly_one_of("one", "two"),)


class Unguarded(Model):
    one: Name | None = None
    constraints: ClassVar = (Constraint("self.one != 'a'", "not a", lambda model: model.one != "a"),)


class Misnamed(Model):
    one: Name
    constraints: ClassVar = (Constraint("self.once != 'a'", "not a", lambda model: model.one != "a"),)


def test_a_rule_stands_with_its_message_on_the_model_that_declares_it():
    assert structural(Guarded.model_json_schema())["x-kubernetes-validations"] == [
        {
            "rule": "(has(self.one) ? 1 : 0) + (has(self.two) ? 1 : 0) == 1",
            "message": "set exactly one of one or two",
        }
    ]


def test_a_rule_of_a_field_stands_on_the_field():
    schema = rendered(Annotated[Duration, between("1m", "1h")])
    assert schema["x-kubernetes-validations"] == [
        {
            "rule": "self >= duration('60s') && self <= duration('3600s')",
            "message": "must be at least 1m and at most 1h",
        }
    ]


@pytest.mark.parametrize("model", [Unguarded, Misnamed])
def test_a_rule_that_reads_what_may_be_absent_is_refused(model):
    with pytest.raises(SchemaUnrenderable, match=r"without has\(\)"):
        structural(model.model_json_schema())


# --- the resources ---


@pytest.mark.parametrize("kind", KINDS)
def test_the_committed_definition_is_the_rendered_one(kind, tmp_path):
    main([str(tmp_path)])
    name = f"freshgate.dev_{kind.names.plural}.yaml"
    text = (tmp_path / name).read_text(encoding="utf-8")
    assert text == (CRDS / name).read_text(encoding="utf-8"), "run: make generate"
    assert text.startswith(HEADER)
    assert yaml.safe_load(text) == definition(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_resource_is_namespaced_and_its_status_is_written_apart(kind):
    spec = definition(kind)["spec"]
    (version,) = spec["versions"]
    assert spec["scope"] == "Namespaced"
    assert version["subresources"] == {"status": {}}
    assert spec["names"]["categories"] == ["freshgate"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_column_shows_a_field_that_exists(kind):
    (version,) = definition(kind)["spec"]["versions"]
    for column in version["additionalPrinterColumns"]:
        schema = version["schema"]["openAPIV3Schema"]
        steps = re.sub(r"\[.*?\]", "", column["jsonPath"]).split(".")[1:]
        for step in steps if steps[0] != "metadata" else []:
            schema = schema.get("items", schema)["properties"][step]


def test_a_workspace_shows_whether_it_is_ready_and_fresh():
    (version,) = definition(Workspace)["spec"]["versions"]
    names = [column["name"] for column in version["additionalPrinterColumns"]]
    assert names == ["READY", "REASON", "STALE", "LAST-SUCCESS", "AGE"]


def test_a_text_is_never_shared_by_an_anchor_that_a_reader_must_resolve():
    assert not any("&id" in render(kind) or "*id" in render(kind) for kind in KINDS)
