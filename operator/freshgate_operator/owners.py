"""The workspace as the owner of what is made for it: Kubernetes deletes with it what names it as its owner."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from freshgate_operator.cluster import Body
from freshgate_operator.kinds import WORKSPACE_KIND
from freshgate_operator.names import child


@dataclass(frozen=True, slots=True)
class Owner:
    namespace: str
    name: str
    uid: str
    generation: int
    created: datetime

    @classmethod
    def of(cls, workspace: Mapping[str, Any]) -> Self:
        metadata = workspace["metadata"]
        return cls(
            metadata["namespace"],
            metadata["name"],
            metadata["uid"],
            metadata["generation"],
            datetime.fromisoformat(metadata["creationTimestamp"]),
        )

    @property
    def child(self) -> str:
        return child(self.name)

    def metadata(self, labels: Mapping[str, str]) -> Body:
        return {
            "namespace": self.namespace,
            "name": self.child,
            "labels": dict(labels),
            "ownerReferences": [self._reference()],
        }

    def owns(self, body: Mapping[str, Any]) -> bool:
        """An object of another owner is not to be touched, nor one of a workspace of this name that was deleted."""
        references = body["metadata"].get("ownerReferences") or []
        return any(reference["uid"] == self.uid and reference.get("controller") for reference in references)

    def _reference(self) -> Body:
        kind = WORKSPACE_KIND
        return {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
        }
