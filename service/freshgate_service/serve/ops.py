"""The ops port's application: liveness, readiness, metrics and status.

Liveness and readiness have empty bodies and need no token, for kubelets have none. The rest wants the scrape token, or
a ServiceAccount that is allowed to look: in a sidecar the application beside it shares localhost. Nothing here explains
who may see what.
"""

import hmac
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, NotRequired

from aiohttp import hdrs, web
from multidict import CIMultiDictProxy
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from typing_extensions import TypedDict  # the one that pydantic takes before Python 3.12

from freshgate_crds.compiled import Revision
from freshgate_service.domain import Name
from freshgate_service.errors import Unauthenticated
from freshgate_service.logs import get_logger
from freshgate_service.metrics import Metrics
from freshgate_service.serve.answers import rfc3339
from freshgate_service.serve.auth import Verifier, bearer_of
from freshgate_service.serve.http import raw_reply, refuse, reply
from freshgate_service.serve.refusals import refusal_of

log = get_logger(__name__)


class SourceStatus(NamedTuple):
    """Times are the store's. `last_error` is the service's own sentence."""

    name: str
    objects: int
    stale: int
    last_success: float | None = None
    last_error: str | None = None
    oldest_confirmed: float | None = None
    last_error_at: float | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """What the operator is told of this process. No revision: nothing was loaded yet."""

    ready: bool
    revision: Revision | None
    config_format: int | None
    sources: Sequence[SourceStatus] = ()


@dataclass(frozen=True, slots=True)
class Access:
    """Who may read metrics and status. `everybody` is for a laptop's localhost."""

    scrape_token: str | None = None
    accounts: frozenset[Name] = frozenset()
    everybody: bool = False

    def check(self, headers: CIMultiDictProxy[str], verifier: Verifier | None) -> None:
        if self.everybody:
            return
        if self.scrape_token and hmac.compare_digest(bearer_of(headers).encode(), self.scrape_token.encode()):
            return
        if verifier is None:
            raise Unauthenticated("there is no issuer yet whose token could be verified")
        asker = verifier.asker(headers)
        if asker.on_behalf_of is not None or asker.principal.name not in self.accounts:
            raise Unauthenticated("this principal may not read metrics and status")


class RevisionAnswer(TypedDict):
    workspace_uid: str
    counter: int


class SourceStatusAnswer(TypedDict):
    name: str
    objects: int
    stale: int
    last_success: NotRequired[str]
    last_error: NotRequired[str]
    oldest_confirmed: NotRequired[str]
    last_error_at: NotRequired[str]


class StatusAnswer(TypedDict):
    ready: bool
    revision: NotRequired[RevisionAnswer]
    format: NotRequired[int]
    sources: list[SourceStatusAnswer]


METRICS = web.AppKey("metrics", Metrics)
VERIFIER: web.AppKey[Verifier | None] = web.AppKey("verifier")
ACCESS = web.AppKey("access", Access)
STATUS: web.AppKey[Callable[[], Status]] = web.AppKey("status")
"""Must be cheap and never wait: readiness asks it too."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def build(metrics: Metrics, verifier: Verifier | None, status: Callable[[], Status], access: Access) -> web.Application:
    """Without a verifier, the scrape token is all that opens metrics and status."""
    app = web.Application(middlewares=[answer_always], client_max_size=1024)
    app[METRICS], app[VERIFIER], app[ACCESS], app[STATUS] = metrics, verifier, access, status
    for path, handler in (("/livez", live), ("/readyz", ready), ("/metrics", read_metrics), ("/status", read_status)):
        app.router.add_route("GET", path, handler)
    return app


@web.middleware
async def answer_always(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except Exception as error:
        refusal = refusal_of(error)
        if refusal.status == 500:
            log.error("request_failed", route=request.path, exc_info=error)
        return refuse(refusal)


async def live(_request: web.Request) -> web.Response:
    return raw_reply(b"")


async def ready(request: web.Request) -> web.Response:
    return raw_reply(b"", 200 if request.app[STATUS]().ready else 503)


async def read_metrics(request: web.Request) -> web.Response:
    request.app[ACCESS].check(request.headers, request.app[VERIFIER])
    return raw_reply(request.app[METRICS].render(), headers={hdrs.CONTENT_TYPE: CONTENT_TYPE_PLAIN_0_0_4})


async def read_status(request: web.Request) -> web.Response:
    request.app[ACCESS].check(request.headers, request.app[VERIFIER])
    return reply(status_answer(request.app[STATUS]()))


def status_answer(status: Status) -> StatusAnswer:
    answer: StatusAnswer = {
        "ready": status.ready,
        "sources": [_source_answer(source) for source in status.sources],
    }
    if status.revision is not None:
        answer["revision"] = {
            "workspace_uid": status.revision.workspace_uid,
            "counter": status.revision.counter,
        }
    if status.config_format is not None:
        answer["format"] = status.config_format
    return answer


def _source_answer(source: SourceStatus) -> SourceStatusAnswer:
    answer: SourceStatusAnswer = {"name": source.name, "objects": source.objects, "stale": source.stale}
    if source.last_success is not None:
        answer["last_success"] = rfc3339(source.last_success)
    if source.last_error is not None:
        answer["last_error"] = source.last_error
    if source.oldest_confirmed is not None:
        answer["oldest_confirmed"] = rfc3339(source.oldest_confirmed)
    if source.last_error_at is not None:
        answer["last_error_at"] = rfc3339(source.last_error_at)
    return answer
