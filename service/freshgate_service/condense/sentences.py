"""Cuts a text into sentences and words, in any script, as spans of the text: nothing is changed or made up.

A word is what stands between spaces, or two characters of a script that writes none. It measures length only; what
counts as a term when scores are made is another matter.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

LONGEST_WORD = 50
"""What runs on for longer (a token, a base64 blob) counts, and is cut, as several words."""

UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Myanmar, Khmer
    "\u2e80-\u312f\u31a0-\u31bf\u31f0-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01-\uff9f\U00020000-\U0003ffff"
)
_WORD = re.compile(rf"[{UNSPACED}]{{1,2}}|[^\s{UNSPACED}]{{1,{LONGEST_WORD}}}")

_CLOSING = "\"'”’»›)\\]）」』】》"
_END = re.compile(
    rf"[.!?…‥؟۔।॥։።][.!?…]*[{_CLOSING}]*(?=\s)"  # a space must follow
    rf"|[。！？｡][。！？｡…]*[{_CLOSING}]*"
    r"|\n+"
)
_ABBREVIATION = re.compile(
    r"(?<![^\s(\[\"'“‘])"
    r"(?:[^\W\d_]|[a-z](?:\.[a-z])+|mr|mrs|ms|dr|prof|st|sr|jr|vs|etc|inc|ltd|co|corp|nr|vol|fig|approx|ca|cf|al"
    r"|dept|est|jan|feb|mar|apr|jun|jul|aug|sep|sept|oct|nov|dec|bzw|usw|bspw|evtl|ggf|str|tel)\.$",
    re.IGNORECASE,
)
_LIST_MARKER = re.compile(r"\s*\(?\d{1,3}\.")
_BEFORE_A_NUMBER = re.compile(r"(?<!\w)(?:no|nos|art|sec|ch|eq|pp?|§)\.$", re.IGNORECASE)
_LONGEST_ABBREVIATION = 12
_WRAPPED = 60
"""Characters from which a line that ends in no full stop may go on in the next one."""


class Span(NamedTuple):
    start: int
    end: int


def sentences(text: str) -> Iterator[Span]:
    """In order, without surrounding space; every character that is no space is in exactly one."""
    start = 0
    for match in _END.finditer(text):
        if _ends_here(text, start, match):
            yield from _trimmed(text, start, match.end())
            start = match.end()
    yield from _trimmed(text, start, len(text))


def words(text: str, span: Span) -> Iterator[Span]:
    return (Span(*match.span()) for match in _WORD.finditer(text, *span))


def _trimmed(text: str, start: int, end: int) -> Iterator[Span]:
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    if start < end:
        yield Span(start, end)


def _ends_here(text: str, start: int, match: re.Match[str]) -> bool:
    following = text[match.end() : match.end() + 2].lstrip()[:1]
    if match[0] == "\n":
        line = max(start, text.rfind("\n", start, match.start()) + 1)
        return match.start() - line < _WRAPPED or not following.islower()
    if not match[0].startswith("."):
        return True
    near = max(start, match.end() - _LONGEST_ABBREVIATION), match.end()
    if following.isdigit() and _BEFORE_A_NUMBER.search(text, *near):
        return False
    if following.islower() or _ABBREVIATION.search(text, *near):
        return False
    return not _LIST_MARKER.fullmatch(text, start, match.end())
