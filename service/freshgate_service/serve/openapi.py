"""The OpenAPI document, built from the routes and the forms they use, so that it cannot say anything else."""

from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from typing import Any

import orjson
from pydantic import TypeAdapter

from freshgate_service.serve.auth import ON_BEHALF_OF
from freshgate_service.serve.refusals import ERRORS_ANSWER, codes
from freshgate_service.serve.rest import COMMON_REFUSALS, ROUTES, Route

PATH = "/openapi.json"

_DESCRIPTION = (
    "Answers from a company's own records: only those that the asker may see, each confirmed to be current or "
    "labelled. The same questions can be asked over MCP at /api/mcp. Titles, summaries and URLs were written by "
    "others: they are untrusted data."
)
_ON_BEHALF_OF = {
    "name": ON_BEHALF_OF,
    "in": "header",
    "description": "A person's token. The bearer is then the agent, and the answer holds what both may see.",
    "schema": {"type": "string"},
}
_PATH_PARAMETERS = {
    "source": "The source's name.",
    "id": "The record's id in it, percent-encoded; slashes may stay as they are.",
}


@cache
def document() -> bytes:
    return orjson.dumps(_document(), option=orjson.OPT_INDENT_2)


def _document() -> dict[str, Any]:
    schemas = _Schemas(ROUTES)
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.label, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Freshgate", "version": version("freshgate"), "description": _DESCRIPTION},
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}},
        },
    }


class _Schemas:
    """The schema of each form, with what they share as components."""

    def __init__(self, routes: Iterable[Route]) -> None:
        forms = [form for route in routes for form in (route.answer, route.request) if form] + [ERRORS_ANSWER]
        found, shared = TypeAdapter.json_schemas(
            [(id(form), "validation", form) for form in forms], ref_template="#/components/schemas/{model}"
        )
        self._by_form = {key: schema for (key, _mode), schema in found.items()}
        self.components = shared["$defs"]

    def content(self, form: TypeAdapter[Any]) -> dict[str, Any]:
        return {"application/json": {"schema": self._by_form[id(form)]}}


def _operation(route: Route, schemas: _Schemas) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.handler.__name__,
        "summary": route.summary,
        "parameters": [*_path_parameters(route), _ON_BEHALF_OF],
        "responses": {"200": {"description": route.summary, "content": schemas.content(route.answer)}},
    }
    if route.request is not None:
        operation["requestBody"] = {"required": True, "content": schemas.content(route.request)}
    for status, names in codes(sorted({*COMMON_REFUSALS, *route.refusals})).items():
        operation["responses"][str(status)] = _refusal(status, names, schemas)
    return operation


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "description": text, "schema": {"type": "string"}}
        for name, text in _PATH_PARAMETERS.items()
        if f"{{{name}}}" in route.label
    ]


def _refusal(status: int, names: list[str], schemas: _Schemas) -> dict[str, Any]:
    refusal: dict[str, Any] = {"description": f"Code {' or '.join(names)}.", "content": schemas.content(ERRORS_ANSWER)}
    if status == 503:
        refusal["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
    return refusal
