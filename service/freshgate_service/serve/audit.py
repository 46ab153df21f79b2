"""The audit trail: one line for each question, who asked it, for whom, and what was returned.

What was asked is kept only as a keyed hash: equal questions can be told to be equal by who holds the key, and nothing
can be read from it. Ids are of what was answered; an id that was only asked for may be of something hidden.
"""

import hmac
import secrets
from collections.abc import Sequence

from freshgate_crds.compiled import Revision
from freshgate_service.domain import Asker, Principal
from freshgate_service.logs import Direct


class Audit:
    """Make it after logs are configured. Without a key, hashes are comparable within this process alone."""

    def __init__(self, key: bytes | None = None) -> None:
        self._keyed = hmac.new(key or secrets.token_bytes(32), digestmod="sha256")
        self._log = Direct("audit")

    def write(
        self,
        asker: Asker,
        route: str,
        asked: str,
        *,
        revision: Revision,
        outcome: str,
        ids: Sequence[str],
        states: Sequence[str],
        seconds: float,
    ) -> None:
        if not self._log.enabled:
            return
        line = {
            "route": route,
            "principal": _named(asker.principal),
            "workspace_uid": revision.workspace_uid,
            "revision": revision.counter,
            "asked": self._hash(asked),
            "outcome": outcome,
            "ids": ids,
            "states": list(map(str, states)),
            "milliseconds": round(seconds * 1000, 3),
        }
        if asker.on_behalf_of is not None:
            line["on_behalf_of"] = _named(asker.on_behalf_of)
        self._log.info("question", line)

    def _hash(self, asked: str) -> str:
        keyed = self._keyed.copy()
        keyed.update(asked.encode())
        return keyed.hexdigest()


def _named(principal: Principal) -> dict[str, str]:
    return {"kind": str(principal.kind), "issuer": principal.name.issuer, "name": principal.name.name}
