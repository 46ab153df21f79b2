"""What compiling workspaces does not say: of what no workspace speaks of, and of what is probably not meant."""

from collections.abc import Collection, Iterator

from freshgate_crds.compile.outcomes import Outcome, Trouble
from freshgate_crds.compile.policies import check_policy
from freshgate_crds.compile.reading import read
from freshgate_crds.compile.sources import check_source
from freshgate_crds.compile.surroundings import Surroundings
from freshgate_crds.compiled import Credential
from freshgate_crds.manifests import POLICY, SOURCE, WORKSPACE, Document, Manifests, Note
from freshgate_crds.v1alpha1 import EntitlementPolicy, Workspace

_LAPTOP_ALONE = "`freshgate serve` puts a local one in its place; a cluster needs it"


def unclaimed(
    manifests: Manifests,
    namespace: str,
    claimed: Collection[tuple[str, str, str]],
    available: Collection[Credential] | None = None,
) -> Iterator[Outcome]:
    """Sources and policies of the namespace that are not among `claimed`, each as far as it can be told by itself."""
    surroundings = Surroundings(namespace, "", available=None if available is None else frozenset(available))
    sources = manifests.by_name(SOURCE, namespace)
    for name, documents in sources.items():
        if (SOURCE, namespace, name) not in claimed:
            yield check_source(documents, surroundings)
    for name, documents in manifests.by_name(POLICY, namespace).items():
        if (POLICY, namespace, name) not in claimed:
            yield check_policy(documents, surroundings, dict.fromkeys(sources))


def remarks(manifests: Manifests) -> Iterator[Note]:
    """Nothing to refuse, but to be pointed out."""
    for document in manifests.documents:
        for text in _remarks(document, manifests):
            yield Note(document.place, f"{document.kind} {document.namespace}/{document.name}: {text}")


def _remarks(document: Document, manifests: Manifests) -> Iterator[str]:
    if document.kind == POLICY:
        yield from _on_policy(read(EntitlementPolicy, [document]), manifests)
    elif document.kind == WORKSPACE:
        yield from _on_workspace(read(Workspace, [document]))


def _on_policy(policy: EntitlementPolicy | list[Trouble], manifests: Manifests) -> Iterator[str]:
    if isinstance(policy, EntitlementPolicy):
        for index, name in enumerate(policy.spec.workspaces):
            if (policy.metadata.namespace, name) not in manifests.workspaces:
                yield f"spec.workspaces[{index}]: there is no Workspace `{name}` in this namespace; so nothing there"


def _on_workspace(workspace: Workspace | list[Trouble]) -> Iterator[str]:
    if isinstance(workspace, Workspace):
        if workspace.spec.store is None:
            yield f"spec.store: absent. {_LAPTOP_ALONE}"
        if workspace.spec.authentication is None:
            yield f"spec.authentication: absent. {_LAPTOP_ALONE}"
