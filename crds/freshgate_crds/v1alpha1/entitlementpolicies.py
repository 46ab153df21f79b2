"""EntitlementPolicy: who may see which records. Nothing empty means everything, so nothing here may be empty.

A policy that this module lets through can still be refused by `compile`, which knows the sources that it names.
"""

import re
from typing import Annotated, ClassVar, Literal

from pydantic import Field, StrictFloat, StrictInt, WithJsonSchema

from freshgate_crds.v1alpha1.constraints import Constraint, exactly_one_of
from freshgate_crds.v1alpha1.models import (
    AGE,
    LABEL,
    SUBDOMAIN,
    AttributeName,
    ClaimName,
    Column,
    Conditions,
    Model,
    Names,
    Resource,
    ResourceName,
    WorkspaceName,
    Written,
)

# --- who ---------------------------------------------------------------------------------------------------------

SERVICE_ACCOUNT = f"^{LABEL}/{SUBDOMAIN}$"
SERVICE_ACCOUNT_NAMED = Constraint(
    f"self.kind != 'ServiceAccount' || self.name.matches(r'{SERVICE_ACCOUNT}')",
    "name: write a ServiceAccount as namespace/name",
    lambda subject: subject.kind != "ServiceAccount" or re.fullmatch(SERVICE_ACCOUNT, subject.name) is not None,
)
SERVICE_ACCOUNT_ISSUED = Constraint(
    "self.kind != 'ServiceAccount' || !has(self.issuer)",
    "issuer: leave it out for a ServiceAccount, which its cluster asserts",
    lambda subject: subject.kind != "ServiceAccount" or subject.issuer is None,
)
# Read quickly, a group for "OnBehalfOnly" looks like people who may see something through an agent only. It would mean
# that these people must themselves be acting for others.
AGENT = Constraint(
    "self.kind != 'Group' || !has(self.use)",
    "use: OnBehalfOnly speaks of one agent: name it as a ServiceAccount or a User",
    lambda subject: subject.kind != "Group" or subject.use is None,
)


class Subject(Model):
    """A User or Group is a name together with the issuer that asserts it."""

    kind: Literal["User", "Group", "ServiceAccount"]
    name: Annotated[str, Field(min_length=1, max_length=320)]
    issuer: ResourceName | None = None
    """May be absent where a workspace has one issuer only."""
    use: Literal["OnBehalfOnly"] | None = None
    """OnBehalfOnly: an agent that counts only when acting for a person."""

    constraints: ClassVar = (SERVICE_ACCOUNT_NAMED, SERVICE_ACCOUNT_ISSUED, AGENT)


# --- what --------------------------------------------------------------------------------------------------------

SAFE_INTEGER = 2**53 - 1
Number = Annotated[
    StrictInt | StrictFloat,
    Field(ge=-SAFE_INTEGER, le=SAFE_INTEGER),
    WithJsonSchema({"type": "number", "minimum": -SAFE_INTEGER, "maximum": SAFE_INTEGER}),
]
"""Within the integers that every JSON reader keeps exactly."""
Text = Annotated[str, Field(min_length=1, max_length=256)]

GIVEN_ONCE = Constraint(
    "(has(self.values) ? 1 : 0) + (has(self.numbers) ? 1 : 0) + (has(self.booleans) ? 1 : 0)"
    " + (has(self.valuesFromClaim) ? 1 : 0) == (self.operator == 'Exists' ? 0 : 1)",
    "set exactly one of values, numbers, booleans or valuesFromClaim; with operator Exists, none",
    lambda condition: condition.ways == (0 if condition.operator == "Exists" else 1),
)
EQUALS_ONE = Constraint(
    "self.operator != 'Equals' || ((!has(self.values) || self.values.size() == 1)"
    " && (!has(self.numbers) || self.numbers.size() == 1) && (!has(self.booleans) || self.booleans.size() == 1))",
    "operator Equals takes one value: leave one, or use operator In",
    lambda condition: condition.operator != "Equals" or len(condition.literals) <= 1,
)
PREFIXES_ARE_TEXT = Constraint(
    "self.operator != 'PrefixOf' || (!has(self.numbers) && !has(self.booleans))",
    "operator PrefixOf compares text: use values or valuesFromClaim",
    lambda condition: condition.operator != "PrefixOf" or (condition.numbers is None and condition.booleans is None),
)


