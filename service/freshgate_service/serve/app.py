"""The query port's application: REST and MCP, assembled behind one gate."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from aiohttp import hdrs, web

from freshgate_service.metrics import Metrics
from freshgate_service.serve import mcp, openapi, rest
from freshgate_service.serve.audit import Audit
from freshgate_service.serve.auth import Verifier
from freshgate_service.serve.gate import Gate, Handler
from freshgate_service.serve.http import raw_reply, reply
from freshgate_service.serve.limits import Limiter
from freshgate_service.serve.ports import Pipeline
from freshgate_service.serve.questions import Questions


@dataclass(frozen=True, slots=True)
class Settings:
    """`allowed_hosts`: names under which the service answers, in Host and Origin; empty means any. A page that rebinds
    its name to this service has no token, so nothing is lost without it; on a laptop it is one lock more.
    `public_url`: where clients find the service; with it, MCP clients are told where to get tokens (RFC 9728)."""

    concurrency: int = 256
    concurrency_each: int = 64
    max_body: int = 256 * 1024
    allowed_hosts: frozenset[str] = frozenset()
    public_url: str | None = None
    audit_key: bytes | None = None


VERIFIER = web.AppKey("verifier", Verifier)
SETTINGS = web.AppKey("settings", Settings)
DRAINING = web.AppKey("draining", asyncio.Event)
"""Set when the process is about to end: answers then ask clients to connect anew, elsewhere."""


def build(
    pipeline: Pipeline, verifier: Verifier, metrics: Metrics, settings: Settings | None = None
) -> web.Application:
    """The application, to be run by `listen.serve`. While it runs it also keeps the verifier's keys."""
    settings, draining = settings or Settings(), asyncio.Event()
    questions = Questions(pipeline, metrics, Audit(settings.audit_key))
    gate = Gate(
        verifier,
        Limiter(settings.concurrency, settings.concurrency_each),
        questions,
        metrics,
        draining,
        settings.allowed_hosts,
        frozenset(FOR_EVERYBODY),
        {hdrs.WWW_AUTHENTICATE: _challenge(settings)},
    )
    app = web.Application(middlewares=[gate.answer_always, gate.admit], client_max_size=settings.max_body)
    app[rest.QUESTIONS], app[VERIFIER], app[SETTINGS], app[DRAINING] = questions, verifier, settings, draining
    endpoint = mcp.Endpoint(questions, settings.max_body)
    _add_routes(app, endpoint, metrics)
    app.cleanup_ctx.extend((_keep_keys, endpoint.running))
    return app


def _challenge(settings: Settings) -> str:
    """With a public URL, MCP clients are told where to learn who gives tokens."""
    if settings.public_url is None:
        return "Bearer"
    return f'Bearer resource_metadata="{settings.public_url}{METADATA_PATH}"'


def _add_routes(app: web.Application, endpoint: mcp.Endpoint, metrics: Metrics) -> None:
    for route in rest.ROUTES:
        app.router.add_route(route.method, route.path, route.handler)
        metrics.declare_route(route.label, (200, *rest.COMMON_REFUSALS, *route.refusals))
    app.router.add_route("POST", mcp.PATH, endpoint.handle)
    metrics.declare_route(mcp.PATH, (200, 202, *rest.COMMON_REFUSALS))
    for name in mcp.OFFERS:
        metrics.declare_route(mcp.route_of(name), (200, 400, 404, 500, 503))
    for path, handler in FOR_EVERYBODY.items():
        app.router.add_route("GET", path, handler)


async def _keep_keys(app: web.Application) -> AsyncIterator[None]:
    async with app[VERIFIER]:
        yield


# --- documentation, for everybody ------------------------------------------------------------------------------------


async def openapi_document(_request: web.Request) -> web.Response:
    return raw_reply(openapi.document())


async def resource_metadata(request: web.Request) -> web.Response:
    """RFC 9728: which issuers' tokens the MCP endpoint takes."""
    public_url = request.app[SETTINGS].public_url
    if public_url is None:
        raise web.HTTPNotFound
    return reply(
        {
            "resource": f"{public_url}{mcp.PATH}",
            "authorization_servers": request.app[VERIFIER].authorization_servers,
            "bearer_methods_supported": ["header"],
        }
    )


METADATA_PATH = f"/.well-known/oauth-protected-resource{mcp.PATH}"
FOR_EVERYBODY: Mapping[str, Handler] = {openapi.PATH: openapi_document, METADATA_PATH: resource_metadata}
