"""What a flight tells those who wait for it about one object."""

from typing import NamedTuple

from freshgate_service.domain import Reason


class Confirmed(NamedTuple):
    """Read again, unchanged: only its clock moved. `problem` is what was amiss with the record and left it readable."""

    problem: str = ""


class Changed(NamedTuple):
    """Read again, and remembered anew: content, access or both."""

    problem: str = ""


class Gone(NamedTuple):
    """The source has no such record any more."""


class Failed(NamedTuple):
    """Not read, or not to be recorded: what was remembered stays, as old as it was. `detail` is for the platform team's
    status; it never reaches an answer."""

    reason: Reason
    detail: str = ""


Outcome = Confirmed | Changed | Gone | Failed
