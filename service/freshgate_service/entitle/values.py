"""What a JSON value is to a condition: scalars with their type, or nothing that can be compared.

Types are kept beside the values because Python takes `True`, `1` and `1.0` for one key. It must not convert, fold or
trim: two values are equal only where the two systems that wrote them would say so.
"""

from typing import Any

from freshgate_crds.compiled import Scalar

Typed = tuple[str, Scalar]
"""A scalar after its type (`bool`, `number` or `string`); 1 and 1.0 are one number."""

ByType = dict[str, set[Scalar]]


def typed(value: Any) -> Typed | None:
    """None for what is no scalar, and for NaN, which equals nothing."""
    if isinstance(value, str):
        return "string", value
    if isinstance(value, bool):
        return "bool", value
    if isinstance(value, int | float) and value == value:  # only NaN differs from itself
        return "number", value
    return None


def scalars(value: Any) -> tuple[Typed, ...] | None:
    """A scalar, or all elements of a list. None where there are none, or where one of them is no scalar: what is known
    of the others cannot answer for it."""
    if not isinstance(value, list):
        scalar = typed(value)
        return None if scalar is None else (scalar,)
    found = [scalar for scalar in map(typed, value) if scalar is not None]
    return tuple(found) if value and len(found) == len(value) else None


def by_type(values: tuple[Typed, ...]) -> ByType:
    groups: ByType = {}
    for kind, value in values:
        groups.setdefault(kind, set()).add(value)
    return groups


def is_present(value: Any) -> bool:
    """Whether there is anything but null; `[null]` is what a mapping like `[team]` makes of an absent team."""
    return any(element is not None for element in value) if isinstance(value, list) else value is not None
