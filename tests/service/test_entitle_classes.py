"""The class table equals the definition on every object, keeps to it as things change, and looks at nothing else."""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import repeat
from typing import Any

import freshgate_strategies as worlds
import pytest
from freshgate_cases import Case, cases
from freshgate_strategies import entitling
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from freshgate_crds.compiled import (
    KUBERNETES_ISSUER,
    Condition,
    Effect,
    Entitlements,
    Operator,
    Policy,
    Rule,
    Subject,
    SubjectKind,
)
from freshgate_service.domain import Access, Asker, Name, ObjectKey, Principal, Readers
from freshgate_service.entitle import ClassTable, classes, entitled, grants
from freshgate_service.entitle.index import Index, _narrowest

ENOUGH = settings(max_examples=100, derandomize=True, database=None, deadline=None, report_multiple_bugs=False)
TO_CATCH = settings(ENOUGH, max_examples=3_000, phases=[Phase.generate])

ANA = Principal(SubjectKind.USER, Name("corp", "ana"))


def seen(table: ClassTable, asker: Asker) -> set[ObjectKey]:
    return {key for class_id in table.classes_of(asker) for key in table.members(class_id)}


def filled(table: ClassTable, accesses: Mapping[ObjectKey, Access]) -> ClassTable:
    for key, access in accesses.items():
        table.add(key, access)
    return table


# --- equal to the definition -------------------------------------------------------------------------------------


@pytest.mark.promise("ENT-6", "ENT-7")
@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_each_asker_of_a_case_sees_what_the_case_says_through_classes(case: Case):
    table = filled(ClassTable(case.entitlements), case.objects)
    for expectation in case.expectations:
        assert seen(table, expectation.asker) == expectation.sees, expectation.asker


objects = st.lists(worlds.accesses(), max_size=12).map(
    lambda accesses: {ObjectKey(each.source, str(number)): each for number, each in enumerate(accesses)}
)


@pytest.mark.promise("ENT-1")
@ENOUGH
@given(st.lists(worlds.askers(), min_size=1, max_size=3), objects, worlds.entitlements(), st.booleans())
def test_an_asker_sees_exactly_the_objects_that_the_definition_gives(
    askers: list[Asker], accesses: dict[ObjectKey, Access], entitlements: Entitlements, refused: bool
):
    if refused:
        entitlements = entitling(entitlements.policies, denied=["unreadable"])
    table = filled(ClassTable(entitlements), accesses)
    for asker in askers:
        assert seen(table, asker) == {key for key, each in accesses.items() if entitled(asker, each, entitlements)}


class Changes(RuleBasedStateMachine):
    """Objects come, change and go, and revisions replace each other, while askers ask."""

    table_type: type[ClassTable] = ClassTable
    keys = st.builds(ObjectKey, st.sampled_from(worlds.SOURCES), st.sampled_from("123456"))

    def __init__(self) -> None:
        super().__init__()
        self.entitlements = entitling([])
        self.accesses: dict[ObjectKey, Access] = {}
        self.askers: list[Asker] = []
        self.table = self.table_type(self.entitlements)

    @rule(key=keys, access=worlds.accesses())
    def add(self, key: ObjectKey, access: Access) -> None:
        own = Access(key.source, access.attributes, access.readers)
        class_id = self.table.add(key, own)
        self.accesses[key] = own
        assert key in self.table.members(class_id)
        assert self.table.access(class_id).source == key.source

    @rule(key=keys, like=keys)
    def add_another_of_its_kind(self, key: ObjectKey, like: ObjectKey) -> None:
        if like in self.accesses:
            self.add(key, self.accesses[like])

    @rule(key=keys)
    def remove(self, key: ObjectKey) -> None:
        self.table.remove(key)
        self.accesses.pop(key, None)

    @rule(asker=worlds.askers())
    def ask(self, asker: Asker) -> None:
        self.askers = [*self.askers[-3:], asker]

    @rule(other=worlds.people(), part=st.sampled_from(["name", "groups", "claims"]))
    def ask_as_somebody_alike(self, other: Principal, part: str) -> None:
        for asker in self.askers[-1:]:
            self.ask(replace(asker, principal=replace(asker.principal, **{part: getattr(other, part)})))

    @initialize(accesses=objects)
    def begin(self, accesses: dict[ObjectKey, Access]) -> None:
        for key, access in accesses.items():
            self.add(key, access)

    @rule(entitlements=worlds.entitlements(), denied=st.sampled_from([(), (), (), ("unreadable",)]))
    def replace(self, entitlements: Entitlements, denied: tuple[str, ...]) -> None:
        self.entitlements = entitling(entitlements.policies, denied=denied)
        self.table.replace(self.entitlements)

    @rule(denied=st.sampled_from([(), ("unreadable",)]))
    def restamp(self, denied: tuple[str, ...]) -> None:
        self.replace(self.entitlements, denied)

    @invariant()
    def everybody_sees_what_the_definition_gives(self) -> None:
        for asker in self.askers:
            expected = {key for key, each in self.accesses.items() if entitled(asker, each, self.entitlements)}
            assert seen(self.table, asker) == expected

    @invariant()
    def answers_name_no_class_that_is_gone(self) -> None:
        for asker in self.askers:
            assert all(self.table.members(class_id) for class_id in self.table.classes_of(asker))

    @invariant()
    def each_object_is_in_one_class_that_is_like_it(self) -> None:
        held = [key for class_id in self.table._classes for key in self.table.members(class_id)]
        assert sorted(held) == sorted(self.accesses)


