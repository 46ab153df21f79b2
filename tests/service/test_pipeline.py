"""Entitle → score → refresh on a real store: what an asker is told, and which reads a question causes."""

import asyncio
from collections.abc import AsyncIterator
from unittest import mock

import pytest
from freshgate_world import ANA, BOB, ZOE, World, allow, entitlements, group, key, person, source, states, world

from freshgate_crds.compiled import Revision
from freshgate_service.domain import Reason, Scored, State
from freshgate_service.errors import (
    ConfigBehind,
    EntitlementsExpired,
    InvariantViolation,
    RecordMalformed,
    SourceTimeout,
    SourceUnavailable,
)
from freshgate_service.refresh import flights as flights_module


@pytest.fixture
async def made(database, move_store_time) -> AsyncIterator[World]:
    async with world(database, move_store_time) as made:
        yield made


async def two_regions(made: World) -> None:
    made.upstreams["tickets"].put("1", title="refund", region="emea")
    made.upstreams["tickets"].put("2", title="refund", region="amer")
    await made.loop()
    made.upstreams["tickets"].reads.clear()


async def test_an_asker_is_answered_from_the_slice_that_policies_allow(made):
    await two_regions(made)
    assert states(await made.ask(ANA, "refund")) == {"tickets/1": "fresh"}
    assert states(await made.ask(BOB, "refund")) == {"tickets/2": "fresh"}


@pytest.mark.promise("ENT-2", "ENT-6")
async def test_replay_1_an_asker_with_no_grants_gets_nothing_and_causes_no_read(made):
    await two_regions(made)
    await made.advance(61)
    assert await made.ask(ZOE, "refund") == []
    assert await made.engine.pipeline.fetch(ZOE, "tickets", "1") is None
    assert made.upstreams["tickets"].reads == []


@pytest.mark.promise("ENT-2")
async def test_only_stale_objects_of_the_asker_are_read_and_in_one_read(made):
    for each in range(12):
        made.upstreams["tickets"].put(f"e{each:02}", title="refund", region="emea")
        made.upstreams["tickets"].put(f"a{each:02}", title="refund", region="amer")
    await made.loop()
    made.upstreams["tickets"].reads.clear()
    await made.advance(61)
    items = await made.ask(ANA, "refund")
    assert {item.freshness.state for item in items} == {State.REFRESHED}
    assert [len(read) for read in made.upstreams["tickets"].reads] == [10]
    assert all(each.startswith("e") for each in made.upstreams["tickets"].reads[0])


@pytest.mark.promise("FRE-2")
@pytest.mark.parametrize(("age", "state"), [(58, "fresh"), (60.5, "refreshed")])
async def test_replay_16_at_its_ttl_a_record_is_read_again_before_it_is_served(made, age, state):
    await two_regions(made)
    await made.advance(age)
    assert states(await made.ask(ANA, "refund")) == {"tickets/1": state}
    assert len(made.upstreams["tickets"].reads) == (state == "refreshed")


@pytest.mark.promise("FRE-3")
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (SourceUnavailable("gone"), Reason.SOURCE_UNAVAILABLE),
        (SourceTimeout("slow"), Reason.SOURCE_TIMEOUT),
    ],
)
async def test_a_failed_refresh_is_labelled_and_shows_nothing_of_the_record(made, fault, reason):
    await two_regions(made)
    await made.advance(61)
    made.upstreams["tickets"].fault = fault
    [item] = await made.ask(ANA, "refund")
    assert (item.freshness.state, item.freshness.reason, item.freshness.score) == (
        State.STALE_REFRESH_FAILED,
        reason,
        0.0,
    )
    assert (item.content, item.score, item.matched) == (None, None, ())


@pytest.mark.promise("FRE-3")
async def test_replay_16_a_failed_refresh_does_not_move_the_clock(made):
    await two_regions(made)
    confirmed = made.engine.memory.objects[key("1")].clock
    await made.advance(61)
    made.upstreams["tickets"].fault = SourceUnavailable("gone")
    [failed] = await made.ask(ANA, "refund")
    assert failed.freshness.confirmed_at == confirmed.confirmed_at
    assert made.engine.memory.objects[key("1")].clock == confirmed


