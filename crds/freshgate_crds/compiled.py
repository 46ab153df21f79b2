"""What the service obeys: the one published form of a workspace's configuration.

`compile` writes it, the service reads it, and nothing else connects the two. It holds no secret: credentials are
named here (`Credential`) and travel beside it. Unknown fields are errors on both sides, since a field that an older
service skips could be the one that denies.
"""

from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

FORMAT = 1
"""The format written. A service reads this one and the one before it."""

KUBERNETES_ISSUER = "kubernetes"
"""The name under which ServiceAccounts are asserted, by whatever cluster the workspace runs in."""

Scalar = bool | int | float | str


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Credential(Frozen):
    """One key of one Secret. Its value travels as the file `file_name` beside the configuration."""

    secret: str
    key: str

    @property
    def file_name(self) -> str:
        # A Secret's name cannot hold an underscore, so the first one ends it: no two pairs share a file.
        return f"{self.secret}_{self.key}"


def credentials_of(value: object) -> tuple[Credential, ...]:
    """All that are named anywhere inside a model, each once, in a fixed order."""
    return tuple(sorted(set(_credentials(value)), key=lambda credential: (credential.secret, credential.key)))


def _credentials(value: object) -> Iterator[Credential]:
    if isinstance(value, Credential):
        yield value
    elif isinstance(value, BaseModel):
        for _, member in value:
            yield from _credentials(member)
    elif isinstance(value, tuple):
        for item in value:
            yield from _credentials(item)


class Revision(Frozen):
    """Ordered by counter within one Workspace UID; a new UID is a new Workspace."""

    workspace_uid: str
    counter: int


# --- sources -----------------------------------------------------------------------------------------------------


class Postgres(Frozen):
    dsn: Credential
    list: str
    fetch: str
    version_covers_access: bool = False


class BearerAuth(Frozen):
    kind: Literal["bearer"] = "bearer"
    token: Credential


class BasicAuth(Frozen):
    kind: Literal["basic"] = "basic"
    username: Credential
    password: Credential


class HeaderAuth(Frozen):
    kind: Literal["header"] = "header"
    name: str
    value: Credential


class OAuth2Auth(Frozen):
    kind: Literal["oauth2"] = "oauth2"
    token_url: str
    client_id: Credential
    client_secret: Credential
    scopes: tuple[str, ...] = ()


Auth = Annotated[BearerAuth | BasicAuth | HeaderAuth | OAuth2Auth, Field(discriminator="kind")]


class RestList(Frozen):
    """Paths are JMESPath: `items`, `next` and `cursor` over the page, `id` and `version` over an item."""

    path: str
    items: str
    id: str
    version: str | None = None
    next: str | None = None
    version_covers_access: bool = False


class RestFetch(Frozen):
    path: str


class Rest(Frozen):
    url: str
    auth: Auth | None = None
    list: RestList
    fetch: RestFetch


class McpCursor(Frozen):
    argument: str
    result: str


class McpListTool(Frozen):
    name: str
    items: str
    id: str
    version: str | None = None
    cursor: McpCursor | None = None
    version_covers_access: bool = False


class McpFetchTool(Frozen):
    name: str
    id_argument: str


class Mcp(Frozen):
    url: str
    auth: Auth | None = None
    list_tool: McpListTool
    fetch_tool: McpFetchTool


class ReadersMapping(Frozen):
    """JMESPath to names of users and of groups, as `issuer` asserts them."""

    issuer: str
    users: str | None = None
    groups: str | None = None


class ObjectMapping(Frozen):
    """JMESPath over one fetched record."""

    title: str
    body: tuple[str, ...]
    url: str | None = None
    attributes: dict[str, str] = Field(default_factory=dict)
    readers: ReadersMapping | None = None


class Limits(Frozen):
    timeout_seconds: float
    concurrency: int
    requests_per_minute: int
    max_objects: int


class Source(Frozen):
    """Exactly one of `postgres`, `rest`, `mcp` is set. Durations are seconds."""

    name: str
    ttl_seconds: float
    discovery_interval_seconds: float
    sweep_seconds: float
    postgres: Postgres | None = None
    rest: Rest | None = None
    mcp: Mcp | None = None
    object: ObjectMapping
    condense_max_words: int
    limits: Limits
    spec_hash: str
    """Hash of what decides how a record is read (connection, list, fetch, object mapping); never of a secret."""

    @property
    def version_covers_access(self) -> bool:
        """An unchanged version in a listing confirms the object, access included."""
        if self.postgres is not None:
            return self.postgres.version_covers_access
        if self.rest is not None:
            return self.rest.list.version_covers_access
        return self.mcp is not None and self.mcp.list_tool.version_covers_access


# --- entitlements ------------------------------------------------------------------------------------------------


class Effect(StrEnum):
    ALLOW = "Allow"
    DENY = "Deny"


class SubjectKind(StrEnum):
    USER = "User"
    GROUP = "Group"
    SERVICE_ACCOUNT = "ServiceAccount"


class Operator(StrEnum):
    IN = "In"
    NOT_IN = "NotIn"
    EQUALS = "Equals"
    EXISTS = "Exists"
    PREFIX_OF = "PrefixOf"


class Subject(Frozen):
    """`issuer` is always resolved here (KUBERNETES_ISSUER for ServiceAccounts, whose name is `namespace/name`)."""

    kind: SubjectKind
    issuer: str
    name: str
    on_behalf_only: bool = False


class Condition(Frozen):
    """Values come from `values` or from the asker's claim `values_from_claim`; Exists has neither."""

    attribute: str
    operator: Operator
    values: tuple[Scalar, ...] = ()
    values_from_claim: str | None = None


class Rule(Frozen):
    """Matches a record of `sources` when all of `where` hold; `everything` says so where there is no condition."""

    sources: tuple[str, ...]
    where: tuple[Condition, ...] = ()
    everything: bool = False
    asker_must_be_reader: bool = False


class Policy(Frozen):
    name: str
    effect: Effect
    subjects: tuple[Subject, ...]
    rules: tuple[Rule, ...]


class Entitlements(Frozen):
    """Published apart from the sources, so that a refused source never holds back a revocation.

    `denied` names refused Deny policies: while it holds any, nothing is entitled to anybody. `stamp` is the start of
    the consistent listing that this was compiled from; past `stamp + max_age_seconds` no query is answered.
    """

    policies: tuple[Policy, ...] = ()
    denied: tuple[str, ...] = ()
    stamp: datetime
    max_age_seconds: float


# --- the workspace -----------------------------------------------------------------------------------------------


class ClaimMapping(Frozen):
    user: str = "sub"
    groups: str | None = None


class Issuer(Frozen):
    """Who asserts principals. `jwks` holds its public keys where they are compiled in (Kubernetes, the laptop's local
    issuer); otherwise they are read from the issuer's own discovery document."""

    name: str
    url: str
    audience: str
    claims: ClaimMapping = ClaimMapping()
    kubernetes: bool = False
    jwks: str | None = None


class Condenser(Frozen):
    """Extractive where `anthropic_model` is absent."""

    anthropic_model: str | None = None
    anthropic_api_key: Credential | None = None
    tokens_per_day: int | None = None


class Ranking(Frozen):
    title_weight: float
    limit: int
    language: str


class Config(Frozen):
    """One revision of one workspace."""

    format: int
    revision: Revision
    cluster_uid: str
    namespace: str
    workspace: str
    sources: tuple[Source, ...]
    entitlements: Entitlements
    issuers: tuple[Issuer, ...]
    store_dsn: Credential | None = None
    condenser: Condenser
    ranking: Ranking
    deadline_seconds: float
