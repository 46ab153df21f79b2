"""The questions that can be asked, behind every entrance: put to the pipeline, timed, counted and put on record."""

import asyncio
import time
from collections.abc import Sequence
from types import TracebackType

from freshgate_service.domain import Item, SourceInfo, State
from freshgate_service.errors import InvariantViolation, Unauthenticated
from freshgate_service.logs import get_logger
from freshgate_service.metrics import Metrics
from freshgate_service.serve.audit import Audit
from freshgate_service.serve.exchange import Exchange
from freshgate_service.serve.ports import Pipeline
from freshgate_service.serve.refusals import Refusal, refusal_of

log = get_logger(__name__)


class Questions:
    def __init__(self, pipeline: Pipeline, metrics: Metrics, audit: Audit) -> None:
        self.pipeline = pipeline
        self.metrics = metrics
        self.audit = audit

    async def search(
        self, exchange: Exchange, query: str, limit: int | None, sources: Sequence[str] | None
    ) -> Sequence[Item]:
        with _OnRecord(self, exchange, query) as record:
            items = await self.pipeline.search(exchange.verified, query, limit, sources)
            record.returned(items)
        return items

    async def fetch(self, exchange: Exchange, source: str, record_id: str) -> Item | None:
        with _OnRecord(self, exchange, f"{source}/{record_id}") as record:
            item = await self.pipeline.fetch(exchange.verified, source, record_id)
            record.returned([] if item is None else [item])
        return item

    async def sources(self, exchange: Exchange) -> Sequence[SourceInfo]:
        with _OnRecord(self, exchange, "") as record:
            sources = await self.pipeline.sources(exchange.verified)
            record.ids = [source.name for source in sources]
        return sources

    def settle(self, error: Exception, exchange: Exchange) -> Refusal:
        """What to say for an error; what is ours to mend is logged and counted."""
        refusal = refusal_of(error)
        if isinstance(error, InvariantViolation):
            self.metrics.invariant_violated()
        if isinstance(error, Unauthenticated):
            log.info("unauthenticated", route=exchange.route, detail=str(error))
        if refusal.status == 500:
            log.error("request_failed", route=exchange.route, code=refusal.code, exc_info=error)
        return refusal


class _OnRecord:
    """Around one question: however it ends, its time is measured and its audit line written."""

    __slots__ = ("_asked", "_exchange", "_questions", "_revision", "_started", "ids", "states")

    def __init__(self, questions: Questions, exchange: Exchange, asked: str) -> None:
        self._questions = questions
        self._exchange = exchange
        self._asked = asked
        self._revision = questions.pipeline.revision
        self.ids: list[str] = []
        self.states: list[State] = []

    def returned(self, items: Sequence[Item]) -> None:
        self.ids = [item.key.text for item in items]
        self.states = [item.freshness.state for item in items]
        served: dict[tuple[str, State], int] = {}
        for of in zip([item.key.source for item in items], self.states, strict=True):
            served[of] = served.get(of, 0) + 1
        for (source, state), count in served.items():
            self._questions.metrics.served(source, state, count)

    def __enter__(self) -> "_OnRecord":
        self._started = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        seconds = time.perf_counter() - self._started
        self._questions.metrics.query_seconds("total", seconds)
        self._questions.audit.write(
            self._exchange.verified,
            self._exchange.route,
            self._asked,
            revision=self._revision,
            outcome=_outcome(error),
            ids=self.ids,
            states=self.states,
            seconds=seconds,
        )


def _outcome(error: BaseException | None) -> str:
    if error is None:
        return "answered"
    return "cancelled" if isinstance(error, asyncio.CancelledError) else refusal_of(error).code