@pytest.mark.promise("FRE-3")
async def test_what_failed_follows_what_was_confirmed_by_id_and_counts_in_the_limit(made):
    desk = made.upstreams["tickets"]
    for each in ("a", "b", "c", "d"):
        desk.put(each, title="refund")
    await made.loop()
    await made.advance(61)
    desk.records["b"] = {"title": "refund"}  # the mapping's attribute is gone: this record fails alone
    desk.records["a"] = {"title": "refund"}
    items = await made.ask(ANA, "refund", limit=3)
    assert [(item.key.record_id, item.freshness.reason) for item in items] == [
        ("c", None),
        ("a", Reason.RECORD_MALFORMED),
        ("b", Reason.RECORD_MALFORMED),
    ]


@pytest.mark.promise("ENT-5")
async def test_a_record_that_moved_out_of_reach_is_dropped_as_if_it_had_never_matched(made):
    await two_regions(made)
    await made.advance(61)
    made.upstreams["tickets"].put("1", region="amer")
    assert await made.ask(ANA, "refund") == []
    assert set(states(await made.ask(BOB, "refund"))) == {"tickets/1", "tickets/2"}


@pytest.mark.promise("ENT-5")
async def test_what_a_dropped_record_makes_room_for_is_refreshed_too(made):
    desk = made.upstreams["tickets"]
    for each in ("a", "b", "c"):
        desk.put(each, title="refund")
    await made.loop()
    await made.advance(61)
    desk.put("a", region="amer")
    assert states(await made.ask(ANA, "refund", limit=2)) == {"tickets/b": "refreshed", "tickets/c": "refreshed"}


async def test_a_record_that_is_gone_upstream_is_gone_from_the_answer(made):
    await two_regions(made)
    await made.advance(61)
    del made.upstreams["tickets"].records["1"]
    assert await made.ask(ANA, "refund") == []
    assert key("1") not in made.engine.memory.objects


@pytest.mark.promise("FRE-3")
async def test_a_deadline_ends_the_wait_and_not_the_flight(made):
    await two_regions(made)
    await made.take(deadline_seconds=0.05)
    await made.advance(61)
    desk = made.upstreams["tickets"]
    desk.gate.clear()
    [late] = await made.ask(ANA, "refund")
    assert late.freshness.reason is Reason.DEADLINE
    desk.gate.set()
    await asyncio.wait_for(made.engine.flights.close(), 5)
    assert states(await made.ask(ANA, "refund")) == {"tickets/1": "fresh"}
    assert len(desk.reads) == 1


@pytest.mark.promise("ENT-3")
async def test_a_leaking_scorer_ends_in_an_error_that_names_no_object(made):
    await two_regions(made)
    await made.advance(61)

    def leak(*_: object) -> list[Scored]:
        return [Scored(each, 1.0, ()) for each in made.engine.memory.objects]

    with mock.patch.object(made.engine.memory, "top", leak), pytest.raises(InvariantViolation) as raised:
        await made.ask(ANA, "refund")
    assert "2" not in str(raised.value)
    assert made.upstreams["tickets"].reads == []


@pytest.mark.promise("ENT-3")
async def test_a_class_table_that_leaks_ends_in_an_error_too(made):
    await two_regions(made)
    everything = frozenset(range(1, 3))
    with (
        mock.patch.object(made.engine.memory._classes, "classes_of", return_value=everything),
        pytest.raises(InvariantViolation),
    ):
        await made.ask(ANA, "refund")
    with (
        mock.patch.object(made.engine.memory._classes, "classes_of", return_value=everything),
        pytest.raises(InvariantViolation),
    ):
        await made.engine.pipeline.fetch(ANA, "tickets", "2")


@pytest.mark.promise("CON-2")
async def test_past_their_validity_no_query_is_answered(made):
    await two_regions(made)
    await made.take(entitlements=entitlements(max_age_seconds=600.0))
    await made.advance(590)
    assert await made.ask(ANA, "refund")
    await made.advance(11)
    with pytest.raises(EntitlementsExpired):
        await made.ask(ANA, "refund")
    with pytest.raises(EntitlementsExpired):
        await made.engine.pipeline.fetch(ANA, "tickets", "1")
    with pytest.raises(EntitlementsExpired):
        await made.engine.pipeline.sources(ANA)


