"""The mutants: for each promise, faults that systems like this one have had, to be switched in on purpose.

`pytest --mutant NAME` runs tests with one switched in; `make prove` does so for all, and wants every test that a mutant
names to turn red. A mutant is small: it puts one function of the product in the place of another.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count, islice
from typing import Any
from unittest import mock

from freshgate_crds import compiled
from freshgate_crds.compile import policies
from freshgate_crds.compile.outcomes import Standing
from freshgate_crds.v1alpha1 import MemorySource
from freshgate_service import entitle, memory, pipeline, runtime, score
from freshgate_service.clock import StoreClock
from freshgate_service.domain import (
    Access,
    Asker,
    Clock,
    Item,
    MemoryObject,
    Name,
    ObjectKey,
    Principal,
    Reason,
    Record,
    Scored,
    SourceState,
    State,
)
from freshgate_service.entitle import border, classes, decide
from freshgate_service.entitle.decide import Clause, Party
from freshgate_service.errors import InvalidRequest, InvariantViolation, SourceError
from freshgate_service.logs import get_logger
from freshgate_service.memory import Memory, Slice
from freshgate_service.metrics import Metrics
from freshgate_service.pipeline import Pipeline, Question, Survivor
from freshgate_service.refresh import Flights, Loop, flights
from freshgate_service.refresh.flights import Finding
from freshgate_service.refresh.loop import Listing
from freshgate_service.refresh.ports import Reader
from freshgate_service.score import fast, reference
from freshgate_service.score.bm25f import Weights
from freshgate_service.score.fast import View
from freshgate_service.serve import answers, auth
from freshgate_service.sources.mapping import Mapping as RecordMapping
from freshgate_service.sources.postgres import PostgresSource
from freshgate_service.store import statements

Patch = AbstractContextManager[Any]


@dataclass(frozen=True, slots=True)
class Mutant:
    """`fault` is one sentence. `tests`, below tests/, are those that must turn red, each of them; `promise` is what it
    breaks first."""

    name: str
    promise: str
    fault: str
    apply: Callable[[], Patch]
    tests: tuple[str, ...]


MUTANTS: dict[str, Mutant] = {}


def mutant(promise: str, *tests: str) -> Callable[[Callable[[], Patch]], Callable[[], Patch]]:
    """Enters a function into the registry: its name is the mutant's, and its docstring the fault."""

    def enter(apply: Callable[[], Patch]) -> Callable[[], Patch]:
        name, fault = apply.__name__, " ".join((apply.__doc__ or "").split())
        MUTANTS[name] = Mutant(name, promise, fault, apply, tests)
        return apply

    return enter


@contextmanager
def _all(*patches: Patch) -> Iterator[None]:
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield


CASES = "service/test_cases.py::test_replay_2_every_entrance_shows_an_asker_what_the_case_says"
DECIDING = "service/test_entitle_decide.py::test_no_union_of_policies_opens_more_than_it_says"
HONESTY = "service/test_honesty.py::test_nothing_is_ever_labelled_current_past_its_ttl_or_after_a_failed_read"
REFERENCE = "service/test_memory.py::test_slices_equal_the_reference_while_everything_changes"

TWINS = "service/test_twins.py::"
TWIN_SCORES = f"{TWINS}test_whatever_else_is_in_memory_and_whoever_else_asks_scores_are_the_same_floats"
TWIN_ANSWERS = f"{TWINS}test_an_asker_is_told_the_same_bytes_and_causes_the_same_reads_in_both_worlds"
TWIN_ENTRANCES = f"{TWINS}test_no_entrance_shows_or_does_or_leaves_behind_anything_else_in_the_other_world"
HIDDEN_NAMES = f"{TWINS}test_replay_10_at_every_entrance_a_hidden_name_and_one_of_nothing_are_the_same"
THOUSAND = f"{TWINS}test_replay_8_a_thousand_hidden_objects_with_the_terms_of_the_query_change_no_bit_of_any_answer"

PIPELINE = "service/test_pipeline.py::"
LOOP = "service/test_refresh_loop.py::"
REPLAYS = "service/test_replays.py::"
TRUTH = "service/test_replays_truth.py::"


# --- ENT-1: entitlement runs first -----------------------------------------------------------------------------------


def _view_of_everything(of: Memory) -> View:
    keys = [key for key in of.objects if of._classes.class_of(key) is not None]
    return View([(key, of._documents[key]) for key in keys], of._weights, of._vocabulary)


def _keys_of(of: Memory, entitled: Slice) -> set[ObjectKey]:
    return {key for class_id in entitled.classes for key in of._classes.members(class_id)}


@mutant("ENT-1", REFERENCE, TWIN_SCORES)
def post_filter() -> Patch:
    """The best of all objects are found, and what the asker may not see is taken out after the cut."""

    def top(self: Memory, entitled: Slice, query: str, limit: int) -> list[Scored]:
        mine, best = _keys_of(self, entitled), _view_of_everything(self).top(self._analyser.query_terms(query), limit)
        return [one for one in best if one.key in mine]

    return mock.patch.object(Memory, "top", top)


