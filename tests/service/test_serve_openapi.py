"""The OpenAPI document, held against the routes and against what they really answer."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import jsonschema
import pytest
from freshgate_serve import ScriptedPipeline, Service, account, corp, failed_item, item, served, user

from freshgate_service.domain import Reason, State
from freshgate_service.errors import ConfigBehind, InvariantViolation
from freshgate_service.metrics import Metrics
from freshgate_service.serve import answers, app, mcp, openapi
from freshgate_service.serve.auth import Verifier


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with served() as running:
        yield running


@pytest.fixture
def document() -> dict[str, Any]:
    return dict(json.loads(openapi.document()))


def test_it_names_exactly_the_routes_of_rest(document: dict[str, Any]):
    built = app.build(ScriptedPipeline(), Verifier([corp()]), Metrics("support"))
    routes = {(route.method, route.resource.canonical) for route in built.router.routes() if route.resource}
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    others = {("POST", mcp.PATH), ("GET", openapi.PATH), ("GET", app.METADATA_PATH)}
    assert described == routes - others
    assert others <= routes


async def test_everybody_can_read_it_there_and_nowhere_else(service: Service, document: dict[str, Any]):
    assert await service.json("GET", "/openapi.json") == (200, document)
    assert (await service.ask("GET", "/api/v1/openapi.json", user()))[0] == 404


def test_its_references_resolve_and_its_schemas_are_schemas(document: dict[str, Any]):
    components = document["components"]["schemas"]
    for reference in re.findall(r'"\$ref": "([^"]*)"', json.dumps(document)):
        assert reference.removeprefix("#/components/schemas/") in components
    for schema in components.values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_its_schemas_have_no_unions_and_no_nulls(document: dict[str, Any]):
    assert not re.search(r'"(anyOf|oneOf|allOf|nullable)"|"null"', json.dumps(document))


def validate(document: dict[str, Any], method: str, path: str, status: int, body: bytes) -> None:
    response = document["paths"][path][method]["responses"][str(status)]
    schema = {**response["content"]["application/json"]["schema"], "components": document["components"]}
    checker = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    checker.validate(json.loads(body))


ASKED: list[tuple[str, str, str, Any, int]] = [
    ("post", "/api/v1/search", "/api/v1/search", {"query": "a"}, 200),
    ("post", "/api/v1/search", "/api/v1/search", {"query": "a", "sources": ["nowhere"]}, 200),
    ("post", "/api/v1/search", "/api/v1/search", {"query": ""}, 400),
    ("post", "/api/v1/search", "/api/v1/search", {"query": " " * 300_000}, 413),
    ("get", "/api/v1/objects/{source}/{id}", "/api/v1/objects/tickets/4711", None, 200),
    ("get", "/api/v1/objects/{source}/{id}", "/api/v1/objects/tickets/12", None, 200),
    ("get", "/api/v1/objects/{source}/{id}", "/api/v1/objects/tickets/nope", None, 404),
    ("get", "/api/v1/sources", "/api/v1/sources", None, 200),
    ("get", "/api/v1/whoami", "/api/v1/whoami", None, 200),
]


@pytest.mark.parametrize(("method", "path", "target", "body", "status"), ASKED)
async def test_answers_are_as_it_says(
    service: Service, document: dict[str, Any], method: str, path: str, target: str, body: Any, status: int
):
    service.pipeline.items = [item(), item(url=None), *(failed_item(reason=reason) for reason in Reason)]
    headers = {"Freshgate-On-Behalf-Of": user("ana", "emea")}
    found, _, text = await service.ask(method.upper(), target, account(), json=body, headers=headers)
    assert found == status
    validate(document, method, path, found, text)


@pytest.mark.parametrize("error", [ConfigBehind(""), InvariantViolation(""), RuntimeError("")])
async def test_refusals_are_as_it_says(service: Service, document: dict[str, Any], error: Exception):
    service.pipeline.error = error
    for method, path, target in {(asked[0], asked[1], asked[2]) for asked in ASKED if "whoami" not in asked[1]}:
        body = {"query": "a"} if method == "post" else None
        for token in (user(), None):
            found, _, text = await service.ask(method.upper(), target, token, json=body)
            validate(document, method, path, found, text)


async def test_every_status_that_is_counted_from_the_start_is_described_or_found_at_the_gate(
    service: Service, document: dict[str, Any]
):
    for path, methods in document["paths"].items():
        (operation,) = methods.values()
        for status in operation["responses"]:
            assert service.counted("freshgate_requests_total", route=path, code=status) == 0


# --- the forms of answers --------------------------------------------------------------------------------------------


def test_what_is_rendered_is_what_the_form_says_and_all_of_it():
    """The answers' dictionaries are made by hand; here the forms read them again, strictly."""
    items = [item(), item(url=None), *(failed_item(reason=reason) for reason in Reason)]
    rendered = json.loads(json.dumps(answers.search_answer(items)))
    assert answers.SEARCH_ANSWER.validate_python(rendered, strict=False) == rendered
    for found in items:
        fetched = json.loads(json.dumps(answers.fetched_answer(found)))
        assert answers.FETCHED_ANSWER.validate_python(fetched) == fetched


def test_the_states_and_reasons_of_the_schema_are_those_of_the_service(document: dict[str, Any]):
    schemas = document["components"]["schemas"]
    assert schemas["State"]["enum"] == [state.value for state in State]
    assert schemas["Reason"]["enum"] == [reason.value for reason in Reason]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "1970-01-01T00:00:00Z"),
        (1_795_000_000.0, "2026-11-18T11:06:40Z"),
        (1_795_000_000.999, "2026-11-18T11:06:40Z"),
        (-0.5, "1969-12-31T23:59:59Z"),
    ],
)
def test_times_are_rounded_down_never_to_a_later_confirmation(seconds: float, text: str):
    assert answers.rfc3339(seconds) == text
