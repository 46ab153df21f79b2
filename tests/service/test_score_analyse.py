"""Which spellings are one word."""

import time
import unicodedata
from typing import get_args

import pytest
from freshgate_documents import ENOUGH
from hypothesis import given
from hypothesis import strategies as st

from freshgate_crds.v1alpha1.workspaces import Language
from freshgate_service.errors import ConfigRefused
from freshgate_service.score import Analyser
from freshgate_service.score.analyse import MAX_MARKS, MAX_WORD

ENGLISH = Analyser("english")


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Refunds for late invoices", ["refund", "for", "late", "invoic"]),
        ("TCK-4711_b, v4.5", ["tck", "4711", "b", "v4", "5"]),
        ("ＦＵＬＬ ｗｉｄｔｈ ﬁne x²", ["full", "width", "fine", "x2"]),
        ("STRASSE Straße", ["strass", "strass"]),
        ("Freshgate™ Ⓡ", ["freshgat", "r"]),
        ("re\u00adfund re\u200bfund", ["refund", "re", "fund"]),
        ("résumés Müller Łódź søren", ["resum", "muller", "lodz", "soren"]),
        ("東京都", ["東京", "京都"]),
        ("花", ["花"]),
        ("花名 is 東京のHQ", ["花名", "is", "東京", "京の", "hq"]),
        ("カタカナ・ﾊﾝｶｸ", ["カタ", "タカ", "カナ", "ハン", "ンカ", "カク"]),
        ("ที่นี่", ["ที่นี่"]),
        ("𠀀𠀁𠀂", ["𠀀𠀁", "𠀁𠀂"]),
        ("Привет МИР", ["привет", "мир"]),
        ("مُحَمَّد محمّد", ["محمد", "محمد"]),
        ("שָׁלוֹם", ["שלום"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("ship it 🚀👍🏽", ["ship", "it", "🚀", "👍"]),
        ("❤️❤", ["❤", "❤"]),
        ("👩‍👧 🇩🇪🇫🇷", ["👩", "👧", "🇩🇪", "🇫🇷"]),
        ("1️⃣", ["1⃣"]),
        (" \t…!?— ", []),
        ("", []),
    ],
)
def test_text_becomes_terms(text, terms):
    assert ENGLISH.terms(text) == terms


@pytest.mark.parametrize("language", get_args(Language))
def test_every_language_that_a_workspace_may_name_has_a_stemmer(language):
    assert Analyser(language).terms("4711") == ["4711"]


def test_an_unknown_language_is_refused_and_the_known_ones_are_named():
    with pytest.raises(
        ConfigRefused, match=r"ranking\.language: no stemmer is called 'klingon'; name one of .*english"
    ):
        Analyser("klingon")


def test_the_language_of_the_workspace_stems_its_words():
    assert Analyser("german").terms("Rechnungen")[0] == Analyser("german").terms("Rechnung")[0]
    assert ENGLISH.terms("Rechnungen")[0] != ENGLISH.terms("Rechnung")[0]


def test_accents_are_read_by_the_stemmer_before_they_are_dropped():
    french = Analyser("french")
    assert french.terms("fatiguée") == french.terms("fatigués") == french.terms("fatigue")


def test_query_terms_are_distinct_and_in_the_order_of_the_text():
    assert ENGLISH.query_terms("late refunds, late REFUND fee") == ("late", "refund", "fee")


def test_stop_words_count_in_a_query_only_where_there_is_nothing_else():
    assert ENGLISH.query_terms("what is the refund policy") == ("refund", "polici")
    assert ENGLISH.query_terms("Who are we?") == ("who", "are", "we")
    assert "the" in ENGLISH.terms("The Who"), "records keep theirs, so that they can be asked for"


@ENOUGH
@given(st.text())
def test_the_normal_form_of_a_text_makes_no_difference(text):
    assert ENGLISH.terms(unicodedata.normalize("NFD", text)) == ENGLISH.terms(unicodedata.normalize("NFC", text))


@ENOUGH
@given(st.text(st.characters(codec="ascii")))
def test_ascii_reads_the_same_beside_other_scripts(text):
    assert ENGLISH.terms(f"{text} ж") == [*ENGLISH.terms(text), "ж"]
    assert ENGLISH.terms(f"{text} 🚀") == [*ENGLISH.terms(text), "🚀"]


@ENOUGH
@given(st.text())
def test_terms_are_short_and_hold_a_letter_a_digit_or_a_symbol(text):
    for term in ENGLISH.terms(text):
        assert len(term) <= MAX_WORD
        assert any(unicodedata.category(each)[0] in "LNS" or each >= "\U00020000" for each in term)


@ENOUGH
@given(st.text(min_size=1))
def test_any_text_finds_itself(text):
    assert set(ENGLISH.query_terms(text)) <= set(ENGLISH.terms(text))
    assert bool(ENGLISH.query_terms(text)) == bool(ENGLISH.terms(text))


MARKS = "\u0316\u0300"  # in this order normalising swaps each pair that it meets
HOSTILE = {
    "marks without end": "a" + MARKS * 100_000,  # half a minute where a quadratic step is left, hours at a megabyte
    "letters that normalise to marks": "ア" + "\uff9e\u0316" * 100_000,
    "one word": "é" * 1_000_000,
    "a word of joiners": "a\u200d" * 500_000,
    "no spaces": "東京" * 500_000,
    "flags": "🇩🇪" * 500_000,
    "unpaired surrogates": "\ud800" * 1_000_000,
    "words": "naïve refund " * 80_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_long_text_of_anything_is_read_in_linear_time(text):
    started = time.process_time()
    ENGLISH.terms(text)
    assert time.process_time() - started < 15


def test_marks_in_a_row_count_up_to_the_bound_of_stream_safe_text():
    assert ENGLISH.terms("ж" + "\u0300" * MAX_MARKS) == ENGLISH.terms("ж" + "\u0300" * (MAX_MARKS + 5))
    assert ENGLISH.terms("ж" + "\u0300" * MAX_MARKS) != ENGLISH.terms("ж" + "\u0300" * (MAX_MARKS - 1))


def test_a_word_is_cut_at_its_bound():
    assert ENGLISH.terms("7" * 1000) == ENGLISH.terms("7" * MAX_WORD + "8") == ["7" * MAX_WORD]
    assert ENGLISH.terms("7" * 1000 + " 🚀") == ["7" * MAX_WORD, "🚀"]
