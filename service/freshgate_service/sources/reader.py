"""A source as the rest of the service reads it: guarded and mapped."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from freshgate_crds import compiled
from freshgate_service.domain import Listed, Record
from freshgate_service.errors import RecordMalformed, SourceError
from freshgate_service.sources.guard import MAX_IDS, Guarded
from freshgate_service.sources.mapping import Mapping as RecordMapping

LARGE = 128 * 1024
"""Characters in one value from which a record is mapped off the event loop."""


class Reader:
    page = MAX_IDS
    """How many records one read may ask for."""

    def __init__(self, spec: compiled.Source, source: Guarded, mapping: RecordMapping) -> None:
        self.spec = spec
        self._source = source
        self._mapping = mapping

    @property
    def patience(self) -> float:
        """Seconds after which a fetch has surely ended."""
        return self._source.patience

    @property
    def breaker_open(self) -> bool:
        return self._source.breaker_open

    def list(self) -> AsyncIterator[Sequence[Listed]]:
        return self._source.list()

    async def fetch(self, record_ids: Sequence[str], *, background: bool) -> Mapping[str, Record | SourceError]:
        """An id that is absent from the result does not exist any more; one that was not read maps to why."""
        found = await self._source.fetch(record_ids, background=background)
        return {record_id: await self._mapped(record_id, raw) for record_id, raw in found.items()}

    async def close(self) -> None:
        await self._source.close()

    async def _mapped(self, record_id: str, raw: Mapping[str, Any] | SourceError) -> Record | SourceError:
        if isinstance(raw, SourceError):
            return raw
        try:
            if any(isinstance(value, str) and len(value) >= LARGE for value in raw.values()):
                return await asyncio.to_thread(self._mapping.record, record_id, raw)
            await asyncio.sleep(0)  # many records in a row must not hold up the event loop
            return self._mapping.record(record_id, raw)
        except RecordMalformed as error:
            return error
