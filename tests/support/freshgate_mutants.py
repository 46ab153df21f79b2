"""The mutants: for each promise, faults that systems like this one have had, to be switched in on purpose.

`pytest --mutant NAME` runs tests with one switched in; `make prove` does so for all, and wants every test that a mutant
names to turn red. A mutant is small: it puts one function of the product in the place of another.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import count, islice
from typing import Any
from unittest import mock

from freshgate_crds import compiled
from freshgate_crds.compile import policies
from freshgate_crds.compile.outcomes import Standing
from freshgate_crds.v1alpha1 import MemorySource
from freshgate_service import memory, pipeline, runtime
from freshgate_service.clock import StoreClock
from freshgate_service.domain import (
    Access,
    Asker,
    Batch,
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
from freshgate_service.entitle import border, classes, decide, grants
from freshgate_service.entitle.decide import Clause, Party
from freshgate_service.errors import ConfigRefused, InvalidRequest, InvariantViolation, SourceError
from freshgate_service.logs import get_logger
from freshgate_service.memory import Memory, Slice
from freshgate_service.metrics import Metrics
from freshgate_service.pipeline import Pipeline, Question, Survivor
from freshgate_service.refresh import Failed, Flights, Loop, flights
from freshgate_service.refresh.flights import Finding
from freshgate_service.refresh.loop import Listing
from freshgate_service.refresh.ports import Reader
from freshgate_service.score import fast, reference
from freshgate_service.score.bm25f import Weights
from freshgate_service.score.fast import View
from freshgate_service.serve import answers, auth
from freshgate_service.sources.mapping import Mapping as RecordMapping
from freshgate_service.sources.postgres import PostgresSource

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
        MUTANTS[name] = Mutant(name, promise, fault, apply, tuple(f"{test}" for test in tests))
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


# --- ENT-1: entitlement runs first -----------------------------------------------------------------------------------


def _view_of_everything(of: Memory) -> View:
    keys = [key for key in of.objects if of._classes.class_of(key) is not None]
    return View([(key, of._documents[key]) for key in keys], of._weights, of._vocabulary)


def _keys_of(of: Memory, entitled: Slice) -> set[ObjectKey]:
    [mine] = [classes for classes, piece in of._slices.items() if piece is entitled]
    return {key for class_id in mine for key in of._classes.members(class_id)}


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

    class Forgetful(dict[ObjectKey, Any]):
        def __contains__(self, key: object) -> bool:
            return True

    slice_ = reference._Slice

    def score_all(query_terms: Any, documents: Any, entitled: Any, weights: Any) -> dict[ObjectKey, Scored]:
        whole = slice_([each for each in documents if entitled(each.key)], weights)
        whole._average = {name: value or 1.0 for name, value in whole._average.items()}
        return {each.key: whole.scored(each, query_terms) for each in documents}

    return _in_every_place("score_all", score_all, reference, "freshgate_service.score")
