"""The check between scoring and everything after it.

Whatever leaves a scorer is decided anew here, from each object's own access and the policies, so that a mistake in a
class, an index, a cache or a score ends in an error and not in somebody's answer. It must not import the class table.
"""

from collections.abc import Iterable

from freshgate_crds.compiled import Entitlements
from freshgate_service.domain import Access, Asker
from freshgate_service.entitle.decide import judge
from freshgate_service.errors import InvariantViolation


def check(asker: Asker, accesses: Iterable[Access], entitlements: Entitlements) -> None:
    """Raises InvariantViolation when one of `accesses` is not the asker's to see. It says no more than that."""
    if not all(map(judge(asker, entitlements), accesses)):
        raise InvariantViolation("an object that the asker is not entitled to left the scorer")
