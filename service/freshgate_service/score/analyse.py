"""Text to terms: the one place that decides which spellings are the same word, for records and queries alike.

It must not know fields, weights or entitlements, and what it does with a text must depend on that text and the language
alone. Texts are untrusted: cost is linear in their length, whatever they hold.
"""

import re
import unicodedata
from itertools import accumulate

import Stemmer

from freshgate_service.errors import ConfigRefused
from freshgate_service.score.stopwords import STOP_WORDS

MAX_WORD = 64
"""Characters of a word that count. It keeps the stemmers' and the vocabulary's share of a hostile record small."""

REMEMBERED_WORDS = 65_536

MAX_MARKS = 30
"""Combining marks in a row that count, as in Unicode's stream-safe text: normalising takes quadratic time in them."""

_SPACELESS = (  # scripts written without spaces between words
    (0x2E80, 0x2FDF), (0x3005, 0x3007), (0x3021, 0x3029), (0x3038, 0x303B), (0x3400, 0x4DBF), (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),  # Han, but for the planes above
    (0x3041, 0x309F), (0x30A1, 0x30FF), (0x31F0, 0x31FF),  # Hiragana, Katakana
    (0x0E01, 0x0E7F), (0x0E80, 0x0EFF),  # Thai, Lao
    (0x1780, 0x17FF),  # Khmer
    (0x1000, 0x109F), (0xA9E0, 0xA9FF), (0xAA60, 0xAA7F),  # Myanmar
)  # fmt: skip


def _kinds() -> str:
    """The kind of each character of the first two planes, which hold all but rare ideographs, at its code point: `w` in
    a word, `s` in a word of a spaceless script, `m` a mark, `f` half of a flag, `e` a symbol, emoji among them, else a
    space."""
    of_category = {"L": "w", "N": "w", "M": "m"}
    categories = [unicodedata.category(chr(code)) for code in range(0x20000)]
    kinds = ["e" if category == "So" else of_category.get(category[0], " ") for category in categories]
    for first, last in _SPACELESS:
        kinds[first : last + 1] = ["s" if kind == "w" else kind for kind in kinds[first : last + 1]]
    kinds[0x1F1E6:0x1F200] = "f" * 26
    kinds[0xFF9E:0xFFA0] = "mm"  # letters, but normalising turns them into marks
    return "".join(kinds)


# A text is read by the kinds of its characters: a regular expression over seven letters is fast whatever the script.
_KINDS = _kinds()
_UNIT = "[s\U00020000-\U0003fffd]m*"
_UNITS = re.compile(_UNIT)
_TOKENS = re.compile(f"(?P<run>(?:{_UNIT})+)|w[wm]*|ff|[ef]")
_WORDS_ONLY = re.compile("[w ]*")
_WORDS = re.compile(r"[^\W_]+")
_EXCESS_MARKS = re.compile(f"(?<=m{{{MAX_MARKS}}})m+")

_TRADE_MARKS = re.compile("[\u2120\u2122]")  # NFKC would glue their letters to the name before them
_IGNORED = re.compile(
    "[\u00ad\u034f\u200d-\u200f\u202a-\u202e\u2060-\u206f\ufeff"  # invisible; a zero-width space separates
    "\ufe00-\ufe0f\U000e0000-\U000e01ef"  # variation selectors and tags: how an emoji looks
    "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"  # Hebrew points
    "\u0640\u064b-\u0652\u0670]"  # Arabic vowel signs and the stretching tatweel
)

_LATIN = re.compile("[\u00df-\u02af\u0300-\u036f\u1e00-\u1eff]")  # beyond ASCII, after case folding
_LATIN_MARKS = re.compile("[\u0300-\u036f]+")
_LATIN_LETTERS = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ħ": "h", "ŧ": "t", "ı": "i", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe"}
)


class Analyser:
    """`language` names a snowball stemmer. Words of other languages pass it nearly untouched: found as written."""

    def __init__(self, language: str) -> None:
        known = Stemmer.algorithms()
        if language not in known:
            raise ConfigRefused(f"ranking.language: no stemmer is called {language!r}; name one of {', '.join(known)}")
        self._stems = _Stems(language)
        self._stop_words = STOP_WORDS.get(language, frozenset())

    def terms(self, text: str) -> list[str]:
        """All terms of a record's field, in the order of the text."""
        return list(map(self._stems.__getitem__, _words(text)))

    def query_terms(self, text: str) -> tuple[str, ...]:
        """The distinct terms of a query, in the order of the text. Stop words count only where there is nothing else:
        they would fill the cut with records that have nothing to do with the question, each worth a refresh."""
        words = _words(text)
        telling = [word for word in words if word not in self._stop_words]
        return tuple(dict.fromkeys(map(self._stems.__getitem__, telling or words)))


class _Stems(dict[str, str]):
    """The stems of the words that were met lately: a look-up costs a fifth of what stemming does."""

    def __init__(self, language: str) -> None:
        super().__init__()
        self._stemmer = Stemmer.Stemmer(language, 0)

    def __missing__(self, word: str) -> str:
        if len(self) >= REMEMBERED_WORDS:
            self.clear()
        stem = str(self._stemmer.stemWord(word))
        stem = self[word] = self._unaccented(stem) if _LATIN.search(stem) else stem
        return stem

    def _unaccented(self, stem: str) -> str:
        """A Latin stem without its accents, since people leave them out when they ask. The stemmer has had its use of
        them by then; it reads the bare word once more, to end where the same word ends when it is typed bare."""
        bare = _LATIN_MARKS.sub("", unicodedata.normalize("NFD", stem)).translate(_LATIN_LETTERS)
        return str(self._stemmer.stemWord(bare)) if bare.isascii() else stem


def _words(text: str) -> list[str]:
    if text.isascii():
        return _plain(text.lower())
    normal = _normalised(text)
    kinds = normal.translate(_KINDS)
    return _plain(normal) if _WORDS_ONLY.fullmatch(kinds) else _mixed(normal, kinds)


def _plain(text: str) -> list[str]:
    """What _mixed gives where there is nothing but words, at half the cost."""
    return [word[:MAX_WORD] for word in _WORDS.findall(text)]


def _mixed(text: str, kinds: str) -> list[str]:
    words = []
    for token in _TOKENS.finditer(kinds):
        start, end = token.span()
        if token.lastgroup == "run":
            words += _bigrams(text, list(accumulate(map(len, _UNITS.findall(kinds, start, end)), initial=start)))
        else:
            words.append(text[start:end][:MAX_WORD])
    return words


def _bigrams(text: str, borders: list[int]) -> list[str]:
    """Each letter, with its marks, and the next; one that stands alone by itself."""
    pairs = zip(borders, borders[2:], strict=False)
    return [text[start:end] for start, end in pairs] or [text[borders[0] : borders[1]]]


def _normalised(text: str) -> str:
    folded = unicodedata.normalize("NFKC", _TRADE_MARKS.sub(" ", _stream_safe(text))).casefold()
    return _IGNORED.sub("", unicodedata.normalize("NFKC", folded))


def _stream_safe(text: str) -> str:
    start, kept = 0, []
    for excess in _EXCESS_MARKS.finditer(text.translate(_KINDS)):
        kept.append(text[start : excess.start()])
        start = excess.end()
    return "".join([*kept, text[start:]])
