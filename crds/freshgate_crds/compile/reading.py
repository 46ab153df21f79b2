"""From a document as written to a model of it, or to all that is wrong with it as users would say it."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from freshgate_crds.compile.outcomes import Trouble
from freshgate_crds.manifests import API_VERSION, Document
from freshgate_crds.v1alpha1 import Resource
from freshgate_crds.v1alpha1.models import Model

R = TypeVar("R", bound=Resource)


def read(kind: type[R], documents: Sequence[Document]) -> R | list[Trouble]:
    """The one resource of a name. Its status is not looked at: nobody wrote it."""
    if len(documents) > 1:
        return [_duplicate(documents)]
    body = {name: value for name, value in documents[0].body.items() if name != "status"}
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        return _troubles(error, body)


def _duplicate(documents: Iterable[Document]) -> Trouble:
    places = " and ".join(str(document.place) for document in documents)
    return Trouble(
        "metadata.name",
        "DuplicateResource",
        f"the name is given more than once ({places})",
        "Remove or rename all but one",
    )


def _troubles(error: ValidationError, body: Mapping[str, Any]) -> list[Trouble]:
    details = error.errors(include_url=False, include_context=False, include_input=False)
    # One a field: where a value could have been of several types, each of them complains.
    return list({trouble.field: trouble for trouble in (_trouble(detail, body) for detail in details)}.values())


def _trouble(detail: ErrorDetails, body: Mapping[str, Any]) -> Trouble:
    field = _field(detail["loc"], body)
    if field == "apiVersion":
        return Trouble(field, "UnknownApiVersion", "this version is not known", f"Write {API_VERSION}")
    match detail["type"]:
        case "missing":
            return Trouble(field, "FieldRequired", "it is required and absent", "Add it")
        case "extra_forbidden":
            return Trouble(field, "UnknownField", "there is no such field", _respelled(str(detail["loc"][-1])))
        case _:
            return Trouble(field, "InvalidValue", "its value does not fit", _mend(detail["msg"]))


def _mend(message: str) -> str:
    plain = message.removeprefix("Value error, ").replace("Input should", "It should").rstrip(".")
    return plain[:1].upper() + plain[1:]


def _respelled(name: str) -> str:
    close = get_close_matches(name, _all_fields(), n=1)
    return f"Did you mean {close[0]}? Correct it or remove it" if close else "Remove it or correct its spelling"


@cache
def _all_fields() -> tuple[str, ...]:
    models, fields = [Model], set[str]()
    while models:
        model = models.pop()
        models += model.__subclasses__()
        fields |= {field.alias or name for name, field in model.model_fields.items()}
    return tuple(sorted(fields))


def _field(location: Iterable[int | str], body: Any) -> str:
    """Written as a path. Below a plain value pydantic names types it tried; no field is there."""
    path, value = "", body
    for step in location:
        if not isinstance(value, dict | list):
            break
        path += path_step(step)
        value = _below(value, step)
    return path.removeprefix(".") or "the document"


def path_step(step: int | str) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if step.isidentifier() else f'["{step}"]'


def _below(value: Any, step: int | str) -> Any:
    if isinstance(value, list):
        return value[step] if isinstance(step, int) and step < len(value) else None
    return value.get(step)
