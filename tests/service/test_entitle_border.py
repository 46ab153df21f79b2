"""The border check stands on the definition alone, so that it catches whatever a class table gets wrong."""

import ast
import inspect
import re
from collections.abc import Callable, Mapping
from importlib import import_module

import freshgate_strategies as worlds
import pytest
from freshgate_strategies import entitling
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from freshgate_crds.compiled import Effect, Entitlements, Policy, Rule, Subject, SubjectKind
from freshgate_service.domain import Access, Asker, Name, ObjectKey, Principal, Readers
from freshgate_service.entitle import ClassTable, check, entitled
from freshgate_service.errors import InvariantViolation

Survivors = Mapping[ObjectKey, Access]
Checking = Callable[[Asker, Survivors, Entitlements, ClassTable], None]

ENOUGH = settings(max_examples=150, derandomize=True, database=None, deadline=None, report_multiple_bugs=False)
TO_CATCH = settings(ENOUGH, max_examples=3_000, phases=[Phase.generate])
PACKAGE = "freshgate_service.entitle."


def by_definition(asker: Asker, survivors: Survivors, entitlements: Entitlements, _: ClassTable) -> None:
    check(asker, survivors.values(), entitlements)


def nothing_unentitled_passes(checking: Checking, how: settings = ENOUGH) -> None:
    """The table was told something else of the objects than they say themselves."""

    @how
    @given(
        worlds.askers(),
        st.lists(st.tuples(worlds.accesses(), worlds.accesses()), max_size=4),
        worlds.entitlements(),
        st.booleans(),
    )
    def survivors_are_decided_anew(
        asker: Asker, objects: list[tuple[Access, Access]], entitlements: Entitlements, refused: bool
    ) -> None:
        if refused:
            entitlements = entitling(entitlements.policies, denied=["unreadable"])
        table, survivors = ClassTable(entitlements), {}
        for number, (told, own) in enumerate(objects):
            key = ObjectKey(own.source, str(number))
            table.add(key, told)
            survivors[key] = own
        legal = all(entitled(asker, access, entitlements) for access in survivors.values())
        assert _passes(checking, asker, survivors, entitlements, table) is legal

    survivors_are_decided_anew()


def _passes(checking: Checking, *world: object) -> bool:
    try:
        checking(*world)  # type: ignore[arg-type]
    except InvariantViolation:
        return False
    return True


@pytest.mark.promise("ENT-3")
def test_whatever_the_class_table_says_only_the_entitled_pass():
    nothing_unentitled_passes(by_definition)


def by_class(asker: Asker, survivors: Survivors, _: Entitlements, table: ClassTable) -> None:
    visible = {key for class_id in table.classes_of(asker) for key in table.members(class_id)}
    if not visible.issuperset(survivors):
        raise InvariantViolation


def only_the_first(asker: Asker, survivors: Survivors, entitlements: Entitlements, _: ClassTable) -> None:
    check(asker, list(survivors.values())[:1], entitlements)


def nothing(*_: object) -> None:
    pass


@pytest.mark.promise("ENT-3")
@pytest.mark.parametrize("leak", [by_class, only_the_first, nothing], ids=lambda each: each.__name__)
def test_a_check_that_trusts_or_leaves_out_anything_is_caught(leak: Checking):
    with pytest.raises(AssertionError):
        nothing_unentitled_passes(leak, TO_CATCH)


@pytest.mark.promise("ENT-3")
def test_the_check_reaches_no_class_no_index_and_no_cache():
    reached, new = set(), {"border"}
    while new:
        reached |= new
        new = {imported for name in new for imported in _imports(name)} - reached
    assert reached == {"border", "decide", "values"}


def _imports(name: str) -> set[str]:
    tree = ast.parse(inspect.getsource(import_module(PACKAGE + name)))
    modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {each.name for node in ast.walk(tree) if isinstance(node, ast.Import) for each in node.names}
    assert PACKAGE.rstrip(".") not in modules, "the package as a whole brings the class table"
    return {module.removeprefix(PACKAGE) for module in modules if module.startswith(PACKAGE)}


@pytest.mark.promise("ENT-2")
def test_a_violation_says_nothing_of_the_object_or_of_the_asker():
    ana = Principal(SubjectKind.USER, Name("corp", "ana"), frozenset({Name("corp", "payroll")}), {"level": "top"})
    secret = Access("salaries", {"person": "bo"}, Readers(users=frozenset({Name("corp", "cy")})))
    with pytest.raises(InvariantViolation) as caught:
        check(Asker(ana), [secret], entitling([]))
    words = set(re.findall(r"\w+", f"{caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r}"))
    assert words.isdisjoint({"salaries", "person", "bo", "cy", "corp", "ana", "payroll", "level", "top"})


def test_an_empty_answer_passes_for_anybody():
    check(Asker(Principal(SubjectKind.USER, Name("corp", "ana"))), [], entitling([], denied=["unreadable"]))


def test_accesses_may_come_as_a_stream():
    everything = Policy(
        name="all",
        effect=Effect.ALLOW,
        subjects=(Subject(kind=SubjectKind.USER, issuer="corp", name="ana"),),
        rules=(Rule(sources=("tickets",), everything=True),),
    )
    asker = Asker(Principal(SubjectKind.USER, Name("corp", "ana")))
    check(asker, iter([Access("tickets", {})]), entitling([everything]))
    with pytest.raises(InvariantViolation):
        check(asker, iter([Access("tickets", {}), Access("accounts", {})]), entitling([everything]))
