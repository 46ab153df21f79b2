"""The operator's errors.

OperatorError               its message may be shown to users: it holds no secret
├── ClusterError            the API server did not do what was asked; `reason` is in CamelCase
│   ├── ClusterUnavailable  it did not answer, not in time, or asked to come back later
│   ├── Missing             there is no such object
│   ├── Conflict            the object was changed or made by somebody else meanwhile: read it again
│   ├── Forbidden           the operator may not do this, or a quota or an admission policy is against it
│   └── Refused             the object is not valid to the API server
├── PublicationRefused      what was compiled cannot be published; `reason` is in CamelCase
│   ├── ConfigTooLarge
│   └── NameTaken           an object of that name exists and belongs to something else
└── SettingsRefused         the operator's own settings cannot be obeyed

Foreign errors (aiohttp, kubernetes) are translated in `cluster`, and travel no further.
"""

from typing import ClassVar


class OperatorError(Exception):
    """Root of the operator's errors."""

    reason: ClassVar[str] = "Failed"


class ClusterError(OperatorError):
    reason = "ClusterError"


class ClusterUnavailable(ClusterError):
    reason = "ClusterUnavailable"


class Missing(ClusterError):
    reason = "NotFound"


class Conflict(ClusterError):
    reason = "Conflict"


class Forbidden(ClusterError):
    reason = "Forbidden"


class Refused(ClusterError):
    reason = "Refused"


class PublicationRefused(OperatorError): ...


class ConfigTooLarge(PublicationRefused):
    reason = "ConfigTooLarge"


class NameTaken(PublicationRefused):
    reason = "NameTaken"


class SettingsRefused(OperatorError): ...
