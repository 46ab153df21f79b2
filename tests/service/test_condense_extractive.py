"""The extractive condenser: whole sentences of the record, and no more of them than fit."""

import asyncio
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshgate_service.condense.extractive import MAX_READ, Extractive, summarise
from freshgate_service.condense.sentences import Span, sentences, words
from freshgate_service.domain import Access, Condensed, ObjectKey, Record

LETTER = """Dear support, my order no. 4711 from Acme Inc. arrived on Jan. 5 and the glass lamp was broken.
The box was wet.
I would like a refund of 18.40 EUR, or a new lamp.
Thanks!
Kind regards
The refund was promised on the phone by Dr. Miller, who said that broken lamps are refunded within ten days.
Please confirm the refund."""


def record(body: str) -> Record:
    return Record(ObjectKey("tickets", "1"), "title", body, None, Access("tickets", {}), "", "")


def cut(text: str) -> list[str]:
    return [text[span.start : span.end] for span in sentences(text)]


def count(text: str) -> int:
    return sum(1 for _ in words(text, Span(0, len(text))))


def squeezed(text: str) -> str:
    return " ".join(text.split())


# --- sentences ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        ["It broke.", "Twice!", "Really?!", "Yes…", "Then it stopped."],
        ["Dr. Miller of Acme Inc. met J. R. Smith, e.g. at 5 p.m. in the U.S. office.", "He left."],
        ["See no. 4711 and fig. 3 of vol. 2.", "It costs $3.50 at shop.example/a.b today."],
        ['He said "Stop."', "(It did.)", "Then he left."],
        ["Das ist z.B. so, bzw. anders.", "Ende."],
        ["東京は日本の首都です。", "花名は美しい！", "「そうですか？」", "はい。"],
        ["Привет, мир.", "Как дела?"],
        ["هل هذا صحيح؟", "نعم."],
        ["मेरा नाम राम है।", "वह जाता है।"],
    ],
)
def test_sentences_end_where_a_reader_ends_them(text: list[str]):
    assert cut(" ".join(text)) == text


def test_lines_of_a_list_are_sentences_of_their_own_and_a_wrapped_line_goes_on():
    assert cut("Steps:\n- open the box\n- take the lamp\n1. Check it\n2. Send it\n\n  * done") == [
        "Steps:",
        "- open the box",
        "- take the lamp",
        "1. Check it",
        "2. Send it",
        "* done",
    ]
    wrapped = "This line of an e-mail was wrapped by the program that sent it, so the\nsentence ends here."
    assert cut(wrapped + "\nNext.") == [wrapped, "Next."]


@given(st.text(st.sampled_from("ab. !?。东\n\"')A1…\u3000")))
def test_no_character_is_lost_between_sentences(text: str):
    assert "".join("".join(cut(text)).split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("", 0),
        ("one two  three", 3),
        ("東京都庁", 2),
        ("東京 is big", 3),
        ("한국어 문장", 2),
        ("a" * 120, 3),
        ("สวัสดี", 3),
    ],
)
def test_words_are_counted_in_any_script(text: str, number: int):
    assert count(text) == number


# --- summaries ---------------------------------------------------------------------------------------------------


def test_what_fits_is_kept_whole():
    assert squeezed(summarise(LETTER, 200)) == squeezed(LETTER)
    assert summarise("One.\n\n\nTwo.   Three.", 200) == "One.\nTwo. Three."
    assert summarise("", 10) == ""


def test_the_beginning_is_kept_and_then_what_tells_most():
    beginning, *_, request = cut(LETTER)
    assert summarise(LETTER, 25) == f"{beginning}\nKind regards\n{request}"
    assert "a refund of 18.40 EUR" in summarise(LETTER, 45)
    assert "promised on the phone by Dr. Miller" in summarise(LETTER, 60)


def test_what_is_said_twice_is_kept_once():
    text = "The pump leaks oil. " + "The pump leaks oil. " * 30 + "The valve is blue."
    assert summarise(text, 12) == "The pump leaks oil. The valve is blue."


def test_a_sentence_that_is_too_long_is_cut_between_words_only():
    text = "start " + " ".join(f"word{n}" for n in range(500)) + ". End."
    summary = summarise(text, 40)
    assert 30 <= count(summary) <= 40
    assert set(summary.split()) <= set(text.split())
    unbroken = "東京都" * 400
    assert 0 < count(summarise(unbroken, 40)) <= 40


POOL = [
    "The lamp broke.",
    "Refund now!",
    "東京は首都です。",
    "- item one\n",
    "e.g. this",
    "\n\n",
    "lamp",
    "word " * 30,
    "x" * 80,
    "Dr. A.",
]
TEXTS = st.lists(st.sampled_from(POOL), max_size=25).map(" ".join) | st.text()


@given(TEXTS, st.integers(10, 60))
def test_a_summary_is_made_of_the_record_in_its_order_and_never_too_long(text: str, max_words: int):
    summary = summarise(text, max_words)
    assert count(summary) <= max_words
    at = 0
    whole = squeezed(text)
    for line in summary.split("\n"):
        for piece in cut(line):
            for part in squeezed(piece).split(" "):
                at = whole.find(part, at)
                assert at >= 0
    assert bool(summary) == bool(whole)


def test_sentences_of_a_summary_stand_in_the_record_word_for_word():
    generator = random.Random(7)  # noqa: S311 - made-up sentences
    said = [
        " ".join(generator.choices(LETTER.split(), k=generator.randint(3, 15))).strip(".!,") + "." for _ in range(80)
    ]
    summary = summarise(" ".join(said), 60)
    assert set(cut(summary)) <= set(cut(" ".join(said)))


def test_the_same_record_gives_the_same_summary_in_any_process():
    body = " ".join(f"Pump {n % 7} lost oil {n} at gate {n % 3}." for n in range(300))
    code = (
        "import sys; from freshgate_service.condense.extractive import summarise;"
        " sys.stdout.write(summarise(sys.stdin.read(), 50))"
    )
    roots = os.pathsep.join(str(Path(__file__).parents[2] / part) for part in ("crds", "service"))
    made = {
        subprocess.run(
            [sys.executable, "-c", code],
            input=body,
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": roots},
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert made == {summarise(body, 50)}


async def test_the_condenser_says_what_it_is():
    assert await Extractive().condense(record("One."), 10) == Condensed("One.", "extractive")


LARGE_BODIES = {
    "sentences": "The pump lost oil at gate 3. " * 36_000,
    "one sentence": "lorem " * 170_000,
    "one word": "A" * 1_000_000,
    "no spaces": "東京は日本の首都です。" * 100_000,
    "stops": ". " * 500_000,
}


@pytest.mark.parametrize("body", LARGE_BODIES.values(), ids=LARGE_BODIES)
async def test_a_body_of_1_mb_leaves_the_event_loop_free(body: str):
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(turn())
    condensed = await Extractive().condense(record(body), 200)
    other.cancel()
    assert 0 < count(condensed.summary) <= 200
    assert turns > 3


def test_what_lies_beyond_the_bound_costs_nothing_and_no_word_is_cut_at_it():
    near = "alpha beta. " * (MAX_READ // 12 + 10)
    assert summarise(near + "omega " * 100_000, 50) == summarise(near, 50)
    assert "omega" not in summarise(near + "omega", 50)
    assert set(summarise("syllable " * MAX_READ, 1000).split()) == {"syllable"}
