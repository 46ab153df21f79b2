"""What is due when, and that one namespace is never in two hands."""

import asyncio

import pytest

from freshgate_operator.queue import ANY, Key, Queue, Work


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(clock: Clock) -> Queue:
    return Queue(clock, jitter=lambda: 1.0)


async def taken(queue: Queue) -> Work:
    return await asyncio.wait_for(queue.take(), 5)


async def nothing_is_due(queue: Queue) -> bool:
    taking = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    taking.cancel()
    return not taking.done()


async def test_many_changes_of_one_namespace_are_one_work(queue: Queue, clock: Clock):
    for key in (Key("acme", "support"), Key("acme"), Key("acme", "support"), Key("acme", "billing")):
        queue.mark(key)
    clock.now += 1
    assert await taken(queue) == Work("acme", frozenset({"support", "billing", ANY}))


async def test_a_change_waits_a_moment_for_what_is_applied_with_it(queue: Queue, clock: Clock):
    queue.mark(Key("acme", "support"))
    assert await nothing_is_due(queue)
    clock.now += 0.1
    assert (await taken(queue)).namespace == "acme"


async def test_a_namespace_that_is_worked_on_is_given_to_nobody_else(queue: Queue, clock: Clock):
    queue.mark(Key("acme", "support"))
    clock.now += 1
    work = await taken(queue)
    queue.mark(Key("acme", "support"))
    queue.mark(Key("globex", "desk"))
    clock.now += 1
    assert (await taken(queue)).namespace == "globex"
    assert await nothing_is_due(queue)
    queue.done(work)
    assert (await taken(queue)).namespace == "acme"


async def test_what_failed_comes_again_later_each_time_up_to_a_minute(queue: Queue, clock: Clock):
    queue.mark(Key("acme", "support"))
    pauses = []
    for _ in range(10):
        pauses.append(queue._pause())
        clock.now += pauses[-1]
        queue.done(await taken(queue), {"support"})
    assert [round(pause, 3) for pause in pauses] == [0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


async def test_a_new_change_does_not_wait_for_the_retry(queue: Queue, clock: Clock):
    queue.mark(Key("acme", "support"))
    clock.now += 1
    for _ in range(6):
        queue.done(await taken(queue), {"support"})
        clock.now += 60
    queue.mark(Key("acme", "support"))
    queue.done(await taken(queue), {"support"})
    queue.mark(Key("acme", "support"))
    clock.now += 0.1
    assert (await taken(queue)).workspaces == {"support"}


async def test_success_ends_the_backoff(queue: Queue, clock: Clock):
    for failed in ({"support"}, {"support"}, {"support"}, set(), {"support"}):
        queue.mark(Key("acme", "support"))
        clock.now += 60
        queue.done(await taken(queue), failed)
    clock.now += 0.5
    assert (await taken(queue)).workspaces == {"support"}


async def test_the_age_of_the_oldest_change_counts_until_it_is_reconciled(queue: Queue, clock: Clock):
    assert (queue.dirty(), queue.oldest_age()) == (0, 0.0)
    queue.mark(Key("acme", "support"))
    clock.now += 1
    work = await taken(queue)
    clock.now += 4
    assert (queue.dirty(), queue.oldest_age()) == (1, 5.0)
    queue.done(work, {"support"})
    clock.now += 2
    assert (queue.dirty(), queue.oldest_age()) == (1, 7.0)
    queue.done(await taken(queue))
    assert (queue.dirty(), queue.oldest_age()) == (0, 0.0)


async def test_what_is_only_due_by_the_clock_is_no_change(queue: Queue, clock: Clock):
    queue.mark_later(Key("acme", "support"), 150)
    assert (queue.dirty(), queue.oldest_age()) == (0, 0.0)
    assert await nothing_is_due(queue)
    clock.now += 150
    assert (await taken(queue)).workspaces == {"support"}


async def test_a_workspace_that_failed_without_being_asked_for_is_tried_by_its_name(queue: Queue, clock: Clock):
    queue.mark(Key("acme"))
    clock.now += 1
    queue.done(await taken(queue), {"billing"})
    clock.now += 0.5
    assert (await taken(queue)).workspaces == {"billing"}
    assert queue.oldest_age() == 1.5
