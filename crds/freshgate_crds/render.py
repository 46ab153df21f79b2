"""Renders the models of v1alpha1 to CustomResourceDefinitions: `python -m freshgate_crds.render DIR`.

Pydantic's JSON schema is no schema for an API server: some of it is refused there, and some is accepted and then not
enforced. So this knows the keywords that are enforced, says the rest in them where it can, and raises where it cannot
(SchemaUnrenderable). It must never emit a schema that lets through what the models refuse, nor a default that a server
would write into what a user said.
"""

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from freshgate_crds.errors import SchemaUnrenderable
from freshgate_crds.v1alpha1 import GROUP, KINDS, VERSION, Resource
from freshgate_crds.v1alpha1.constraints import KEYWORD as RULES
from freshgate_crds.v1alpha1.models import INT_OR_STRING, Column

Schema = dict[str, Any]

HEADER = "# Made by `make generate` from crds/freshgate_crds/v1alpha1: change the models, for edits here are lost.\n"

ENFORCED = {
    "array": {"items", "minItems", "maxItems", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"},
    "boolean": {"enum"},
    "integer": {"enum", "minimum", "maximum"},
    "int-or-string": {*INT_OR_STRING, "minimum", "maximum", "pattern", "minLength", "maxLength"},
    "number": {"enum", "minimum", "maximum"},
    "object": {"properties", "required", "additionalProperties", "minProperties", "maxProperties"},
    "string": {"enum", "format", "pattern", "minLength", "maxLength"},
}
REFERENCE = "#/$defs/"
EVERYWHERE = {"type", "description", RULES}
DROPPED = {"title", "default"}
"""A title repeats the name. A default is the models' business: what is absent stays absent in a cluster."""
LEADING = {"description": 0, "type": 1}
FORMATS = {"duration"}
"""A server ignores a format that it does not know. Beside one that it knows, it takes a list for a text, until a rule
asks for the value."""


def structural(model: Schema) -> Schema:
    """The structural schema of a model's JSON schema (`model_json_schema()`)."""
    return _render(model, "", model.get("$defs", {}), ())


def _render(raw: Schema, path: str, definitions: Mapping[str, Schema], within: tuple[str, ...]) -> Schema:
    """`within` are the references that led here."""
    raw, within = _resolve(raw, path, definitions, within)
    schema = {key: value for key, value in _translate(raw).items() if key not in DROPPED | {"$defs"}}
    _check(schema, path)

    def child(raw: Schema, step: str) -> Schema:
        return _render(raw, path + step, definitions, within)

    if "properties" in schema:
        schema["properties"] = {name: child(field, f".{name}") for name, field in schema["properties"].items()}
    for keyword, step in (("items", "[]"), ("additionalProperties", "{}")):
        if keyword in schema:
            schema[keyword] = child(schema[keyword], step)
    return dict(sorted(schema.items(), key=lambda item: LEADING.get(item[0], len(LEADING))))


# --- what is said in other words ---------------------------------------------------------------------------------


def _resolve(
    raw: Schema, path: str, definitions: Mapping[str, Schema], within: tuple[str, ...]
) -> tuple[Schema, tuple[str, ...]]:
    """`raw` with references inlined, and without null: an optional field is one that is not required."""
    while "$ref" in raw or _is_optional(raw):
        if "$ref" in raw:
            name = raw["$ref"].removeprefix(REFERENCE)
            if name in within:
                raise SchemaUnrenderable(f"{path}: {name} holds itself, and a structural schema must end")
            raw, within = {**definitions[name], **_without(raw, "$ref")}, (*within, name)
        else:
            raw = {**raw["anyOf"][0], **_without(raw, "anyOf")}
    return raw, within


def _is_optional(raw: Schema) -> bool:
    """Pydantic's form of `X | None = None`, and no other. To it and to a server null then means absent."""
    branches = raw.get("anyOf", ())
    return len(branches) == 2 and branches[1] == {"type": "null"} and raw.get("default", ...) is None


def _translate(raw: Schema) -> Schema:
    schema = dict(raw)
    if "const" in schema:  # accepted by a server and not enforced; an enum of one is
        schema["enum"] = [schema.pop("const")]
    if schema.get("additionalProperties") is False and "properties" in schema:
        del schema["additionalProperties"]  # a structural schema holds what it names and nothing else
    return schema


def _without(schema: Schema, key: str) -> Schema:
    return {other: value for other, value in schema.items() if other != key}


# --- what is refused ---------------------------------------------------------------------------------------------


def _check(schema: Schema, path: str) -> None:
    kind = _kind(schema)
    if kind is None:
        raise SchemaUnrenderable(f"{path}: needs one type that a server enforces, and has only {', '.join(schema)}")
    if strange := schema.keys() - ENFORCED[kind] - EVERYWHERE:
        raise SchemaUnrenderable(f"{path}: a server would refuse or ignore {', '.join(sorted(strange))}")
    if missing := [bound for bound in _bounds(kind, schema) if not schema.get(bound)]:
        raise SchemaUnrenderable(f"{path}: needs {', '.join(missing)} above 0, for an end to what it may hold and cost")
    if "format" in schema and (schema["format"] not in FORMATS or RULES not in schema):
        raise SchemaUnrenderable(f"{path}: the format {schema['format']} needs a server that knows it, and a rule")
    if re.search(r"\\[bdswBDSW]|\(\?", schema.get("pattern", "")):
        raise SchemaUnrenderable(f"{path}: its pattern means another thing to a server: name the characters themselves")
    _check_rules(schema, path)


def _kind(schema: Schema) -> str | None:
    if schema.items() >= INT_OR_STRING.items():
        return "int-or-string"
    kind = schema.get("type")
    if not isinstance(kind, str) or kind not in ENFORCED:
        return None
    # An object says its fields or is a map, and not both; what has no schema, a server drops unseen.
    holds = [schema[keyword] for keyword in ("properties", "additionalProperties") if keyword in schema]
    if kind == "object" and (len(holds) != 1 or not isinstance(holds[0], dict)):
        return None
    return kind


def _bounds(kind: str, schema: Schema) -> Sequence[str]:
    match kind:
        case "array":
            return ("items", "minItems", "maxItems")
        case "object" if "properties" not in schema:
            return ("maxProperties",)
        case "int-or-string" | "string" if "enum" not in schema:
            return ("maxLength",)
    return ()


def _check_rules(schema: Schema, path: str) -> None:
    """A rule that reads a field which is absent fails where it should decide; one that names no field is a typing
    error that only a server would find."""
    for rule in schema.get(RULES, ()) if "properties" in schema else ():
        cel = rule["rule"]
        named = set(re.findall(r"\bself\.(\w+)\b(?!\()", cel))
        sure = {*schema.get("required", ()), *re.findall(r"has\(self\.(\w+)\)", cel)}
        if stray := (named - schema["properties"].keys()) | (named - sure):
            raise SchemaUnrenderable(f"{path}: {cel!r} reads {', '.join(sorted(stray))} without has()")


# --- the resource ------------------------------------------------------------------------------------------------


def definition(kind: type[Resource]) -> dict[str, Any]:
    names = kind.names
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [_column(column) for column in kind.columns],
        "schema": {"openAPIV3Schema": _root(kind)},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind.__name__,
                "listKind": f"{kind.__name__}List",
                "plural": names.plural,
                "singular": kind.__name__.lower(),
                "shortNames": [names.short],
                "categories": ["freshgate"],
            },
            "scope": "Namespaced",
            "versions": [version],
        },
    }


def _root(kind: type[Resource]) -> Schema:
    """Of what every resource has, a server checks all but the name, and takes no second opinion."""
    model = kind.model_json_schema()
    fields = model["properties"]
    name = model["$defs"][fields["metadata"]["$ref"].removeprefix(REFERENCE)]["properties"]["name"]
    fields["metadata"] = {"type": "object", "properties": {"name": name}}
    schema = structural(model)
    own = {name: {"type": "string"} for name in ("apiVersion", "kind")}
    return {**schema, "properties": {**schema["properties"], **own}, "required": ["spec"]}


def _column(column: Column) -> dict[str, Any]:
    shown = {"name": column.name, "type": column.type, "jsonPath": column.path}
    return {**shown, "priority": column.priority} if column.priority else shown


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


def render(kind: type[Resource]) -> str:
    # allow_unicode and the width keep a message on one line, as it is read in a diff.
    body = yaml.dump(definition(kind), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)
    return HEADER + body


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m freshgate_crds.render", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, help="where the files are written")
    folder: Path = parser.parse_args(arguments).folder
    for kind in KINDS:
        (folder / f"{GROUP}_{kind.names.plural}.yaml").write_text(render(kind), encoding="utf-8")


if __name__ == "__main__":
    main()
