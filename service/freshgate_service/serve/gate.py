"""The gate: two middlewares around every route, of REST and MCP alike.

`answer_always` turns whatever happens into one form of answer and counts it; `admit` sheds, and finds out who asks. A
handler behind it can rely on an asker, except those of the few paths that are for everybody.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import hdrs, web
from yarl import URL

from freshgate_service.metrics import Metrics
from freshgate_service.serve.auth import Verifier
from freshgate_service.serve.exchange import EXCHANGE, Exchange
from freshgate_service.serve.http import refuse
from freshgate_service.serve.limits import Limiter
from freshgate_service.serve.questions import Questions
from freshgate_service.serve.refusals import UNAUTHENTICATED, Refusal

CLIENT_LEFT = 499
"""How a request is counted whose client did not wait for the answer."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Gate:
    """`unauthenticated` are the headers of a 401. Once `draining` is set, answers ask clients to connect anew."""

    verifier: Verifier
    limiter: Limiter
    questions: Questions
    metrics: Metrics
    draining: asyncio.Event
    allowed_hosts: frozenset[str]
    for_everybody: frozenset[str]
    unauthenticated: dict[str, str]

    @web.middleware
    async def answer_always(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        exchange = Exchange(_label(request))
        EXCHANGE.set(exchange)
        try:
            response = await handler(request)
        except asyncio.CancelledError:
            self.metrics.request(exchange.route, CLIENT_LEFT)
            raise
        except Exception as error:  # noqa: BLE001  # whatever happens is answered in one form
            response = refuse(self._with_headers(self.questions.settle(error, exchange)))
        self.metrics.request(exchange.route, exchange.code or response.status)
        if self.draining.is_set():
            response.force_close()
        return response

    @web.middleware
    async def admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        exchange = EXCHANGE.get()
        with self.limiter.in_all:
            if self.allowed_hosts:
                self._check_host(request)
            if exchange.route in self.for_everybody:
                return await handler(request)
            exchange.asker = asker = self.verifier.asker(request.headers)
            with self.limiter.of(asker.principal):
                return await handler(request)

    def _check_host(self, request: web.Request) -> None:
        named = [f"http://{request.headers.get(hdrs.HOST, '')}", *request.headers.getall(hdrs.ORIGIN, ())]
        if any(_host(url) not in self.allowed_hosts for url in named):
            raise web.HTTPMisdirectedRequest

    def _with_headers(self, refusal: Refusal) -> Refusal:
        return refusal._replace(headers=self.unauthenticated) if refusal is UNAUTHENTICATED else refusal


def _label(request: web.Request) -> str:
    """The path with its variables open: few, whatever is asked for."""
    resource = request.match_info.route.resource
    return "unmatched" if resource is None else resource.canonical


def _host(url: str) -> str | None:
    try:
        return URL(url).host
    except ValueError:
        return None
