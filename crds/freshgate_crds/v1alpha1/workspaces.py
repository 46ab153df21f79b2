"""Workspace: one memory that is served: of which sources, to whom, from where, and how it runs.

What it leaves out gets its meaning here; what it leaves out of its authentication gets none: nobody can ask.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from freshgate_crds.compiled import KUBERNETES_ISSUER
from freshgate_crds.durations import Duration
from freshgate_crds.v1alpha1.constraints import Constraint, Distinct, at_least_one_of, between
from freshgate_crds.v1alpha1.models import (
    AGE,
    INT_OR_STRING,
    ClaimName,
    Column,
    Conditions,
    HttpsUrl,
    Metadata,
    Model,
    Names,
    ObjectName,
    Resource,
    ResourceName,
    SecretValue,
    Time,
    WorkspaceName,
    Written,
)

# --- who may ask -------------------------------------------------------------------------------------------------

Audience = Annotated[str, Field(min_length=1, max_length=256)]


class KubernetesAuthentication(Model):
    """Projected ServiceAccount tokens of the cluster."""

    audience: Audience


class Claims(Model):
    user: ClaimName = "sub"
    groups: ClaimName | None = None


NOT_THE_CLUSTERS = Constraint(
    f"self != '{KUBERNETES_ISSUER}'",
    f"{KUBERNETES_ISSUER} names the cluster itself: choose another name",
    lambda name: name != KUBERNETES_ISSUER,
)


class OidcIssuer(Model):
    name: Annotated[ResourceName, NOT_THE_CLUSTERS]
    """What policies call it. Names and groups are qualified by it."""
    issuer: HttpsUrl
    """The exact `iss` of its tokens."""
    audience: Audience
    claims: Claims = Claims()


class Authentication(Model):
    kubernetes: KubernetesAuthentication | None = None
    oidc: Annotated[list[OidcIssuer], Field(min_length=1, max_length=16), Distinct("name")] | None = None

    constraints: ClassVar = (at_least_one_of("kubernetes", "oidc"),)


# --- how it answers ----------------------------------------------------------------------------------------------


class Store(Model):
    dsn: SecretValue


class Anthropic(Model):
    model: Annotated[str, Field(min_length=1, max_length=128)]
    api_key: SecretValue
    tokens_per_day: Annotated[int, Field(ge=1, le=10**12)] | None = None
    """Past it, Extractive takes over until the next day. Absent: no bound."""


CONDENSER_CONFIGURED = Constraint(
    "(self.provider == 'Anthropic') == has(self.anthropic)",
    "anthropic: set it with provider Anthropic, and only then",
    lambda condenser: (condenser.provider == "Anthropic") == (condenser.anthropic is not None),
)


class Condenser(Model):
    provider: Literal["Extractive", "Anthropic"]
    anthropic: Anthropic | None = None

    constraints: ClassVar = (CONDENSER_CONFIGURED,)


Language = Literal[
    "arabic", "armenian", "basque", "catalan", "danish", "dutch", "english", "esperanto", "estonian", "finnish",
    "french", "german", "greek", "hindi", "hungarian", "indonesian", "irish", "italian", "lithuanian", "nepali",
    "norwegian", "portuguese", "romanian", "russian", "serbian", "spanish", "swedish", "tamil", "turkish", "yiddish",
]  # fmt: skip
"""Those with a Snowball stemmer."""


class Ranking(Model):
    title_weight: Annotated[float, Field(ge=1, le=100)] = 3.0
    limit: Annotated[int, Field(ge=1, le=50)] = 10
    """Of a request that names none."""
    language: Language = "english"


class Entitlements(Model):
    max_age: Annotated[Duration, between("10m", "30d")] = 86_400.0
    """For how long policies may be obeyed that nobody vouches for any more."""


# --- how it runs -------------------------------------------------------------------------------------------------

QUANTITY = r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi)?$"
Quantity = Annotated[
    str,
    BeforeValidator(lambda value: str(value) if type(value) is int else value),
    Field(max_length=32, pattern=QUANTITY),
    WithJsonSchema({**INT_OR_STRING, "minimum": 0, "maxLength": 32, "pattern": QUANTITY}),
]
"""As Kubernetes counts: `1`, `250m`, `256Mi`."""


class Amounts(Model):
    cpu: Quantity | None = None
    memory: Quantity | None = None


class Resources(Model):
    """Of one container, in the service's pods and in sidecars alike."""

    requests: Amounts = Amounts()
    limits: Amounts = Amounts()


class PullSecret(Model):
    name: ObjectName


class Service(Model):
    replicas: Annotated[int, Field(ge=0, le=64)] = 2
    """0 pauses the workspace."""
    deadline: Annotated[Duration, between("1s", "60s")] = 5.0
    """For one answer, refreshing included."""
    sidecar: Literal["Allowed", "Disabled"] = "Disabled"
    """Allowed: a pod labelled with the workspace gets the service, and with it the workspace's credentials."""
    resources: Resources = Resources()
    image_pull_secrets: Annotated[list[PullSecret], Field(min_length=1, max_length=8)] | None = None


class WorkspaceSpec(Model):
    sources: Annotated[list[ResourceName], Field(min_length=1, max_length=256), Distinct()]
    store: Store | None = None
    """Absent: the operator refuses the workspace; on a laptop a Postgres is started for it."""
    authentication: Authentication | None = None
    condenser: Condenser = Condenser(provider="Extractive")
    ranking: Ranking = Ranking()
    entitlements: Entitlements = Entitlements()
    service: Service = Service()


# --- what became of it -------------------------------------------------------------------------------------------

Count = Annotated[int, Field(ge=0)]


class LastError(Written):
    time: Time
    message: Annotated[str, Field(max_length=1024)]


class SourceRow(Written):
    name: ResourceName
    objects: Count
    stale: Count
    last_success: Time | None = None
    """Of a listing or a read."""
    last_error: LastError | None = None


class WorkspaceStatus(Written):
    conditions: Conditions | None = None
    """Accepted, ResolvedRefs, Programmed, Fresh, SidecarsOutdated, Ready."""
    sources: Annotated[list[SourceRow], Field(min_length=1, max_length=256), Distinct("name")] | None = None
    stale: Count | None = None
    """The sum over `sources`."""
    last_success: Time | None = None
    """The oldest over `sources`."""


class WorkspaceMetadata(Metadata):
    name: WorkspaceName


class Workspace(Resource):
    names: ClassVar = Names("workspaces", "fgws")
    columns: ClassVar = (
        Column("READY", '.status.conditions[?(@.type=="Ready")].status'),
        Column("REASON", '.status.conditions[?(@.type=="Ready")].reason'),
        Column("STALE", ".status.stale", "integer"),
        Column("LAST-SUCCESS", ".status.lastSuccess", "date"),
        AGE,
    )

    kind: Literal["Workspace"]
    metadata: WorkspaceMetadata
    spec: WorkspaceSpec
    status: WorkspaceStatus | None = None
