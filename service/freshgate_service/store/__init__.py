"""What all processes of a workspace remember together, in one Postgres."""

from freshgate_service.store.rows import Cursor
from freshgate_service.store.store import Store, WorkspaceKey

__all__ = ["Cursor", "Store", "WorkspaceKey"]
