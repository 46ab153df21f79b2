"""Workspaces: a setting that is refused keeps its last good form, and so does the whole where it cannot be read at all.

A setting that never had a good form is left out where a workspace can do without it (its condenser); without a store
that it asked for, or without anybody who may vouch for askers, there is no workspace.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from freshgate_crds import compiled
from freshgate_crds.compile.outcomes import Outcome, Standing, Trouble
from freshgate_crds.compile.reading import read
from freshgate_crds.compile.references import credential
from freshgate_crds.compile.surroundings import Surroundings
from freshgate_crds.compiled import KUBERNETES_ISSUER, Config
from freshgate_crds.manifests import WORKSPACE, Document, Manifests
from freshgate_crds.v1alpha1 import Workspace
from freshgate_crds.v1alpha1 import workspaces as written

LOCAL_ISSUER = "local"
LOCAL_AUDIENCE = "freshgate"


@dataclass(frozen=True, slots=True)
class IssuerKeys:
    """Where an issuer's keys are compiled in: its URL, and its public keys as JSON (RFC 7517)."""

    url: str
    jwks: str


@dataclass(frozen=True, slots=True)
class Settings:
    sources: tuple[str, ...]
    store_dsn: compiled.Credential | None
    issuers: tuple[compiled.Issuer, ...]
    condenser: compiled.Condenser
    ranking: compiled.Ranking
    max_age_seconds: float
    deadline_seconds: float


_HELD_IN = {
    "store": "store_dsn",
    "authentication": "issuers",
    "condenser": "condenser",
    "ranking": "ranking",
    "entitlements": "max_age_seconds",
    "service": "deadline_seconds",
}
"""Of Settings, by the field of a Workspace that falls back by itself. Its list of sources does not: what is wrong in it
is left out, and where it cannot be read the whole stays as it was."""

Refused = dict[str, list[Trouble]]
"""By the field of a Workspace that cannot be obeyed."""


def settle(
    documents: Sequence[Document],
    surroundings: Surroundings,
    *,
    source_names: Collection[str],
    issuer_keys: Mapping[str, IssuerKeys],
    previous: Config | None,
) -> tuple[Settings | None, Outcome]:
    """The settings in force, of the documents of one name; None where there is nothing good yet."""
    last_good = _last_good(previous, issuer_keys) if previous else None
    spec, refused = _readable(documents) if documents else (None, _absent(surroundings))
    documents = documents or [Document(WORKSPACE, surroundings.namespace, surroundings.workspace, {})]
    if spec is None or (last_good is None and refused):
        settings = last_good
    else:
        refused = {**_troubles(spec, surroundings, source_names, issuer_keys), **refused}
        settings = _settings(spec, refused, source_names, issuer_keys, last_good)
    standing = _standing(spec, settings)
    return settings, Outcome.of(documents, standing, [trouble for troubles in refused.values() for trouble in troubles])


def _standing(spec: written.WorkspaceSpec | None, settings: Settings | None) -> Standing:
    if settings is None:
        return Standing.LEFT_OUT
    return Standing.LAST_GOOD if spec is None else Standing.CURRENT


def declared_issuers(manifests: Manifests, workspace: str, namespace: str) -> tuple[str, ...]:
    """The names for which a laptop needs keys: of the issuers that a Workspace declares, or of the one that it gets."""
    documents = manifests.named(WORKSPACE, namespace, workspace)
    resource = read(Workspace, documents) if documents else []
    if isinstance(resource, list):
        return ()
    authentication = resource.spec.authentication
    if authentication is None:
        return (LOCAL_ISSUER,)
    kubernetes = (KUBERNETES_ISSUER,) if authentication.kubernetes else ()
    return (*kubernetes, *(issuer.name for issuer in authentication.oidc or ()))


def _readable(documents: Sequence[Document]) -> tuple[written.WorkspaceSpec | None, Refused]:
    """As much as can be read: all of it, or all but the settings that are wrong in themselves, or nothing."""
    resource = read(Workspace, documents)
    if isinstance(resource, Workspace):
        return resource.spec, {}
    refused: dict[str, list[Trouble]] = defaultdict(list)
    for trouble in resource:
        refused[_setting(trouble.field)].append(trouble)
    if not refused.keys() <= _HELD_IN.keys():
        return None, refused
    document = documents[0]
    spec = {name: value for name, value in document.body["spec"].items() if name not in refused}
    rest = read(Workspace, [replace(document, body={**document.body, "spec": spec})])
    return (rest.spec if isinstance(rest, Workspace) else None), refused


def _setting(field: str) -> str:
    """Of a path like spec.ranking.limit, what stands below the spec."""
    return re.split(r"[.\[]", field.removeprefix("spec."))[0] if field.startswith("spec.") else field


def _absent(surroundings: Surroundings) -> Refused:
    problem = f"there is no such Workspace in namespace {surroundings.namespace}"
    return {"metadata": [Trouble("metadata.name", "WorkspaceNotFound", problem, "Create it, or correct the name")]}


def _last_good(previous: Config, issuer_keys: Mapping[str, IssuerKeys]) -> Settings:
    return Settings(
        sources=tuple(source.name for source in previous.sources),
        store_dsn=previous.store_dsn,
        # Keys are nobody's setting: they rotate, whatever became of the Workspace.
        issuers=tuple(_with_keys(issuer, issuer_keys) for issuer in previous.issuers),
        condenser=previous.condenser,
        ranking=previous.ranking,
        deadline_seconds=previous.deadline_seconds,
        max_age_seconds=previous.entitlements.max_age_seconds,
    )