@mutant("ENT-1", REFERENCE, TWIN_SCORES, THOUSAND)
def corpus_wide_idf() -> Patch:
    """Document frequencies and lengths are counted over all objects, as an index shared by all askers does."""

    def top(self: Memory, entitled: Slice, query: str, limit: int) -> list[Scored]:
        everything = _view_of_everything(self).top(self._analyser.query_terms(query), len(self.objects) or 1)
        mine = _keys_of(self, entitled)
        return [one for one in everything if one.key in mine][:limit]

    return mock.patch.object(Memory, "top", top)


@mutant(
    "ENT-1",
    "service/test_score_reference.py::test_an_object_that_the_asker_may_not_see_scores_exactly_zero",
    "service/test_score_reference.py::test_no_text_of_a_query_or_a_record_gives_an_unentitled_object_a_score",
)
def the_reference_forgets_to_ask() -> Patch:
    """What is entitled is looked up for the statistics, and every object is scored."""

    slice_ = reference._Slice

    def score_all(query_terms: Any, documents: Any, entitled: Any, weights: Any) -> dict[ObjectKey, Scored]:
        visible = slice_([each for each in documents if entitled(each.key)], weights)
        visible._average = {name: value or 1.0 for name, value in visible._average.items()}
        return {each.key: visible.scored(each, query_terms) for each in documents}

    return _all(mock.patch.object(reference, "score_all", score_all), mock.patch.object(score, "score_all", score_all))


# --- ENT-2: nothing after scoring handles what the asker may not see --------------------------------------------------


@mutant("ENT-2", f"{PIPELINE}test_replay_1_an_asker_with_no_grants_gets_nothing_and_causes_no_read", TWIN_ANSWERS)
def refresh_before_entitle() -> Patch:
    """Whatever is stale is brought up to date first, and filtered after."""
    answer = Pipeline._answer

    async def eager(self: Pipeline, asker: Asker, cut: Callable[[], list[Survivor]]) -> list[Item]:
        stale = [key for key, each in self.memory.objects.items() if self._freshness(each) <= 0.0]
        if stale:
            await self._refresh(stale, Question(asker, self.boottime() + 5.0))
        return await answer(self, asker, cut)

    return mock.patch.object(Pipeline, "_answer", eager)


@mutant("ENT-2", f"{PIPELINE}test_only_stale_objects_of_the_asker_are_read_and_in_one_read", TWIN_ANSWERS)
def reads_ahead() -> Patch:
    """Since a read is under way, whatever else is stale in its source is read along."""
    refresh = Pipeline._refresh

    async def more(self: Pipeline, stale: Sequence[ObjectKey], question: Question) -> None:
        near = {each for source in {key.source for key in stale} for each in self.memory.keys(source)}
        along = [key for key in sorted(near - set(stale)) if self._freshness(self.memory.objects[key]) <= 0.0]
        await refresh(self, [*stale, *along], question)

    return mock.patch.object(Pipeline, "_refresh", more)


@mutant("ENT-2", THOUSAND, TWIN_ENTRANCES)
def logs_how_much_there_is() -> Patch:
    """A log line of each question tells among how many objects it was asked."""
    slice_ = Memory.slice

    def telling(self: Memory, asker: Asker, sources: frozenset[str] | None) -> Slice:
        get_logger(__name__).info("asked", objects=len(self.objects))
        return slice_(self, asker, sources)

    return mock.patch.object(Memory, "slice", telling)


@mutant("ENT-2", HIDDEN_NAMES)
def counts_what_is_hidden() -> Patch:
    """A metric rises where somebody asks for what they may not see."""
    find = Pipeline._find

    def counting(self: Pipeline, asker: Asker, key: ObjectKey) -> list[Survivor]:
        found = find(self, asker, key)
        if not found and key in self.memory.objects:
            self.metrics.refresh_failed(key.source, Reason.SOURCE_REFUSED)
        return found

    return mock.patch.object(Pipeline, "_find", counting)


# --- ENT-3: the border -----------------------------------------------------------------------------------------------

LEAKING_SCORER = f"{PIPELINE}test_a_leaking_scorer_ends_in_an_error_that_names_no_object"
LEAKING_CLASSES = f"{PIPELINE}test_a_class_table_that_leaks_ends_in_an_error_too"


def _checking(check: Callable[..., None]) -> Patch:
    return _all(mock.patch.object(border, "check", check), mock.patch.object(entitle, "check", check))


@mutant("ENT-3", LEAKING_SCORER, LEAKING_CLASSES)
def no_border() -> Patch:
    """Nobody looks again at what left the scorer."""
    return mock.patch.object(border, "check", return_value=None)


@mutant("ENT-3", LEAKING_CLASSES)
def border_trusts_the_class_table() -> Patch:
    """The check asks the index that it is there to check."""

    def trusting(self: Pipeline, asker: Asker, survivors: list[Survivor]) -> list[Survivor]:
        allowed = self.memory._classes.classes_of(asker)
        if any(self.memory._classes.class_of(each.object.key) not in allowed for each in survivors):
            raise InvariantViolation("leaked")
        return survivors

    return mock.patch.object(Pipeline, "_border", trusting)


