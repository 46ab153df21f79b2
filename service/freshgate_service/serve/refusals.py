"""What is said where there is no answer: one table and one shape, for REST and MCP alike.

A refusal is a fixed sentence. The only text from elsewhere in it is InvalidRequest's, which is about the asker's own
request; what any other error says is for the log, or for nobody.
"""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import NamedTuple

import orjson
from aiohttp import web
from pydantic import TypeAdapter
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from freshgate_service.errors import (
    ConfigBehind,
    EntitlementsExpired,
    InvalidRequest,
    InvariantViolation,
    NotReady,
    Overloaded,
    StoreUnavailable,
    Unauthenticated,
)


class ErrorAnswer(TypedDict):
    code: str
    message: str


class ErrorsAnswer(TypedDict):
    """Why there is no answer."""

    error: ErrorAnswer


ERRORS_ANSWER: TypeAdapter[ErrorsAnswer] = TypeAdapter(ErrorsAnswer)


class Refusal(NamedTuple):
    status: int
    code: str
    message: str
    headers: Mapping[str, str] = {}

    @property
    def body(self) -> bytes:
        answer: ErrorsAnswer = {"error": {"code": self.code, "message": self.message}}
        return orjson.dumps(answer)


_SOON = {"Retry-After": "1"}

INTERNAL = Refusal(500, "internal", "Something went wrong here; it has been logged.")
NOT_FOUND = Refusal(404, "not_found", "There is no such thing, or none that you may see.")
UNAUTHENTICATED = Refusal(401, "unauthenticated", "A valid bearer token is needed.", {"WWW-Authenticate": "Bearer"})

_OURS: Mapping[type[Exception], Refusal] = {
    ConfigBehind: Refusal(503, "config_behind", "This instance does not have the newest configuration yet.", _SOON),
    EntitlementsExpired: Refusal(503, "entitlements_expired", "Nobody has vouched for the entitlements lately.", _SOON),
    NotReady: Refusal(503, "not_ready", "This instance has not loaded everything yet.", _SOON),
    StoreUnavailable: Refusal(503, "store_unavailable", "The store does not answer.", _SOON),
    Overloaded: Refusal(503, "overloaded", "Too many requests are under way; try again soon.", _SOON),
    InvariantViolation: Refusal(500, "invariant_violated", "The answer broke a promise of this service: withheld."),
    Unauthenticated: UNAUTHENTICATED,
}

_HTTP: Mapping[int, Refusal] = {
    refusal.status: refusal
    for refusal in (
        Refusal(400, "invalid_request", "The request is malformed."),
        NOT_FOUND,
        Refusal(405, "method_not_allowed", "The path does not take this method."),
        Refusal(406, "not_acceptable", "Answers are JSON; the Accept header must allow it."),
        Refusal(408, "request_timeout", "The body did not arrive in time."),
        Refusal(413, "body_too_large", "The body is larger than this service reads."),
        Refusal(415, "unsupported_media_type", "Bodies are JSON, and not compressed."),
        Refusal(417, "expectation_failed", "The Expect header asks for what this service does not do."),
        Refusal(421, "misdirected_request", "This service does not answer under that host or origin."),
    )
}


def refusal_of(error: BaseException) -> Refusal:
    if isinstance(error, InvalidRequest):
        return Refusal(400, "invalid_request", str(error))
    if isinstance(error, web.HTTPException):
        return http_refusal(error.status, error.headers)
    return next((refusal for kind, refusal in _OURS.items() if isinstance(error, kind)), INTERNAL)


def http_refusal(status: int, headers: Mapping[str, str] | None = None) -> Refusal:
    """The refusal for a status that the HTTP or MCP library chose."""
    allow = {"Allow": headers["Allow"]} if headers and "Allow" in headers else {}
    refusal = _HTTP.get(status) or Refusal(status, f"http_{status}", f"{HTTPStatus(status).phrase}.")
    return refusal._replace(headers=allow) if allow else refusal


def codes(statuses: Iterable[int]) -> dict[int, list[str]]:
    """For documentation: the codes that each status comes with."""
    known = [INTERNAL, *_OURS.values(), *_HTTP.values()]
    return {status: sorted({refusal.code for refusal in known if refusal.status == status}) for status in statuses}
