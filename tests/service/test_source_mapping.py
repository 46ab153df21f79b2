"""From raw records to what Freshgate knows of them."""

import math
import re
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshgate_crds import compiled
from freshgate_service.domain import Name, ObjectKey, Readers, Record
from freshgate_service.errors import ConfigRefused, RecordMalformed
from freshgate_service.sources.mapping import MAX_TITLE, compile_mapping
from freshgate_service.sources.text import clean

TICKET = {
    "id": 4711,
    "subject": "Refund for a broken lamp",
    "description": "The lamp arrived broken.",
    "comments": [{"text": "We are sorry."}, {"text": "A new one is on its way."}],
    "html_url": "https://desk.example/tickets/4711",
    "region": "emea",
    "account_id": 7,
    "assignee_email": "ana@corp.example",
    "team": "support",
}
MAPPING: dict[str, Any] = {
    "title": "subject",
    "body": ("description", "comments[].text"),
    "url": "html_url",
    "attributes": {"region": "region", "account": "account_id"},
    "readers": compiled.ReadersMapping(issuer="corp", users="[assignee_email]", groups="[team]"),
}


def mapped(raw: dict[str, Any], **changes: Any) -> Record:
    mapping = compiled.ObjectMapping(**MAPPING | changes)
    return compile_mapping(mapping, "tickets").record("4711", raw)


def ticket(**changes: Any) -> dict[str, Any]:
    return TICKET | changes


def without(*keys: str) -> dict[str, Any]:
    return {key: value for key, value in TICKET.items() if key not in keys}


def test_a_record_is_mapped_by_its_paths():
    record = mapped(TICKET)
    assert record.key == ObjectKey("tickets", "4711")
    assert record.title == "Refund for a broken lamp"
    assert record.body == "The lamp arrived broken.\nWe are sorry.\nA new one is on its way."
    assert record.url == "https://desk.example/tickets/4711"
    assert record.access.source == "tickets"
    assert record.access.attributes == {"region": "emea", "account": 7}
    assert record.access.readers == Readers(
        frozenset({Name("corp", "ana@corp.example")}), frozenset({Name("corp", "support")})
    )
    assert record.problems == ()


def test_a_mapping_of_title_and_body_alone_is_enough():
    record = mapped(TICKET, url=None, attributes={}, readers=None)
    assert (record.url, record.access.attributes, record.access.readers) == (None, {}, Readers())


# --- paths that lead nowhere -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "field", "path"),
    [
        ("subject", "title", "subject"),
        ("description", "body", "description"),
        ("comments", "body", "comments[].text"),
        ("html_url", "url", "html_url"),
        ("region", "attributes.region", "region"),
        ("account_id", "attributes.account", "account_id"),
    ],
)
def test_a_key_that_the_record_lacks_is_an_error_with_field_path_and_keys(key: str, field: str, path: str):
    with pytest.raises(RecordMalformed) as caught:
        mapped(without(key))
    text = str(caught.value)
    assert text.startswith(f"{field}: path `{path}`: the record has no key `{key}`; it has ")
    assert all(other in text for other in TICKET if other != key)
    assert not any(str(value) in text for value in ("4711", "lamp", "emea", "ana@corp", "desk.example"))


@pytest.mark.parametrize(
    ("path", "leads_nowhere"),
    [
        ("nothing", True),
        ("nothing.at.all", True),
        ("nothing[0]", True),
        ("nothing[*].a", True),
        ("nothing[?a == `1`]", True),
        ("nothing | [0]", True),
        ("[subject, nothing]", True),
        ("{a: nothing}", True),
        ("join(' ', [subject, nothing])", True),
        ("nothing || also_nothing", True),
        ("not_null(nothing, also_nothing)", True),
        ("subject && nothing", True),
        ("nothing || subject", False),
        ("nothing || 'none'", False),
        ("not_null(nothing, subject)", False),
        ("comments[?nothing].text || subject", False),
        ("sort_by(comments, &text)[0].text", False),
        ("comments[-1].text", False),
        ("comments[0:1].text", False),
        ("@.subject", False),
        ("'a title'", False),
    ],
)
def test_what_a_path_starts_from_must_be_in_the_record(path: str, leads_nowhere: bool):
    if leads_nowhere:
        with pytest.raises(RecordMalformed, match=r"the record has no key `(also_)?nothing`"):
            mapped(TICKET, title=path, body=(path,))
    else:
        assert mapped(TICKET, title=path).title


