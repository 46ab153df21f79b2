"""MemorySources: each is compiled by itself, so that a refused one holds nothing else back."""

import json
from collections.abc import Iterator, Sequence
from hashlib import sha256

from pydantic import BaseModel

from freshgate_crds import compiled
from freshgate_crds.compile.expressions import bare, path_troubles, statement_troubles
from freshgate_crds.compile.outcomes import Outcome, Standing, Trouble
from freshgate_crds.compile.reading import path_step, read
from freshgate_crds.compile.references import credential
from freshgate_crds.compile.surroundings import Surroundings
from freshgate_crds.manifests import Document
from freshgate_crds.v1alpha1 import MemorySource
from freshgate_crds.v1alpha1 import memorysources as written

_HOUR = 3600.0


def compile_source(
    documents: Sequence[Document], surroundings: Surroundings, last_good: compiled.Source | None
) -> tuple[compiled.Source | None, Outcome]:
    """The form that is in force, of the documents of one name."""
    result = _compile(documents, surroundings)
    if isinstance(result, compiled.Source):
        return result, Outcome.of(documents, Standing.CURRENT, ())
    return last_good, Outcome.of(documents, Standing.LAST_GOOD if last_good else Standing.LEFT_OUT, result)


def check_source(documents: Sequence[Document], surroundings: Surroundings) -> Outcome:
    """As far as it can be told without a workspace."""
    resource = read(MemorySource, documents)
    troubles = resource if isinstance(resource, list) else list(_troubles(resource.spec, surroundings))
    return Outcome.of(documents, Standing.LEFT_OUT if troubles else Standing.CURRENT, troubles)


def _compile(documents: Sequence[Document], surroundings: Surroundings) -> compiled.Source | list[Trouble]:
    resource = read(MemorySource, documents)
    if isinstance(resource, list):
        return resource
    troubles = list(_troubles(resource.spec, surroundings))
    return troubles or _source(resource.metadata.name, resource.spec, surroundings)


# --- what can be wrong -------------------------------------------------------------------------------------------


def _troubles(spec: written.MemorySourceSpec, surroundings: Surroundings) -> Iterator[Trouble]:
    yield from _object_troubles(spec.object)
    if spec.postgres:
        yield from statement_troubles("spec.postgres.list", spec.postgres.list, binds=False)
        yield from statement_troubles("spec.postgres.fetch", spec.postgres.fetch, binds=True)
    if spec.rest:
        yield from _listing_troubles("spec.rest.list", spec.rest.list)
        yield from path_troubles("spec.rest.list.next", spec.rest.list.next)
    if spec.mcp:
        yield from _listing_troubles("spec.mcp.listTool", spec.mcp.list_tool)
        cursor = spec.mcp.list_tool.cursor
        yield from path_troubles("spec.mcp.listTool.cursor.result", cursor.result if cursor else None)
    if spec.object.readers:
        yield from surroundings.issuer_troubles("spec.object.readers.issuer", spec.object.readers.issuer)
    yield from surroundings.credential_troubles("spec", spec)


def _object_troubles(mapping: written.ObjectMapping) -> Iterator[Trouble]:
    yield from path_troubles("spec.object.title", mapping.title)
    yield from path_troubles("spec.object.url", mapping.url)
    for index, path in enumerate(mapping.body):
        yield from path_troubles(f"spec.object.body[{index}]", path)
    for name, path in mapping.attributes.items():
        yield from path_troubles(f"spec.object.attributes{path_step(name)}", path)
    if mapping.readers:
        yield from path_troubles("spec.object.readers.users", mapping.readers.users)
        yield from path_troubles("spec.object.readers.groups", mapping.readers.groups)


def _listing_troubles(field: str, listing: written.RestList | written.McpListTool) -> Iterator[Trouble]:
    yield from path_troubles(f"{field}.items", listing.items)
    yield from path_troubles(f"{field}.id", listing.id)
    yield from path_troubles(f"{field}.version", listing.version)


# --- what the service obeys --------------------------------------------------------------------------------------


