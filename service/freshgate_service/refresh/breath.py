"""Keeps long work on the event loop from holding up queries."""

import asyncio
import time

STEP_SECONDS = 0.003


class Breath:
    """Called between small steps of long work, gives way to other tasks once its step has been used up."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    async def __call__(self) -> None:
        if time.perf_counter() - self._since >= STEP_SECONDS:
            await asyncio.sleep(0)
            self._since = time.perf_counter()
