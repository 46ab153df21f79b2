"""What all three kinds share: how strictly they are read, their metadata and conditions, and the fields with bounds.

Reading is as strict as an API server's: no unknown field, no number in quotes, names in camelCase alone. (A server
prunes unknown fields; kubectl asks it to refuse them, as here.) Every text, list and map has bounds. What is absent
gets its meaning here or in `compile`, never from the server, so that a stored resource says what its user said.
"""

import re
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from freshgate_crds.v1alpha1.constraints import Constraint, Distinct, matches, with_rules

GROUP = "freshgate.dev"
VERSION = "v1alpha1"


class Model(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel,
        allow_inf_nan=False,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        strict=True,
        use_attribute_docstrings=True,
    )
    constraints: ClassVar[tuple[Constraint, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, written: Any) -> Any:
        """As an API server has it. What is unknown stays, to be refused."""
        if not isinstance(written, dict):
            return written
        known = {field.alias for field in cls.model_fields.values()}
        return {name: value for name, value in written.items() if value is not None or name not in known}

    @model_validator(mode="after")
    def _constraints_hold(self) -> Self:
        broken = [constraint.message for constraint in self.constraints if not constraint.holds(self)]
        if broken:
            raise PydanticCustomError("constraint", "{message}", {"message": "; ".join(broken)})
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core)
        # A model's own schema is a reference by now; its rules belong to what it refers to.
        handler.resolve_ref_schema(schema).update(with_rules({}, cls.constraints))
        return schema


class Written(Model):
    """A model that programs write too: it takes Python's names beside YAML's."""

    model_config = ConfigDict(validate_by_name=True)


# --- fields ------------------------------------------------------------------------------------------------------

LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
HOST_AND_PATH = r'[-A-Za-z0-9._:\[\]]+(/[!-"$->@-~]*)?'
SUBDOMAIN = rf"{LABEL}(\.{LABEL})*"

# No classes such as \s in a pattern: here they mean Unicode's, to an API server ASCII's.
ResourceName = Annotated[str, Field(max_length=63, pattern=f"^{LABEL}$")]
"""Of a MemorySource or an issuer: it appears in ids, paths and metric labels."""
WorkspaceName = Annotated[str, Field(max_length=40, pattern="^[a-z]([-a-z0-9]*[a-z0-9])?$")]
"""Leaves room for what is appended to name its Service and its pods."""
ObjectName = Annotated[str, Field(max_length=253, pattern=f"^{SUBDOMAIN}$")]
AttributeName = Annotated[str, Field(min_length=1, max_length=63)]
ClaimName = Annotated[str, Field(min_length=1, max_length=256)]
Path = Annotated[str, Field(min_length=1, max_length=1024)]
"""JMESPath."""
Url = Annotated[
    str,
    Field(max_length=2048),
    matches(f"^https?://{HOST_AND_PATH}$", "must be a URL: write https://host/path, without user, query and fragment"),
]
HttpsUrl = Annotated[
    str,
    Field(max_length=2048),
    matches(
        f"^https://{HOST_AND_PATH}$", "must be an https URL: write https://host/path, without user, query and fragment"
    ),
]
RequestPath = Annotated[str, Field(max_length=2048, pattern=r'^/[!-"$-~]*$')]
INT_OR_STRING: dict[str, Any] = {
    "x-kubernetes-int-or-string": True,
    "anyOf": [{"type": "integer"}, {"type": "string"}],
}
"""The one union of types that a schema in a cluster may have, in the one form that it may take there."""

# Not `format: date-time`: beside a format, a server takes a list for a text.
TIME = "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$"


def _time(value: object) -> object:
    if not isinstance(value, str):
        return value
    if not re.fullmatch(TIME, value):
        raise PydanticCustomError("time", "must be a time such as 2026-11-30T10:00:00Z")
    return datetime.fromisoformat(value)


Time = Annotated[
    AwareDatetime,
    BeforeValidator(_time),
    WithJsonSchema({"type": "string", "maxLength": 35, "pattern": TIME}),
]


class SecretKeyRef(Model):
    """One key of a Secret in the same namespace, labelled `freshgate.dev/credential: "true"`."""

    name: ObjectName
    # Never `.` or `..`: where secrets come from a folder, a key is a file's name.
    key: Annotated[str, Field(max_length=253, pattern=r"^\.?[-_a-zA-Z0-9][-._a-zA-Z0-9]*$")]


class SecretValue(Model):
    secret_key_ref: SecretKeyRef


# --- resources ---------------------------------------------------------------------------------------------------


class Column(NamedTuple):
    """Of `kubectl get`. `priority` above 0 shows with `-o wide` alone."""

    name: str
    path: str
    type: Literal["string", "integer", "date"] = "string"
    priority: int = 0


AGE = Column("AGE", ".metadata.creationTimestamp", "date")


class Names(NamedTuple):
    plural: str
    short: str


class Metadata(Model):
    """Of what Kubernetes keeps there, only what is used; the rest is left alone."""

    model_config = ConfigDict(extra="ignore")

    name: ObjectName
    namespace: Annotated[str, Field(max_length=63, pattern=f"^{LABEL}$")] = "default"
    uid: str | None = None
    generation: int | None = None
    resource_version: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)


class Condition(Written):
    """As Kubernetes has them: one row a type."""

    type: Annotated[str, Field(min_length=1, max_length=64)]
    status: Literal["True", "False", "Unknown"]
    observed_generation: Annotated[int, Field(ge=0)] | None = None
    last_transition_time: Time
    reason: Annotated[str, Field(max_length=128, pattern="^[A-Za-z][A-Za-z0-9]*$")]
    message: Annotated[str, Field(max_length=4096)]


Conditions = Annotated[
    list[Condition],
    Field(min_length=1, max_length=16),
    Distinct("type"),
]


class Resource(Model):
    """A kind. Its `spec` is the user's and its `status` the operator's."""

    names: ClassVar[Names]
    columns: ClassVar[tuple[Column, ...]]

    api_version: Literal["freshgate.dev/v1alpha1"]
    metadata: Metadata
