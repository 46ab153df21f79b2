"""An MCP client that asks for many askers in turn.

The service keeps no session: the token that a request carries is all that tells who asks.
"""

from collections.abc import AsyncIterator, Mapping, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.types import CallToolResult

from freshgate_service.serve.auth import ON_BEHALF_OF


class Agent(NamedTuple):
    client: Client
    headers: MutableMapping[str, str]

    async def call(self, asker: Mapping[str, str], tool: str, **arguments: Any) -> CallToolResult:
        """`asker` is the headers that say who asks."""
        self.headers.pop(ON_BEHALF_OF, None)
        self.headers.update(asker)
        return await self.client.call_tool(tool, arguments)


@asynccontextmanager
async def agent(url: str, era: str, first: Mapping[str, str]) -> AsyncIterator[Agent]:
    """`first` is who connects; the legacy era begins with a request of its own."""
    async with (
        create_mcp_http_client(headers=dict(first)) as http,
        Client(streamable_http_client(f"{url}/api/mcp", http_client=http), mode=era) as client,
    ):
        yield Agent(client, http.headers)
