"""JSON schemas from the forms of requests and answers, plain enough for every client.

Some clients drop a whole list of tools over one `$ref`, union or null; so tools' schemas hold none of them.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

Schema = dict[str, Any]


def inlined(form: TypeAdapter[Any]) -> Schema:
    """The form's schema in one piece."""
    schema = form.json_schema()
    whole: Schema = _inline(schema, schema.pop("$defs", {}))
    return whole


def _inline(node: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inline(member, definitions) for member in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        beside = {key: value for key, value in node.items() if key != "$ref"}
        return _inline({**definitions[node["$ref"].removeprefix("#/$defs/")], **beside}, definitions)
    return {key: _member(key, value, definitions) for key, value in node.items() if key != "title"}


def _member(key: str, value: Any, definitions: Mapping[str, Any]) -> Any:
    if key == "properties":
        return {name: _inline(schema, definitions) for name, schema in value.items()}
    return _inline(value, definitions)
