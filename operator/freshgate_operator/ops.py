"""The operator's own port: liveness and metrics. No secret and no resource's name is to be had here."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from freshgate_operator.metrics import Metrics


def build(metrics: Metrics, *, is_alive: Callable[[], bool]) -> web.Application:
    async def live(_request: web.Request) -> web.Response:
        return web.Response(status=200 if is_alive() else 503)

    async def read_metrics(_request: web.Request) -> web.Response:
        return web.Response(body=metrics.render(), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    application = web.Application()
    application.router.add_get("/livez", live)
    application.router.add_get("/metrics", read_metrics)
    return application