def test_a_record_with_neither_title_nor_body_is_an_error():
    with pytest.raises(RecordMalformed, match=r"title: path `subject` and all paths of body give no text"):
        mapped(ticket(subject=" \u200b", description=None, comments=[]))
    assert mapped(ticket(description=None, comments=[])).body == ""
    assert mapped(ticket(subject=None)).title == ""


def test_an_expression_that_is_none_is_refused_with_source_and_field():
    with pytest.raises(ConfigRefused, match=r"source tickets: object\.attributes\.region: `region\[`"):
        mapped(TICKET, attributes={"region": "region["})


@pytest.mark.parametrize(
    "path", ["join(',', account_id)", "sum(subject)", "max_by(comments, &missing)", "abs(subject)"]
)
def test_a_function_that_does_not_fit_is_an_error_without_the_values(path: str):
    with pytest.raises(RecordMalformed) as caught:
        mapped(TICKET, title=path)
    assert str(caught.value).startswith(f"title: path `{path}`: a function in it does not fit")
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_long_and_hostile_keys_are_shown_harmless():
    raw = {f"key{n:02}" + "\x1b[31m\u202e" + "x" * 500: n for n in range(100)}
    with pytest.raises(RecordMalformed) as caught:
        mapped(raw)
    assert len(str(caught.value)) < 20 * 64 + 200
    assert str(caught.value).isprintable()


# --- text --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        (" \n padded \n ", "padded"),
        (7, "7"),
        (18.4, "18.4"),
        (True, "true"),
        (None, ""),
        ([], ""),
        (["a", None, "", 2, ["b", [True]]], "a\n2\nb\ntrue"),
    ],
)
def test_pieces_of_a_body_are_joined_by_line_breaks(value: Any, text: str):
    assert mapped(ticket(description=value, comments=None)).body == text
    assert mapped(ticket(description="first", comments=[{"text": value}])).body == ("first\n" + text).strip()


@pytest.mark.parametrize("field", ["title", "body"])
def test_an_object_is_no_text_and_the_error_says_how_to_mend_it(field: str):
    with pytest.raises(RecordMalformed, match=f"{field}: path `comments`: it gives an object; name the fields"):
        mapped(TICKET, **{field: "comments" if field == "title" else ("comments",)})


def test_a_title_is_one_line_and_of_bounded_length():
    assert mapped(TICKET, title="[subject, region]").title == "Refund for a broken lamp emea"
    assert mapped(ticket(subject="a\r\n b\t\tc")).title == "a b c"
    long = mapped(ticket(subject="word " * 1000))
    assert len(long.title) <= MAX_TITLE
    assert long.problems == (f"title: path `subject`: cut at {MAX_TITLE} characters",)


