"""One request under way: who asks, by which entrance, and how it is counted.

It travels in a context variable, since the MCP library hands a request to handlers of its own; REST uses the same way,
so that there is one. The middleware sets it, in the task of the request alone.
"""

from contextvars import ContextVar
from dataclasses import dataclass

from freshgate_service.domain import Asker


@dataclass(slots=True)
class Exchange:
    """`code` is what a refused tool call would have been over REST, where its own status is always 200."""

    route: str
    asker: Asker | None = None
    code: int | None = None

    @property
    def verified(self) -> Asker:
        """For handlers behind authentication, where there always is one."""
        if self.asker is None:
            raise RuntimeError("a handler ran before authentication")
        return self.asker


EXCHANGE: ContextVar[Exchange] = ContextVar("exchange")
