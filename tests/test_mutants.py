"""The registry of mutants is whole, so that `make prove` has something to show for each promise."""

import ast
from pathlib import Path

import pytest
from freshgate_mutants import MUTANTS, Mutant
from freshgate_requirements import declared

TESTS = Path(__file__).parent


def test_every_promise_has_a_mutant_and_every_mutant_breaks_a_promise():
    assert {mutant.promise for mutant in MUTANTS.values()} == set(declared())


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_fits_the_product_and_names_tests_that_there_are(mutant: Mutant):
    with mutant.apply():
        pass
    assert mutant.fault.endswith(".")
    assert mutant.tests
    for test in mutant.tests:
        path, _, name = test.partition("::")
        tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