@mutant("ENT-3", f"{REPLAYS}test_replay_2_what_leaks_into_the_scores_after_a_refresh_is_stopped_at_the_border_too")
def border_looks_once() -> Patch:
    """What is scored again after a refresh is not decided again."""
    refreshed: ContextVar[bool] = ContextVar("refreshed", default=False)
    look, refresh = Pipeline._border, Pipeline._refresh

    def once(self: Pipeline, asker: Asker, survivors: list[Survivor]) -> list[Survivor]:
        return survivors if refreshed.get() else look(self, asker, survivors)

    async def noting(self: Pipeline, stale: Sequence[ObjectKey], question: Question) -> None:
        await refresh(self, stale, question)
        refreshed.set(True)

    return mock.patch.multiple(Pipeline, _border=once, _refresh=noting)


@mutant("ENT-3", LEAKING_CLASSES)
def fetching_passes_by_the_border() -> Patch:
    """A second way to a record, without the check of the first."""

    def find(self: Pipeline, asker: Asker, key: ObjectKey) -> list[Survivor]:
        found = self.memory.find(asker, key)
        return [] if found is None else [Survivor(found, None)]

    return mock.patch.object(Pipeline, "_find", find)


@mutant("ENT-3", LEAKING_SCORER, "service/test_entitle_border.py::test_accesses_may_come_as_a_stream")
def border_looks_at_the_first() -> Patch:
    """One survivor is taken for all of them."""
    check = border.check

    def first(asker: Asker, accesses: Iterable[Access], entitlements: compiled.Entitlements) -> None:
        check(asker, islice(accesses, 1), entitlements)

    return _checking(first)


@mutant("ENT-3", "service/test_entitle_border.py::test_a_violation_says_nothing_of_the_object_or_of_the_asker")
def a_violation_names_the_object() -> Patch:
    """The error tells what was about to leak."""

    def check(asker: Asker, accesses: Iterable[Access], entitlements: compiled.Entitlements) -> None:
        for access in accesses:
            if not decide.entitled(asker, access, entitlements):
                raise InvariantViolation(f"{asker} was about to see {access}")

    return _checking(check)


# --- ENT-4: non-interference -----------------------------------------------------------------------------------------


@mutant("ENT-4", HIDDEN_NAMES)
def hidden_is_forbidden() -> Patch:
    """What exists and may not be seen is refused otherwise than what does not exist."""
    find = Pipeline._find

    def telling(self: Pipeline, asker: Asker, key: ObjectKey) -> list[Survivor]:
        found = find(self, asker, key)
        if not found and key in self.memory.objects:
            raise InvalidRequest("you may not see that")
        return found

    return mock.patch.object(Pipeline, "_find", telling)


@mutant("ENT-4", THOUSAND, TWIN_ENTRANCES)
def tells_how_many_there_are() -> Patch:
    """An answer carries a total."""
    total: ContextVar[int] = ContextVar("total")
    search, search_answer = Pipeline.search, answers.search_answer

    async def counting(self: Pipeline, *question: Any) -> list[Item]:
        total.set(len(self.memory.objects))
        return await search(self, *question)

    def with_total(items: Sequence[Item]) -> Any:
        return {**search_answer(items), "total": total.get(0)}

    return _all(
        mock.patch.object(Pipeline, "search", counting), mock.patch.object(answers, "search_answer", with_total)
    )


@mutant("ENT-4", f"{PIPELINE}test_sources_are_those_with_an_object_in_the_slice", TWIN_ANSWERS)
def lists_all_sources() -> Patch:
    """The sources of the workspace, whether or not they hold something for the asker."""
    return mock.patch.object(Memory, "sources", lambda self, _asker: set(self.specs))


@mutant(
    "ENT-4",
    f"{PIPELINE}test_replay_3_unknown_and_foreign_sources_select_nothing_alike",
    HIDDEN_NAMES,
)
def unknown_sources_are_an_error() -> Patch:
    """A source that is not there is told from one that is hidden."""
    narrowed = Memory._narrowed

    def strict(self: Memory, found: frozenset[int], sources: frozenset[str] | None) -> frozenset[int]:
        if sources is not None and not sources <= self.specs.keys():
            raise InvalidRequest("there is no such source")
        return narrowed(self, found, sources)

    return mock.patch.object(Memory, "_narrowed", strict)


@mutant("ENT-4", f"{REPLAYS}test_replay_9_what_is_hidden_is_not_waited_for_while_it_is_read")
def waits_for_what_is_hidden() -> Patch:
    """A question about a record that is being read waits for it, and only then is entitlement decided."""
    fetch = Pipeline.fetch

    async def waiting(self: Pipeline, asker: Asker, source: str, record_id: str) -> Item | None:
        flight = self.flights._flying.get(ObjectKey(source, record_id))
        if flight is not None:
            await flight
        return await fetch(self, asker, source, record_id)

    return mock.patch.object(Pipeline, "fetch", waiting)


# --- ENT-5: decided again on what was read ---------------------------------------------------------------------------


