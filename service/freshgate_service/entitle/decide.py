"""What entitlement means: policies evaluated over one record, plainly.

This is the definition that every faster way must equal and that the border check trusts alone, so it knows no index, no
class and no cache. It looks at nothing but the asker, the record's access and the policies.

Conditions are three-valued. None is "unknown": the attribute or the claim is missing, null, empty or wrongly typed. It
fails an Allow and matches a Deny, so that no gap in the data ever opens anything.
"""
# ruff: noqa: SIM110 - this runs for each record of an answer, where a generator costs as much as a whole verdict

from collections.abc import Callable
from typing import NamedTuple

from freshgate_crds.compiled import Condition, Effect, Entitlements, Operator, Policy, Rule, Subject, SubjectKind
from freshgate_service.domain import Access, Asker, Attribute, Principal, Readers
from freshgate_service.entitle.values import ByType, Typed, by_type, is_present, scalars

Verdict = bool | None


class Demand(NamedTuple):
    """A condition as it stands for one principal; `values` is None where they are unknown, or not asked for."""

    attribute: str
    operator: Operator
    values: ByType | None

    def verdict(self, access: Access) -> Verdict:
        return _VERDICTS[self.operator](access.attributes.get(self.attribute), self.values)


class Clause(NamedTuple):
    """One rule of a policy, for one principal."""

    policy: str
    rule: Rule
    demands: tuple[Demand, ...]


class Party(NamedTuple):
    """A principal, and all that policies say of it."""

    principal: Principal
    allows: tuple[Clause, ...]
    denies: tuple[Clause, ...]


class Grounds(NamedTuple):
    """The names of the policies that match the record for one principal. None of either: default deny."""

    principal: Principal
    allowed_by: tuple[str, ...]
    denied_by: tuple[str, ...]

    @property
    def entitled(self) -> bool:
        return bool(self.allowed_by) and not self.denied_by


class Decision(NamedTuple):
    """`refused` names the Deny policies that could not be understood; while there is one, nobody sees anything."""

    grounds: tuple[Grounds, ...]
    refused: tuple[str, ...]

    @property
    def entitled(self) -> bool:
        return not self.refused and all(each.entitled for each in self.grounds)


def entitled(asker: Asker, access: Access, entitlements: Entitlements) -> bool:
    """Whether every principal of the asker is allowed and none is denied.

    Each principal is decided by itself, also by `asker_must_be_reader`: an agent that acts for a person passes such a
    rule only where the record names the agent too. What a person reads as a reader reaches an agent through a policy of
    the agent's own, which may well be one that counts on behalf of a person only.
    """
    return judge(asker, entitlements)(access)


def judge(asker: Asker, entitlements: Entitlements) -> Callable[[Access], bool]:
    """`entitled` for many records of one asker: what depends on the asker alone is worked out once."""
    everyone = parties(asker, entitlements)

    def is_entitled(access: Access) -> bool:
        return not entitlements.denied and all_see(everyone, access)

    return is_entitled


def why(asker: Asker, access: Access, entitlements: Entitlements) -> Decision:
    """The same decision with its grounds. Those hold names of policies and principals: for platform teams, never for an
    answer."""
    return Decision(tuple(_grounds(party, access) for party in parties(asker, entitlements)), entitlements.denied)


# --- who is meant ------------------------------------------------------------------------------------------------


def parties(asker: Asker, entitlements: Entitlements) -> tuple[Party, ...]:
    """Everyone who must be entitled; the first acts for the second where there are two."""
    for_somebody = asker.on_behalf_of is not None
    return tuple(
        _party(principal, entitlements, on_behalf=for_somebody and place == 0)
        for place, principal in enumerate(asker.everyone)
    )


def _party(principal: Principal, entitlements: Entitlements, *, on_behalf: bool) -> Party:
    clauses: dict[Effect, list[Clause]] = {Effect.ALLOW: [], Effect.DENY: []}
    for policy in entitlements.policies:
        if _names(policy, principal, on_behalf=on_behalf):
            clauses[policy.effect] += (_clause(policy.name, rule, principal) for rule in policy.rules)
    return Party(principal, tuple(clauses[Effect.ALLOW]), tuple(clauses[Effect.DENY]))


def _names(policy: Policy, principal: Principal, *, on_behalf: bool) -> bool:
    """Whether a subject is this principal, or a group that it carries. `on_behalf`: it is an agent that acts for a
    person."""
    for subject in policy.subjects:
        if (on_behalf or not subject.on_behalf_only) and _is(subject, principal):
            return True
    return False


