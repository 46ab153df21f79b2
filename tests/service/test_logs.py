"""Logs: one JSON object a line, and never what somebody else wrote."""

import json
import logging
from collections.abc import Iterator
from datetime import datetime
from io import BytesIO
from typing import Any

import pytest
import structlog
from freshgate_serve import logs_in_memory

from freshgate_service import logs
from freshgate_service.errors import SourceRefused

SECRET = "postgres://u:secret@db"


@pytest.fixture
def stream() -> Iterator[BytesIO]:
    with logs_in_memory() as found:
        yield found


def lines(stream: BytesIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_one_json_object_with_module_event_level_and_time(stream: BytesIO):
    logs.get_logger("freshgate_service.refresh.loop").warning("listing_failed", source="tickets")
    (line,) = lines(stream)
    assert datetime.fromisoformat(line.pop("time")).utcoffset() is not None
    assert line == {"module": "refresh.loop", "event": "listing_failed", "level": "warning", "source": "tickets"}


def test_a_text_with_line_ends_stays_one_line(stream: BytesIO):
    logs.get_logger("x").info("event", name='a\n{"event": "forged"}\r\n\x1b[31m')
    assert len(stream.getvalue().splitlines()) == 1


def test_of_a_foreign_exception_the_type_and_places_are_logged_and_none_of_its_text(stream: BytesIO):
    try:
        int(SECRET)
    except ValueError:
        logs.get_logger("x").exception("failed")
    (line,) = lines(stream)
    assert (line["error"], "detail" in line) == ("ValueError", False)
    assert line["at"][-1].startswith(f"{__name__}:")
    assert b"secret" not in stream.getvalue()


def test_of_an_error_of_the_service_its_own_sentence_is_logged_too(stream: BytesIO):
    logs.get_logger("x").error("failed", exc_info=SourceRefused("the source refused the query"))
    assert lines(stream)[0]["detail"] == "the source refused the query"


def test_the_cause_of_an_error_is_not_logged(stream: BytesIO):
    error = SourceRefused("the source refused")
    error.__cause__ = OSError(SECRET)
    logs.get_logger("x").error("failed", exc_info=error)
    assert b"secret" not in stream.getvalue()


def test_an_object_that_slipped_into_a_line_shows_its_type_alone(stream: BytesIO):
    logs.get_logger("x").info("event", problem=ValueError(SECRET))
    assert lines(stream)[0]["problem"] == "ValueError"


@pytest.mark.parametrize("level", [logging.WARNING, logging.ERROR, logging.CRITICAL])
def test_a_library_that_complains_is_named_but_not_quoted(stream: BytesIO, level: int):
    logging.getLogger("aiohttp.server").log(level, "Error handling %s", SECRET, exc_info=ValueError(SECRET))
    (line,) = lines(stream)
    assert (line["module"], line["event"], line["error"]) == ("aiohttp.server", "library", "ValueError")
    assert b"secret" not in stream.getvalue()


def test_a_library_that_chats_is_not_heard(stream: BytesIO):
    logging.getLogger("mcp.server").info("session %s", SECRET)
    logging.getLogger("asyncio").debug("x")
    assert stream.getvalue() == b""


def test_lines_below_the_level_are_not_written():
    stream = BytesIO()
    try:
        logs.configure("warning", stream)
        logs.get_logger("x").info("chat")
        logs.Direct("audit").info("question", {})
        assert stream.getvalue() == b""
        logs.get_logger("x").warning("trouble")
        assert len(lines(stream)) == 1
    finally:
        structlog.reset_defaults()


def test_direct_lines_have_the_form_of_all_others(stream: BytesIO):
    logs.Direct("audit").info("question", {"ids": ["tickets/1"]})
    logs.get_logger("audit").info("question", ids=["tickets/1"])
    direct, other = ({**line, "time": ""} for line in lines(stream))
    assert direct == other


def test_a_logger_made_before_configuring_follows_it(stream: BytesIO):
    early = logs.get_logger("early")
    other = BytesIO()
    logs.configure("info", other)
    early.info("event")
    assert (stream.getvalue(), len(lines(other))) == (b"", 1)
