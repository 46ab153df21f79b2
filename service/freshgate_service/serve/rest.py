"""REST: the routes under /api/v1, each with what its documentation says of it."""

import re
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, NamedTuple

from aiohttp import web
from pydantic import TypeAdapter

from freshgate_service.serve import answers, requests
from freshgate_service.serve.exchange import EXCHANGE
from freshgate_service.serve.http import read_body, reply
from freshgate_service.serve.questions import Questions

QUESTIONS = web.AppKey("questions", Questions)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Route(NamedTuple):
    """`refusals` are the statuses besides those that every route may answer with."""

    method: str
    path: str
    handler: Handler
    summary: str
    answer: TypeAdapter[Any]
    request: TypeAdapter[Any] | None = None
    refusals: tuple[int, ...] = ()

    @property
    def label(self) -> str:
        """The path without the patterns of its variables: as documentation and metrics show it."""
        return re.sub(r"{(\w+):[^}]*}", r"{\1}", self.path)


def _without_parameters(handler: Handler) -> Handler:
    @wraps(handler)
    async def checked(request: web.Request) -> web.StreamResponse:
        requests.refuse_parameters(request.query)
        return await handler(request)

    return checked


@_without_parameters
async def search(request: web.Request) -> web.Response:
    asked = requests.parse_body(requests.SEARCH_REQUEST, await read_body(request))
    items = await request.app[QUESTIONS].search(
        EXCHANGE.get(), asked["query"], asked.get("limit"), asked.get("sources")
    )
    return reply(answers.search_answer(items))


@_without_parameters
async def fetch(request: web.Request) -> web.Response:
    source, record_id = request.match_info["source"], request.match_info["id"]
    item = await request.app[QUESTIONS].fetch(EXCHANGE.get(), source, record_id)
    if item is None:
        raise web.HTTPNotFound
    return reply(answers.item_answer(item))


@_without_parameters
async def sources(request: web.Request) -> web.Response:
    return reply(answers.sources_answer(await request.app[QUESTIONS].sources(EXCHANGE.get())))


@_without_parameters
async def who_am_i(_request: web.Request) -> web.Response:
    return reply(answers.who_am_i_answer(EXCHANGE.get().verified))


ROUTES = (
    Route(
        "POST",
        "/api/v1/search",
        search,
        "Find records by words.",
        answers.SEARCH_ANSWER,
        requests.SEARCH_REQUEST,
        (408, 413, 415),
    ),
    Route(
        "GET",
        # Ids are any text, slashes and line feeds too.
        r"/api/v1/objects/{source}/{id:[\s\S]+}",
        fetch,
        "One record by its id, confirmed to be current, or labelled.",
        answers.ITEM_ANSWER,
        refusals=(404,),
    ),
    Route("GET", "/api/v1/sources", sources, "The sources that hold something for you.", answers.SOURCES_ANSWER),
    Route("GET", "/api/v1/whoami", who_am_i, "Who you are here, and on whose behalf.", answers.WHO_AM_I_ANSWER),
)
COMMON_REFUSALS = (400, 401, 500, 503)
"""What every route behind the gate may say; 400 where two tokens do not fit together."""
