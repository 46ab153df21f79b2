"""What may be asked: the forms of requests, for REST and MCP alike.

They are typed dictionaries, so that one definition gives the check, the JSON schema and the Python type. Unknown
fields, nulls and look-alikes (a number as text) are errors, never ignored: a filter that is dropped in silence widens.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Required, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from freshgate_service.errors import InvalidRequest

MAX_QUERY_CHARACTERS = 1000
MAX_LIMIT = 50
MAX_SOURCES = 100
MAX_NAME_CHARACTERS = 2048

_strict = with_config(ConfigDict(extra="forbid", strict=True))

SourceName = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARACTERS)]


@_strict
class SearchRequest(TypedDict, total=False):
    """A question in the asker's own words."""

    query: Required[
        Annotated[
            str, Field(min_length=1, max_length=MAX_QUERY_CHARACTERS, description="Words to look for in the records.")
        ]
    ]
    limit: Annotated[
        int, Field(ge=1, le=MAX_LIMIT, description="How many results at most; absent means the workspace's default.")
    ]
    sources: Annotated[
        list[SourceName],
        Field(min_length=1, max_length=MAX_SOURCES, description="Only records of these sources; absent means all."),
    ]


@_strict
class FetchRequest(TypedDict):
    """One record by its id."""

    id: Annotated[
        str,
        Field(min_length=1, max_length=MAX_NAME_CHARACTERS, description="As a search result gives it: source/id."),
    ]


@_strict
class SourcesRequest(TypedDict):
    """Nothing to say."""


SEARCH_REQUEST: TypeAdapter[SearchRequest] = TypeAdapter(SearchRequest)
FETCH_REQUEST: TypeAdapter[FetchRequest] = TypeAdapter(FetchRequest)
SOURCES_REQUEST: TypeAdapter[SourcesRequest] = TypeAdapter(SourcesRequest)

T = TypeVar("T")


def parse_body(form: TypeAdapter[T], body: bytes) -> T:
    try:
        return form.validate_json(body)
    except ValidationError as error:
        raise InvalidRequest(_sentence(error)) from None


def parse_arguments(form: TypeAdapter[T], arguments: dict[str, Any] | None) -> T:
    try:
        return form.validate_python(arguments or {})
    except ValidationError as error:
        raise InvalidRequest(_sentence(error)) from None


def refuse_parameters(names: Iterable[str]) -> None:
    """For a URL's query: none of the forms is asked there, and a filter in it would be dropped in silence."""
    for name in names:
        raise InvalidRequest(f"{_field((name,))}: there is no such field")


def _sentence(error: ValidationError) -> str:
    """Names the first few fields at fault and what is wrong with each. Shows no value."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{_field(fault['loc'])}: {_fault(fault['type'], fault['msg'])}" for fault in faults[:3])


def _field(place: tuple[int | str, ...]) -> str:
    return ".".join(str(part)[:64] for part in place) or "body"


def _fault(kind: str, message: str) -> str:
    return "there is no such field" if kind == "extra_forbidden" else message
