"""Whatever happens upstream and however time passes: nothing is called current that is not, for anybody.

A state machine of clock steps, faults, edits, revocations, restarts and questions, on a real store. Its model knows
only what was read successfully, and when. Each mutant is a way in which systems like this one have lied.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from itertools import count
from typing import Any, TypeVar

import pytest
from freshgate_mutants import MUTANTS
from freshgate_world import ANA, BOB, ZOE, World, configuration, world
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from freshgate_service.domain import Asker, Item, State
from freshgate_service.errors import RateLimited, SourceError, SourceTimeout, SourceUnavailable

T = TypeVar("T")
TTL = 60.0
REGIONS = {ANA: "emea", BOB: "amer", ZOE: None}
IDS = st.sampled_from(["1", "2", "3"])
FAULTS = st.sampled_from([None, None, None, SourceUnavailable("gone"), SourceTimeout("slow"), RateLimited("enough")])


class Honesty(RuleBasedStateMachine):
    database = ""
    move_time: Any = None
    workspaces = count(1)

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.made: World
        self.closing = AsyncExitStack()
        self._run(self._open())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    async def _open(self) -> None:
        config = configuration(workspace=f"w{next(self.workspaces)}")
        self.made = await self.closing.enter_async_context(world(self.database, self.move_time, config))
        self.desk = self.made.upstreams["tickets"]
        for record_id, region in (("1", "emea"), ("2", "emea"), ("3", "amer")):
            self.desk.put(record_id, title=f"refund {record_id}", region=region)
        await self.made.loop()

    def teardown(self) -> None:
        self._run(self.closing.aclose())
        self.runner.close()

    # what happens upstream

    @rule(record_id=IDS, number=st.integers(0, 9))
    def edit(self, record_id: str, number: int) -> None:
        region = self.desk.records.get(record_id, {}).get("region", "emea")
        self.desk.put(record_id, title=f"refund {number}", region=region)

    @rule(record_id=IDS, region=st.sampled_from(["emea", "amer", None]))
    def move(self, record_id: str, region: str | None) -> None:
        if record_id in self.desk.records:
            self.desk.put(record_id, region=region)

    @rule(record_id=IDS)
    def delete(self, record_id: str) -> None:
        self.desk.records.pop(record_id, None)

    @rule(fault=FAULTS)
    def fail(self, fault: SourceError | None) -> None:
        self.desk.fault = fault

    # what happens here

    @rule(seconds=st.sampled_from([20.0, 61.0]))
    def wait(self, seconds: float) -> None:
        self._run(self.made.advance(seconds))

    @rule()
    def loop(self) -> None:
        self._run(self.made.loop())

    @rule()
    def loop_over_a_broken_listing(self) -> None:
        before = set(self.made.engine.memory.objects)
        self.desk.breaks_after = 0
        self.wait(61.0)
        self.loop()
        self.desk.breaks_after = None
        assert before <= set(self.made.engine.memory.objects), "deleted by a listing that broke"

    @rule()
    def ask(self) -> None:
        for asker in REGIONS:
            for item in self._run(self.made.ask(asker, "refund")):
                self._check(asker, item)

    @rule(record_id=IDS)
    def fetch(self, record_id: str) -> None:
        for asker in REGIONS:
            item = self._run(self.made.engine.pipeline.fetch(asker, "tickets", record_id))
            if item is not None:
                self._check(asker, item)

    def _check(self, asker: Asker, item: Item) -> None:
        read_at, record = self.desk.seen[item.key.record_id]
        assert record is not None, "a record whose last read said that it is gone"
        assert record["region"] == REGIONS[asker], "a record that the asker may not see"
        if item.freshness.state is State.STALE_REFRESH_FAILED:
            assert (item.content, item.score, item.matched) == (None, None, ())
            return
        assert item.content is not None
        assert self.made.boottime() - read_at <= TTL, "called current past its TTL"
        assert item.content.title == record["title"], "not what was read last"


@pytest.fixture
def machine(database, move_store_time) -> type[Honesty]:
    return type("Machine", (Honesty,), {"database": database, "move_time": staticmethod(move_store_time)})


def play(machine: type[Honesty], examples: int, *, explain: bool = True) -> None:
    """`explain` looks for the shortest failure, which takes its time: nobody reads that of a mutant."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            phases=settings.default.phases if explain else [Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.promise("FRE-2", "FRE-3", "ENT-5", "FRE-6")
def test_nothing_is_ever_labelled_current_past_its_ttl_or_after_a_failed_read(machine):
    play(machine, 40)


# --- what the machine must catch -------------------------------------------------------------------------------------


@pytest.mark.promise("FRE-2", "FRE-3", "FRE-5", "FRE-6")
@pytest.mark.parametrize(
    "mutant",
    [
        "falls_back_to_the_old_answer",
        "serves_past_the_ttl",
        "moves_the_clock_of_a_failed_read",
        "confirms_by_content_alone",
        "takes_a_broken_listing_for_a_complete_one",
    ],
)
def test_the_machine_catches(machine, mutant):
    with MUTANTS[mutant].apply(), pytest.raises((AssertionError, BaseExceptionGroup)):
        play(machine, 300, explain=False)
