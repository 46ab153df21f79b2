"""The service's errors.

FreshgateError
├── ConfigRefused           the published configuration cannot be obeyed; the last good one stays
├── NotReady                configuration, keys or store are not loaded yet (503 not_ready)
├── ConfigBehind            a newer revision is in force elsewhere (503 config_behind)
├── EntitlementsExpired     nobody vouches for the entitlements any more (503 entitlements_expired)
├── InvariantViolation      a promise was about to be broken (500, no result); its text names no object
├── Overloaded              shed before any work was done (503 with Retry-After)
├── InvalidRequest          the asker's request is malformed (400); the message is for the asker
├── Unauthenticated         no principal (401); the reason is for the log, never for the asker
├── StoreUnavailable        the store did not answer
├── CursorLost              the store cannot tell any more what changed since then: load anew
└── SourceError             a read failed; `reason` is what an answer may say of it
    ├── SourceTimeout
    ├── SourceUnavailable
    ├── SourceRefused       credentials, permissions, a query the source rejects
    ├── RateLimited         its own budget or ours is used up
    └── RecordMalformed     the record does not have what the mapping asks for

Foreign errors (asyncpg, aiohttp, jwt) are translated where they enter, and travel no further.
"""

from typing import ClassVar

from freshgate_service.domain import Reason


class FreshgateError(Exception):
    """Root of the service's errors."""


class ConfigRefused(FreshgateError): ...


class NotReady(FreshgateError): ...


class ConfigBehind(FreshgateError): ...


class EntitlementsExpired(FreshgateError): ...


class InvariantViolation(FreshgateError): ...


class Overloaded(FreshgateError): ...


class InvalidRequest(FreshgateError): ...


class Unauthenticated(FreshgateError): ...


class StoreUnavailable(FreshgateError): ...


class CursorLost(FreshgateError): ...


class SourceError(FreshgateError):
    reason: ClassVar[Reason] = Reason.SOURCE_UNAVAILABLE


class SourceTimeout(SourceError):
    reason = Reason.SOURCE_TIMEOUT


class SourceUnavailable(SourceError): ...


class SourceRefused(SourceError):
    reason = Reason.SOURCE_REFUSED


class RateLimited(SourceError):
    """`retry_after`: seconds that the source itself asked for."""

    reason = Reason.RATE_LIMITED

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class RecordMalformed(SourceError):
    reason = Reason.RECORD_MALFORMED
