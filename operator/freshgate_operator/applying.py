"""Applies what was rendered, where the cluster does not hold it already. At rest it writes nothing.

What somebody else adds to an object is theirs and stays. What somebody changes of ours is put back, once for each
change: where the cluster itself makes something else of what is applied, asking again would not help.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from freshgate_operator.children import digest
from freshgate_operator.cluster import Body, Cluster
from freshgate_operator.errors import Conflict, NameTaken
from freshgate_operator.kinds import Kind
from freshgate_operator.names import APPLIED
from freshgate_operator.owners import Owner
from freshgate_operator.snapshots import is_leaving

_BOOKKEEPING = frozenset({"generation", "managedFields", "resourceVersion"})


class Applier:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._made: dict[str, str] = {}
        """By UID: what the cluster made of what was applied last."""

    async def apply(self, owner: Owner, rendered: Sequence[tuple[Kind, Body]]) -> dict[str, str]:
        """The version of each child then, by its kind. Raises NameTaken, ClusterError."""
        live = await asyncio.gather(*(self._one(owner, kind, body) for kind, body in rendered))
        return {kind.name: version(body) for (kind, _), body in zip(rendered, live, strict=True)}

    async def _one(self, owner: Owner, kind: Kind, wanted: Body) -> Body:
        live = await self._cluster.get(kind, owner.namespace, owner.child)
        if live is not None:
            if not owner.owns(live):
                raise NameTaken(f"{kind.name} {owner.child} belongs to something else: delete or rename it")
            if is_leaving(live):
                raise Conflict(f"{kind.name} {owner.child} is being deleted")
            if holds(live, wanted) or self._settled(live, wanted):
                return live
        made = await self._cluster.apply(kind, wanted)
        self._made[made["metadata"]["uid"]] = _essence(made)
        return made

    def _settled(self, live: Body, wanted: Body) -> bool:
        """It is not what was applied, but what the cluster made of it."""
        same = _applied(live) == _applied(wanted)
        return same and self._made.get(live["metadata"]["uid"]) == _essence(live)


def version(body: Mapping[str, Any]) -> str:
    """Changes when somebody changes the object; where that can be told, not when only its status changes."""
    metadata = body["metadata"]
    return f"{metadata['uid']}/{metadata.get('generation') or metadata['resourceVersion']}"


def holds(live: Any, wanted: Any) -> bool:
    """Whether all that is wanted is there; there may be more, but not more items in a list."""
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(name in live and holds(live[name], wanted[name]) for name in wanted)
    if isinstance(wanted, list):
        return isinstance(live, list) and len(live) == len(wanted) and all(map(holds, live, wanted))
    return bool(live == wanted)


def _applied(body: Body) -> str | None:
    annotations: Mapping[str, str] = body["metadata"].get("annotations") or {}
    return annotations.get(APPLIED)


def _essence(body: Body) -> str:
    metadata = {name: value for name, value in body["metadata"].items() if name not in _BOOKKEEPING}
    return digest({**body, "metadata": metadata, "status": None})
