"""Durations as users write them (`30s`, `5m`, `1h30m`, `7d`) and as programs count them: seconds.

The grammar is narrower than what an API server's `duration` format takes, so that a text means one thing everywhere:
whole numbers, each unit once, the largest first. Five digits a unit keep the sum inside what a server can count.
"""

import re
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from freshgate_crds.errors import DurationMalformed

UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
PATTERN = "^" + "".join(f"([0-9]{{1,5}}{unit})?" for unit in UNITS) + "$"
LONGEST = len("99999d99999h99999m99999s")
_PART = re.compile(f"([0-9]+)([{''.join(UNITS)}])")


def parse(text: object) -> float:
    """Seconds. Raises DurationMalformed."""
    if not isinstance(text, str) or not text or not re.fullmatch(PATTERN, text):
        raise DurationMalformed(f"{text!r} is no duration: write it like 30s, 5m, 1h30m or 7d")
    return float(sum(int(number) * UNITS[unit] for number, unit in _PART.findall(text)))


def render(seconds: float) -> str:
    """The shortest text that `parse` takes back to the same number of whole seconds."""
    rest = round(seconds)
    parts = []
    for unit, size in UNITS.items():
        number, rest = divmod(rest, size)
        parts += [f"{number}{unit}"] if number else []
    return "".join(parts) or "0s"


Duration = Annotated[
    float,
    BeforeValidator(parse),
    PlainSerializer(render, return_type=str),
    WithJsonSchema({"type": "string", "format": "duration", "pattern": PATTERN, "minLength": 2, "maxLength": LONGEST}),
]
"""Seconds in Python, text in YAML."""