@pytest.mark.parametrize(
    ("dirty", "text"),
    [
        ("a\x1b[31mred\x1b[0m", "ared"),
        ("\x1b]0;title\x07text \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "text link"),
        ("a\x9b31mb", "ab"),
        ("cut \x1b]0;short", "cut 0;short"),
        ("a\x00b\x08c\x7fd\x85e", "abcd\ne"),
        ("one\r\ntwo\rthree\u2028four\u2029five\x0bsix", "one\ntwo\nthree\nfour\nfive\nsix"),
        ("\u202eevil\u202c \u2066x\u2069 \u200fa", "evil x a"),
        ("zero\u200bwidth\ufeff\u2060\u00ad", "zerowidth"),
        ("hidden\U000e0041\U000e0042\U000e007f\U000e0100", "hidden"),
        ("a\ufe0f\ufe00\u200d\u200cb", "ab"),
        ("lone \ud800 surrogate", "lone \N{REPLACEMENT CHARACTER} surrogate"),
        (
            "👩\u200d💻 ❤\ufe0f 👩🏽\u200d🚀 1\ufe0f\u20e3 ❤\ufe0f\u200d🔥",
            "👩\u200d💻 ❤\ufe0f 👩🏽\u200d🚀 1\ufe0f\u20e3 ❤\ufe0f\u200d🔥",
        ),
        ("می\u200cخواهم क्\u200dष", "می\u200cخواهم क्\u200dष"),
        ("می\u200c\u200c\u200dخ", "می\u200cخ"),
        ("東京 — naïve\tÅ “x”", "東京 — naïve\tÅ “x”"),
    ],
)
def test_text_is_made_harmless_and_stays_readable_replay_32(dirty: str, text: str):
    assert clean(dirty) == text
    assert mapped(ticket(description=f"x{dirty}x", comments=None)).body == f"x{text}x"


HOSTILE = st.text(
    st.sampled_from(
        "a é東👩❤م\u200c\u200d\ufe0f\ufe00\u202e\u200b\x1b[]31m;\x07\\\r\n\x85\x9b\x00\ud800\U000e0041\u00ad"
    )
)


@given(HOSTILE | st.text())
def test_cleaned_text_holds_nothing_that_steers_or_hides(text: str):
    cleaned = clean(text)
    kept = {
        char
        for char in cleaned
        if unicodedata.category(char) in {"Cc", "Cs"} or unicodedata.bidirectional(char) in _STEERS
    }
    assert kept <= {"\n", "\t"}
    assert not re.search("[\u200b\u2060\ufeff\u00ad\U000e0000-\U000e0fff]|[\ufe00-\ufe0f\u200c\u200d]{3}", cleaned)
    assert clean(cleaned) == cleaned


_STEERS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


# --- links -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["https://a.example/x?y=1#z", "http://a.example", "https://[2001:db8::1]:8443/", "https://münchen.example/ä"]
)
def test_a_web_link_is_kept_as_it_is(url: str):
    assert mapped(ticket(html_url=url)).url == url


@pytest.mark.parametrize("url", [None, ""])
def test_no_link_is_no_problem(url: str | None):
    record = mapped(ticket(html_url=url))
    assert (record.url, record.problems) == (None, ())


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "data:text/html,x",
        "ftp://a.example/",
        "/tickets/1",
        "//a.example/",
        "https://ana:pw@a.example/",
        "https://ana@a.example/",
        "https://@a.example/",
        "https:///path",
        "https://a.example/ x",
        "https://a.example/\n",
        "https://a.example\\@b.example",
        "https://a.example/\u202e",
        'https://a.example/"><script>',
        "https://[not-an-address/",
        "https://a.example/" + "x" * 3000,
        7,
        ["https://a.example/"],
    ],
)
def test_what_is_no_web_link_without_credentials_is_left_out_and_reported(url: Any):
    record = mapped(ticket(html_url=url))
    assert record.url is None
    assert record.problems == ("url: path `html_url`: left out, as it is no http or https link without credentials",)


# --- attributes and readers --------------------------------------------------------------------------------------


@pytest.mark.promise("ENT-6")
@pytest.mark.parametrize(
    "value", ["emea", "EMEA ", "", 7, 1.5, True, None, ["a", 1, None], {"a": [1]}, "e\u0301\u200b"]
)
def test_an_attribute_is_the_value_itself_and_null_is_unknown(value: Any):
    record = mapped(ticket(region=value))
    found = record.access.attributes["region"]
    assert found == value
    assert type(found) is type(value)
    assert record.problems == ()


@pytest.mark.promise("ENT-6")
@pytest.mark.parametrize("value", ["a\0", "\ud800", math.nan, math.inf, ["a", "b\0"], {"a\0": 1}, {"a": [-math.inf]}])
def test_an_attribute_that_cannot_be_kept_as_it_is_becomes_unknown_and_not_something_similar(value: Any):
    record = mapped(ticket(region=value))
    assert record.access.attributes["region"] is None
    assert record.problems[0].startswith("attributes.region: path `region`: taken as unknown")