@mutant(
    "ENT-5",
    f"{PIPELINE}test_a_record_that_moved_out_of_reach_is_dropped_as_if_it_had_never_matched",
    HONESTY,
    TWIN_ANSWERS,
)
def decided_once() -> Patch:
    """What was entitled before the refresh is served after it."""
    answer = Pipeline._answer

    async def first(self: Pipeline, asker: Asker, cut: Callable[[], list[Survivor]]) -> list[Item]:
        kept: list[Survivor] = []

        def once() -> list[Survivor]:
            kept.extend([] if kept else cut())
            return [Survivor(self.memory.objects.get(each.object.key, each.object), each.scored) for each in kept]

        return await answer(self, asker, once)

    return mock.patch.object(Pipeline, "_answer", first)


@mutant("ENT-5", f"{PIPELINE}test_what_a_dropped_record_makes_room_for_is_refreshed_too")
def keeps_the_place_of_what_left() -> Patch:
    """A record that moved out of reach leaves a hole, by which its asker can tell that it was there."""
    answer = Pipeline._answer

    async def with_holes(self: Pipeline, asker: Asker, cut: Callable[[], list[Survivor]]) -> list[Item]:
        places: list[ObjectKey] = []

        def again() -> list[Survivor]:
            survivors = cut()
            places.extend([] if places else [each.object.key for each in survivors])
            return [each for each in survivors if each.object.key in places]

        return await answer(self, asker, again)

    return mock.patch.object(Pipeline, "_answer", with_holes)


# --- ENT-6: default deny ---------------------------------------------------------------------------------------------


@mutant("ENT-6", f"{PIPELINE}test_replay_1_an_asker_with_no_grants_gets_nothing_and_causes_no_read", REFERENCE)
def no_grant_is_no_filter() -> Patch:
    """An asker whom no policy names is asked nothing more."""
    sees, classes_of = decide._sees, classes.ClassTable.classes_of

    def lenient(party: Party, access: Access) -> bool:
        return not party.allows or sees(party, access)

    def all_classes(self: classes.ClassTable, asker: Asker) -> frozenset[int]:
        return classes_of(self, asker) if self._grants.of(asker) else frozenset(self._classes)

    return _all(
        mock.patch.object(decide, "_sees", lenient), mock.patch.object(classes.ClassTable, "classes_of", all_classes)
    )


@mutant("ENT-6", f"{REPLAYS}test_replay_1_a_rule_that_says_nothing_allows_nothing")
def an_empty_rule_allows_all() -> Patch:
    """A rule without any condition says nothing, so nothing fails it."""
    surely_matches = decide._surely_matches

    def lenient(clause: Clause, principal: Principal, access: Access) -> bool:
        everything = clause.rule.everything or not clause.rule.where
        rule = clause.rule.model_copy(update={"everything": everything})
        return surely_matches(clause._replace(rule=rule), principal, access)

    return mock.patch.object(decide, "_surely_matches", lenient)


@mutant("ENT-6", REFERENCE)
def an_empty_list_of_sources_is_all() -> Patch:
    """A filter that selects nothing is taken for no filter."""
    narrowed = Memory._narrowed

    def lenient(self: Memory, found: frozenset[int], sources: frozenset[str] | None) -> frozenset[int]:
        return narrowed(self, found, sources or None)

    return mock.patch.object(Memory, "_narrowed", lenient)


@mutant("ENT-6", DECIDING)
def unknown_satisfies_an_allow() -> Patch:
    """A condition that cannot be evaluated does not stand in the way."""
    return mock.patch.object(
        decide, "_surely_matches", lambda clause, _, access: decide._possibly_matches(clause, access)
    )


@mutant("ENT-6", DECIDING)
def unknown_spares_from_a_deny() -> Patch:
    """A Deny that cannot be evaluated does not apply."""

    def surely(clause: Clause, access: Access) -> bool:
        verdicts = [demand.verdict(access) for demand in clause.demands]
        return access.source in clause.rule.sources and all(verdict is True for verdict in verdicts)

    return mock.patch.object(decide, "_possibly_matches", surely)


@mutant("ENT-6", DECIDING)
def allow_wins() -> Patch:
    """What one policy allows, no other can deny."""

    def allowed(party: Party, access: Access) -> bool:
        return any(decide._surely_matches(clause, party.principal, access) for clause in party.allows)

    return mock.patch.object(decide, "_sees", allowed)


@mutant("ENT-6", "crds/test_compile_policies.py::test_a_refused_deny_denies_everything_in_its_workspaces")
def a_refused_deny_is_left_out() -> Patch:
    """A Deny that cannot be understood is skipped, as an Allow is."""
    if_refused = policies._if_refused

    def lenient(documents: Any, workspace: str) -> Standing | None:
        return None if if_refused(documents, workspace) is None else Standing.GRANTS_NOTHING

    return mock.patch.object(policies, "_if_refused", lenient)


@mutant("ENT-6", DECIDING)
def no_readers_are_all_readers() -> Patch:
    """A record that names nobody is everybody's."""
    is_reader = decide._is_reader

    def lenient(principal: Principal, readers: Any) -> bool:
        return is_reader(principal, readers) or not (readers.users or readers.groups)

    return mock.patch.object(decide, "_is_reader", lenient)


