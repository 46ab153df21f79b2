"""Runs inside an agent's pod and asks as its ServiceAccount, with the token that the kubelet put there.

python3 ask.py mcp URL QUERY      one answer over MCP, as JSON
python3 ask.py rest URL QUERY     one answer over REST: {"status": …, "answer": …}
python3 ask.py watch URL QUERY    asks over REST again and again; a line of JSON whenever the answer is another one
"""

import asyncio
import json
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

TOKEN = Path("/token/token")
WATCH_SECONDS = 300
PAUSE_SECONDS = 0.02


def main(how: str, url: str, query: str) -> None:
    if how == "mcp":
        headers = {"Authorization": f"Bearer {TOKEN.read_text()}"}
        print(json.dumps(asyncio.run(over_mcp(url, query, headers))))
    elif how == "rest":
        status, answer = over_rest(url, query)
        print(json.dumps({"status": status, "answer": answer}))
    elif how == "until":
        until(url, query)
    else:
        watch(url, query)


async def over_mcp(url: str, query: str, headers: dict[str, str]) -> Any:
    from mcp.client import Client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    async with (
        create_mcp_http_client(headers=headers) as http,
        Client(streamable_http_client(f"{url}/api/mcp", http_client=http)) as client,
    ):
        answer = await client.call_tool("search", {"query": query, "limit": 50})
        return {"error": answer.is_error, "answer": answer.structured_content}


def over_rest(url: str, query: str) -> tuple[int, Any]:
    request = urllib.request.Request(
        f"{url}/api/v1/search",
        json.dumps({"query": query, "limit": 50}).encode(),
        {"Authorization": f"Bearer {TOKEN.read_text()}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
    except (OSError, TimeoutError) as error:
        return 0, type(error).__name__


def until(url: str, query: str) -> None:
    while (answer := over_rest(url, query))[0] != 200 or not answer[1]["results"]:
        time.sleep(PAUSE_SECONDS)
    print([result["id"] for result in answer[1]["results"]])


def watch(url: str, query: str) -> None:
    before: Any = None
    end = time.monotonic() + WATCH_SECONDS
    while time.monotonic() < end:
        asked = time.time()
        status, answer = over_rest(url, query)
        results = answer["results"] if status == 200 else []
        failed = [one["freshness"]["reason"] for one in results if "reason" in one["freshness"]]
        seen = {"status": status, "ids": sorted(one["id"] for one in results), "failed": sorted(set(failed))}
        if seen != before:
            print(json.dumps({"asked": asked, **seen}), flush=True)
            before = seen
        time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    main(*sys.argv[1:])
