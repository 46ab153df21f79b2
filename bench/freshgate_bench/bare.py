"""What the service is compared with: `python -m freshgate_bench.bare rest|mcp PORT ANSWERS`.

ANSWERS is a JSON object, question to answer. The route and the tool look the answer up and serialise it; nobody is
asked for a token, nothing is decided, nothing is put on record.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, Tool

from freshgate_bench.processes import HOST
from freshgate_service.serve import asgi
from freshgate_service.serve.listen import settle_memory

Answers = dict[str, Any]


def rest(answers: Answers) -> web.Application:
    """As aiohttp's own documentation writes a route, and the leanest form of it."""

    async def search(request: web.Request) -> web.Response:
        asked = await request.json()
        return web.json_response(answers[asked["query"]])

    async def lean(request: web.Request) -> web.Response:
        asked = orjson.loads(await request.read())
        return web.Response(body=orjson.dumps(answers[asked["query"]]), content_type="application/json")

    app = web.Application()
    app.router.add_post("/api/v1/search", search)
    app.router.add_post("/lean", lean)
    return app


def mcp(answers: Answers) -> web.Application:
    """The SDK's low-level server, stateless, behind the bridge that the service uses."""

    async def list_tools(*_: object) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name="search", input_schema={"type": "object"})])

    async def call_tool(_context: object, params: CallToolRequestParams) -> CallToolResult:
        answer = answers[(params.arguments or {})["query"]]
        text = TextContent(type="text", text=orjson.dumps(answer).decode())
        return CallToolResult(content=[text], structured_content=answer)

    server: Server[Any] = Server(
        "bare", on_list_tools=list_tools, on_call_tool=call_tool, get_tool_input_schema=lambda _: None
    )
    manager = StreamableHTTPSessionManager(server, stateless=True, json_response=True)

    async def handle(request: web.Request) -> web.Response:
        return await asgi.ask(manager.handle_request, request, await request.read())

    async def running(_app: web.Application) -> AsyncIterator[None]:
        async with manager.run():
            yield

    app = web.Application()
    app.router.add_post("/api/mcp", handle)
    app.cleanup_ctx.append(running)
    return app


async def ready(_request: web.Request) -> web.Response:
    return web.Response()


def main() -> None:
    kind, port, answers = sys.argv[1:]
    app = {"rest": rest, "mcp": mcp}[kind](orjson.loads(Path(answers).read_bytes()))
    app.router.add_get("/readyz", ready)
    settle_memory()
    web.run_app(app, host=HOST, port=int(port), access_log=None, print=None, loop=asyncio.new_event_loop())


if __name__ == "__main__":
    main()
