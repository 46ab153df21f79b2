"""The memory's slices equal the reference, whatever changes between two questions and whoever asks them.

The reference is the plain one: every policy evaluated on every object, every object scored, the unentitled 0.0.
"""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from freshgate_strategies import accesses, askers, entitlements
from freshgate_world import ANA, BOB, ZOE, configuration, key, remembered, source
from hypothesis import given, settings
from hypothesis import strategies as st

from freshgate_crds.compiled import Entitlements
from freshgate_service.domain import Access, Asker, Clock, ClockMoved, Deleted, ObjectKey, Scored
from freshgate_service.entitle import entitled
from freshgate_service.memory import Memory
from freshgate_service.score.analyse import Analyser
from freshgate_service.score.bm25f import Weights
from freshgate_service.score.reference import Analysed, cut, score_all

ANALYSER = Analyser("english")
WORDS = st.sampled_from(["refund", "invoice", "webhook", "東京", "refund invoice", "webhook webhook", ""])
QUERIES = st.sampled_from(["refund", "invoice refund", "webhook", "東京 refund", "nothing"])
IDS = st.sampled_from([f"{number}" for number in range(6)])


def reference(memory: Memory, asker: Asker, query: str, limit: int, sources: frozenset[str] | None) -> list[Scored]:
    servable = {
        each.key: each for each in memory.objects.values() if memory.specs[each.key.source].spec_hash == each.spec_hash
    }
    documents = [
        Analysed(each.key, ANALYSER.terms(each.title), ANALYSER.terms(each.summary)) for each in servable.values()
    ]

    def may_see(of: ObjectKey) -> bool:
        wanted = sources is None or of.source in sources
        return wanted and entitled(asker, servable[of].access, memory.config.entitlements)

    weights = Weights(title=memory.config.ranking.title_weight)
    return cut(score_all(ANALYSER.query_terms(query), documents, may_see, weights), limit)


def memory_of(of: Entitlements) -> Memory:
    sources = (source("tickets"), source("accounts", spec_hash="tickets one"))
    return Memory(configuration(*sources, entitlements=of))


steps = st.one_of(
    st.tuples(st.just("put"), IDS, WORDS, WORDS, accesses()),
    st.tuples(st.just("delete"), IDS, st.sampled_from(["tickets", "accounts"])),
    st.tuples(st.just("ask"), st.integers(0, 2), QUERIES, st.sampled_from([None, frozenset({"tickets"}), frozenset()])),
)


@pytest.mark.promise("ENT-1", "SCO-1")
@settings(max_examples=120, deadline=None)
@given(
    of=entitlements(),
    asking=st.lists(askers(), min_size=3, max_size=3),
    script=st.lists(steps, min_size=5, max_size=40),
    limit=st.integers(1, 4),
)
def test_slices_equal_the_reference_while_everything_changes(of, asking, script, limit):
    memory = memory_of(of)
    for change, (step, *rest) in enumerate(script, 1):
        if step == "put":
            memory.apply(remembered(*rest, change))
        elif step == "delete":
            memory.apply(Deleted(ObjectKey(rest[1], rest[0]), change))
        else:
            who, query, sources = rest
            asker = asking[who]
            found = memory.top(memory.slice(asker, sources), query, limit)
            assert found == reference(memory, asker, query, limit, sources)
    for asker in asking:
        found = memory.top(memory.slice(asker, None), "refund invoice webhook", 10)
        assert found == reference(memory, asker, "refund invoice webhook", 10, None)


@pytest.mark.promise("ENT-6")
@settings(max_examples=60, deadline=None)
@given(before=entitlements(), after=entitlements(), asker=askers(), objects=st.lists(st.tuples(IDS, WORDS, accesses())))
def test_new_entitlements_are_in_force_for_slices_that_were_asked_before(before, after, asker, objects):
    memory = memory_of(before)
    for change, (record_id, words, access) in enumerate(objects, 1):
        memory.apply(remembered(record_id, words, "refund", access, change))
    memory.top(memory.slice(asker, None), "refund", 10)
    memory.replace_config(memory.config.model_copy(update={"entitlements": after}))
    assert memory.top(memory.slice(asker, None), "refund", 10) == reference(memory, asker, "refund", 10, None)


