"""What a resource is compiled against beside its text: who is believed in its workspace, which Secrets there are."""

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import BaseModel

from freshgate_crds.compile.outcomes import Trouble
from freshgate_crds.compile.references import found
from freshgate_crds.compiled import KUBERNETES_ISSUER, Credential
from freshgate_crds.v1alpha1.models import SecretKeyRef


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Of one workspace. What is None is not known, and then not checked. The issuers are those in force, by name."""

    namespace: str
    workspace: str
    issuers: tuple[str, ...] | None = None
    available: frozenset[Credential] | None = None

    @property
    def peoples_issuers(self) -> tuple[str, ...]:
        return tuple(name for name in self.issuers or () if name != KUBERNETES_ISSUER)

    def issuer(self, named: str | None) -> str:
        """Who asserts a user's or a group's name, where `issuer_troubles` had nothing to say."""
        return named if named is not None else self.peoples_issuers[0]

    def issuer_troubles(self, field: str, named: str | None) -> Iterator[Trouble]:
        if self.issuers is None:
            return
        choice = f"name one of: {', '.join(self.issuers) or 'none is declared'}"
        if named is not None and named not in self.issuers:
            problem = f"Workspace {self.workspace} declares no issuer `{named}`"
            yield Trouble(
                field, "UnknownIssuer", problem, f"Declare it in the Workspace's spec.authentication, or {choice}"
            )
        elif named is None and len(self.peoples_issuers) != 1:
            problem = f"Workspace {self.workspace} does not have exactly one issuer of users and groups"
            yield Trouble(field, "IssuerRequired", problem, choice.capitalize())

    def credential_troubles(self, field: str, written: BaseModel | None) -> Iterator[Trouble]:
        """Of all references to Secrets inside `written`, which stands at `field`."""
        for path, reference in found(SecretKeyRef, written, field):
            if (
                self.available is not None
                and Credential(secret=reference.name, key=reference.key) not in self.available
            ):
                yield self._missing(path, reference)

    def _missing(self, field: str, reference: SecretKeyRef) -> Trouble:
        secret = f"{self.namespace}/{reference.name}"
        mend = (
            f'Create Secret {secret} with that key and the label freshgate.dev/credential: "true"'
            f" (on a laptop: the file {secret}/{reference.key} in the folder of secrets)"
        )
        problem = f"no key `{reference.key}` of a Secret {secret} can be read"
        return Trouble(field, "CredentialNotFound", problem, mend, "ResolvedRefs")
