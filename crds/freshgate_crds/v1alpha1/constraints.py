"""Rules that a schema's keywords cannot say, each written once: for the API server in CEL, for pydantic in Python.

A constraint belongs to a field (in its `Annotated`) or to a model (in its `constraints`). Both forms of one constraint
stand side by side here or where it is used, share the message, and are held against each other by one table of cases.
A message names the field and the mend, for it is all that a user sees. A list or a text that a rule walks needs its
bound in the schema: the API server estimates costs from the bounds alone.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from freshgate_crds import durations

KEYWORD = "x-kubernetes-validations"


@dataclass(frozen=True)
class Constraint:
    """`cel` is over `self`; `holds` takes the validated value (a model, or a field's value)."""

    cel: str
    message: str
    holds: Callable[[Any], bool]

    def check(self, value: Any) -> Any:
        if not self.holds(value):
            raise PydanticCustomError("constraint", "{message}", {"message": self.message})
        return value

    def rule(self) -> dict[str, str]:
        return {"rule": self.cel, "message": self.message}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return with_rules(handler(schema), [self])


@dataclass(frozen=True)
class Distinct:
    """Of a list: no value twice, or of models no value of the field `key` twice."""

    key: str | None = None

    def check(self, items: list[Any]) -> list[Any]:
        seen = [item if self.key is None else getattr(item, self.key) for item in items]
        if len(set(seen)) < len(seen):
            raise PydanticCustomError("constraint", "holds a {what} twice: remove one", {"what": self.key or "value"})
        return items

    def keywords(self) -> dict[str, Any]:
        if self.key is None:
            return {"x-kubernetes-list-type": "set"}
        return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [self.key]}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(schema), **self.keywords()}


def with_rules(schema: JsonSchemaValue, constraints: Sequence[Constraint]) -> JsonSchemaValue:
    rules = [*schema.get(KEYWORD, ()), *(constraint.rule() for constraint in constraints)]
    return {**schema, KEYWORD: rules} if rules else schema


def _set(model: Any, names: Sequence[str]) -> int:
    return sum(getattr(model, name) is not None for name in names)


def _count(names: Sequence[str]) -> str:
    return " + ".join(f"(has(self.{to_camel(name)}) ? 1 : 0)" for name in names)


def _either(names: Sequence[str]) -> str:
    *most, last = map(to_camel, names)
    return f"{', '.join(most)} or {last}"


def exactly_one_of(*names: str) -> Constraint:
    return Constraint(
        f"{_count(names)} == 1",
        f"set exactly one of {_either(names)}",
        lambda model: _set(model, names) == 1,
    )


def at_least_one_of(*names: str) -> Constraint:
    return Constraint(
        f"{_count(names)} >= 1",
        f"set at least one of {_either(names)}",
        lambda model: _set(model, names) >= 1,
    )


def needs(name: str, other: str, why: str) -> Constraint:
    """Where `name` is set, `other` must be."""
    return Constraint(
        f"!has(self.{to_camel(name)}) || has(self.{to_camel(other)})",
        f"set {to_camel(other)}, or leave {to_camel(name)} out: {why}",
        lambda model: not _set(model, [name]) or bool(_set(model, [other])),
    )


def contains(part: str, message: str) -> Constraint:
    """Of a text."""
    return Constraint(f"self.contains('{part}')", message, lambda text: part in text)


def matches(pattern: str, message: str) -> Constraint:
    """Of a text, where the pattern alone would not tell a user what is wrong. It holds no single quote."""
    return Constraint(f"self.matches(r'{pattern}')", message, lambda text: re.fullmatch(pattern, text) is not None)


def between(shortest: str, longest: str) -> Constraint:
    """Of a Duration, both ends allowed."""
    low, high = durations.parse(shortest), durations.parse(longest)
    return Constraint(
        f"self >= duration('{low:.0f}s') && self <= duration('{high:.0f}s')",
        f"must be at least {shortest} and at most {longest}",
        lambda seconds: low <= seconds <= high,
    )
