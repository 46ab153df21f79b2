import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from freshgate_crds import durations
from freshgate_crds.durations import Duration
from freshgate_crds.errors import DurationMalformed, ManifestError

ADAPTER = TypeAdapter(Duration)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("5m", 300), ("1h30m", 5400), ("7d", 604_800), ("1d2h3m4s", 93_784), ("0s", 0), ("90m", 5400)],
)
def test_a_duration_is_so_many_seconds(text, seconds):
    assert durations.parse(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "5", "5 m", "m", "1m1h", "1s1s", "1.5h", "-1s", "1w", "100ms", "5M", "1m\n", "٥m"]
)
def test_what_is_no_duration_is_refused_with_the_mend(text):
    with pytest.raises(DurationMalformed, match="write it like 30s, 5m, 1h30m or 7d"):
        durations.parse(text)


@pytest.mark.parametrize("value", [5, 5.0, None, True, ["5m"]])
def test_a_number_without_a_unit_is_no_duration(value):
    with pytest.raises(ManifestError):
        durations.parse(value)


@given(st.integers(min_value=0, max_value=99_999 * 86_400))
def test_whole_seconds_survive_being_written_and_read(seconds):
    text = durations.render(seconds)
    assert durations.parse(text) == seconds
    assert re.fullmatch(durations.PATTERN, text)


@given(st.text(alphabet="0123456789dhms", max_size=30))
def test_what_is_parsed_is_what_the_pattern_of_the_cluster_lets_through(text):
    try:
        durations.parse(text)
    except DurationMalformed:
        assert text == "" or not re.fullmatch(durations.PATTERN, text)
    else:
        assert re.fullmatch(durations.PATTERN, text)
        assert len(text) <= durations.LONGEST


def test_a_model_holds_seconds_and_gives_text():
    assert ADAPTER.validate_python("1h30m") == 5400.0
    assert ADAPTER.dump_python(5400.0) == "1h30m"


def test_a_model_reports_a_malformed_duration_as_its_field_s_error():
    with pytest.raises(ValidationError, match="'soon' is no duration"):
        ADAPTER.validate_python("soon")


def test_the_longest_duration_is_within_what_a_server_can_count():
    assert durations.parse("99999d99999h99999m99999s") * 10**9 < 2**63