def _source(name: str, spec: written.MemorySourceSpec, surroundings: Surroundings) -> compiled.Source:
    postgres = _postgres(spec.postgres) if spec.postgres else None
    rest = _rest(spec.rest) if spec.rest else None
    mcp = _mcp(spec.mcp) if spec.mcp else None
    mapping = _mapping(spec.object, surroundings)
    return compiled.Source(
        name=name,
        ttl_seconds=spec.ttl,
        discovery_interval_seconds=_or(spec.discovery.interval, min(spec.ttl, _HOUR)),
        sweep_seconds=_or(spec.discovery.sweep, min(max(spec.ttl, _HOUR), 24 * _HOUR)),
        postgres=postgres,
        rest=rest,
        mcp=mcp,
        object=mapping,
        condense_max_words=spec.condense.max_words,
        limits=_limits(spec.limits),
        spec_hash=_hash(postgres=postgres, rest=rest, mcp=mcp, object=mapping),
    )


def _or(written_value: float | None, default: float) -> float:
    return default if written_value is None else written_value


def _hash(**parts: BaseModel | None) -> str:
    """Of what decides how a record is read. A field that a later version adds changes no hash while it is not used, for
    a changed hash makes every object of the source unservable until it is read again."""
    written_out = {
        name: part.model_dump(mode="json", exclude_defaults=True) for name, part in parts.items() if part is not None
    }
    return sha256(json.dumps(written_out, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _limits(limits: written.Limits) -> compiled.Limits:
    return compiled.Limits(
        timeout_seconds=limits.timeout,
        concurrency=limits.concurrency,
        requests_per_minute=limits.requests_per_minute,
        max_objects=limits.max_objects,
    )


def _mapping(mapping: written.ObjectMapping, surroundings: Surroundings) -> compiled.ObjectMapping:
    return compiled.ObjectMapping(
        title=mapping.title,
        body=tuple(mapping.body),
        url=mapping.url,
        attributes=dict(sorted(mapping.attributes.items())),
        readers=_readers(mapping.readers, surroundings) if mapping.readers else None,
    )


def _readers(readers: written.Readers, surroundings: Surroundings) -> compiled.ReadersMapping:
    issuer = surroundings.issuer(readers.issuer)
    return compiled.ReadersMapping(issuer=issuer, users=readers.users, groups=readers.groups)


def _postgres(postgres: written.Postgres) -> compiled.Postgres:
    return compiled.Postgres(
        dsn=credential(postgres.dsn),
        list=bare(postgres.list),
        fetch=bare(postgres.fetch),
        version_covers_access=postgres.version_covers == "ContentAndAccess",
    )


def _rest(rest: written.Rest) -> compiled.Rest:
    return compiled.Rest(
        url=rest.url,
        auth=_auth(rest.auth),
        list=compiled.RestList(
            path=rest.list.path,
            items=rest.list.items,
            id=rest.list.id,
            version=rest.list.version,
            next=rest.list.next,
            version_covers_access=rest.list.version_covers == "ContentAndAccess",
        ),
        fetch=compiled.RestFetch(path=rest.fetch.path),
    )


def _mcp(mcp: written.Mcp) -> compiled.Mcp:
    tool, cursor = mcp.list_tool, mcp.list_tool.cursor
    return compiled.Mcp(
        url=mcp.url,
        auth=_auth(mcp.auth),
        list_tool=compiled.McpListTool(
            name=tool.name,
            items=tool.items,
            id=tool.id,
            version=tool.version,
            cursor=compiled.McpCursor(argument=cursor.argument, result=cursor.result) if cursor else None,
            version_covers_access=tool.version_covers == "ContentAndAccess",
        ),
        fetch_tool=compiled.McpFetchTool(name=mcp.fetch_tool.name, id_argument=mcp.fetch_tool.id_argument),
    )


def _auth(auth: written.Auth | None) -> compiled.Auth | None:
    if auth is None:
        return None
    if auth.bearer:
        return compiled.BearerAuth(token=credential(auth.bearer))
    if auth.basic:
        return compiled.BasicAuth(username=credential(auth.basic.username), password=credential(auth.basic.password))
    if auth.header:
        return compiled.HeaderAuth(name=auth.header.name, value=credential(auth.header.value))
    if auth.oauth2:
        return compiled.OAuth2Auth(
            token_url=auth.oauth2.token_url,
            client_id=credential(auth.oauth2.client_id),
            client_secret=credential(auth.oauth2.client_secret),
            scopes=tuple(auth.oauth2.scopes or ()),
        )
    raise AssertionError("the model lets exactly one through")