MANY_STEPS = settings(ENOUGH, max_examples=60, stateful_step_count=25)


@pytest.mark.promise("ENT-1", "ENT-6")
def test_askers_see_what_the_definition_gives_while_all_changes():
    run_state_machine_as_test(Changes, settings=MANY_STEPS)


# --- leaks -------------------------------------------------------------------------------------------------------


class NewClassesAreNotDecided(ClassTable):
    def _open(self, likeness: Any, access: Access) -> int:
        answers, self._answers = self._answers, OrderedDict()
        class_id = super()._open(likeness, access)
        self._answers = answers
        return class_id


class GoneClassesStay(ClassTable):
    def remove(self, key: ObjectKey) -> None:
        class_id = self._by_object.get(key)
        if class_id is None or len(self.members(class_id)) > 1:
            super().remove(key)


class ObjectsStayInTheirClass(ClassTable):
    def add(self, key: ObjectKey, access: Access) -> int:
        return self._by_object[key] if key in self._by_object else super().add(key, access)


class ARevisionKeepsTheAnswers(ClassTable):
    def replace(self, entitlements: Entitlements) -> None:
        answers = OrderedDict(self._answers)
        super().replace(entitlements)
        self._answers.update(answers)


class RefusedDeniesAreSkipped(ClassTable):
    def replace(self, entitlements: Entitlements) -> None:
        super().replace(entitling(entitlements.policies))


def caught(leak: type[ClassTable]) -> bool:
    class Leaking(Changes):
        table_type = leak

    try:
        run_state_machine_as_test(Leaking, settings=settings(MANY_STEPS, max_examples=1_000, phases=[Phase.generate]))
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize(
    "leak",
    [
        NewClassesAreNotDecided,
        GoneClassesStay,
        ObjectsStayInTheirClass,
        ARevisionKeepsTheAnswers,
        RefusedDeniesAreSkipped,
    ],
    ids=lambda each: each.__name__,
)
def test_a_table_that_misses_a_change_is_caught(leak: type[ClassTable]):
    assert caught(leak)


