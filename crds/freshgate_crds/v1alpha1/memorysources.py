"""MemorySource: one listing and one read of a system of record, and how a record becomes a memory object.

It holds no secret and no default for the TTL. Whether a path or a statement is right is for `compile` and for the
source itself to say; here stands what can be told from the text alone.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from freshgate_crds.durations import Duration
from freshgate_crds.v1alpha1.constraints import (
    Constraint,
    at_least_one_of,
    between,
    contains,
    exactly_one_of,
    needs,
)
from freshgate_crds.v1alpha1.models import (
    AGE,
    Column,
    Conditions,
    HttpsUrl,
    Metadata,
    Model,
    Names,
    Path,
    RequestPath,
    Resource,
    ResourceName,
    SecretValue,
    Url,
    Written,
)

Statement = Annotated[str, Field(min_length=1, max_length=16_384)]
ToolName = Annotated[str, Field(min_length=1, max_length=128)]
ArgumentName = Annotated[str, Field(min_length=1, max_length=128)]

VersionCovers = Literal["Content", "ContentAndAccess"]
"""What must have stayed the same where a listed version did. Only ContentAndAccess lets a listing confirm a record."""

VERSIONED = needs("version_covers", "version", "it says what a listed version covers")


class Discovery(Model):
    interval: Annotated[Duration, between("1s", "7d")] | None = None
    """Between two listings. Absent: the TTL, but 1h at most."""
    sweep: Annotated[Duration, between("1s", "30d")] | None = None
    """In which every object is read again. Absent: the TTL, but 1h at least and 24h at most."""


# --- how to connect ----------------------------------------------------------------------------------------------


class BasicAuth(Model):
    username: SecretValue
    password: SecretValue


class HeaderAuth(Model):
    name: Annotated[str, Field(max_length=128, pattern="^[A-Za-z0-9][-A-Za-z0-9]*$")]
    value: SecretValue


class OAuth2Auth(Model):
    """Client credentials."""

    token_url: HttpsUrl
    client_id: SecretValue
    client_secret: SecretValue
    scopes: (
        Annotated[
            list[Annotated[str, Field(max_length=128, pattern=r"^[!#-\[\]-~]+$")]],
            Field(min_length=1, max_length=32),
        ]
        | None
    ) = None


class Auth(Model):
    bearer: SecretValue | None = None
    basic: BasicAuth | None = None
    header: HeaderAuth | None = None
    oauth2: OAuth2Auth | None = None

    constraints: ClassVar = (exactly_one_of("bearer", "basic", "header", "oauth2"),)


class Postgres(Model):
    dsn: SecretValue
    list: Statement
    """Gives the column `id`, and `version` where there is one."""
    fetch: Annotated[
        Statement, contains("$1", "must bind the ids that it reads: write $1 in it, as in WHERE id = ANY($1)")
    ]
    """Reads many records at once; `id` is among its columns."""
    version_covers: VersionCovers | None = None


class RestList(Model):
    path: RequestPath
    items: Path
    next: Path | None = None
    id: Path
    version: Path | None = None
    version_covers: VersionCovers | None = None

    constraints: ClassVar = (VERSIONED,)


class RestFetch(Model):
    path: Annotated[RequestPath, contains("{id}", "must hold the record's id: write {id} in it, as in /tickets/{id}/")]


class Rest(Model):
    url: Url
    auth: Auth | None = None
    list: RestList
    fetch: RestFetch


class McpCursor(Model):
    argument: ArgumentName
    result: Path


class McpListTool(Model):
    name: ToolName
    items: Path
    id: Path
    version: Path | None = None
    version_covers: VersionCovers | None = None
    cursor: McpCursor | None = None

    constraints: ClassVar = (VERSIONED,)


class McpFetchTool(Model):
    name: ToolName
    id_argument: ArgumentName


class Mcp(Model):
    url: Url
    auth: Auth | None = None
    list_tool: McpListTool
    fetch_tool: McpFetchTool


# --- what a record says ------------------------------------------------------------------------------------------


class Readers(Model):
    """Whom the record itself names."""

    issuer: ResourceName | None = None
    """Who asserts these names. May be absent where a workspace has one issuer only."""
    users: Path | None = None
    groups: Path | None = None

    constraints: ClassVar = (at_least_one_of("users", "groups"),)


ATTRIBUTES_NAMED = Constraint(
    "!has(self.attributes) || self.attributes.all(name, size(name) >= 1 && size(name) <= 63)",
    "attributes: a name has 1 to 63 characters",
    lambda model: all(1 <= len(name) <= 63 for name in model.attributes),
)


class ObjectMapping(Model):
    """JMESPath over one fetched record."""

    title: Path
    body: Annotated[list[Path], Field(min_length=1, max_length=32)]
    url: Path | None = None
    attributes: Annotated[dict[str, Path], Field(max_length=64)] = Field(default_factory=dict)
    readers: Readers | None = None

    constraints: ClassVar = (ATTRIBUTES_NAMED,)


class Condense(Model):
    max_words: Annotated[int, Field(ge=10, le=1000)] = 200


class Limits(Model):
    timeout: Annotated[Duration, between("1s", "5m")] = 10.0
    concurrency: Annotated[int, Field(ge=1, le=64)] = 4
    requests_per_minute: Annotated[int, Field(ge=1, le=60_000)] = 600
    max_objects: Annotated[int, Field(ge=1, le=1_000_000)] = 20_000


class MemorySourceSpec(Model):
    ttl: Annotated[Duration, between("1s", "365d")]
    discovery: Discovery = Discovery()
    postgres: Postgres | None = None
    rest: Rest | None = None
    mcp: Mcp | None = None
    object: ObjectMapping
    condense: Condense = Condense()
    limits: Limits = Limits()

    constraints: ClassVar = (exactly_one_of("postgres", "rest", "mcp"),)


class MemorySourceStatus(Written):
    conditions: Conditions | None = None
    """Accepted, ResolvedRefs."""


class MemorySourceMetadata(Metadata):
    name: ResourceName


class MemorySource(Resource):
    names: ClassVar = Names("memorysources", "memsrc")
    columns: ClassVar = (
        Column("TTL", ".spec.ttl"),
        Column("ACCEPTED", '.status.conditions[?(@.type=="Accepted")].status'),
        Column("RESOLVED", '.status.conditions[?(@.type=="ResolvedRefs")].status'),
        # Of what is wrong: the first condition that is False.
        Column("REASON", '.status.conditions[?(@.status=="False")].reason'),
        AGE,
    )

    kind: Literal["MemorySource"]
    metadata: MemorySourceMetadata
    spec: MemorySourceSpec
    status: MemorySourceStatus | None = None
