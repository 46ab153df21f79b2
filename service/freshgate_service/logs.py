"""Logs: one JSON object a line on stdout.

What may stand in a line is decided where it is written: names of sources, policies and settings, and the service's
own sentences. Never a secret, a token, a query or a record's text. So the text of a foreign exception is not logged
at all, since drivers like to quote the DSN, the statement or the row; its type and the place it came from are.
"""

import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import BinaryIO, cast

import orjson
import structlog
from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

from freshgate_service.errors import FreshgateError


def get_logger(name: str) -> FilteringBoundLogger:
    return cast("FilteringBoundLogger", structlog.get_logger(module=name.removeprefix("freshgate_service.")))


def configure(level: str = "info", stream: BinaryIO | None = None) -> None:
    """Sends the service's lines, and those of its libraries from warnings on, to `stream`, or else to stdout."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            stamp,
            describe_exception,
            structlog.processors.JSONRenderer(serializer=_dumps),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.BytesLoggerFactory(stream or sys.stdout.buffer),
        # Loggers made before this call must follow it; what logs on the hot path binds its own.
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers[:] = [ForeignLines()]
    root.setLevel(logging.WARNING)


class Direct:
    """Lines of one module at level info, in the same form, for what is logged with every query: nothing is bound,
    and nothing stands between. It follows what was configured when it was made."""

    def __init__(self, name: str) -> None:
        self._module = name
        self.enabled: bool = get_logger(name).bind().is_enabled_for(logging.INFO)
        self._write = structlog.get_config()["logger_factory"]().msg

    def info(self, event: str, fields: Mapping[str, object]) -> None:
        if self.enabled:
            line = {"module": self._module, "event": event, **fields, "level": "info", "time": datetime.now(UTC)}
            self._write(_dumps(line))


def stamp(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    event["time"] = datetime.now(UTC)
    return event


def describe_exception(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Turns `exc_info` into the error's type, our own sentence where the error is ours, and the lines it passed."""
    found = event.pop("exc_info", None)
    error = sys.exc_info()[1] if found is True else found
    if isinstance(error, BaseException):
        event["error"] = type(error).__qualname__
        if isinstance(error, FreshgateError):
            event["detail"] = str(error)
        event["at"] = places(error)
    return event


def places(error: BaseException) -> list[str]:
    """Module and line of each frame, innermost last; no source text and no values."""
    lines = []
    trace = error.__traceback__
    while trace is not None:
        lines.append(f"{trace.tb_frame.f_globals.get('__name__', '?')}:{trace.tb_lineno}")
        trace = trace.tb_next
    return lines[-12:]


class ForeignLines(logging.Handler):
    """Passes on that a library complained, and where; what it said may quote a request, a record or a secret."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        place = f"{record.module}:{record.lineno}"
        structlog.get_logger(module=record.name).log(record.levelno, "library", place=place, exc_info=error)


def _dumps(event: EventDict, **_options: object) -> bytes:
    return orjson.dumps(event, default=_name_of_type, option=orjson.OPT_UTC_Z)


def _name_of_type(value: object) -> str:
    """For what was logged by mistake: an object's own text could say anything."""
    return type(value).__qualname__