def test_a_table_that_forgets_what_askers_claim_is_caught(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(grants, "_claims", lambda policy: iter(()))
    assert caught(ClassTable)


# --- what shares a class, and what an answer (replay 12) -----------------------------------------------------------


def _of(attributes: dict[str, Any], readers: Readers = Readers(), source: str = "tickets") -> Access:  # noqa: B008 - frozen
    return Access(source, attributes, readers)


def _read_by(*names: Name) -> Readers:
    return Readers(users=frozenset(names))


APART = [
    (_of({"a": 1}), _of({"a": True})),
    (_of({"a": 0}), _of({"a": False})),
    (_of({"a": 1}), _of({"a": "1"})),
    (_of({"a": True}), _of({"a": "True"})),
    (_of({"a": [1]}), _of({"a": [True]})),
    (_of({"a": "x"}), _of({"a": ["x"]})),
    (_of({"a": ["x", "y"]}), _of({"a": ["x,y"]})),
    (_of({"a": ["x", "y"]}), _of({"a": "['x', 'y']"})),
    (_of({"a": "x", "b": "y"}), _of({"a": "x,b=y"})),
    (_of({"a": "x", "b": "y"}), _of({"a": "y", "b": "x"})),
    (_of({"a": ""}), _of({})),
    (_of({"a": {}}), _of({})),
    (_of({"a": math.nan}), _of({})),
    (_of({"a": "jos\u00e9"}), _of({"a": "jose\u0301"})),
    (_of({"a": "x"}), _of({"A": "x"})),
    (_of({}), _of({}, source="accounts")),
    (_of({}, _read_by(Name("corp", "ana"))), _of({})),
    (_of({}, _read_by(Name("corp", "ana"))), _of({}, _read_by(Name("partner", "ana")))),
    (_of({}, _read_by(Name("corp", "ana"))), _of({}, Readers(groups=frozenset({Name("corp", "ana")})))),
    (_of({}, _read_by(Name("corp", "a"), Name("corp", "b"))), _of({}, _read_by(Name("corp", "a,b")))),
    (_of({}, _read_by(Name("corp/a", "b"))), _of({}, _read_by(Name("corp", "a/b")))),
]

TOGETHER = [
    (_of({"a": 1}), _of({"a": 1.0})),
    (_of({"a": "x", "b": 2}), _of({"b": 2, "a": "x"})),
    (_of({"a": None}), _of({})),
    (_of({"a": []}), _of({"a": [None]})),
    (_of({"a": math.nan}), _of({"a": float("nan")})),
    (_of({"a": {"x": 1}}), _of({"a": {"y": [2]}})),
]


@pytest.mark.parametrize(("one", "other"), APART, ids=str)
def test_objects_that_a_policy_can_tell_apart_are_in_different_classes(one, other):
    table = ClassTable(entitling([]))
    assert table.add(ObjectKey("tickets", "1"), one) != table.add(ObjectKey("tickets", "2"), other)


@pytest.mark.parametrize(("one", "other"), TOGETHER, ids=str)
def test_objects_that_no_policy_can_tell_apart_share_a_class(one, other):
    table, keys = ClassTable(entitling([])), {ObjectKey("tickets", "1"), ObjectKey("tickets", "2")}
    class_ids = {table.add(key, access) for key, access in zip(sorted(keys), (one, other), strict=True)}
    assert [table.members(class_id) for class_id in class_ids] == [keys]


def _allow(*rules: Rule, subject: Subject | None = None, name: str = "allow") -> Policy:
    named = subject or Subject(kind=SubjectKind.USER, issuer="corp", name="ana")
    return Policy(name=name, effect=Effect.ALLOW, subjects=(named,), rules=rules)


def _where(attribute: str, operator: Operator, *values: Any, **given: Any) -> Condition:
    return Condition(attribute=attribute, operator=operator, values=values, **given)


def _rule(*where: Condition, **given: Any) -> Rule:
    return Rule(sources=("tickets",), where=where, everything=not where, **given)


def _group(name: str) -> Subject:
    return Subject(kind=SubjectKind.GROUP, issuer="corp", name=name)


BY_LEVEL = entitling([_allow(_rule(_where("level", Operator.IN, values_from_claim="level")))])


@pytest.mark.promise("ENT-6")
def test_claims_that_differ_by_type_alone_get_answers_of_their_own():
    levels = {"1": 1, "2": "1", "3": True}
    table = filled(ClassTable(BY_LEVEL), {ObjectKey("tickets", each): _of({"level": levels[each]}) for each in levels})
    for record, level in levels.items():
        assert seen(table, Asker(replace(ANA, claims={"level": level}))) == {("tickets", record)}


def readers_get_answers_of_their_own() -> None:
    staff, hr = Name("corp", "staff"), Name("corp", "hr")
    ana, bo, ana_of_hr = (
        Principal(SubjectKind.USER, Name("corp", name), frozenset(groups))
        for name, groups in (("ana", {staff}), ("bo", {staff}), ("ana", {staff, hr}))
    )
    table = ClassTable(entitling([_allow(_rule(asker_must_be_reader=True), subject=_group("staff"))]))
    for reader in (ana, bo):
        table.add(ObjectKey("tickets", reader.name.name), _of({}, _read_by(reader.name)))
    table.add(ObjectKey("tickets", "hr"), _of({}, Readers(groups=frozenset({hr}))))
    answers = [{key.record_id for key in seen(table, Asker(reader))} for reader in (ana, bo, ana_of_hr)]
    assert answers == [{"ana"}, {"bo"}, {"ana", "hr"}]


@pytest.mark.promise("ENT-6")
def test_askers_that_records_name_get_answers_of_their_own():
    readers_get_answers_of_their_own()


def test_a_table_that_forgets_who_reads_is_caught(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(grants, "_compares_reader", lambda policy: False)
    with pytest.raises(AssertionError):
        readers_get_answers_of_their_own()


@pytest.mark.promise("ENT-7")
def test_whom_a_policy_names_for_use_on_behalf_only_gets_no_answer_of_whom_it_names_outright():
    outright, on_behalf = (_group(name) for name in ("owners", "assistants"))
    policy = _allow(_rule()).model_copy(
        update={"subjects": (outright, on_behalf.model_copy(update={"on_behalf_only": True}))}
    )
    table = filled(ClassTable(entitling([policy])), {ObjectKey("tickets", "1"): _of({})})
    owner, assistant = (replace(ANA, groups=frozenset({Name("corp", name)})) for name in ("owners", "assistants"))
    assert seen(table, Asker(owner)) == {("tickets", "1")}
    assert seen(table, Asker(assistant)) == set()
    assert seen(table, Asker(assistant, owner)) == {("tickets", "1")}


def test_who_is_named_twice_by_one_policy_counts_as_named_outright():
    subject = _group("owners")
    twice = _allow(_rule()).model_copy(
        update={"subjects": (subject, subject.model_copy(update={"on_behalf_only": True}))}
    )
    table = filled(ClassTable(entitling([twice])), {ObjectKey("tickets", "1"): _of({})})
    assert seen(table, Asker(replace(ANA, groups=frozenset({Name("corp", "owners")})))) == {("tickets", "1")}


@pytest.mark.promise("ENT-6")
def test_groups_whose_names_hold_delimiters_get_answers_of_their_own():
    policies = [
        _allow(_rule(), subject=_group("sales,hr"), name="one"),
        _allow(_rule(), subject=_group("it"), name="two"),
    ]
    table = filled(ClassTable(entitling(policies)), {ObjectKey("tickets", "1"): _of({})})
    joined, apart = ([Name("corp", each) for each in names] for names in (["sales,hr"], ["sales", "hr"]))
    assert seen(table, Asker(replace(ANA, groups=frozenset(joined)))) == {("tickets", "1")}
    assert seen(table, Asker(replace(ANA, groups=frozenset(apart)))) == set()


def test_askers_of_whom_the_policies_say_the_same_share_one_answer():
    table = filled(
        ClassTable(entitling([_allow(_rule(), subject=_group("sales"))])), {ObjectKey("tickets", "1"): _of({})}
    )
    groups = frozenset({Name("corp", "sales")})
    ana = Principal(SubjectKind.USER, Name("corp", "ana"), groups, {"exp": 1})
    bo = Principal(SubjectKind.USER, Name("corp", "bo"), groups | {Name("corp", "staff")}, {"exp": 2})
    assert table.classes_of(Asker(ana)) is table.classes_of(Asker(bo))


# --- what is looked at -------------------------------------------------------------------------------------------


class Tripwire(dict[str, Any]):
    """Attributes that must not be looked at while it is armed."""

    armed = False

    def get(self, *arguments: Any) -> Any:
        assert not Tripwire.armed, "looked at a class that no rule of the asker could allow"
        return super().get(*arguments)


@pytest.fixture
def armed(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    return lambda: monkeypatch.setattr(Tripwire, "armed", True)


SELECTIVE = {
    "In": _rule(_where("region", Operator.IN, "emea")),
    "Equals": _rule(_where("region", Operator.EQUALS, "emea")),
    "PrefixOf": _rule(_where("region", Operator.PREFIX_OF, "em")),
    "NotIn": _rule(_where("region", Operator.NOT_IN, *(f"r{number}" for number in range(50)))),
    "Exists": _rule(_where("owner", Operator.EXISTS)),
    "claim": _rule(_where("region", Operator.IN, values_from_claim="region")),
    "reader": _rule(asker_must_be_reader=True),
    "reader of a broad rule": _rule(_where("number", Operator.EXISTS), asker_must_be_reader=True),
    "narrow beside broad": _rule(_where("number", Operator.NOT_IN, 7), _where("region", Operator.IN, "emea")),
    "narrow before broad": _rule(_where("region", Operator.PREFIX_OF, "em"), _where("number", Operator.EXISTS)),
}
ASKING = Principal(SubjectKind.USER, Name("corp", "ana"), claims={"region": "emea"})
MINE = Access("tickets", {"region": "emea", "number": -1, "owner": "ana"}, _read_by(ASKING.name))


def _others() -> Iterator[tuple[ObjectKey, Access]]:
    for number in range(50):
        readers = _read_by(Name("corp", f"user{number}"))
        attributes = Tripwire({"region": f"r{number}", "number": number})
        yield ObjectKey("tickets", f"other{number}"), Access("tickets", attributes, readers)
        yield ObjectKey("accounts", f"other{number}"), Access("accounts", Tripwire(region="emea"), MINE.readers)


@pytest.mark.promise("ENT-4")
@pytest.mark.parametrize("rule", SELECTIVE.values(), ids=SELECTIVE)
def test_asking_looks_at_no_class_that_its_narrowest_demand_does_not_lead_to(rule: Rule, armed):
    mine = ObjectKey("tickets", "mine")
    table = filled(ClassTable(entitling([_allow(rule)])), {mine: MINE, **dict(_others())})
    armed()
    assert seen(table, Asker(ASKING)) == {mine}


@pytest.mark.promise("ENT-4", "ENT-7")
def test_a_broad_agent_for_a_narrow_person_looks_at_what_the_person_may_see(armed):
    agent = Principal(SubjectKind.SERVICE_ACCOUNT, Name(KUBERNETES_ISSUER, "bots/helper"))
    broad = Subject(kind=SubjectKind.SERVICE_ACCOUNT, issuer=KUBERNETES_ISSUER, name="bots/helper", on_behalf_only=True)
    policies = [_allow(_rule(), subject=broad, name="agent"), _allow(SELECTIVE["In"], name="person")]
    mine = ObjectKey("tickets", "mine")
    table = filled(ClassTable(entitling(policies)), {mine: MINE, **dict(_others())})
    armed()
    assert seen(table, Asker(agent, ASKING)) == {mine}


def test_the_way_to_the_fewest_classes_is_found_without_following_the_others_to_their_end():
    endless: Iterator[set[int]] = repeat({1, 2, 3})
    assert _narrowest([endless, iter([{4, 5}, {6}])]) == [{4, 5}, {6}]
    assert _narrowest([iter([]), endless]) == []
    assert _narrowest([]) == []


@pytest.mark.promise("ENT-4")
def test_what_the_asker_may_not_see_leaves_the_very_same_answer():
    table = filled(ClassTable(entitling([_allow(SELECTIVE["In"])])), {ObjectKey("tickets", "mine"): MINE})
    before = table.classes_of(Asker(ASKING))
    others = dict(_others())
    assert filled(table, others).classes_of(Asker(ASKING)) is before
    for key in others:
        table.remove(key)
    assert table.classes_of(Asker(ASKING)) is before


# --- what is kept ------------------------------------------------------------------------------------------------


def _everybody_by_name(count: int) -> tuple[ClassTable, list[Asker]]:
    names = [f"user{number}" for number in range(count)]
    subjects = [Subject(kind=SubjectKind.USER, issuer="corp", name=name) for name in names]
    policies = [_allow(_rule(), subject=subject, name=subject.name) for subject in subjects]
    askers = [Asker(Principal(SubjectKind.USER, Name("corp", name))) for name in names]
    return filled(ClassTable(entitling(policies)), {ObjectKey("tickets", "1"): _of({})}), askers


def test_the_answers_asked_for_last_are_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(classes, "ANSWERS", 2)
    table, (one, two, three) = _everybody_by_name(3)
    first = table.classes_of(one)
    second = table.classes_of(two)
    assert table.classes_of(one) is first
    table.classes_of(three)
    assert table.classes_of(one) is first
    assert table.classes_of(two) is not second
    assert len(table._answers) == 2


def test_answers_hold_no_more_classes_than_the_bound_but_for_the_newest(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(classes, "ANSWERED_CLASSES", 5)
    table, askers = _everybody_by_name(3)
    filled(table, {ObjectKey("tickets", str(number)): _of({"number": number}) for number in range(2, 4)})
    for asker in askers:
        assert len(table.classes_of(asker)) == 3
        assert len(table._answers) == 1


def test_an_answer_that_nobody_asks_for_is_not_kept_right_for_ever(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(classes, "IDLE", 10)
    table, (idle, busy) = _everybody_by_name(2)
    table.classes_of(idle)
    table.classes_of(busy)
    kept = table._answers[table._grants.of(busy)]
    for number in range(2, 30):
        table.add(ObjectKey("tickets", str(number)), _of({"number": number}))
        assert len(table.classes_of(busy)) == number
    assert list(table._answers.values()) == [kept]
    assert table.classes_of(idle) == table.classes_of(busy)


def test_whom_no_policy_allows_anything_takes_no_place():
    denial = _allow(_rule()).model_copy(update={"effect": Effect.DENY})
    table = filled(ClassTable(entitling([denial])), {ObjectKey("tickets", "1"): _of({})})
    bo = replace(ANA, name=Name("corp", "bo"))
    assert table.classes_of(Asker(ANA)) == table.classes_of(Asker(bo)) == frozenset()
    assert not table._answers


def test_a_new_stamp_keeps_the_answers():
    table, (asker,) = _everybody_by_name(1)
    before = table.classes_of(asker)
    table.replace(table._entitlements.model_copy(update={"max_age_seconds": 600.0}))
    assert table.classes_of(asker) is before


@pytest.mark.promise("ENT-6")
def test_a_policy_that_changes_in_its_place_changes_the_answer():
    mine = ObjectKey("tickets", "mine")
    table = filled(ClassTable(entitling([_allow(_rule())])), {mine: MINE, ObjectKey("tickets", "1"): _of({})})
    assert len(seen(table, Asker(ASKING))) == 2
    table.replace(entitling([_allow(SELECTIVE["In"])]))
    assert seen(table, Asker(ASKING)) == {mine}
    table.replace(entitling([_allow(SELECTIVE["In"])], denied=["unreadable"]))
    assert seen(table, Asker(ASKING)) == set()


def test_a_beginning_is_not_looked_up_among_texts_that_are_gone():
    table = ClassTable(entitling([_allow(SELECTIVE["PrefixOf"])]))
    gone, mine = ObjectKey("tickets", "gone"), ObjectKey("tickets", "mine")
    filled(table, {gone: _of({"region": "em"}), mine: MINE})
    table.remove(gone)
    assert seen(table, Asker(ASKING)) == {mine}


def test_an_answer_names_no_class_that_went_since_or_that_came_and_went():
    table, (asker,) = _everybody_by_name(1)
    before = table.classes_of(asker)
    table.add(ObjectKey("tickets", "2"), _of({"number": 2}))
    table.remove(ObjectKey("tickets", "2"))
    assert table.classes_of(asker) == before
    table.remove(ObjectKey("tickets", "1"))
    assert table.classes_of(asker) == frozenset()


def test_a_class_id_is_never_used_twice():
    table = ClassTable(entitling([]))
    key = ObjectKey("tickets", "1")
    first = table.add(key, _of({}))
    table.remove(key)
    assert table.members(first) == frozenset()
    assert table.add(key, _of({})) != first


def test_removing_what_is_unknown_changes_nothing():
    table, (asker,) = _everybody_by_name(1)
    table.remove(ObjectKey("tickets", "unknown"))
    assert seen(table, asker) == {("tickets", "1")}


def test_an_index_from_which_all_is_removed_is_empty():
    index = Index()
    for class_id, (_, access) in enumerate(_others()):
        index.add(class_id, access)
    for class_id, (_, access) in enumerate(_others()):
        index.remove(class_id, access)
    assert not any((index._by_source, index._by_reader, index._columns))
