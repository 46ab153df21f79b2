"""Promises and tests hold each other."""

from freshgate_requirements import REQUIREMENTS, declared, marked, render


def test_every_promise_has_a_test_and_every_mark_names_a_promise():
    promises, tests = set(declared()), set(marked())
    assert promises - tests == set(), "promises without a test"
    assert tests - promises == set(), "marks that name no promise"


def test_the_listed_tests_are_those_that_carry_the_marks():
    assert REQUIREMENTS.read_text(encoding="utf-8") == render(declared(), marked()), "run `make generate`"
