"""Makes a record's text harmless to show, without changing what a reader sees of it.

Records are written by anybody. What steers a terminal, hides text from people but not from a model, or makes text run
backwards is taken out here, once, before anything else sees the record.
"""

import re
from unicodedata import category

# It begins with one class of characters, and so does _UNWANTED: that is what the engine scans fast.
_ESCAPE = re.compile(
    r"[\x1b\x90\x98\x9b\x9d-\x9f](?:"
    r"(?:(?<=\x1b)\[|(?<=\x9b))[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|(?:(?<=\x1b)\]|(?<=\x9d))[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"  # OSC: titles, links
    r"|(?:(?<=\x1b)[PX^_]|(?<=[\x90\x98\x9e\x9f]))[^\x1b\x9c]*(?:\x1b\\|\x9c)"  # DCS, SOS, PM, APC
    r"|(?<=\x1b)[ -/]*[0-~])"
)

_BREAKS = "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_BROKEN = "\ud800-\udfff\ufffe\uffff"
_SELECTORS = "\ufe0e\ufe0f"
_JOINERS = "\u200c\u200d\u180b-\u180d\u180f"
_INVISIBLE = (
    "\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f"  # controls
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180e\u200b\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0\ufff0-\ufffc"
    "\ufe00-\ufe0d\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"  # selectors, tags
)
_UNWANTED = re.compile(f"[{_BREAKS}{_BROKEN}{_SELECTORS}{_JOINERS}{_INVISIBLE}]")
_IS_BROKEN = re.compile(f"[{_BROKEN}]")
_IS_JOINER = re.compile(f"[{_JOINERS}]")
_SHAPED = re.compile("[\u0600-\u109f\u1780-\u18af]")
"""Scripts whose letters need joiners to be written right: Arabic, those of India, Khmer, Mongolian."""

_ASCII = {code: "\n" if chr(code) in _BREAKS else None for code in (*range(32), 127) if chr(code) not in "\t\n"}


def clean(text: str) -> str:
    """Without escape sequences, controls, and what changes direction or is invisible; line breaks are \\n."""
    text = text.replace("\r\n", "\n")
    if text.isascii():
        return (_ESCAPE.sub("", text) if "\x1b" in text else text).translate(_ASCII)
    return _UNWANTED.sub(_replacement, _ESCAPE.sub("", text))


def _replacement(match: re.Match[str]) -> str:
    char, text, start = match[0], match.string, match.start()
    if char in _BREAKS:
        return "\n"
    if _IS_BROKEN.match(char):
        return "\N{REPLACEMENT CHARACTER}"
    return char if _is_needed(char, text[start - 1 : start], text[start + 1 : start + 2]) else ""


def _is_needed(char: str, before: str, after: str) -> bool:
    """Emoji and some scripts are not written right without a few characters that are invisible by themselves."""
    if char in _SELECTORS:
        return _is_symbol(before) or before in "#*0123456789"
    if char == "\u200d" and _is_symbol(after):
        return _is_symbol(before) or before in _SELECTORS
    return bool(_IS_JOINER.match(char) and _SHAPED.match(before))


def _is_symbol(char: str) -> bool:
    return bool(char) and category(char) in {"So", "Sm", "Sk"}
