"""From manifests to what a service obeys: pure, so that a laptop and a cluster make the same of the same YAML.

No I/O and no clock here; whatever comes from outside (stamp, revision, keys, which Secrets exist) is an argument.
Sources and entitlements are compiled apart: a refused source keeps its last good form and never holds back a
revocation, and a policy that was refused never opens anything.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from freshgate_crds.compile.outcomes import Compilation, Outcome, Refusal, Standing, merged
from freshgate_crds.compile.policies import Ruling, Sources, rule_on
from freshgate_crds.compile.sources import compile_source
from freshgate_crds.compile.surroundings import Surroundings
from freshgate_crds.compile.survey import remarks, unclaimed
from freshgate_crds.compile.workspaces import LOCAL_ISSUER, IssuerKeys, Settings, declared_issuers, settle
from freshgate_crds.compiled import FORMAT, Config, Credential, Entitlements, Revision, Source, credentials_of
from freshgate_crds.manifests import POLICY, SOURCE, WORKSPACE, Document, Manifests

__all__ = [
    "LOCAL_ISSUER",
    "Compilation",
    "IssuerKeys",
    "Outcome",
    "Refusal",
    "Standing",
    "compile_workspace",
    "credentials_of",
    "declared_issuers",
    "merged",
    "remarks",
    "unclaimed",
]


def compile_workspace(
    manifests: Manifests,
    workspace: str,
    namespace: str,
    *,
    cluster_uid: str,
    revision: Revision,
    stamp: datetime,
    previous: Config | None = None,
    available: Collection[Credential] | None = None,
    issuer_keys: Mapping[str, IssuerKeys] | None = None,
) -> Compilation:
    """One workspace, from the manifests of its namespace; others may be among them. `previous` is what was published of
    it last. `available`: the credentials of its namespace that can be read; None: not known, and none is missed.
    `issuer_keys`, by issuer, are compiled in: the cluster's own, and on a laptop those of the local issuers, which then
    stand in the place of the declared ones (and the one called `local` where none is declared).
    """
    if previous and (previous.namespace, previous.workspace) != (namespace, workspace):
        raise ValueError(f"the previous configuration is not one of {namespace}/{workspace}")
    surroundings = Surroundings(namespace, workspace, available=None if available is None else frozenset(available))
    written_sources = manifests.by_name(SOURCE, namespace)
    settings, outcome = settle(
        manifests.named(WORKSPACE, namespace, workspace),
        surroundings,
        source_names=written_sources.keys(),
        issuer_keys=issuer_keys or {},
        previous=previous,
    )
    if settings is None:
        return Compilation(None, (outcome,))
    surroundings = replace(surroundings, issuers=tuple(issuer.name for issuer in settings.issuers))
    sources, source_outcomes = _sources(written_sources, surroundings, settings, previous)
    in_force = {name: sources.get(name) for name in written_sources}
    rulings = _rulings(manifests.by_name(POLICY, namespace).values(), surroundings, in_force)
    config = Config(
        format=FORMAT,
        revision=revision,
        cluster_uid=cluster_uid,
        namespace=namespace,
        workspace=workspace,
        sources=tuple(sources[name] for name in sorted(sources)),
        entitlements=Entitlements(
            policies=tuple(ruling.policy for ruling in rulings if ruling.policy),
            denied=(*(ruling.outcome.name for ruling in rulings if ruling.denies_all), *manifests.unknown),
            stamp=stamp,
            max_age_seconds=settings.max_age_seconds,
        ),
        issuers=settings.issuers,
        store_dsn=settings.store_dsn,
        condenser=settings.condenser,
        ranking=settings.ranking,
        deadline_seconds=settings.deadline_seconds,
    )
    return Compilation(config, (outcome, *source_outcomes, *(ruling.outcome for ruling in rulings)))


def _sources(
    written: Mapping[str, Sequence[Document]], surroundings: Surroundings, settings: Settings, previous: Config | None
) -> tuple[dict[str, Source], list[Outcome]]:
    """Those in force, by name. A MemorySource that was deleted was not refused: it is gone."""
    last_good = {source.name: source for source in previous.sources} if previous else {}
    sources, outcomes = {}, []
    for name in sorted({*settings.sources} & written.keys()):
        source, outcome = compile_source(written[name], surroundings, last_good.get(name))
        outcomes.append(outcome)
        if source:
            sources[name] = source
    return sources, outcomes


def _rulings(policies: Iterable[Sequence[Document]], surroundings: Surroundings, sources: Sources) -> list[Ruling]:
    """Of the policies that are for this workspace, or could be. The previous ones have no say in it."""
    return [ruling for documents in policies if (ruling := rule_on(documents, surroundings, sources))]
