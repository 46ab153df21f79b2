"""What serving needs of its surroundings."""

from collections.abc import Sequence
from typing import Protocol

from freshgate_crds.compiled import Revision
from freshgate_service.domain import Asker, Item, SourceInfo


class Pipeline(Protocol):
    """Answers questions. Raises NotReady, ConfigBehind, EntitlementsExpired, StoreUnavailable, InvariantViolation."""

    @property
    def revision(self) -> Revision:
        """The configuration in force."""

    async def search(
        self, asker: Asker, query: str, limit: int | None, sources: Sequence[str] | None
    ) -> Sequence[Item]:
        """Confirmed items by score, then failed ones by id. None: the workspace's limit, all sources."""

    async def fetch(self, asker: Asker, source: str, record_id: str) -> Item | None:
        """None where the record is unknown, not the asker's to see, or moved: nobody may tell which."""

    async def sources(self, asker: Asker) -> Sequence[SourceInfo]: ...
