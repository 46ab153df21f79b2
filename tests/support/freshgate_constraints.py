"""Unfolds tests/crds/constraints.yaml into whole manifests, for every judge alike: pydantic and a real API server.

`cases()` is all that a judge needs; run as a program, this prints them as lines of JSON. What the table means stands at
its head. This reads the rendered CRDs, and must not import the models: they are a judge.
"""

import copy
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

CHECKOUT = Path(__file__).parents[2]
RENDERED = sorted(CHECKOUT.glob("crds/*.yaml"))
TABLE = CHECKOUT / "tests" / "crds" / "constraints.yaml"
RULES = "x-kubernetes-validations"
NOT_CONSTRAINTS = {"type", "description", "properties", "items", "additionalProperties", "anyOf", "required", RULES}
# A format is only how a rule reads the value: the pattern beside it refuses more.
NOT_CONSTRAINTS |= {"x-kubernetes-int-or-string", "x-kubernetes-list-map-keys", "format"}
# What every resource has is the server's to check, and says nothing of ours.
OF_EVERY_RESOURCE = re.compile(r"\w+(\.(apiVersion|kind|metadata(\.name)?))?")
ABSENT = {"$absent": True}


@dataclass(frozen=True)
class Constraint:
    """`name` is a schema's keyword, a CEL rule's message, `type T`, or `closed`. A field is like
    `Workspace.spec.authentication.oidc[].name` or `MemorySource.spec.object.attributes{}`."""

    field: str
    name: str
    bound: Any = None
    is_rule: bool = False


@dataclass(frozen=True)
class Case:
    """`value` is what was put into `field`; None: nothing, or null. `broken` is the constraint that must refuse the
    manifest; None: it must be accepted. `says` is what every judge's refusal must hold, where we choose the words.
    `subresource` is where a server must be written to: elsewhere it drops a status unseen."""

    id: str
    field: str
    value: Any
    manifest: dict[str, Any]
    broken: str | None
    says: str | None
    subresource: str | None


def schemas() -> dict[str, dict[str, Any]]:
    definitions = [yaml.safe_load(path.read_text(encoding="utf-8"))["spec"] for path in RENDERED]
    return {one["names"]["kind"]: one["versions"][0]["schema"]["openAPIV3Schema"] for one in definitions}


def constraints() -> list[Constraint]:
    return [constraint for kind, schema in schemas().items() for constraint in _constraints(schema, kind)]


def _constraints(schema: dict[str, Any], field: str) -> Iterator[Constraint]:
    for name in schema.get("required", ()):
        yield Constraint(f"{field}.{name}", "required")
    for rule in schema.get(RULES, ()):
        yield Constraint(field, rule["message"], is_rule=True)
    if not OF_EVERY_RESOURCE.fullmatch(field):
        yield Constraint(field, f"type {schema.get('type', 'int-or-string')}")
        if "properties" in schema:
            yield Constraint(field, "closed")
    for keyword in sorted(schema.keys() - NOT_CONSTRAINTS):
        yield Constraint(field, keyword, schema[keyword])
    for name, child in schema.get("properties", {}).items():
        yield from _constraints(child, f"{field}.{name}")
    for keyword, step in (("items", "[]"), ("additionalProperties", "{}")):
        if keyword in schema:
            yield from _constraints(schema[keyword], field + step)


def cases() -> list[Case]:
    table = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    bases = _bases(table["bases"])
    known = constraints()
    found = [_base_case(name, base) for name, base in bases.items()]
    for row in table["rows"]:
        found += _row(row, bases, known)
    return found


def _base_case(name: str, base: dict[str, Any]) -> Case:
    return Case(f"base {name}", base["kind"], None, base, None, None, None)


def _bases(raw: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    bases: dict[str, dict[str, Any]] = {}
    for name, base in raw.items():
        bases[name] = merged(bases[base["like"]], base["but"]) if "like" in base else base
    return bases


def _row(row: dict[str, Any], bases: dict[str, dict[str, Any]], known: list[Constraint]) -> Iterator[Case]:
    fields = {
        constraint.field for constraint in known if any(_matches(glob, constraint.field) for glob in row["fields"])
    }
    if not fields:
        raise ValueError(f"no such field: {row['fields']}")
    for field in sorted(fields):
        for value in row.get("accepts", ()):
            yield _case(bases, field, value, None)
    for name, values in row.get("refuses", {}).items():
        broken = [one for one in known if one.name == name and one.field in fields]
        if not broken:
            raise ValueError(f"{row['fields']} have no constraint {name!r}")
        for constraint in broken:
            for value in values:
                yield _case(bases, constraint.field, value, constraint)


def _matches(glob: str, field: str) -> bool:
    return re.fullmatch(re.escape(glob).replace(r"\*", ".*"), field) is not None


def _case(bases: dict[str, dict[str, Any]], field: str, value: Any, broken: Constraint | None) -> Case:
    kind, *steps = re.findall(r"\[\]|\{\}|[^.\[\]{}]+", field)
    for base in bases.values():
        manifest = copy.deepcopy(base)
        if base["kind"] == kind and (place := _locate(manifest, steps)):
            holder, key = place
            put = _unfold(value, holder.pop(key) if value == ABSENT else holder[key])
            if value != ABSENT:
                holder[key] = put
            name = broken.name if broken else None
            return Case(
                id=f"{field} {name or 'accepts'}: {json.dumps(value)[:60]}",
                field=field,
                value=put,
                manifest=manifest,
                broken=name,
                says=name if broken and broken.is_rule else None,
                subresource="status" if steps[0] == "status" else None,
            )
    raise ValueError(f"no base holds {field}")


def _locate(holder: Any, steps: list[str]) -> tuple[Any, Any] | None:
    """The first place in `holder` that `steps` lead to."""
    first, *rest = steps
    if first == "[]":
        keys: list[Any] = list(range(len(holder)))
    elif first == "{}":
        keys = list(holder)
    else:
        keys = [first] if first in holder else []
    for key in keys:
        place = _locate(holder[key], rest) if rest else (holder, key)
        if place:
            return place
    return None


def _unfold(value: Any, there: Any) -> Any:
    match value:
        case {"$absent": True}:
            return None
        case {"$text": [count, text, *before]}:
            return "".join(before) + text * count
        case {"$list": [count, template]}:
            return [_numbered(template, number) for number in range(count)]
        case {"$map": [count, template]}:
            return dict(_numbered(template, number) for number in range(count))
        case {"$but": patch}:
            return merged(there, _numbered(patch, 0))
    return value


def _numbered(template: Any, number: int) -> Any:
    return json.loads(json.dumps(template).replace("#", str(number)))


def merged(there: Any, patch: Any) -> Any:
    """RFC 7396: null removes."""
    if not isinstance(patch, dict) or not isinstance(there, dict):
        return patch
    result = {**there}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


if __name__ == "__main__":
    for case in cases():
        sys.stdout.write(json.dumps(asdict(case)) + "\n")