@pytest.mark.promise("CON-3")
async def test_a_process_that_is_behind_waits_and_then_does_not_answer(made):
    await two_regions(made)
    await made.engine.store.admit_revision(Revision(workspace_uid="uid", counter=9), made.config.entitlements.stamp)
    made.engine.highest = await made.engine.store.highest_revision()
    with mock.patch("freshgate_service.pipeline.BEHIND_SECONDS", 0.0), pytest.raises(ConfigBehind):
        await made.ask(ANA, "refund")


@pytest.mark.promise("CON-1")
async def test_a_revocation_is_in_force_at_the_next_query(made):
    await two_regions(made)
    assert await made.ask(ANA, "refund")
    await made.take(entitlements=entitlements(allow("amer", group("amer"), region="amer")))
    assert await made.ask(ANA, "refund") == []


@pytest.mark.promise("FRE-5")
async def test_a_changed_reading_spec_makes_objects_unservable_until_they_are_read_again(made):
    await two_regions(made)
    await made.take(sources=(source(spec_hash="two"),))
    assert await made.ask(ANA, "refund") == []
    assert await made.engine.pipeline.fetch(ANA, "tickets", "1") is None
    await made.loop()
    assert states(await made.ask(ANA, "refund")) == {"tickets/1": "fresh"}


@pytest.mark.promise("FRE-5")
async def test_a_source_that_leaves_takes_its_objects_along(made):
    await two_regions(made)
    await made.take(sources=(source("accounts"),))
    assert await made.ask(ANA, "refund") == []
    await made.engine._settle()
    await made.engine.catch_up()
    assert made.engine.memory.objects == {}


@pytest.mark.promise("FRE-5")
async def test_replay_5_a_changed_owner_is_in_force_and_costs_no_condensing(made):
    desk = made.upstreams["tickets"]
    ana, ben = person("ana", "owners"), person("ben", "owners")
    desk.put("1", title="refund", owner="ana")
    await made.loop()
    assert states(await made.ask(ana, "refund")) == {"tickets/1": "fresh"}
    desk.put("1", owner="ben")
    await made.advance(61)
    with mock.patch.object(made.engine.flights, "condenser", None):  # there is nobody to condense anything
        assert await made.ask(ana, "refund") == []
        assert states(await made.ask(ben, "refund")) == {"tickets/1": "fresh"}


@pytest.mark.promise("FRE-4")
async def test_an_unchanged_record_moves_its_clock_and_costs_no_condensing(made):
    await two_regions(made)
    before = made.engine.memory.objects[key("1")]
    await made.advance(61)
    with mock.patch.object(made.engine.flights, "condenser", None):
        assert states(await made.ask(ANA, "refund")) == {"tickets/1": "refreshed"}
    after = made.engine.memory.objects[key("1")]
    assert after.clock.confirmed_at > before.clock.confirmed_at
    assert (after.summary, after.content_hash, after.access) == (before.summary, before.content_hash, before.access)


async def test_replay_21_content_is_compared_although_the_version_never_changes(made):
    desk = made.upstreams["tickets"]
    desk.put("1", version="v1", title="refund")
    await made.loop()
    desk.put("1", version="v1", title="refund approved")
    await made.advance(61)
    [item] = await made.ask(ANA, "refund")
    assert item.content is not None
    assert item.content.title == "refund approved"


@pytest.mark.promise("ENT-4")
async def test_replay_3_unknown_and_foreign_sources_select_nothing_alike(made):
    await two_regions(made)
    search = made.engine.pipeline.search
    assert await search(ANA, "refund", None, ["nowhere"]) == []
    assert await search(ZOE, "refund", None, ["tickets"]) == []
    assert states(await search(ANA, "refund", None, ["tickets", "nowhere"])) == {"tickets/1": "fresh"}


async def test_sources_are_those_with_an_object_in_the_slice(made):
    await made.take(sources=(source(), source("accounts")))
    made.upstreams["accounts"].put("7", title="account", region="amer")
    await two_regions(made)
    await made.loop("accounts")
    await made.engine._read_states()
    assert [info.name for info in await made.engine.pipeline.sources(ANA)] == ["tickets"]
    assert [tuple(info) for info in await made.engine.pipeline.sources(BOB)] == [
        ("accounts", 60.0, True),
        ("tickets", 60.0, True),
    ]


