"""What the policies say of an asker, as a key: askers with equal grants are entitled to the same, object by object.

It holds which policies name each principal and, where one of those looks at more, the claims or the names that it looks
at: nothing else of a token, so that an `exp` or an `email` never sets two askers apart.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator
from typing import NamedTuple

from freshgate_crds.compiled import Effect, Policy, SubjectKind
from freshgate_service.domain import Asker, Name, Principal
from freshgate_service.entitle.values import Typed, scalars


class Grant(NamedTuple):
    """`reader` is who a record's readers are compared with, where a policy does that."""

    policies: tuple[int, ...]
    claims: tuple[tuple[str, tuple[Typed, ...] | None], ...]
    reader: tuple[Name, frozenset[Name]] | None


class Grants:
    """Looks up policies by the names in their subjects; none is visited that does not name the asker."""

    def __init__(self, policies: tuple[Policy, ...]) -> None:
        self._allows = frozenset(place for place, policy in enumerate(policies) if policy.effect is Effect.ALLOW)
        self._naming: defaultdict[tuple[SubjectKind, Name], dict[int, bool]] = defaultdict(dict)
        for position, policy in enumerate(policies):
            for subject in policy.subjects:
                positions = self._naming[subject.kind, Name(subject.issuer, subject.name)]
                positions[position] = positions.get(position, True) and subject.on_behalf_only
        self._groups = frozenset(name for kind, name in self._naming if kind is SubjectKind.GROUP)
        self._claims = [frozenset(_claims(policy)) for policy in policies]
        self._compares_reader = [_compares_reader(policy) for policy in policies]

    def of(self, asker: Asker) -> Hashable | None:
        """None where a principal is allowed nothing at all."""
        for_somebody = asker.on_behalf_of is not None
        grants = [
            self._grant(principal, on_behalf=for_somebody and place == 0)
            for place, principal in enumerate(asker.everyone)
        ]
        return None if None in grants else tuple(grants)

    def _grant(self, principal: Principal, *, on_behalf: bool) -> Grant | None:
        positions = tuple(sorted(set(self._named(principal, on_behalf=on_behalf))))
        if self._allows.isdisjoint(positions):
            return None
        claims = sorted(set().union(*(self._claims[each] for each in positions)))
        reads_names = any(self._compares_reader[each] for each in positions)
        return Grant(
            positions,
            tuple((claim, scalars(principal.claims.get(claim))) for claim in claims),
            (principal.name, principal.groups) if reads_names else None,
        )

    def _named(self, principal: Principal, *, on_behalf: bool) -> Iterator[int]:
        names = [(principal.kind, principal.name)]
        names += ((SubjectKind.GROUP, group) for group in principal.groups & self._groups)
        for name in names:
            for position, on_behalf_only in self._naming.get(name, {}).items():
                if on_behalf or not on_behalf_only:
                    yield position


def _claims(policy: Policy) -> Iterator[str]:
    for rule in policy.rules:
        yield from (each.values_from_claim for each in rule.where if each.values_from_claim is not None)


def _compares_reader(policy: Policy) -> bool:
    return any(rule.asker_must_be_reader for rule in policy.rules)