@mutant("ENT-6", "service/test_serve_auth.py::test_names_that_look_alike_are_different_principals", CASES)
def names_are_folded() -> Patch:
    """Ana and ana are one person, as in many an address book."""
    user = auth._user

    def folded(issuer: compiled.Issuer, claims: Mapping[str, Any]) -> Principal:
        found = user(issuer, claims)
        return replace(found, name=Name(found.name.issuer, found.name.name.strip().casefold()))

    return mock.patch.object(auth, "_user", folded)


@mutant("ENT-6", "service/test_serve_auth.py::test_equal_names_of_two_issuers_are_different_principals", CASES)
def groups_of_all_issuers_are_one() -> Patch:
    """Sales of one company are sales of another."""
    groups = auth._groups

    def merged(issuer: compiled.Issuer, claims: Mapping[str, Any]) -> frozenset[Name]:
        return frozenset(Name("corp", group.name) for group in groups(issuer, claims))

    return mock.patch.object(auth, "_groups", merged)


@mutant("ENT-6", "service/test_entitle_classes.py::test_objects_that_a_policy_can_tell_apart_are_in_different_classes")
def values_run_together() -> Patch:
    """What decides is joined into one key with delimiters that values may hold, and without their types."""

    def likeness(access: Access) -> str:
        values = [f"{name}={value}" for name, value in sorted(access.attributes.items())]
        return "/".join([access.source, *values])

    return mock.patch.object(classes, "_likeness", likeness)


# --- ENT-7: an agent for a person ------------------------------------------------------------------------------------

BOTH = "service/test_entitle_decide.py::test_an_agent_for_a_person_sees_what_both_may_see"


@mutant("ENT-7", BOTH, CASES)
def the_agent_alone_decides() -> Patch:
    """On whose behalf it asks is written down, and no more."""
    return mock.patch.object(Asker, "everyone", property(lambda self: (self.principal,)))


@mutant("ENT-7", BOTH)
def the_person_alone_decides() -> Patch:
    """An agent is as good as whom it acts for."""
    return mock.patch.object(Asker, "everyone", property(lambda self: (self.on_behalf_of or self.principal,)))


@mutant("ENT-7", BOTH)
def one_of_both_is_enough() -> Patch:
    """The union of what they see."""

    def some_see(everyone: Sequence[Party], access: Access) -> bool:
        return any(decide._sees(party, access) for party in everyone)

    return _all(mock.patch.object(decide, "all_see", some_see), mock.patch.object(classes, "all_see", some_see))


# --- FRE-1, FRE-2: TTL and freshness ---------------------------------------------------------------------------------

AT_ITS_TTL = f"{PIPELINE}test_replay_16_at_its_ttl_a_record_is_read_again_before_it_is_served"


@mutant("FRE-1", "crds/test_constraints.py::test_a_source_without_a_ttl_is_refused")
def a_missing_ttl_means_a_day() -> Patch:
    """A source that declares no TTL gets one."""
    validate = MemorySource.model_validate

    def lenient(body: Any, **options: Any) -> MemorySource:
        return validate({**body, "spec": {"ttl": "24h", **body["spec"]}}, **options)

    return mock.patch.object(MemorySource, "model_validate", lenient)


@mutant("FRE-1", AT_ITS_TTL, HONESTY)
def one_ttl_for_all() -> Patch:
    """What a source declares is not what its objects are measured by."""

    def freshness(self: Pipeline, remembered: MemoryObject) -> float:
        return pipeline.freshness(remembered.clock, 3600.0, self.clock.latest())

    return mock.patch.object(Pipeline, "_freshness", freshness)


@mutant("FRE-2", AT_ITS_TTL, HONESTY)
def serves_past_the_ttl() -> Patch:
    """What is remembered is fresh."""
    return mock.patch.object(pipeline, "freshness", return_value=0.5)


@mutant("FRE-2", f"{PIPELINE}test_a_time_in_the_future_counts_as_stale_and_heals")
def the_future_is_fresh() -> Patch:
    """What was confirmed later than now is the freshest of all."""
    freshness = pipeline.freshness

    def lenient(clock: Clock, ttl_seconds: float, now: float) -> float:
        return freshness(clock, ttl_seconds, max(now, clock.confirmed_at))

    return mock.patch.object(pipeline, "freshness", lenient)


@mutant("FRE-2", f"{TRUTH}test_replay_16_the_age_of_a_record_counts_from_the_start_of_its_read")
def age_counts_from_the_end_of_the_read() -> Patch:
    """A slow read makes a record as young as a quick one."""
    write = flights._Flight._write

    async def late(self: Any, reader: Reader, _started: float, findings: Any, leases: Any) -> Any:
        return await write(self, reader, self.control.clock.earliest(), findings, leases)

    return mock.patch.object(flights._Flight, "_write", late)


@mutant("FRE-2", "service/test_clock.py::test_a_record_never_looks_younger_than_it_is")
def rounds_in_favour_of_freshness() -> Patch:
    """Of the bounds of the store's time, the earlier one is taken for now."""
    return mock.patch.object(StoreClock, "latest", StoreClock.earliest)


