"""A bridge from one aiohttp request to an ASGI application that answers in one piece.

Enough for the MCP library in its JSON mode. There is no `http.disconnect`: a client's leaving cancels the request's
task, and with it the application.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from freshgate_service.serve.http import raw_reply, refuse
from freshgate_service.serve.refusals import http_refusal

Message = MutableMapping[str, Any]
AsgiApp = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]

_SECRET = {b"authorization", b"freshgate-on-behalf-of", b"cookie"}


@dataclass(slots=True)
class _Conversation:
    body: bytes | None
    status: int = 500
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    reply: bytearray = field(default_factory=bytearray)

    async def receive(self) -> Message:
        if self.body is None:
            await asyncio.get_running_loop().create_future()
        body, self.body = self.body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], message.get("headers", [])
        else:
            self.reply += message.get("body", b"")


async def ask(app: AsgiApp, request: web.Request, body: bytes) -> web.Response:
    conversation = _Conversation(body)
    await app(_scope(request), conversation.receive, conversation.send)
    content_type = dict(conversation.headers).get(b"content-type", b"")
    if conversation.status >= 400 and not content_type.startswith(b"application/json"):
        return refuse(http_refusal(conversation.status))
    return raw_reply(bytes(conversation.reply), conversation.status)


def _scope(request: web.Request) -> MutableMapping[str, Any]:
    """Without the tokens: who asks is known by now, and nothing behind this needs them."""
    headers = ((name.lower(), value) for name, value in request.raw_headers)
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.scheme,
        "path": request.path,
        "raw_path": request.path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(name, value) for name, value in headers if name not in _SECRET],
        "client": None,
        "server": None,
    }
