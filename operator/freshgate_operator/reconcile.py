"""One namespace, from one snapshot: compile, publish, run, tell. Each step may be the last one before the process is
killed: whatever it left is found by the next, which comes to the same end.

What is published now is read first, and then the inputs, so that whoever publishes from older inputs loses the race.
"""

import asyncio
from collections.abc import Awaitable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from freshgate_crds.compile import Compilation, Outcome, Refusal, Standing, compile_workspace, merged, unclaimed
from freshgate_crds.compile.reading import read as read_resource
from freshgate_crds.compiled import Config
from freshgate_crds.manifests import POLICY, SOURCE, WORKSPACE, Document
from freshgate_crds.v1alpha1 import Workspace
from freshgate_operator import children, conditions
from freshgate_operator.applying import Applier, version
from freshgate_operator.cluster import Body, Cluster
from freshgate_operator.conditions import Condition
from freshgate_operator.errors import ClusterError, ClusterUnavailable, Conflict, OperatorError
from freshgate_operator.facts import Surroundings
from freshgate_operator.kinds import SECRET
from freshgate_operator.logs import get_logger
from freshgate_operator.owners import Owner
from freshgate_operator.publish import Publication, Publisher, next_revision, published
from freshgate_operator.queue import ANY, Queue, Work
from freshgate_operator.records import Problem, Record, Records
from freshgate_operator.settings import Settings
from freshgate_operator.snapshots import Bases, Clock, Snapshot, read
from freshgate_operator.status import Statuses
from freshgate_operator.touch import Rollouts

CONCURRENT = 8
"""Statuses that are written at a time."""

PASSING = (Conflict, ClusterUnavailable)
"""Errors that say nothing of the workspace: it is tried again, and nobody is told."""

log = get_logger(__name__)


class _Change(NamedTuple):
    """A workspace that was compiled, and is not brought there yet."""

    record: Record
    compilation: Compilation
    basis: Hashable


