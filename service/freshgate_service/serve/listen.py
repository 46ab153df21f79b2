"""Listening: both ports, from the first request to the last, and an end that cuts no request off."""

import asyncio
import gc
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from aiohttp import web

from freshgate_service.logs import get_logger
from freshgate_service.serve.app import DRAINING
from freshgate_service.serve.http import refuse
from freshgate_service.serve.refusals import http_refusal, refusal_of

MAX_HEADER_BYTES = 16 * 1024
"""A token that lists many groups is long."""
BACKLOG = 1024
SETTLE_SECONDS = 0.5
"""How long open connections may still send a request after the last one was accepted."""
SETTLE_STEP_SECONDS = 0.05
ANSWER_SECONDS = 10.0
"""How long requests under way may still take after that: more than a query's deadline."""
LINGER_SECONDS = 1.0
"""How long the rest of a body is taken off the wire that nobody wanted to read."""

log = get_logger(__name__)


async def serve(
    app: web.Application,
    ops: web.Application,
    *,
    host: str,
    port: int,
    ops_host: str,
    ops_port: int,
    stop: asyncio.Event,
    drain_seconds: float = 0.0,
) -> None:
    """Serves until `stop` is set. In a cluster, give `drain_seconds` to those who still send requests here since they
    have not heard yet that this pod is leaving."""
    settle_memory()
    async with (
        listening(ops, ops_host, ops_port) as bound_ops_port,
        listening(app, host, port, drain_seconds=drain_seconds) as bound_port,
    ):
        log.info("listening", host=host, port=bound_port, ops_host=ops_host, ops_port=bound_ops_port)
        await stop.wait()
        log.info("stopping")


@contextmanager
def stop_signals() -> Iterator[asyncio.Event]:
    """Set by SIGTERM, SIGINT, and SIGHUP unless that is ignored (nohup). Entered before anything is started: a signal
    that comes while things still start or already end must not leave half of them running."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    names = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # a terminal that is closed
        names.append(signal.SIGHUP)
    for name in names:
        loop.add_signal_handler(name, stop.set)
    try:
        yield stop
    finally:
        for name in names:
            loop.remove_signal_handler(name)


def settle_memory() -> None:
    """Spares queries the garbage collector's walks over what stays anyway. Worth calling again whenever much was loaded
    that is to stay."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@asynccontextmanager
async def listening(app: web.Application, host: str, port: int, *, drain_seconds: float = 0.0) -> AsyncIterator[int]:
    """Runs an application and gives its port. At the end whatever was accepted is answered first."""
    runner = _Runner(
        app,
        access_log=None,  # paths hold ids of records
        auto_decompress=False,
        handler_cancellation=True,
        lingering_time=LINGER_SECONDS,
        max_field_size=MAX_HEADER_BYTES,
        shutdown_timeout=ANSWER_SECONDS,
    )
    with _bind(host, port) as listener:
        try:
            await runner.setup()
            await web.SockSite(runner, listener).start()
            yield listener.getsockname()[1]
            await _drain(app, runner, listener, drain_seconds)
        finally:
            await runner.cleanup()


def _bind(host: str, port: int) -> socket.socket:
    """An address; `::` takes IPv4 as well, where the machine can."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    both = host == "::" and socket.has_dualstack_ipv6()
    listener = socket.create_server((host, port), family=family, backlog=BACKLOG, dualstack_ipv6=both)
    listener.setblocking(False)
    return listener


async def _drain(app: web.Application, runner: web.AppRunner, listener: socket.socket, seconds: float) -> None:
    """Has clients connect anew, then takes no more connections, then waits for those that are open to end."""
    if DRAINING in app:
        app[DRAINING].set()
    await asyncio.sleep(seconds)
    await _stop_accepting(runner, listener)
    for _ in range(round(SETTLE_SECONDS / SETTLE_STEP_SECONDS)):
        # First of all, for a connection that was taken just now shows only a few turns of the loop later.
        await asyncio.sleep(SETTLE_STEP_SECONDS)
        if runner.server is None or not runner.server.connections:
            return


async def _stop_accepting(runner: web.AppRunner, listener: socket.socket) -> None:
    """Closing a server of asyncio drops connections that it has just accepted, and those that wait to be; so these are
    taken first, and the rest is refused by the kernel, before anything else can happen."""
    loop = asyncio.get_running_loop()
    loop.remove_reader(listener)
    waiting = []
    with suppress(BlockingIOError):
        while True:
            waiting.append(listener.accept()[0])
    with suppress(OSError):  # where a listening socket cannot be shut down, it is closed a little later
        listener.shutdown(socket.SHUT_RDWR)
    if runner.server is not None:
        for connection in waiting:
            await loop.connect_accepted_socket(runner.server, connection)


# --- errors outside of any route -------------------------------------------------------------------------------------


class _Connection(web.RequestHandler):
    """Answers what is not even HTTP in the form of all other errors."""

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        if status < 500:
            log.info("bad_request", status=status, exc_info=exc)
        else:
            log.error("request_failed", status=status, exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("part of an answer is on its way already")
        response = refuse(http_refusal(status))
        response.force_close()
        return response


class _Server(web.Server):
    def __call__(self) -> web.RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


class _Runner(web.AppRunner):
    async def _make_server(self) -> web.Server:
        made = await super()._make_server()

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            try:
                return await made.request_handler(request)
            except web.HTTPException as error:  # raised before any middleware: an Expect header nobody meets
                return refuse(refusal_of(error))

        return _Server(
            handle,
            request_factory=made.request_factory,
            handler_cancellation=made.handler_cancellation,
            **made._kwargs,  # noqa: SLF001  # aiohttp has no other way to name its connection class
        )
