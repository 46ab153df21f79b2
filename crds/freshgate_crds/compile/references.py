"""Finds what stands inside models: references to Secrets in what users write, credentials in what the service obeys."""

from collections.abc import Iterator
from typing import Any, TypeVar

from pydantic import BaseModel

from freshgate_crds.compiled import Credential
from freshgate_crds.v1alpha1.models import SecretValue

M = TypeVar("M", bound=BaseModel)


def found(kind: type[M], value: Any, path: str) -> Iterator[tuple[str, M]]:
    """All models of a kind inside a value, each after its path as users write it."""
    if isinstance(value, kind):
        yield path, value
    elif isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            yield from found(kind, getattr(value, name), f"{path}.{field.alias or name}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from found(kind, item, f"{path}[{index}]")


def credential(written: SecretValue) -> Credential:
    return Credential(secret=written.secret_key_ref.name, key=written.secret_key_ref.key)
