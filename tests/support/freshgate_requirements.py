"""Which tests show which promise, read from the tests' own marks without importing them.

Run as a program it writes the lists of tests/requirements.yaml anew.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

TESTS = Path(__file__).resolve().parent.parent
REQUIREMENTS = TESTS / "requirements.yaml"
HEADER = "# What Freshgate promises, and the tests that show it. The lists are written by `make generate`.\n"


def marked() -> dict[str, list[str]]:
    """Promise ID → `file::test`, from every `@pytest.mark.promise(...)` on a test, a class or a module."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(TESTS.rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        everywhere = [mark for node in tree.body if isinstance(node, ast.Assign) for mark in _promises(node.value)]
        for name, marks in _tests(tree.body, everywhere):
            for promise in marks:
                found[promise].add(f"{path.relative_to(TESTS)}::{name}")
    return {promise: sorted(tests) for promise, tests in sorted(found.items())}


def declared() -> dict[str, dict[str, Any]]:
    return dict(yaml.safe_load(REQUIREMENTS.read_text(encoding="utf-8")))


def render(promises: dict[str, dict[str, Any]], tests: dict[str, list[str]]) -> str:
    whole = {
        promise: {"promise": entry["promise"], "tests": tests.get(promise, [])} for promise, entry in promises.items()
    }
    return HEADER + yaml.safe_dump(whole, sort_keys=False, width=120, allow_unicode=True)


def _tests(body: list[ast.stmt], inherited: list[str]) -> Iterator[tuple[str, list[str]]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            own = [mark for decorator in node.decorator_list for mark in _promises(decorator)]
            for name, marks in _tests(node.body, [*inherited, *own]):
                yield f"{node.name}::{name}", marks
            if any(
                isinstance(base, ast.Attribute | ast.Name) and "StateMachine" in ast.dump(base) for base in node.bases
            ):
                yield node.name, [*inherited, *own]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            own = [mark for decorator in node.decorator_list for mark in _promises(decorator)]
            yield node.name, [*inherited, *own]


def _promises(node: ast.AST) -> list[str]:
    calls = [call for call in ast.walk(node) if isinstance(call, ast.Call)]
    named = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "promise"]
    return [str(arg.value) for call in named for arg in call.args if isinstance(arg, ast.Constant)]


if __name__ == "__main__":
    sys.stdout.write(f"{REQUIREMENTS.name} written\n")
    REQUIREMENTS.write_text(render(declared(), marked()), encoding="utf-8")