@pytest.mark.promise("FRE-3")
async def test_a_store_that_is_gone_leaves_fresh_answers_and_labels_stale_ones(own_postgres_server, move_store_time):
    server = own_postgres_server
    async with world(server.dsn(), move_store_time) as made:
        await two_regions(made)
        await asyncio.to_thread(server.stop)
        try:
            assert states(await made.ask(ANA, "refund")) == {"tickets/1": "fresh"}
            made._moved += 61
            [item] = await made.ask(ANA, "refund")
            assert item.freshness.reason is Reason.STORE_UNAVAILABLE
            assert made.upstreams["tickets"].reads == []
        finally:
            await asyncio.to_thread(server.start)
        assert states(await _until_confirmed(made)) == {"tickets/1": "refreshed"}


async def _until_confirmed(made: World):
    async with asyncio.timeout(10):
        while (items := await made.ask(ANA, "refund"))[0].content is None:
            await asyncio.sleep(0.05)
    return items


async def test_two_processes_cause_one_read_of_one_stale_object(made):
    await two_regions(made)
    async with made.opened("two") as other:
        await made.advance(61)
        desk = made.upstreams["tickets"]
        desk.gate.clear()
        first = asyncio.create_task(made.ask(ANA, "refund"))
        second = asyncio.create_task(other.pipeline.search(ANA, "refund", None, None))
        async with asyncio.timeout(5):
            while not desk.reads:
                await asyncio.sleep(0.01)
        desk.gate.set()
        assert states(await first) == states(await second) == {"tickets/1": "refreshed"}
        assert desk.reads == [("1",)]


async def test_many_askers_at_once_cause_one_read(made):
    await two_regions(made)
    await made.advance(61)
    answers = await asyncio.gather(*(made.ask(ANA, "refund") for _ in range(20)))
    assert all(states(items) == {"tickets/1": "refreshed"} for items in answers)
    assert len(made.upstreams["tickets"].reads) == 1


async def test_replay_15_a_cancelled_question_leaves_the_flight_to_the_others(made):
    await two_regions(made)
    await made.advance(61)
    made.upstreams["tickets"].gate.clear()
    cancelled, kept = asyncio.create_task(made.ask(ANA, "refund")), asyncio.create_task(made.ask(ANA, "refund"))
    await asyncio.sleep(0.05)
    cancelled.cancel()
    made.upstreams["tickets"].gate.set()
    assert states(await kept) == {"tickets/1": "refreshed"}
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert len(made.upstreams["tickets"].reads) == 1


@pytest.mark.promise("FRE-2")
async def test_a_time_in_the_future_counts_as_stale_and_heals(made):
    await made.advance(3600)
    await two_regions(made)
    await made.advance(-3600)
    assert states(await made.ask(ANA, "refund")) == {"tickets/1": "refreshed"}


async def test_a_malformed_record_fails_alone_and_says_which_path(made):
    desk = made.upstreams["tickets"]
    desk.put("1", title="refund")
    desk.records["2"] = {"title": "refund", "body": "", "owner": "ana"}
    desk.versions["2"] = None
    await made.loop()
    assert states(await made.ask(ANA, "refund")) == {"tickets/1": "fresh"}
    state = (await made.engine.store.source_states())["tickets"]
    assert "region" in str(state.last_error)
    assert state.complete


@pytest.mark.promise("ENT-6")
async def test_replay_6_readers_that_went_missing_deny_and_the_platform_team_is_told(made):
    ana = person("ana", "owners")
    made.upstreams["tickets"].put("1", title="refund", owner="ana")
    await made.loop()
    assert states(await made.ask(ana, "refund")) == {"tickets/1": "fresh"}
    del made.upstreams["tickets"].records["1"]["owner"]
    await made.advance(3601)
    await made.loop()
    assert await made.ask(ana, "refund") == []
    assert "owner" in str((await made.engine.store.source_states())["tickets"].last_error)


def test_no_stage_of_a_flight_knows_an_asker():
    assert "Asker" not in vars(flights_module)
    assert issubclass(RecordMalformed, Exception)
