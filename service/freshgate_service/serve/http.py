"""What all HTTP routes share: replies with equal headers, and bodies read within bounds."""

import asyncio
from collections.abc import Mapping

import orjson
from aiohttp import hdrs, web
from multidict import CIMultiDict

from freshgate_service.serve.refusals import Refusal

BODY_SECONDS = 10.0

_HEADERS = CIMultiDict(
    {hdrs.CONTENT_TYPE: "application/json", hdrs.CACHE_CONTROL: "no-store", hdrs.SERVER: "freshgate"}
)


def reply(answer: object, status: int = 200) -> web.Response:
    return raw_reply(orjson.dumps(answer), status)


def raw_reply(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """One set of headers for all; `headers` come on top, or in their place."""
    response = web.Response(body=body, status=status, headers=_HEADERS)
    if headers:
        response.headers.update(headers)
    return response


def refuse(refusal: Refusal) -> web.Response:
    return raw_reply(refusal.body, refusal.status, refusal.headers)


async def read_body(request: web.Request) -> bytes:
    """Raises 415 for a compressed body, 413 for a large one, 408 for one that does not come."""
    if hdrs.CONTENT_ENCODING in request.headers:
        # Not even `identity`: nothing here may inflate what a stranger sends.
        raise web.HTTPUnsupportedMediaType
    if request.content.is_eof():  # it came with the headers, as small ones do: no clock is needed
        return await request.read()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout from None