class Reconciler:
    def __init__(
        self,
        cluster: Cluster,
        settings: Settings,
        *,
        surroundings: Surroundings,
        records: Records,
        publisher: Publisher,
        statuses: Statuses,
        rollouts: Rollouts,
        queue: Queue,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._surroundings = surroundings
        self._records = records
        self._publisher = publisher
        self._applier = Applier(cluster)
        self._statuses = statuses
        self._rollouts = rollouts
        self._queue = queue
        self._clock = clock
        self._unclaimed: dict[str, _Unclaimed] = {}
        self._slots = asyncio.Semaphore(CONCURRENT)

    async def reconcile(self, work: Work) -> frozenset[str]:
        """The workspaces that have to be tried again (ANY: what is told of other resources). Raises ClusterError."""
        secrets = await published(self._cluster, work.namespace)
        snapshot = await read(self._cluster, work.namespace, self._clock)
        if snapshot is None:
            self._records.forget(work.namespace)
            self._unclaimed.pop(work.namespace, None)
            return frozenset()
        changes = await self._compile(snapshot, work.workspaces, secrets)
        results = await asyncio.gather(*(self._bring(change, snapshot) for change in changes), return_exceptions=True)
        failed = {one.record.owner.name for one, done in zip(changes, results, strict=True) if not _is_done(one, done)}
        if not await self._tell_written(snapshot):
            failed.add(ANY)
        return frozenset(failed)

    # compile

    async def _compile(self, snapshot: Snapshot, asked: Iterable[str], secrets: Mapping[str, Body]) -> list[_Change]:
        """Of those that were asked for, and those of which an input is not as it was."""
        workspaces, known = snapshot.workspaces(), self._records.of(snapshot.namespace)
        for name in known.keys() - workspaces.keys():
            del known[name]
        bases = Bases(snapshot, self._surroundings.facts.issuer_keys)
        changes = []
        for name, document in workspaces.items():
            basis, record = bases.of(document), known.get(name)
            if name in asked or record is None or record.basis != basis:
                publication = _ours(Owner.of(document.body), secrets)
                compilation = self._compiled(snapshot, document, publication)
                known[name] = _recorded(record, document, compilation, publication)
                changes.append(_Change(known[name], compilation, basis))
                await asyncio.sleep(0)
        return changes

    def _compiled(self, snapshot: Snapshot, document: Document, publication: Publication | None) -> Compilation:
        owner = Owner.of(document.body)
        previous = publication.config if publication else None
        compilation = compile_workspace(
            snapshot.manifests,
            owner.name,
            owner.namespace,
            cluster_uid=snapshot.namespace_uid,
            revision=next_revision(owner, publication, snapshot.stamp),
            stamp=snapshot.stamp,
            previous=previous,
            available=snapshot.secrets.keys(),
            issuer_keys=self._surroundings.facts.issuer_keys,
        )
        return with_store(compilation, previous)

    # publish and run

    async def _bring(self, change: _Change, snapshot: Snapshot) -> bool:
        """Whether nothing is left to be tried again."""
        record, config, problem = change.record, change.compilation.config, None
        try:
            if config is not None:
                await self._publish(record, config, snapshot)
                await self._run(record)
        except PASSING as error:
            log.warning("to_be_tried_again", namespace=record.owner.namespace, name=record.owner.name, exc_info=error)
            return False
        except OperatorError as error:
            problem = Problem(error.reason, str(error))
        record.problem = problem
        if not await self._told(self._statuses.tell_workspace(record)) or problem is not None:
            return False
        record.basis = change.basis
        return True

    async def _publish(self, record: Record, config: Config, snapshot: Snapshot) -> None:
        before = record.publication
        credentials = _values(config, snapshot, before)
        record.publication = await self._publisher.publish(record.owner, config, credentials, before)
        restamp_in = record.publication.restamp_in(self._clock())
        if restamp_in is not None:
            self._queue.mark_later(record.key, restamp_in)
        if before is None or before.counter != record.publication.counter or record.observation is None:
            self._rollouts.follow(record)

    async def _run(self, record: Record) -> None:
        publication, service = record.publication, record.service
        if publication is None or publication.config is None or service is None:
            return
        ports = children.egress_ports(publication.config, publication.files)
        plan = children.Plan(record.owner, service, ports, publication.scrape_token_hash)
        monitored = self._surroundings.facts.knows_monitors
        versions = await self._applier.apply(record.owner, children.render(plan, self._settings, monitored=monitored))
        record.versions = {**versions, SECRET.name: version(publication.secret)}

    # tell

    async def _tell_written(self, snapshot: Snapshot) -> bool:
        """Of each source and policy. Whether nothing is left to be told."""
        return all(await asyncio.gather(*(self._told(self._tell_one(*news)) for news in self._news(snapshot))))

    def _news(self, snapshot: Snapshot) -> Iterator[tuple[Mapping[str, Any], Sequence[Condition]]]:
        """What all workspaces together make of each, where that is not told yet."""
        outcomes = [one for record in self._records.of(snapshot.namespace).values() for one in record.outcomes]
        claimed = {outcome.identity for outcome in outcomes}
        memory = self._unclaimed.setdefault(snapshot.namespace, _Unclaimed())
        bodies = {one.identity: one.body for one in snapshot.manifests.documents if one.kind != WORKSPACE}
        for outcome in merged([*outcomes, *memory.outcomes(snapshot, claimed)]):
            if (body := bodies.get(outcome.identity)) is not None:
                said = conditions.of_outcome(outcome, used=outcome.identity in claimed)
                if not self._statuses.is_told(body, said):
                    yield body, said

    async def _tell_one(self, body: Mapping[str, Any], said: Sequence[Condition]) -> None:
        async with self._slots:
            await self._statuses.tell(body, said)

    async def _told(self, telling: Awaitable[None]) -> bool:
        try:
            await telling
        except ClusterError as error:
            log.warning("not_told", exc_info=error)
            return False
        return True


class _Unclaimed:
    """What is said of the sources and policies of a namespace that no workspace speaks of, each found out once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str], tuple[Hashable, Outcome]] = {}

    def outcomes(self, snapshot: Snapshot, claimed: Iterable[tuple[str, str, str]]) -> list[Outcome]:
        claimed = frozenset(claimed)
        bases = _bases_alone(snapshot, claimed)
        valid = {one for one, basis in bases.items() if one in self._known and self._known[one][0] == basis}
        fresh = unclaimed(snapshot.manifests, snapshot.namespace, claimed | valid, snapshot.secrets.keys())
        self._known = {one: self._known[one] for one in valid}
        self._known |= {outcome.identity: (bases[outcome.identity], outcome) for outcome in fresh}
        return [outcome for _, outcome in self._known.values()]


def _bases_alone(snapshot: Snapshot, claimed: frozenset[tuple[str, str, str]]) -> dict[tuple[str, str, str], Hashable]:
    documents = [one for one in snapshot.manifests.documents if one.kind != WORKSPACE]
    beside: Mapping[str, Hashable] = {
        SOURCE: snapshot.secret_versions,
        POLICY: frozenset(one.name for one in documents if one.kind == SOURCE),
    }
    return {
        one.identity: (one.body["metadata"]["uid"], one.body["metadata"]["generation"], beside[one.kind])
        for one in documents
        if one.identity not in claimed
    }


def _is_done(change: _Change, result: bool | BaseException) -> bool:
    """What nobody foresaw breaks one workspace, and no other one of its namespace."""
    if isinstance(result, Exception):
        owner = change.record.owner
        log.error("workspace_broke", namespace=owner.namespace, name=owner.name, exc_info=result)
        return False
    if isinstance(result, BaseException):
        raise result
    return result


def _recorded(
    record: Record | None, document: Document, compilation: Compilation, publication: Publication | None
) -> Record:
    """Without a basis, so that it is compiled again until it was brought there."""
    owner = Owner.of(document.body)
    resource = read_resource(Workspace, [document])
    outcome = next(one for one in compilation.outcomes if one.kind == WORKSPACE)
    if record is None or record.owner.uid != owner.uid:
        status = document.body.get("status") or {}
        record = Record(owner, None, outcome, compilation.outcomes, service=None, status=status)
    record.owner, record.basis, record.outcome, record.outcomes = owner, None, outcome, compilation.outcomes
    record.service = resource.spec.service if isinstance(resource, Workspace) else None
    record.publication = publication
    return record


def _ours(owner: Owner, secrets: Mapping[str, Body]) -> Publication | None:
    """What was published of this workspace, and not of another one of its name."""
    secret = secrets.get(owner.child)
    return Publication.of(secret) if secret is not None and owner.owns(secret) else None


def _values(config: Config, snapshot: Snapshot, before: Publication | None) -> dict[str, bytes]:
    """By file name. What a last good form needs may be gone by now; it stays as it was published."""
    kept = before.files if before else {}
    values = {
        named.file_name: snapshot.secrets.get(named, kept.get(named.file_name))
        for named in Compilation(config, ()).credentials
    }
    return {name: value for name, value in values.items() if value is not None}


def with_store(compilation: Compilation, previous: Config | None) -> Compilation:
    """On a laptop a Workspace without a store gets one; in a cluster it is refused, or keeps the one that it had."""
    config = compilation.config
    if config is None or config.store_dsn is not None:
        return compilation
    last_good = previous.store_dsn if previous else None
    kept = config.model_copy(update={"store_dsn": last_good}) if last_good else None
    refused = tuple(
        _without_store(one, kept=kept is not None) if one.kind == WORKSPACE else one for one in compilation.outcomes
    )
    return Compilation(kept, refused)


def _without_store(outcome: Outcome, *, kept: bool) -> Outcome:
    refusal = Refusal(
        *outcome.identity,
        field="spec.store",
        reason="StoreRequired",
        problem="in a cluster no Postgres is started for it",
        mend="Name one with spec.store.dsn",
    )
    standing = outcome.standing if kept else Standing.LEFT_OUT
    return replace(outcome, standing=standing, refusals=(*outcome.refusals, refusal))
