"""Puts a source together from its configuration and its secrets."""

from collections.abc import Mapping

from freshgate_crds import compiled
from freshgate_service.domain import Now, Source
from freshgate_service.errors import ConfigRefused
from freshgate_service.sources.guard import Guarded, read_timeout
from freshgate_service.sources.mapping import compile_mapping
from freshgate_service.sources.postgres import PostgresSource
from freshgate_service.sources.reader import Reader


def build_reader(spec: compiled.Source, credentials: Mapping[str, str], now: Now, *, allow_loopback: bool) -> Reader:
    """`credentials` are secrets by `Credential.file_name`. Connects to nothing yet; raises ConfigRefused."""
    mapping = compile_mapping(spec.object, spec.name)
    return Reader(spec, Guarded(build_source(spec, credentials, allow_loopback=allow_loopback), spec, now), mapping)


def build_source(spec: compiled.Source, credentials: Mapping[str, str], *, allow_loopback: bool) -> Source:
    if spec.postgres is None:
        raise ConfigRefused(f"source {spec.name}: this build reads postgres sources only, not rest or mcp")
    dsn = _secret(spec, spec.postgres.dsn, credentials)
    return PostgresSource(spec, dsn, timeout=read_timeout(spec), allow_loopback=allow_loopback)


def _secret(spec: compiled.Source, credential: compiled.Credential, credentials: Mapping[str, str]) -> str:
    value = credentials.get(credential.file_name, "").strip()
    if not value:
        raise ConfigRefused(f"source {spec.name}: the Secret {credential.secret} has no key {credential.key}")
    return value