def _is(subject: Subject, principal: Principal) -> bool:
    name = (subject.issuer, subject.name)
    if subject.kind is principal.kind:
        return name == principal.name
    return subject.kind is SubjectKind.GROUP and name in principal.groups


# --- what is asked for -------------------------------------------------------------------------------------------


def _clause(policy: str, rule: Rule, principal: Principal) -> Clause:
    return Clause(policy, rule, tuple(_demand(condition, principal) for condition in rule.where))


def _demand(condition: Condition, principal: Principal) -> Demand:
    from_claim, operator = condition.values_from_claim, condition.operator
    given = list(condition.values) if from_claim is None else principal.claims.get(from_claim)
    # An empty string is no prefix, since it begins everything, and no claim, since everything differs from it.
    no_empty = from_claim is not None or operator is Operator.PREFIX_OF
    return Demand(condition.attribute, operator, _values(scalars(given), operator, no_empty=no_empty))


def _values(values: tuple[Typed, ...] | None, operator: Operator, *, no_empty: bool) -> ByType | None:
    if values is None or (no_empty and ("string", "") in values):
        return None
    if operator is Operator.EQUALS and len(values) > 1:
        return None
    return by_type(values)


# --- whether it is so --------------------------------------------------------------------------------------------


def all_see(everyone: tuple[Party, ...], access: Access) -> bool:
    for party in everyone:
        if not _sees(party, access):
            return False
    return True


def _sees(party: Party, access: Access) -> bool:
    """Deny wins; nothing is allowed by default."""
    for clause in party.denies:
        if _possibly_matches(clause, access):
            return False
    for clause in party.allows:
        if _surely_matches(clause, party.principal, access):
            return True
    return False


def _grounds(party: Party, access: Access) -> Grounds:
    allowing = (clause.policy for clause in party.allows if _surely_matches(clause, party.principal, access))
    denying = (clause.policy for clause in party.denies if _possibly_matches(clause, access))
    return Grounds(party.principal, tuple(dict.fromkeys(allowing)), tuple(dict.fromkeys(denying)))


def _surely_matches(clause: Clause, principal: Principal, access: Access) -> bool:
    rule = clause.rule
    if access.source not in rule.sources or not (rule.where or rule.everything):
        return False
    if rule.asker_must_be_reader and not _is_reader(principal, access.readers):
        return False
    for demand in clause.demands:
        if demand.verdict(access) is not True:
            return False
    return True


def _possibly_matches(clause: Clause, access: Access) -> bool:
    # Readers are not asked: being one narrows what an Allow gives, and must not narrow what a Deny takes.
    if access.source not in clause.rule.sources:
        return False
    for demand in clause.demands:
        if demand.verdict(access) is False:
            return False
    return True


def _is_reader(principal: Principal, readers: Readers) -> bool:
    return principal.name in readers.users or not readers.groups.isdisjoint(principal.groups)


# --- the operators: an attribute against the values that are wanted ------------------------------------------------


def _in(attribute: Attribute, values: ByType | None) -> Verdict:
    """Whether one of the attribute's scalars is wanted; unknown where no wanted value has its type."""
    found = scalars(attribute)
    if found is None or values is None:
        return None
    among = False
    for kind, value in found:
        if kind not in values:
            return None
        among = among or value in values[kind]
    return among


def _not_in(attribute: Attribute, values: ByType | None) -> Verdict:
    among = _in(attribute, values)
    return None if among is None else not among


def _equals(attribute: Attribute, values: ByType | None) -> Verdict:
    return None if isinstance(attribute, list) else _in(attribute, values)


def _prefix_of(attribute: Attribute, values: ByType | None) -> Verdict:
    found = scalars(attribute)
    if found is None or values is None or values.keys() != {"string"}:
        return None
    if any(kind != "string" for kind, _ in found):
        return None
    return any(str(value).startswith(str(prefix)) for _, value in found for prefix in values["string"])


def _exists(attribute: Attribute, _: ByType | None) -> Verdict:
    """Never unknown: it asks whether there is a value. That there is none is an answer, and no type is a wrong one."""
    return is_present(attribute)


_VERDICTS: dict[Operator, Callable[[Attribute, ByType | None], Verdict]] = {
    Operator.IN: _in,
    Operator.NOT_IN: _not_in,
    Operator.EQUALS: _equals,
    Operator.PREFIX_OF: _prefix_of,
    Operator.EXISTS: _exists,
}
