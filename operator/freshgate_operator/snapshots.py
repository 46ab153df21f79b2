"""One namespace as it stood at one moment: all that its workspaces are compiled from.

Read from the API server itself, in consistent lists of all three kinds, never from what watches remember. The stamp is
when the reading began: whatever was written before it is in the snapshot.
"""

import asyncio
import base64
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from freshgate_crds.compile import IssuerKeys
from freshgate_crds.compiled import Credential
from freshgate_crds.manifests import POLICY, SOURCE, WORKSPACE, Document, Manifests
from freshgate_operator.cluster import Body, Cluster
from freshgate_operator.kinds import NAMESPACE, SECRET, WRITTEN
from freshgate_operator.names import CREDENTIALS

Clock = Callable[[], datetime]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`secrets` are the values that may be referenced; `secret_versions` tell that one of them changed."""

    namespace: str
    namespace_uid: str
    stamp: datetime
    manifests: Manifests
    secrets: Mapping[Credential, bytes] = field(repr=False)
    secret_versions: frozenset[tuple[str, str]] = frozenset()

    def workspaces(self) -> dict[str, Document]:
        """Those that are to be served: of one that is being deleted nothing must be made anew."""
        found = (document for document in self.manifests.documents if document.kind == WORKSPACE)
        return {document.name: document for document in found if not is_leaving(document.body)}


async def read(cluster: Cluster, namespace: str, clock: Clock) -> Snapshot | None:
    """None where the namespace is gone, or going."""
    stamp = clock()
    home, secrets, written = await asyncio.gather(
        cluster.get(NAMESPACE, None, namespace),
        cluster.list(SECRET, namespace, labels=CREDENTIALS),
        asyncio.gather(*(cluster.list(kind, namespace) for kind in WRITTEN)),
    )
    if home is None or is_leaving(home):
        return None
    return Snapshot(
        namespace,
        home["metadata"]["uid"],
        stamp,
        Manifests(tuple(Document.of(body) for bodies in written for body in bodies)),
        dict(pair for secret in secrets for pair in _values(secret)),
        frozenset((secret["metadata"]["name"], secret["metadata"]["resourceVersion"]) for secret in secrets),
    )


def _values(secret: Body) -> Iterator[tuple[Credential, bytes]]:
    for key, value in (secret.get("data") or {}).items():
        yield Credential(secret=secret["metadata"]["name"], key=key), base64.b64decode(value)


def is_leaving(body: Mapping[str, Any]) -> bool:
    return body["metadata"].get("deletionTimestamp") is not None


# --- what a workspace depends on -----------------------------------------------------------------------------------


class Bases:
    """Of each workspace all that its compilation depends on, so that an equal basis needs no other one.

    Specs count by their generation. Of what a user's resource should hold nothing is taken for granted: where it cannot
    be told whom a policy is for, it is for every workspace.
    """

    def __init__(self, snapshot: Snapshot, keys: Mapping[str, IssuerKeys]) -> None:
        self._common = (snapshot.namespace_uid, snapshot.secret_versions, frozenset(keys.items()))
        self._sources: dict[str, Document] = {}
        self._policies: defaultdict[str | None, list[Document]] = defaultdict(list)
        for document in snapshot.manifests.documents:
            if document.kind == SOURCE:
                self._sources[document.name] = document
            elif document.kind == POLICY:
                for workspace in _texts(_spec(document).get("workspaces")) or (None,):
                    self._policies[workspace].append(document)

    def of(self, workspace: Document) -> Hashable:
        policies = self._policies.get(workspace.name, []) + self._policies.get(None, [])
        ruled = {name for policy in policies for rule in _rules(policy) for name in _texts(rule.get("sources"))}
        named = _texts(_spec(workspace).get("sources"))
        return (
            self._common,
            _version(workspace),
            frozenset(_version(self._sources[name]) for name in named & self._sources.keys()),
            frozenset(map(_version, policies)),
            frozenset(ruled & self._sources.keys()),
        )


def _version(document: Document) -> tuple[str, str, int]:
    metadata = document.body["metadata"]
    return document.name, metadata["uid"], metadata["generation"]


def _spec(document: Document) -> Mapping[str, Any]:
    spec = document.body.get("spec")
    return spec if isinstance(spec, dict) else {}


def _rules(policy: Document) -> list[dict[str, Any]]:
    rules = _spec(policy).get("rules")
    return [rule for rule in rules if isinstance(rule, dict)] if isinstance(rules, list) else []


def _texts(value: Any) -> frozenset[str]:
    return frozenset(text for text in value if isinstance(text, str)) if isinstance(value, list) else frozenset()
