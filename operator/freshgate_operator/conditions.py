"""What is to be said of each resource, as conditions: plain functions of what is known, without any side effect.

A message names what is wrong and how to mend it, and holds nothing that changes by itself (no ages, no counts of
objects), so that a condition changes when the state does and not otherwise.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from freshgate_crds.compile import Outcome, Refusal, Standing
from freshgate_crds.compiled import Config, Source
from freshgate_crds.manifests import SOURCE
from freshgate_operator.pods import Observation, Report, SeenPod, SourceReport
from freshgate_operator.records import Record

LONGEST_MESSAGE = 4096
_NAMED = 5
"""How many of many are named in a message."""


class Condition(NamedTuple):
    type: str
    status: str
    reason: str
    message: str

    @property
    def is_true(self) -> bool:
        return self.status == "True"


def _true(kind: str, reason: str, message: str) -> Condition:
    return Condition(kind, "True", reason, message)


def _false(kind: str, reason: str, message: str) -> Condition:
    return Condition(kind, "False", reason, message[:LONGEST_MESSAGE])


def _unknown(kind: str, reason: str, message: str) -> Condition:
    return Condition(kind, "Unknown", reason, message)


def _names(names: Sequence[str]) -> str:
    rest = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{rest}"


# --- of what was written -------------------------------------------------------------------------------------------


def of_outcome(outcome: Outcome, *, used: bool = True) -> list[Condition]:
    """Of a MemorySource or an EntitlementPolicy. `used`: a workspace speaks of it."""
    conditions = [_accepted(outcome, used=used)]
    if outcome.kind == SOURCE:
        conditions.append(_resolved(outcome))
    return conditions


def _accepted(outcome: Outcome, *, used: bool = True) -> Condition:
    refused = [refusal for refusal in outcome.refusals if refusal.condition == "Accepted"]
    if refused:
        return _refused("Accepted", refused, outcome.standing)
    if not used:
        return _true("Accepted", "Unused", "Nothing is wrong with it, and no Workspace uses it.")
    return _true("Accepted", "Accepted", "It is obeyed as it is written.")


def _resolved(outcome: Outcome) -> Condition:
    missing = [refusal for refusal in outcome.refusals if refusal.condition == "ResolvedRefs"]
    if missing:
        return _refused("ResolvedRefs", missing, outcome.standing)
    return _true("ResolvedRefs", "Resolved", "All that it refers to is there.")


def _refused(kind: str, refusals: Sequence[Refusal], standing: Standing) -> Condition:
    """As many of the refusals as there is room for, each whole."""
    message = standing.sentence
    for index, refusal in enumerate(refusals):
        longer = f"{refusal.field}: {refusal.problem}. {refusal.mend}. {message}"
        if len(longer) > LONGEST_MESSAGE - 40:
            message += f" {len(refusals) - index} more are not shown."
            break
        message = longer
    return _false(kind, refusals[0].reason, message)


# --- of a workspace ------------------------------------------------------------------------------------------------


def of_workspace(record: Record, now: datetime) -> list[Condition]:
    accepted = _accepted(record.outcome)
    resolved = _references(record)
    programmed = _programmed(record)
    fresh = _fresh(record, now)
    return [accepted, resolved, programmed, fresh, _sidecars(record), _ready(accepted, resolved, programmed, fresh)]


def _references(record: Record) -> Condition:
    """Its own references; and where these are fine, whether what it lives on is obeyed as it is written."""
    own = _resolved(record.outcome)
    if not own.is_true:
        return own
    denying = [outcome.name for outcome in record.outcomes if outcome.standing is Standing.DENIES_ALL]
    if denying:
        message = f"Everything is denied, since these EntitlementPolicies are refused: {_names(denying)}."
        return _false("ResolvedRefs", "EverythingDenied", f"{message} Their status says why.")
    refused = [outcome.name for outcome in record.outcomes if outcome.kind == SOURCE and outcome.refusals]
    if refused:
        message = f"These MemorySources are refused: {_names(refused)}. Their status says why, and what is in force."
        return _false("ResolvedRefs", "SourceRefused", message)
    return own


def _programmed(record: Record) -> Condition:
    kind = "Programmed"
    if record.problem is not None:
        return _false(kind, record.problem.reason, record.problem.message)
    if record.publication is None or record.publication.config is None:
        return _false(kind, "NotPublished", "There is nothing good yet to publish; see Accepted and ResolvedRefs.")
    if record.paused:
        return _false(kind, "Paused", "spec.service.replicas is 0.")
    if record.observation is None:
        return _unknown(kind, "NotObserved", "The pods were not asked yet.")
    return _loaded(record.observation, record.publication.config, record.service.replicas if record.service else 1)


def _loaded(observation: Observation, config: Config, replicas: int) -> Condition:
    kind, pods = "Programmed", observation.pods
    unready = [pod for pod in pods if not pod.ready]
    if len(pods) - len(unready) < replicas:
        ready = f"{len(pods) - len(unready)} of {replicas} pods are ready."
        return _false(kind, "PodsNotReady", " ".join([ready, *_waiting(unready)]))
    silent = [pod.name for pod in pods if pod.report is None]
    if silent:
        message = f"These pods do not answer the operator on their ops port: {_names(silent)}."
        return _false(kind, "PodsSilent", f"{message} See whether a NetworkPolicy is against it.")
    if observation.behind(config.revision):
        message = f"Revision {config.revision.counter} is not loaded by all pods yet."
        return _false(kind, "PodsBehind", message)
    return _true(kind, "Programmed", f"All pods have loaded revision {config.revision.counter}.")


def _waiting(pods: Iterable[SeenPod]) -> list[str]:
    reasons = sorted({pod.waiting for pod in pods if pod.waiting})
    return [f"Waiting: {', '.join(reasons)}."] if reasons else []


def _fresh(record: Record, now: datetime) -> Condition:
    kind = "Fresh"
    config = record.publication.config if record.publication else None
    reported = report_of(record)
    if config is None or record.paused or reported is None:
        return _unknown(kind, "NotObserved", "No pod tells.")
    reports = {source.name: source for source in reported.sources}
    unread = [name for name, report in reports.items() if report.last_success is None and report.last_error is None]
    if unread:
        return _false(kind, "NotReadYet", f"These sources were not read yet: {_names(unread)}.")
    late = [source.name for source in config.sources if not _in_time(source, reports.get(source.name), now)]
    if late:
        message = f"Not confirmed within their TTL and one sweep: {_names(late)}. The rows say what went wrong."
        return _false(kind, "SourcesLate", message)
    if any(report.objects and report.oldest_confirmed is None for report in reports.values()):
        return _unknown(kind, "NotReported", "The pods do not tell how old their oldest confirmation is.")
    return _true(kind, "Fresh", "Every source was confirmed within its TTL and one sweep.")


def _in_time(source: Source, report: SourceReport | None, now: datetime) -> bool:
    """A source that was never read is late; one without objects is as fresh as its last listing."""
    confirmed = (report.oldest_confirmed or report.last_success) if report else None
    allowed = timedelta(seconds=source.ttl_seconds + source.sweep_seconds)
    return confirmed is not None and now - confirmed <= allowed


def _sidecars(record: Record) -> Condition:
    """The one condition of which True is the bad news."""
    kind = "SidecarsOutdated"
    outdated = record.observation.outdated_sidecars if record.observation else ()
    if outdated:
        message = f"These pods run a sidecar of another version: {_names(outdated)}. Restart them."
        return Condition(kind, "True", "OtherVersion", message)
    return _false(kind, "UpToDate", "No pod runs a sidecar of another version.")


def _ready(*others: Condition) -> Condition:
    """As the first of the others that is against it has it. What pods do not tell of freshness is not against it."""
    for condition in others:
        against = condition.status == "False" or (condition.type == "Programmed" and not condition.is_true)
        if against:
            return Condition("Ready", condition.status, condition.reason, condition.message)
    return _true("Ready", "Ready", "It answers, from the configuration that is written.")


def report_of(record: Record) -> Report | None:
    """Of the first pod that has loaded what is in force, else of the first that answered: they share one store."""
    config = record.publication.config if record.publication else None
    answered = [pod for pod in (record.observation.pods if record.observation else ()) if pod.report]
    loaded = [pod for pod in answered if config and pod.has_loaded(config.revision)]
    return next((pod.report for pod in (*loaded, *answered)), None)