# --- what can be wrong -------------------------------------------------------------------------------------------


def _troubles(
    spec: written.WorkspaceSpec,
    surroundings: Surroundings,
    source_names: Collection[str],
    issuer_keys: Mapping[str, IssuerKeys],
) -> Refused:
    found = {
        "sources": list(_sources_troubles(spec.sources, source_names)),
        "store": list(surroundings.credential_troubles("spec.store", spec.store)),
        "authentication": list(_authentication_troubles(spec.authentication, issuer_keys)),
        "condenser": list(surroundings.credential_troubles("spec.condenser", spec.condenser)),
    }
    return {setting: troubles for setting, troubles in found.items() if troubles}


def _sources_troubles(names: Sequence[str], source_names: Collection[str]) -> Iterator[Trouble]:
    for index, name in enumerate(names):
        if name not in source_names:
            problem = f"there is no MemorySource `{name}` in this namespace"
            mend = "Correct the name, create the MemorySource, or take it out of the list"
            yield Trouble(f"spec.sources[{index}]", "SourceNotFound", problem, mend, "ResolvedRefs")


def _authentication_troubles(
    authentication: written.Authentication | None, issuer_keys: Mapping[str, IssuerKeys]
) -> Iterator[Trouble]:
    if authentication is None:
        if LOCAL_ISSUER not in issuer_keys:
            problem = "nobody is declared who may vouch for an asker"
            yield Trouble("spec.authentication", "IssuerRequired", problem, "Declare kubernetes or oidc in it")
        return
    if authentication.kubernetes and KUBERNETES_ISSUER not in issuer_keys:
        problem = "the cluster's keys for ServiceAccount tokens are not known"
        mend = "Let the operator read /openid/v1/jwks of the API server"
        yield Trouble("spec.authentication.kubernetes", "KeysNotFound", problem, mend, "ResolvedRefs")
    yield from _repeated_urls(authentication, issuer_keys)


def _repeated_urls(authentication: written.Authentication, issuer_keys: Mapping[str, IssuerKeys]) -> Iterator[Trouble]:
    """Under a second name an asker would pass by every Deny that speaks of the first."""
    kubernetes = issuer_keys.get(KUBERNETES_ISSUER) if authentication.kubernetes else None
    seen = {kubernetes.url} if kubernetes else set()
    for index, issuer in enumerate(authentication.oidc or ()):
        if issuer.issuer in seen:
            field = f"spec.authentication.oidc[{index}].issuer"
            mend = "Declare each issuer once, by one name"
            yield Trouble(field, "IssuerRepeated", "another issuer has this URL", mend)
        seen.add(issuer.issuer)


# --- what the service obeys --------------------------------------------------------------------------------------


def _settings(
    spec: written.WorkspaceSpec,
    refused: Collection[str],
    source_names: Collection[str],
    issuer_keys: Mapping[str, IssuerKeys],
    last_good: Settings | None,
) -> Settings | None:
    as_written = Settings(
        sources=tuple(name for name in spec.sources if name in source_names),
        store_dsn=credential(spec.store.dsn) if spec.store else None,
        issuers=_issuers(spec.authentication, issuer_keys),
        condenser=_condenser(spec.condenser),
        ranking=_ranking(spec.ranking),
        max_age_seconds=spec.entitlements.max_age,
        deadline_seconds=spec.service.deadline,
    )
    if last_good is not None:
        kept = {held: getattr(last_good, held) for setting, held in _HELD_IN.items() if setting in refused}
        return replace(as_written, **kept)
    if "store" in refused or "authentication" in refused:
        return None
    return replace(as_written, condenser=compiled.Condenser()) if "condenser" in refused else as_written


def _issuers(
    authentication: written.Authentication | None, issuer_keys: Mapping[str, IssuerKeys]
) -> tuple[compiled.Issuer, ...]:
    declared = _declared(authentication) if authentication else (_LOCAL,)
    return tuple(_with_keys(issuer, issuer_keys) for issuer in declared)


_LOCAL = compiled.Issuer(
    name=LOCAL_ISSUER, url="", audience=LOCAL_AUDIENCE, claims=compiled.ClaimMapping(groups="groups")
)


def _declared(authentication: written.Authentication) -> Iterator[compiled.Issuer]:
    if authentication.kubernetes:
        audience = authentication.kubernetes.audience
        yield compiled.Issuer(name=KUBERNETES_ISSUER, url="", audience=audience, kubernetes=True)
    for issuer in authentication.oidc or ():
        claims = compiled.ClaimMapping(user=issuer.claims.user, groups=issuer.claims.groups)
        yield compiled.Issuer(name=issuer.name, url=issuer.issuer, audience=issuer.audience, claims=claims)


def _with_keys(issuer: compiled.Issuer, issuer_keys: Mapping[str, IssuerKeys]) -> compiled.Issuer:
    keys = issuer_keys.get(issuer.name)
    return issuer.model_copy(update={"url": keys.url, "jwks": keys.jwks}) if keys else issuer


def _condenser(condenser: written.Condenser) -> compiled.Condenser:
    if condenser.anthropic is None:
        return compiled.Condenser()
    return compiled.Condenser(
        anthropic_model=condenser.anthropic.model,
        anthropic_api_key=credential(condenser.anthropic.api_key),
        tokens_per_day=condenser.anthropic.tokens_per_day,
    )


def _ranking(ranking: written.Ranking) -> compiled.Ranking:
    return compiled.Ranking(title_weight=ranking.title_weight, limit=ranking.limit, language=ranking.language)