class Condition(Model):
    """Texts, numbers and booleans have a list each, since a value only ever equals a value of its own type."""

    attribute: AttributeName
    operator: Literal["In", "NotIn", "Equals", "Exists", "PrefixOf"]
    """PrefixOf: one of the values is a prefix of the attribute."""
    values: Annotated[list[Text], Field(min_length=1, max_length=256)] | None = None
    numbers: Annotated[list[Number], Field(min_length=1, max_length=256)] | None = None
    booleans: Annotated[list[bool], Field(min_length=1, max_length=2)] | None = None
    values_from_claim: ClaimName | None = None
    """The claim of the asker that holds the value or the list of values."""

    constraints: ClassVar = (GIVEN_ONCE, EQUALS_ONE, PREFIXES_ARE_TEXT)

    @property
    def literals(self) -> list[str | int | float | bool]:
        """The values that stand in the policy itself."""
        return [*(self.values or ()), *(self.numbers or ()), *(self.booleans or ())]

    @property
    def ways(self) -> int:
        """How many of the fields that give values are set."""
        given = (self.values, self.numbers, self.booleans, self.values_from_claim)
        return sum(way is not None for way in given)


class Rule(Model):
    """Matches a record of `sources` when all of `where` hold."""

    sources: Annotated[list[ResourceName], Field(min_length=1, max_length=256)]
    where: Annotated[list[Condition], Field(min_length=1, max_length=16)] | None = None
    everything: (
        Annotated[bool, Constraint("self", "must be true: set it to true, or remove it and use where", bool)] | None
    ) = None
    """Every record of `sources`."""
    asker: Literal["MustBeReader"] | None = None
    """MustBeReader: the record itself must name the asker among its readers."""

    constraints: ClassVar = (exactly_one_of("where", "everything"),)


# --- the policy --------------------------------------------------------------------------------------------------

READERS_ARE_ALLOWED = Constraint(
    "self.effect == 'Allow' || self.rules.all(rule, !has(rule.asker))",
    "rules[].asker narrows an Allow: remove it from a Deny",
    lambda spec: spec.effect == "Allow" or all(rule.asker is None for rule in spec.rules),
)
AGENTS_ARE_ALLOWED = Constraint(
    "self.effect == 'Allow' || self.subjects.all(subject, !has(subject.use))",
    "subjects[].use narrows an Allow: remove it from a Deny, which always counts",
    lambda spec: spec.effect == "Allow" or all(subject.use is None for subject in spec.subjects),
)


class EntitlementPolicySpec(Model):
    workspaces: Annotated[list[WorkspaceName], Field(min_length=1, max_length=64)]
    effect: Literal["Allow", "Deny"]
    subjects: Annotated[list[Subject], Field(min_length=1, max_length=256)]
    rules: Annotated[list[Rule], Field(min_length=1, max_length=64)]
    """Any of them."""

    constraints: ClassVar = (READERS_ARE_ALLOWED, AGENTS_ARE_ALLOWED)


class EntitlementPolicyStatus(Written):
    conditions: Conditions | None = None
    """Accepted."""


class EntitlementPolicy(Resource):
    names: ClassVar = Names("entitlementpolicies", "entpol")
    columns: ClassVar = (
        Column("EFFECT", ".spec.effect"),
        Column("ACCEPTED", '.status.conditions[?(@.type=="Accepted")].status'),
        Column("REASON", '.status.conditions[?(@.type=="Accepted")].reason'),
        AGE,
    )

    kind: Literal["EntitlementPolicy"]
    spec: EntitlementPolicySpec
    status: EntitlementPolicyStatus | None = None