@mutant("FRE-2", f"{TRUTH}test_replay_16_a_score_is_the_same_at_any_age")
def freshness_weighs_in_the_score() -> Patch:
    """Older records rank lower."""
    item = Pipeline._item

    def weighed(self: Pipeline, survivor: Survivor, question: Question) -> Item:
        found = item(self, survivor, question)
        return found if found.score is None else replace(found, score=found.score * found.freshness.score)

    return mock.patch.object(Pipeline, "_item", weighed)


@mutant("FRE-2", f"{TRUTH}test_replay_21_a_version_that_never_changes_confirms_nothing")
def every_listing_confirms() -> Patch:
    """An unchanged version is taken for an unchanged record, whatever it covers."""
    return mock.patch.object(compiled.Source, "version_covers_access", property(lambda _: True))


@mutant(
    "FRE-2",
    "service/test_store_writes.py::test_replay_46_a_write_that_was_paused_gives_way_to_the_newer_one_that_landed_meanwhile",
)
def the_last_write_wins() -> Patch:
    """A slow read of long ago takes the place of a quick one of just now."""
    older = statements._OLDER
    assert older in statements.WRITE
    return mock.patch.object(statements, "WRITE", statements.WRITE.replace(older, "true"))


# --- FRE-3: labelled, or not served ----------------------------------------------------------------------------------

LABELLED = f"{PIPELINE}test_a_failed_refresh_is_labelled_and_shows_nothing_of_the_record"


@mutant("FRE-3", LABELLED, HONESTY)
def falls_back_to_the_old_answer() -> Patch:
    """Better an old record than none."""
    return mock.patch.object(pipeline, "_state", return_value=State.FRESH)


@mutant("FRE-3", f"{PIPELINE}test_replay_16_a_failed_refresh_does_not_move_the_clock", HONESTY)
def moves_the_clock_of_a_failed_read() -> Patch:
    """Whatever was tried counts as done."""
    land = Flights.land

    def revive(self: Flights, key: ObjectKey, outcome: Any) -> None:
        if (known := self.memory.get(key)) is not None:
            self.memory.objects[key] = replace(known, clock=Clock(self.clock.earliest()))  # type: ignore[attr-defined]
        land(self, key, outcome)

    return mock.patch.object(Flights, "land", revive)


@mutant("FRE-3", LABELLED, HONESTY)
def shows_what_could_not_be_confirmed() -> Patch:
    """A label, and the old record beside it."""
    item = Pipeline._item

    def showing(self: Pipeline, survivor: Survivor, question: Question) -> Item:
        found = item(self, survivor, question)
        return found if found.content else replace(found, content=survivor.object)

    return mock.patch.object(Pipeline, "_item", showing)


@mutant("FRE-3", f"{PIPELINE}test_what_failed_follows_what_was_confirmed_by_id_and_counts_in_the_limit")
def what_failed_keeps_its_rank() -> Patch:
    """Where a record stands tells how well its old text matched."""

    def ranked(self: Pipeline, survivors: Sequence[Survivor], question: Question) -> list[Item]:
        return [self._item(survivor, question) for survivor in survivors]

    return mock.patch.object(Pipeline, "_items", ranked)


# --- FRE-4, FRE-5: what costs a condensing, and what decides entitlement ---------------------------------------------

UNCHANGED = f"{PIPELINE}test_an_unchanged_record_moves_its_clock_and_costs_no_condensing"
CHANGED_OWNER = f"{PIPELINE}test_replay_5_a_changed_owner_is_in_force_and_costs_no_condensing"


@mutant("FRE-4", UNCHANGED)
def condenses_whatever_was_read() -> Patch:
    """Every read is news."""
    record, numbers = RecordMapping.record, count()

    def always_new(self: RecordMapping, record_id: str, raw: Any) -> Record:
        return replace(record(self, record_id, raw), content_hash=f"{next(numbers)}")

    return mock.patch.object(RecordMapping, "record", always_new)


@mutant("FRE-4", f"{TRUTH}test_replay_16_of_an_unchanged_record_no_row_but_its_clock_is_written")
def rewrites_what_did_not_change() -> Patch:
    """What was read is written, whole, every time."""
    judge = flights._Flight._judge

    async def whole(self: Any, reader: Reader, key: ObjectKey, found: Any) -> Finding:
        finding = await judge(self, reader, key, found)
        known = self.control.memory.get(key)
        if finding.confirmation is None or known is None:
            return finding
        condensed = flights.Condensed(known.summary, known.condenser)
        return Finding(finding.outcome, put=flights.Put(found, condensed, finding.confirmation.version))

    return mock.patch.object(flights._Flight, "_judge", whole)


@mutant("FRE-5", CHANGED_OWNER)
def confirms_by_content_alone() -> Patch:
    """The owner or the region changed, the content did not: taken for unchanged."""
    record = RecordMapping.record

    def forget(self: RecordMapping, record_id: str, raw: Any) -> Record:
        return replace(record(self, record_id, raw), access_hash="same")

    return mock.patch.object(RecordMapping, "record", forget)


@mutant("FRE-5", CHANGED_OWNER)
def one_hash_for_all_of_a_record() -> Patch:
    """A changed owner costs a condensing."""
    record = RecordMapping.record

    def together(self: RecordMapping, record_id: str, raw: Any) -> Record:
        found = record(self, record_id, raw)
        return replace(found, content_hash=found.content_hash + found.access_hash)

    return mock.patch.object(RecordMapping, "record", together)