def filled() -> Memory:
    memory = Memory(configuration())
    for change, (record_id, region) in enumerate((("1", "emea"), ("2", "amer"), ("3", "emea")), 1):
        memory.apply(remembered(record_id, "refund", f"of {record_id}", Access("tickets", {"region": region}), change))
    return memory


def found(memory: Memory, asker: Asker) -> set[str]:
    return {one.key.record_id for one in memory.top(memory.slice(asker, None), "refund", 10)}


def test_an_older_change_never_replaces_a_newer_one():
    memory = filled()
    memory.apply(remembered("1", "refund", "new", Access("tickets", {"region": "emea"}), 9))
    memory.apply(remembered("1", "refund", "old", Access("tickets", {"region": "emea"}), 8))
    memory.apply(ClockMoved(key("1"), Clock(5.0), None, 7))
    memory.apply(Deleted(key("1"), 6))
    assert memory.objects[key("1")].summary == "new"
    assert memory.objects[key("1")].clock == Clock(0.0)


def test_a_moved_clock_moves_nothing_else():
    memory = filled()
    piece = memory.slice(ANA, None)
    memory.apply(ClockMoved(key("1"), Clock(5.0), "v2", 9))
    assert memory.objects[key("1")].clock == Clock(5.0)
    assert memory.objects[key("1")].version == "v2"
    assert piece.pending == set()


@pytest.mark.promise("FRE-5")
def test_objects_of_another_reading_spec_are_no_candidates_until_they_are_read_again():
    memory = filled()
    memory.replace_config(memory.config.model_copy(update={"sources": (source(spec_hash="two"),)}))
    assert found(memory, ANA) == set()
    assert memory.find(ANA, key("1")) is None
    memory.apply(remembered("1", "refund", "again", Access("tickets", {"region": "emea"}), 9, "two"))
    assert found(memory, ANA) == {"1"}


def test_askers_with_the_same_grants_share_one_view_and_others_do_not():
    memory = filled()
    twin = Asker(replace(ANA.principal, name=ANA.principal.name._replace(name="anna")))
    assert memory.slice(ANA, None) is memory.slice(twin, None)
    assert memory.slice(ANA, None) is not memory.slice(BOB, None)


def test_a_new_class_forks_the_view_that_was_there():
    memory = filled()
    before = memory.slice(ANA, None)
    memory.apply(remembered("4", "refund", "new", Access("tickets", {"region": "emea", "tier": "gold"}), 9))
    after = memory.slice(ANA, None)
    assert after is not before
    assert after.view._base._documents is before.view._base._documents
    assert found(memory, ANA) == {"1", "3", "4"}


def test_views_that_nobody_asked_for_lately_give_way(monkeypatch):
    monkeypatch.setattr("freshgate_service.memory.VIEW_BYTES", 1)
    memory = filled()
    for asker in (ANA, BOB, ZOE):
        memory.slice(asker, None)
    assert len(memory._slices) == 1
    assert found(memory, ANA) == {"1", "3"}


def test_a_changed_ranking_is_in_force_at_once():
    memory = filled()
    before = memory.top(memory.slice(ANA, None), "refund", 10)
    ranking = memory.config.ranking.model_copy(update={"title_weight": 1.0})
    memory.replace_config(memory.config.model_copy(update={"ranking": ranking}))
    after = memory.top(memory.slice(ANA, None), "refund", 10)
    assert [one.key for one in after] == [one.key for one in before]
    assert [one.score for one in after] != [one.score for one in before]


def test_a_new_stamp_alone_costs_no_view():
    memory = filled()
    piece = memory.slice(ANA, None)
    stamped = memory.config.entitlements.model_copy(update={"stamp": datetime.now(UTC)})
    memory.replace_config(memory.config.model_copy(update={"entitlements": stamped}))
    assert memory.slice(ANA, None) is piece
