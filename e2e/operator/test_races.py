"""Races and sudden ends on a real API server: what wins, and that a rerun comes to the same end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from freshgate_control_plane import SETTINGS, Desk, eventually
from freshgate_written import desk as written_desk
from freshgate_written import policy, source

from freshgate_operator import cluster as clusters
from freshgate_operator import main
from freshgate_operator.cluster import Body, Cluster
from freshgate_operator.kinds import CHILDREN, ENTITLEMENT_POLICY, MEMORY_SOURCE, SECRET, WORKSPACE_KIND, Kind
from freshgate_operator.main import Operator
from freshgate_operator.metrics import Metrics
from freshgate_operator.publish import Publication, Publisher
from freshgate_operator.queue import Work

Parts = Callable[[], Awaitable[Operator]]


class Killed(BaseException):
    """The process ended here."""


class Mortal(Cluster):
    """Ends before it writes for the time after `lives`."""

    lives = 10**6

    async def _write(self, method: str, path: str, kind: Kind, body: Body, **options: Any) -> Body:
        self.lives -= 1
        if self.lives < 0:
            raise Killed
        return await super()._write(method, path, kind, body, **options)


@pytest.fixture
async def mortal(desk: Desk) -> AsyncIterator[Callable[[int], Awaitable[Operator]]]:
    async with contextlib.AsyncExitStack() as stack:

        async def made(lives: int) -> Operator:
            configured = await clusters.configuration(desk.plane.kubeconfig)
            cluster = await stack.enter_async_context(Mortal(configured, Metrics()))
            cluster.lives = lives
            session = await stack.enter_async_context(main.aiohttp.ClientSession())
            settings = replace(SETTINGS, namespaces=(desk.namespace,))
            operator = Operator.of(configured, settings, cluster, cluster._metrics, session)  # noqa: SLF001
            await operator.surroundings.refresh()
            stack.push_async_callback(operator.rollouts.close)
            return operator

        yield made


async def a_pass(operator: Operator, desk: Desk) -> frozenset[str]:
    return await operator.reconciler.reconcile(Work(desk.namespace, frozenset({"support"})))


async def ttl(desk: Desk) -> float:
    return next(each.ttl_seconds for each in (await desk.config()).sources if each.name == "tickets")


@pytest.mark.promise("CON-3")
async def test_an_older_generation_never_replaces_a_newer_one(
    desk: Desk, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replay 46: one applier pauses, a newer one publishes, the first resumes."""
    await desk.put(*written_desk(), policy())
    first, second = await parts(), await parts()
    await a_pass(first, desk)
    reached, resume = asyncio.Event(), asyncio.Event()
    publish = Publisher.publish

    async def paused(publisher: Publisher, *arguments: Any) -> Publication:
        reached.set()
        await resume.wait()
        return await publish(publisher, *arguments)

    await desk.put(source("tickets", ttl="9m"))
    with monkeypatch.context() as patched:
        patched.setattr(Publisher, "publish", paused)
        older = asyncio.create_task(a_pass(first, desk))
        await asyncio.wait_for(reached.wait(), 5)
    await desk.put(source("tickets", ttl="11m"))
    await a_pass(second, desk)
    newer = await desk.publication()
    resume.set()
    assert await older == {"support"}
    assert (await desk.publication()).secret == newer.secret
    assert await ttl(desk) == 660.0


@pytest.mark.promise("CON-3")
async def test_of_two_that_publish_for_the_first_time_one_wins_and_the_other_reads_again(
    desk: Desk, parts: Parts
) -> None:
    await desk.put(*written_desk(), policy())
    both = [await parts(), await parts()]
    results = await asyncio.gather(*(a_pass(operator, desk) for operator in both))
    published = await desk.publication()
    assert sorted(map(len, results)) in ([0, 0], [0, 1])
    for operator in both:
        assert await a_pass(operator, desk) == frozenset()
    assert (await desk.publication()).secret == published.secret


async def test_killed_before_any_write_the_rerun_comes_to_the_same_end(
    desk: Desk, mortal: Callable[[int], Awaitable[Operator]]
) -> None:
    await desk.put(*written_desk(), policy())
    for lives in range(12):
        operator = await mortal(lives)
        with contextlib.suppress(Killed):
            await a_pass(operator, desk)
        await operator.rollouts.close()
        if held := await desk.get(SECRET):
            assert Publication.of(held).config is not None
        rerun = await mortal(10**6)
        assert await a_pass(rerun, desk) == frozenset()
        await rerun.observer.look_at_all()
        assert [each.name for each in (await desk.config()).sources] == ["accounts", "tickets"]
        for kind in CHILDREN:
            await desk.at(kind)
        assert await desk.conditions(MEMORY_SOURCE, "tickets") == {
            "Accepted": ("True", "Accepted"),
            "ResolvedRefs": ("True", "Resolved"),
        }
        assert await desk.conditions(ENTITLEMENT_POLICY, "emea") == {"Accepted": ("True", "Accepted")}
        assert (await desk.conditions(WORKSPACE_KIND, "support"))["Ready"] == ("False", "PodsNotReady")
        for kind in (*CHILDREN, SECRET):
            await desk.delete(kind)
        await eventually(lambda: _gone(desk))


async def _gone(desk: Desk) -> bool:
    return not any([await desk.get(kind) for kind in (*CHILDREN, SECRET)])