@mutant(
    "FRE-5",
    f"{PIPELINE}test_a_changed_reading_spec_makes_objects_unservable_until_they_are_read_again",
    "service/test_memory.py::test_objects_of_another_reading_spec_are_no_candidates_until_they_are_read_again",
)
def serves_what_another_spec_read() -> Patch:
    """What was read as one thing is served as another."""
    admit = Memory._admit

    def lenient(self: Memory, key: ObjectKey, remembered: MemoryObject) -> None:
        spec = self.specs.get(key.source)
        admit(self, key, remembered if spec is None else replace(remembered, spec_hash=spec.spec_hash))

    return mock.patch.object(Memory, "_admit", lenient)


@mutant("FRE-5", f"{PIPELINE}test_a_source_that_leaves_takes_its_objects_along")
def a_source_that_left_is_kept() -> Patch:
    """The objects of a source that left the workspace stay, for it may come back."""

    async def settle(self: runtime.Engine) -> None:
        self._settled = True

    return mock.patch.object(runtime.Engine, "_settle", settle)


# --- FRE-6: what is taken as deleted ---------------------------------------------------------------------------------


@mutant("FRE-6", f"{LOOP}test_replay_17_a_listing_that_breaks_deletes_nothing_and_says_so", HONESTY)
def takes_a_broken_listing_for_a_complete_one() -> Patch:
    """An error is swallowed, and what was listed so far is all there is."""

    async def believe(self: Loop, reader: Reader, started: float) -> Listing:
        listing = Listing(started)
        with suppress(SourceError):
            async for page in reader.list():
                listing.versions.update({ObjectKey(reader.spec.name, each.record_id): each.version for each in page})
        return listing

    return mock.patch.object(Loop, "_list", believe)


@mutant("FRE-6", "service/test_source_postgres.py::test_a_listing_of_more_than_max_objects_raises")
def a_long_listing_is_cut() -> Patch:
    """What is beyond maxObjects is not there."""
    list_ = PostgresSource.list

    async def short(self: PostgresSource) -> Any:
        with suppress(SourceError):
            async for page in list_(self):
                yield page

    return mock.patch.object(PostgresSource, "list", short)


@mutant("FRE-6", LABELLED, f"{TRUTH}test_replay_17_a_read_that_failed_deletes_nothing")
def a_failed_read_is_a_deletion() -> Patch:
    """What cannot be read is gone."""
    judge = flights._Flight._judge

    async def gone(self: Any, reader: Reader, key: ObjectKey, found: Any) -> Finding:
        return await judge(self, reader, key, None if isinstance(found, SourceError) else found)

    return mock.patch.object(flights._Flight, "_judge", gone)


# --- FRE-7: the background loop --------------------------------------------------------------------------------------


@mutant("FRE-7", f"{LOOP}test_when_the_loop_is_due_does_not_depend_on_what_was_asked")
def is_due_by_what_was_asked() -> Patch:
    """A sweep comes when the oldest confirmation asks for it, whoever confirmed the rest."""

    def due(self: Loop, reader: Reader, state: SourceState) -> bool:
        found = [self.memory.get(key) for key in self.memory.keys(reader.spec.name)]
        clocks = [each.clock.confirmed_at for each in found if each is not None]
        return bool(clocks) and self._passed(min(clocks), reader.spec.sweep_seconds)

    return mock.patch.object(Loop, "_sweep_due", due)


@mutant("FRE-7", f"{LOOP}test_a_sweep_reads_every_object_whatever_was_asked_since")
def sweeps_what_is_stale() -> Patch:
    """A sweep spares what somebody had read lately."""
    read = Loop._read

    async def sparing(self: Loop, reader: Reader, keys: Sequence[ObjectKey], versions: Any = None) -> Any:
        oldest = self.clock.latest() - reader.spec.ttl_seconds
        found = {key: self.memory.get(key) for key in keys}
        stale = [key for key, each in found.items() if each is None or each.clock.confirmed_at <= oldest]
        return await read(self, reader, stale, versions)

    return mock.patch.object(Loop, "_read", sparing)


# --- SCO-1: scores ---------------------------------------------------------------------------------------------------

EQUAL = "service/test_score_fast.py::"


@mutant("SCO-1", REFERENCE)
def ties_in_any_order() -> Patch:
    """Equal scores stand as they came."""
    ranked = fast._ranked
    return mock.patch.object(fast, "_ranked", lambda scores, places, limit: ranked(scores, places[::-1], limit))


@mutant("SCO-1", REFERENCE)
def scores_are_not_their_explanation() -> Patch:
    """A total is rounded for the eye."""
    return mock.patch.object(fast, "_scored", lambda values: Scored(values[0], round(values[1], 3), values[2]))


@mutant("SCO-1", REFERENCE)
def sums_depend_on_their_order() -> Patch:
    """Shares are plain floats."""
    return mock.patch.object(fast, "_quantised", lambda shares: shares)


@mutant("SCO-1", REFERENCE)
def a_title_weighs_like_a_body() -> Patch:
    """The weight is a setting that nobody reads."""
    return mock.patch.object(memory, "Weights", return_value=Weights(title=1.0))


