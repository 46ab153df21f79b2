"""The query port's application: REST and MCP behind one gate.

The gate is two middlewares around every route: `answer_always` turns whatever happens into one form of answer and
counts it; `admit` sheds, and finds out who asks. Only documentation is given without a token.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass

from aiohttp import hdrs, web
from yarl import URL

from freshgate_service.metrics import Metrics
from freshgate_service.serve import mcp, openapi, rest
from freshgate_service.serve.audit import Audit
from freshgate_service.serve.auth import Verifier
from freshgate_service.serve.exchange import EXCHANGE, Exchange
from freshgate_service.serve.http import raw_reply, refuse, reply
from freshgate_service.serve.limits import Limiter
from freshgate_service.serve.ports import Pipeline
from freshgate_service.serve.questions import Questions
from freshgate_service.serve.refusals import UNAUTHENTICATED, Refusal

CLIENT_LEFT = 499
"""How a request is counted whose client did not wait for the answer."""


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


METRICS = web.AppKey("metrics", Metrics)
VERIFIER = web.AppKey("verifier", Verifier)
LIMITER = web.AppKey("limiter", Limiter)
SETTINGS = web.AppKey("settings", Settings)
DRAINING = web.AppKey("draining", asyncio.Event)
"""Set when the process is about to end: answers then ask clients to connect anew, elsewhere."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def build(
    pipeline: Pipeline, verifier: Verifier, metrics: Metrics, settings: Settings | None = None
) -> web.Application:
    """The application, to be run by `listen.serve`. While it runs it also keeps the verifier's keys."""
    settings = settings or Settings()
    questions = Questions(pipeline, metrics, Audit(settings.audit_key))
    endpoint = mcp.Endpoint(questions, settings.max_body)
    app = web.Application(middlewares=[answer_always, admit], client_max_size=settings.max_body)
    app[rest.QUESTIONS] = questions
    app[METRICS] = metrics
    app[VERIFIER] = verifier
    app[LIMITER] = Limiter(settings.concurrency, settings.concurrency_each)
    app[SETTINGS] = settings
    app[DRAINING] = asyncio.Event()
    _add_routes(app, endpoint)
    app.cleanup_ctx.extend((_keep_keys, endpoint.running))
    return app


def _add_routes(app: web.Application, endpoint: mcp.Endpoint) -> None:
    for route in rest.ROUTES:
        app.router.add_route(route.method, route.path, route.handler)
        app[METRICS].declare_route(route.label, (200, *rest.COMMON_REFUSALS, *route.refusals))
    app.router.add_route("POST", mcp.PATH, endpoint.handle)
    app[METRICS].declare_route(mcp.PATH, (200, 202, *rest.COMMON_REFUSALS))
    for name in mcp.OFFERS:
        app[METRICS].declare_route(mcp.route_of(name), (200, 400, 404, 500, 503))
    for path, handler in PUBLIC.items():
        app.router.add_route("GET", path, handler)


async def _keep_keys(app: web.Application) -> AsyncIterator[None]:
    async with app[VERIFIER]:
        yield


# --- the gate --------------------------------------------------------------------------------------------------------


@web.middleware
async def answer_always(request: web.Request, handler: Handler) -> web.StreamResponse:
    app, exchange = request.app, Exchange(_label(request))
    EXCHANGE.set(exchange)
    try:
        response = await handler(request)
    except asyncio.CancelledError:
        app[METRICS].request(exchange.route, CLIENT_LEFT)
        raise
    except Exception as error:  # noqa: BLE001  # whatever happens is answered in one form
        response = refuse(_with_metadata(app[rest.QUESTIONS].settle(error, exchange), app[SETTINGS]))
    app[METRICS].request(exchange.route, exchange.code or response.status)
    if app[DRAINING].is_set():
        response.force_close()
    return response


@web.middleware
async def admit(request: web.Request, handler: Handler) -> web.StreamResponse:
    app, exchange = request.app, EXCHANGE.get()
    with app[LIMITER].in_all:
        _check_host(request, app[SETTINGS].allowed_hosts)
        if exchange.route in PUBLIC:
            return await handler(request)
        exchange.asker = app[VERIFIER].asker(request.headers)
        with app[LIMITER].of(exchange.asker.principal):
            return await handler(request)


def _label(request: web.Request) -> str:
    resource = request.match_info.route.resource
    return "unmatched" if resource is None else resource.canonical


def _check_host(request: web.Request, allowed: frozenset[str]) -> None:
    if not allowed:
        return
    named = [f"http://{request.headers.get(hdrs.HOST, '')}", *request.headers.getall(hdrs.ORIGIN, ())]
    for url in named:
        try:
            host = URL(url).host
        except ValueError:
            host = None
        if host not in allowed:
            raise web.HTTPMisdirectedRequest


def _with_metadata(refusal: Refusal, settings: Settings) -> Refusal:
    """Tells MCP clients where to learn who gives tokens."""
    if refusal is not UNAUTHENTICATED or settings.public_url is None:
        return refusal
    where = f'Bearer resource_metadata="{settings.public_url}{METADATA_PATH}"'
    return refusal._replace(headers={hdrs.WWW_AUTHENTICATE: where})


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
PUBLIC: Mapping[str, Handler] = {openapi.PATH: openapi_document, METADATA_PATH: resource_metadata}