@pytest.mark.promise("ENT-6")
@pytest.mark.parametrize(
    ("changes", "reported"),
    [
        ({"users": "nobody_knows"}, "readers.users: path `nobody_knows`: the record has no key `nobody_knows`"),
        ({"groups": "nothing"}, "readers.groups: path `nothing`: the record has no key `nothing`"),
        ({"users": "account_id"}, "readers.users: path `account_id`: gives something else than names"),
        ({"users": "comments"}, "readers.users: path `comments`: gives something else than names"),
        ({"groups": "[team, account_id]"}, "readers.groups: path `[team, account_id]`: gives something else"),
        ({"groups": "join('', account_id)"}, "readers.groups: path `join('', account_id)`: a function in it"),
    ],
)
def test_readers_that_are_absent_or_wrongly_typed_name_nobody_at_all_and_are_reported_replay_6(
    changes: dict[str, str], reported: str
):
    paths = {"users": "[assignee_email]", "groups": "[team]"} | changes
    record = mapped(TICKET, readers=compiled.ReadersMapping(issuer="corp", **paths))
    assert record.access.readers == Readers()
    [problem] = record.problems
    assert problem.startswith(reported)
    assert problem.endswith("the record names no readers")


@pytest.mark.promise("ENT-6")
@pytest.mark.parametrize("value", [None, "", [], [None], [""]])
def test_a_record_that_is_assigned_to_nobody_names_nobody_and_that_is_no_problem(value: Any):
    readers = compiled.ReadersMapping(issuer="corp", users="assignee_email")
    record = mapped(ticket(assignee_email=value), readers=readers)
    assert (record.access.readers, record.problems) == (Readers(), ())


def test_names_are_exact_and_qualified_by_who_asserts_them():
    names = ["Ana", "ana", "ana ", "e\u0301", "\u00e9", "a,b"]
    readers = compiled.ReadersMapping(issuer="corp", users="assignee_email")
    record = mapped(ticket(assignee_email=names), readers=readers)
    assert record.access.readers.users == {Name("corp", name) for name in names}


# --- hashes ------------------------------------------------------------------------------------------------------


@pytest.mark.promise("FRE-5")
@pytest.mark.parametrize(
    "changes", [{"region": "apac"}, {"account_id": 8}, {"assignee_email": "bo"}, {"team": "sales"}, {"team": None}]
)
def test_what_decides_entitlement_changes_the_access_hash_alone_replay_5(changes: dict[str, Any]):
    before, after = mapped(TICKET), mapped(ticket(**changes))
    assert after.content_hash == before.content_hash
    assert after.access_hash != before.access_hash


@pytest.mark.promise("FRE-5")
@pytest.mark.parametrize(
    "changes", [{"subject": "x"}, {"description": "x"}, {"html_url": "https://b.example"}, {"html_url": None}]
)
def test_what_is_shown_changes_the_content_hash_alone(changes: dict[str, Any]):
    before, after = mapped(TICKET), mapped(ticket(**changes))
    assert after.content_hash != before.content_hash
    assert after.access_hash == before.access_hash


@pytest.mark.promise("FRE-4")
def test_nothing_else_changes_a_hash():
    again = dict(reversed(ticket(id=1, updated_at="now").items()))
    assert mapped(again) == mapped(TICKET)


def test_hashes_tell_types_and_fields_apart():
    values = [1, 1.0, "1", True, [1], None, "null", {"a": 1}]
    assert len({mapped(ticket(region=value)).access_hash for value in values}) == len(values)
    swapped = mapped(TICKET, readers=compiled.ReadersMapping(issuer="corp", users="[team]", groups="[assignee_email]"))
    assert swapped.access_hash != mapped(TICKET).access_hash
    moved = mapped(ticket(subject="a", description="b c"), body=("description",))
    assert moved.content_hash != mapped(ticket(subject="a b", description="c"), body=("description",)).content_hash


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.fixed_dictionaries(dict.fromkeys(TICKET, JSON)))
def test_any_json_gives_a_record_or_a_malformed_one_and_always_the_same(raw: dict[str, Any]):
    try:
        record = mapped(raw)
    except RecordMalformed:
        return
    assert mapped(raw) == record
    assert record.title or record.body
    (record.title + record.body + (record.url or "")).encode()


def test_a_record_nested_without_end_is_malformed():
    nested: Any = []
    for _ in range(5000):
        nested = [nested]
    for changes in ({"region": nested}, {"description": nested}):
        with pytest.raises(RecordMalformed, match="nested too deeply"):
            mapped(ticket(**changes))
