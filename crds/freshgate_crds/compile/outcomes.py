"""What compiling says of each resource: whether it is obeyed, what is wrong with it, and what is in force instead.

The same words serve the command line and a resource's status in a cluster, so they never hold a value that was written.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, NamedTuple, Self

from freshgate_crds.compiled import Config, Credential, credentials_of
from freshgate_crds.manifests import Document, Place


class Trouble(NamedTuple):
    """One thing that is wrong, where the resource is known from the surroundings. `reason` is in CamelCase; `problem`
    and `mend` are sentences without their full stop."""

    field: str
    reason: str
    problem: str
    mend: str
    condition: Literal["Accepted", "ResolvedRefs"] = "Accepted"


@dataclass(frozen=True, slots=True)
class Refusal:
    kind: str
    namespace: str
    name: str
    field: str
    reason: str
    problem: str
    mend: str
    condition: Literal["Accepted", "ResolvedRefs"] = "Accepted"
    place: Place | None = None

    @property
    def message(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}: {self.field}: {self.problem}. {self.mend}."


class Standing(IntEnum):
    """What is in force of a resource; the higher, the further from what was written."""

    CURRENT = 0
    LAST_GOOD = 1
    LEFT_OUT = 2
    GRANTS_NOTHING = 3
    DENIES_ALL = 4

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]


_SENTENCES = {
    Standing.CURRENT: "The rest of it is in force.",
    Standing.LAST_GOOD: "Until then its last good form stays in force.",
    Standing.LEFT_OUT: "Until then it is left out.",
    Standing.GRANTS_NOTHING: "Until then it grants nothing.",
    Standing.DENIES_ALL: "Until then it denies everything.",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one resource, or of all that share its name. A Workspace of which one setting was refused still stands."""

    kind: str
    namespace: str
    name: str
    standing: Standing = Standing.CURRENT
    refusals: tuple[Refusal, ...] = ()

    @classmethod
    def of(cls, documents: Sequence[Document], standing: Standing, troubles: Iterable[Trouble]) -> Self:
        """Of the documents of one name; a reader is led to the last of them."""
        identity, place = documents[0].identity, documents[-1].place
        return cls(
            *identity, standing, tuple(Refusal(*identity, **trouble._asdict(), place=place) for trouble in troubles)
        )

    @property
    def identity(self) -> tuple[str, str, str]:
        return self.kind, self.namespace, self.name

    @property
    def accepted(self) -> bool:
        return all(refusal.condition != "Accepted" for refusal in self.refusals)

    @property
    def resolved(self) -> bool:
        return all(refusal.condition != "ResolvedRefs" for refusal in self.refusals)


@dataclass(frozen=True, slots=True)
class Compilation:
    """`config` is None where there is nothing good yet to serve."""

    config: Config | None
    outcomes: tuple[Outcome, ...]

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        return tuple(refusal for outcome in self.outcomes for refusal in outcome.refusals)

    @property
    def credentials(self) -> tuple[Credential, ...]:
        """All that the configuration needs."""
        return credentials_of(self.config) if self.config else ()


def merged(outcomes: Iterable[Outcome]) -> tuple[Outcome, ...]:
    """One outcome a resource, from those of several workspaces: every refusal once, and the standing furthest off."""
    found: dict[tuple[str, str, str], Outcome] = {}
    for outcome in outcomes:
        other = found.get(outcome.identity, outcome)
        refusals = tuple(dict.fromkeys((*other.refusals, *outcome.refusals)))
        found[outcome.identity] = Outcome(*outcome.identity, max(other.standing, outcome.standing), refusals)
    return tuple(found[identity] for identity in sorted(found))
