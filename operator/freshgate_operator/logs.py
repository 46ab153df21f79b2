"""Logs: one JSON object a line on stdout.

A line holds names of resources and the operator's own sentences, never what a Secret or a policy holds. So the text of
a foreign error is not logged, since libraries like to quote what they were given; its type and where it came from are.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import cast

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

from freshgate_operator.errors import OperatorError

_FRAMES = 12


def get_logger(name: str) -> FilteringBoundLogger:
    return cast("FilteringBoundLogger", structlog.get_logger(module=name.removeprefix("freshgate_operator.")))


def configure(level: str = "info") -> None:
    """Sends the operator's lines, and those of its libraries from warnings on, to stdout."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            _stamp,
            _describe_exception,
            structlog.processors.JSONRenderer(serializer=_dumps),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stdout),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers[:] = [ForeignLines()]
    root.setLevel(logging.WARNING)


def _stamp(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    event["time"] = datetime.now(UTC).isoformat()
    return event


def _describe_exception(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    error = event.pop("exc_info", None)
    if isinstance(error, BaseException):
        event["error"] = type(error).__qualname__
        if isinstance(error, OperatorError):
            event["detail"] = str(error)
        event["at"] = _places(error)
    return event


def _places(error: BaseException) -> list[str]:
    """Module and line of each frame, innermost last; no source text and no values."""
    lines = []
    trace = error.__traceback__
    while trace is not None:
        lines.append(f"{trace.tb_frame.f_globals.get('__name__', '?')}:{trace.tb_lineno}")
        trace = trace.tb_next
    return lines[-_FRAMES:]


class ForeignLines(logging.Handler):
    """Passes on that a library complained, and where; what it said may quote an object."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        place = f"{record.module}:{record.lineno}"
        structlog.get_logger(module=record.name).log(record.levelno, "library", place=place, exc_info=error)


def _dumps(event: EventDict, **_options: object) -> str:
    return json.dumps(event, default=_name_of_type, ensure_ascii=False)


def _name_of_type(value: object) -> str:
    """For what was logged by mistake: an object's own text could say anything."""
    return type(value).__qualname__
