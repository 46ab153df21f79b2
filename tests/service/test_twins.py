"""Non-interference: two worlds that differ only in what an asker may not see are one and the same to that asker."""

from typing import Any

import pytest
from freshgate_strategies import askers
from freshgate_twins import FAULTS, examples, pairs, questions, stop_time, story
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture
async def still(database: str) -> str:
    await stop_time(database)
    return database


@pytest.mark.promise("ENT-2", "ENT-4", "ENT-5")
@examples(150)
@given(twins=pairs(askers()), data=st.data())
async def test_the_asker_is_told_the_same_bytes_and_causes_the_same_reads_in_both_worlds(
    still: str, twins: Any, data: st.DataObject
):
    order = data.draw(st.permutations(list(questions(twins))))
    fault = data.draw(st.sampled_from(FAULTS))
    in_flight = data.draw(st.lists(st.sampled_from(twins.mine), unique=True)) if twins.mine else []
    one, other = [await story(still, twins, twin, order, fault, in_flight) for twin in (twins.one, twins.other)]
    assert one == other
