"""EntitlementPolicies: default deny, and no mistake in a policy ever opens anything.

A refused Allow grants nothing. A refused Deny denies everything in its workspaces. What cannot be told from a broken
policy is taken for the worst: that it is a Deny, for every workspace of its namespace. No last good form is looked at:
an old policy would hold back a revocation.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

from pydantic import ConfigDict, Field, ValidationError

from freshgate_crds import compiled
from freshgate_crds.compile.outcomes import Outcome, Standing, Trouble
from freshgate_crds.compile.reading import read
from freshgate_crds.compile.surroundings import Surroundings
from freshgate_crds.compiled import KUBERNETES_ISSUER, Effect, Operator, SubjectKind
from freshgate_crds.manifests import API_VERSION, Document
from freshgate_crds.v1alpha1 import EntitlementPolicy
from freshgate_crds.v1alpha1 import entitlementpolicies as written
from freshgate_crds.v1alpha1.models import Model, WorkspaceName

Sources = Mapping[str, compiled.Source | None]
"""All MemorySources of the namespace by name: the form in force here, or None where there is none."""


class Ruling(NamedTuple):
    """What one policy means to one workspace."""

    policy: compiled.Policy | None
    outcome: Outcome

    @property
    def denies_all(self) -> bool:
        return self.outcome.standing is Standing.DENIES_ALL


def rule_on(documents: Sequence[Document], surroundings: Surroundings, sources: Sources) -> Ruling | None:
    """None where the policy is for other workspaces. `documents` are those of one name."""
    standing = _if_refused(documents, surroundings.workspace)
    if standing is None:
        return None
    result = _compile(documents, surroundings, sources)
    if isinstance(result, compiled.Policy):
        return Ruling(result if result.rules else None, Outcome.of(documents, Standing.CURRENT, ()))
    return Ruling(None, Outcome.of(documents, standing, result))


def check_policy(documents: Sequence[Document], surroundings: Surroundings, sources: Sources) -> Outcome:
    """As far as it can be told without a workspace."""
    resource = read(EntitlementPolicy, documents)
    troubles = resource if isinstance(resource, list) else _troubles(resource.spec, surroundings, sources)
    return Outcome.of(documents, Standing.LEFT_OUT if troubles else Standing.CURRENT, troubles)


def _compile(
    documents: Sequence[Document], surroundings: Surroundings, sources: Sources
) -> compiled.Policy | list[Trouble]:
    resource = read(EntitlementPolicy, documents)
    if isinstance(resource, list):
        return resource
    troubles = _troubles(resource.spec, surroundings, sources)
    return troubles or _policy(resource.metadata.name, resource.spec, surroundings, sources)


# --- what a refusal means ----------------------------------------------------------------------------------------


class _Head(Model):
    """What must be known of a policy, however broken the rest, to tell what refusing it means."""

    model_config = ConfigDict(extra="ignore")

    effect: Literal["Allow", "Deny"]
    workspaces: Annotated[list[WorkspaceName], Field(min_length=1)]


def _if_refused(documents: Sequence[Document], workspace: str) -> Standing | None:
    """Of several under one name, the worst that any of them could be."""
    standings = [standing for document in documents if (standing := _one_refused(document, workspace)) is not None]
    return max(standings, default=None)


def _one_refused(document: Document, workspace: str) -> Standing | None:
    head = _head(document)
    if head is None:
        return Standing.DENIES_ALL
    if workspace not in head.workspaces:
        return None
    return Standing.GRANTS_NOTHING if head.effect == "Allow" else Standing.DENIES_ALL


def _head(document: Document) -> _Head | None:
    if document.body.get("apiVersion") != API_VERSION:
        return None
    try:
        return _Head.model_validate(document.body.get("spec"))
    except ValidationError:
        return None


# --- what can be wrong -------------------------------------------------------------------------------------------


def _troubles(spec: written.EntitlementPolicySpec, surroundings: Surroundings, sources: Sources) -> list[Trouble]:
    return [*_subjects_troubles(spec, surroundings), *_rules_troubles(spec, sources)]


def _subjects_troubles(spec: written.EntitlementPolicySpec, surroundings: Surroundings) -> Iterator[Trouble]:
    for index, subject in enumerate(spec.subjects):
        if subject.kind == "ServiceAccount":
            yield from surroundings.issuer_troubles(f"spec.subjects[{index}].kind", KUBERNETES_ISSUER)
        else:
            yield from surroundings.issuer_troubles(f"spec.subjects[{index}].issuer", subject.issuer)


def _rules_troubles(spec: written.EntitlementPolicySpec, sources: Sources) -> Iterator[Trouble]:
    for index, rule in enumerate(spec.rules):
        for name_index, name in enumerate(rule.sources):
            if name not in sources:
                yield _no_source(f"spec.rules[{index}].sources[{name_index}]", name)
            elif source := sources[name]:
                yield from _rule_troubles(f"spec.rules[{index}]", rule, source)


def _no_source(field: str, name: str) -> Trouble:
    # In an Allow it would be harmless. In a Deny it is most likely a misspelt name, and would shield nothing.
    mend = "Correct the name, create the MemorySource, or take it out of the rule"
    return Trouble(field, "SourceNotFound", f"there is no MemorySource `{name}` in this namespace", mend)


def _rule_troubles(field: str, rule: written.Rule, source: compiled.Source) -> Iterator[Trouble]:
    for index, condition in enumerate(rule.where or ()):
        if condition.attribute not in source.object.attributes:
            yield _no_attribute(f"{field}.where[{index}].attribute", condition.attribute, source)
    if rule.asker and source.object.readers is None:
        problem = f"MemorySource {source.name} maps no readers"
        mend = "Map them in its spec.object.readers, or remove `asker` from the rule"
        yield Trouble(f"{field}.asker", "ReadersNotMapped", problem, mend)


def _no_attribute(field: str, attribute: str, source: compiled.Source) -> Trouble:
    mapped = ", ".join(sorted(source.object.attributes)) or "none"
    problem = f"MemorySource {source.name}, in the form that is in force, maps no attribute `{attribute}`"
    mend = f"Map it in its spec.object.attributes, or use one that it maps: {mapped}"
    return Trouble(field, "AttributeNotMapped", problem, mend)


# --- what the service obeys --------------------------------------------------------------------------------------


def _policy(
    name: str, spec: written.EntitlementPolicySpec, surroundings: Surroundings, sources: Sources
) -> compiled.Policy:
    rules = (_rule(rule, sources) for rule in spec.rules)
    return compiled.Policy(
        name=name,
        effect=Effect(spec.effect),
        subjects=tuple(_subject(subject, surroundings) for subject in spec.subjects),
        rules=tuple(rule for rule in rules if rule.sources),
    )


def _subject(subject: written.Subject, surroundings: Surroundings) -> compiled.Subject:
    kind = SubjectKind(subject.kind)
    return compiled.Subject(
        kind=kind,
        issuer=KUBERNETES_ISSUER if kind is SubjectKind.SERVICE_ACCOUNT else surroundings.issuer(subject.issuer),
        name=subject.name,
        on_behalf_only=subject.use is not None,
    )


def _rule(rule: written.Rule, sources: Sources) -> compiled.Rule:
    """Only the sources that are in force here: of the others there is nothing to allow or to deny."""
    return compiled.Rule(
        sources=tuple(name for name in rule.sources if sources[name]),
        where=tuple(_condition(condition) for condition in rule.where or ()),
        everything=bool(rule.everything),
        asker_must_be_reader=rule.asker is not None,
    )


def _condition(condition: written.Condition) -> compiled.Condition:
    return compiled.Condition(
        attribute=condition.attribute,
        operator=Operator(condition.operator),
        values=tuple(condition.literals),
        values_from_claim=condition.values_from_claim,
    )