# --- CON-1, CON-2, CON-3: configuration ------------------------------------------------------------------------------


@mutant(
    "CON-1", "service/test_runtime.py::test_a_source_that_this_version_cannot_read_holds_up_no_other_and_no_revocation"
)
def a_refused_source_takes_the_rest_along() -> Patch:
    """One source that cannot be read, and nothing of what came with it is in force."""

    def all_or_nothing(self: runtime.Engine, spec: compiled.Source, credentials: Mapping[str, str]) -> None:
        self.readers[spec.name] = runtime.build_reader(
            spec, credentials, self.options.boottime, allow_loopback=self.options.allow_loopback
        )

    return mock.patch.object(runtime.Engine, "_replace_reader", all_or_nothing)


@mutant("CON-1", "service/test_runtime.py::test_a_refused_configuration_leaves_the_last_good_one_and_is_counted")
def a_refusal_is_not_counted() -> Patch:
    """What was refused is in the log, and in no metric."""
    return mock.patch.object(Metrics, "config_rejected", return_value=None)


@mutant("CON-1", "crds/test_compile_last_good.py::test_a_refused_source_never_holds_back_a_revocation")
def a_refused_source_holds_back_a_revocation() -> Patch:
    """Sources and entitlements are published together, or not at all."""
    import freshgate_crds.compile as compiling

    compile_workspace = compiling.compile_workspace

    def together(*inputs: Any, previous: compiled.Config | None = None, **surroundings: Any) -> Any:
        compilation = compile_workspace(*inputs, previous=previous, **surroundings)
        refused = any(refusal.kind == "MemorySource" for refusal in compilation.refusals)
        if not (refused and previous and compilation.config):
            return compilation
        config = compilation.config.model_copy(update={"entitlements": previous.entitlements})
        return replace(compilation, config=config)

    return mock.patch.object(compiling, "compile_workspace", together)


@mutant("CON-2", f"{PIPELINE}test_past_their_validity_no_query_is_answered")
def nobody_looks_at_the_stamp() -> Patch:
    """A configuration that is there is valid."""

    async def ready(self: Pipeline) -> None:
        if self.behind():
            raise pipeline.ConfigBehind("a newer configuration is in force")

    return mock.patch.object(Pipeline, "_ready", ready)


@mutant("CON-2", f"{TRUTH}test_entitlements_are_as_old_as_their_listing_however_late_they_come")
def stamps_what_it_loads() -> Patch:
    """Validity counts from when a process took the entitlements into force."""
    replace_config = Memory.replace_config

    def stamped(self: Memory, config: compiled.Config) -> None:
        vouched = config.entitlements.model_copy(update={"stamp": datetime.now(UTC)})
        replace_config(self, config.model_copy(update={"entitlements": vouched}))

    return mock.patch.object(Memory, "replace_config", stamped)


@mutant("CON-2", "operator/test_reconcile.py::test_a_stamp_is_when_the_lists_began_that_were_published")
def stamps_when_it_publishes() -> Patch:
    """The operator stamps by the clock on the wall, and not by when the lists began."""
    from freshgate_operator import reconcile

    read = reconcile.read

    async def late(cluster: Any, namespace: str, clock: Callable[[], datetime]) -> Any:
        snapshot = await read(cluster, namespace, clock)
        return None if snapshot is None else replace(snapshot, stamp=clock())

    return mock.patch.object(reconcile, "read", late)


@mutant("CON-2", "operator/test_reconcile.py::test_nothing_is_stamped_where_a_list_failed")
def stamps_by_a_timer() -> Patch:
    """Where a list fails, what was listed last is vouched for again."""
    from freshgate_operator import reconcile
    from freshgate_operator.errors import ClusterError

    read, last = reconcile.read, dict[str, Any]()

    async def cached(cluster: Any, namespace: str, clock: Callable[[], datetime]) -> Any:
        try:
            last[namespace] = await read(cluster, namespace, clock)
        except ClusterError:
            return replace(last[namespace], stamp=clock())
        return last[namespace]

    return mock.patch.object(reconcile, "read", cached)


@mutant("CON-3", "service/test_runtime.py::test_replay_46_an_older_configuration_never_replaces_a_newer_one")
def the_last_to_come_wins() -> Patch:
    """Whatever comes is newer than what is there."""
    return mock.patch.object(runtime, "_older", return_value=False)


@mutant("CON-3", f"{PIPELINE}test_a_process_that_is_behind_waits_and_then_does_not_answer")
def whoever_is_behind_answers() -> Patch:
    """That another process is ahead is no reason to say nothing."""
    return mock.patch.object(runtime.Engine, "_behind", return_value=False)


@mutant("CON-3", "service/test_store_revisions.py::test_the_highest_revision_is_kept_whatever_order_they_come_in")
def the_store_keeps_the_last_revision() -> Patch:
    """The store remembers the revision that it saw last, and not the highest."""
    whichever = statements.ADMIT_REVISION.split("AND CASE")[0] + "RETURNING id"
    return mock.patch.object(statements, "ADMIT_REVISION", whichever)
