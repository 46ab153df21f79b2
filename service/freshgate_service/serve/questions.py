"""The questions that can be asked, behind every entrance: put to the pipeline, timed, counted and put on record."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from freshgate_service.domain import Item, SourceInfo
from freshgate_service.errors import InvariantViolation, Unauthenticated
from freshgate_service.logs import get_logger
from freshgate_service.metrics import Metrics
from freshgate_service.serve.audit import Audit, Returned
from freshgate_service.serve.exchange import Exchange
from freshgate_service.serve.ports import Pipeline
from freshgate_service.serve.refusals import Refusal, refusal_of

log = get_logger(__name__)


class Questions:
    def __init__(self, pipeline: Pipeline, metrics: Metrics, audit: Audit) -> None:
        self._pipeline = pipeline
        self._metrics = metrics
        self._audit = audit

    async def search(
        self, exchange: Exchange, query: str, limit: int | None, sources: Sequence[str] | None
    ) -> Sequence[Item]:
        with self._on_record(exchange, query) as returned:
            items = await self._pipeline.search(exchange.verified, query, limit, sources)
            self._returned(items, returned)
        return items

    async def fetch(self, exchange: Exchange, source: str, record_id: str) -> Item | None:
        with self._on_record(exchange, f"{source}/{record_id}") as returned:
            item = await self._pipeline.fetch(exchange.verified, source, record_id)
            self._returned([] if item is None else [item], returned)
        return item

    async def sources(self, exchange: Exchange) -> Sequence[SourceInfo]:
        with self._on_record(exchange, "") as returned:
            sources = await self._pipeline.sources(exchange.verified)
            returned.ids = [source.name for source in sources]
        return sources

    def settle(self, error: Exception, exchange: Exchange) -> Refusal:
        """What to say for an error; what is ours to mend is logged and counted."""
        refusal = refusal_of(error)
        if isinstance(error, InvariantViolation):
            self._metrics.invariant_violated()
        if isinstance(error, Unauthenticated):
            log.info("unauthenticated", route=exchange.route, detail=str(error))
        if refusal.status == 500:
            log.error("request_failed", route=exchange.route, code=refusal.code, exc_info=error)
        return refusal

    @contextmanager
    def _on_record(self, exchange: Exchange, asked: str) -> Iterator[Returned]:
        started, revision = time.perf_counter(), self._pipeline.revision
        returned, outcome = Returned(), "answered"
        try:
            yield returned
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except Exception as error:
            outcome = refusal_of(error).code
            raise
        finally:
            seconds = time.perf_counter() - started
            self._metrics.query_seconds("total", seconds)
            self._audit.write(
                exchange.verified,
                exchange.route,
                asked,
                revision=revision,
                returned=returned,
                outcome=outcome,
                seconds=seconds,
            )

    def _returned(self, items: Sequence[Item], returned: Returned) -> None:
        returned.ids = [item.key.text for item in items]
        returned.states = [item.freshness.state for item in items]
        for (source, state), count in Counter((item.key.source, item.freshness.state) for item in items).items():
            self._metrics.served(source, state, count)
