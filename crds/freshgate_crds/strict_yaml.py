"""YAML that means one thing: read as JSON values, or refused with its line.

Parsers of YAML differ, and two of them will read one manifest: this one on a laptop, kubectl's in a cluster. What they
read differently is refused here (`no`, `010`, merge keys, tags), and so is what any of them reads in silence although
its writer cannot have meant it (a key written twice). Aliases are expanded within a bound, so a small file stays small.
It must not know what the documents are for.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

from freshgate_crds.errors import YamlRefused

MAX_DEPTH = 64
MAX_VALUES = 200_000
"""In one document, with every alias written out."""

_TAG = "tag:yaml.org,2002:"
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[-+]?[0-9]{1,100}(\.[0-9]*)?([eE][-+]?[0-9]{1,2})?")
_DISPUTED = re.compile(r"[yYnN]|[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+|[-+]?0o[0-7]+")
"""Plain texts here, but no texts to kubectl."""
_READ_AS_TEXT = (f"{_TAG}timestamp", f"{_TAG}value")


class YamlDocument(NamedTuple):
    value: Any
    line: int


def documents(data: bytes) -> Iterator[YamlDocument]:
    """All documents but the empty ones. Raises YamlRefused."""
    try:
        for node in yaml.compose_all(data, Loader=_Loader):
            value = _Builder().value(node)
            if value is not None:
                yield YamlDocument(value, _line(node))
    except yaml.MarkedYAMLError as error:
        raise YamlRefused(_marked_line(error), error.problem or "this is no YAML") from error
    except yaml.reader.ReaderError as error:
        raise YamlRefused(data.count(b"\n", 0, error.position) + 1, f"this is no text: {error.reason}") from error
    except (ValueError, OverflowError) as error:  # an escape like \UFFFFFFFF, which the scanner hands to chr()
        raise YamlRefused(1, "an escape in it stands for no character") from error


class _Loader(yaml.SafeLoader):
    """Composes nodes only. Times stay texts, as JSON has them."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as its base class has it
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in _READ_AS_TEXT]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, stream: bytes) -> None:
        super().__init__(stream)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise YamlRefused(self.line + 1, f"nested deeper than {MAX_DEPTH} levels")
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


class _Builder:
    """Nodes to JSON values: aliases are written out, counted, and so end even where they are circular."""

    def __init__(self) -> None:
        self._values = 0

    def value(self, node: yaml.Node, depth: int = 0) -> Any:
        self._values += 1
        if self._values > MAX_VALUES or depth > MAX_DEPTH:
            raise YamlRefused(_line(node), "its aliases (`*name`) expand to too much")
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return self._mapping(node, depth)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return [self.value(item, depth + 1) for item in node.value]
        return _scalar(node)

    def _mapping(self, node: yaml.MappingNode, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = _key(key_node)
            if key in result:
                raise YamlRefused(_line(key_node), f"`{key}` stands here twice: remove one")
            result[key] = self.value(value_node, depth + 1)
        return result


def _key(node: yaml.Node) -> str:
    if node.tag == f"{_TAG}merge":
        raise YamlRefused(_line(node), "a merge (`<<`) is not read: write its fields out")
    if not isinstance(node, yaml.ScalarNode) or node.tag != f"{_TAG}str":
        raise YamlRefused(_line(node), "a key is no text: put it in quotes")
    return _text(node)


def _scalar(node: yaml.Node) -> Any:
    readers = {"str": _text, "null": lambda _: None, "bool": _boolean, "int": _integer, "float": _float}
    reader = readers.get(node.tag.removeprefix(_TAG))
    if reader is None or not isinstance(node, yaml.ScalarNode):
        raise YamlRefused(_line(node), f"the tag {node.tag.replace(_TAG, '!!')} is not read: write plain values")
    return reader(node)


def _text(node: yaml.ScalarNode) -> str:
    text: str = node.value
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise YamlRefused(_line(node), "half of a surrogate pair is no character: write the character itself")
    if node.style is None and _DISPUTED.fullmatch(text):
        raise _ambiguous(node, f"`{text[:20]}` is a text to some and none to others: write plain digits, true or false")
    return text


def _boolean(node: yaml.ScalarNode) -> bool:
    value = {"true": True, "false": False}.get(node.value.lower())
    if value is None:
        raise _ambiguous(node, f"`{node.value}` means a truth value to some and a text to others: write true or false")
    return value


def _integer(node: yaml.ScalarNode) -> int:
    if not _INTEGER.fullmatch(node.value):
        raise _ambiguous(node, f"`{node.value[:20]}` is a different number to different readers: write plain digits")
    return int(node.value)


def _float(node: yaml.ScalarNode) -> float:
    if not _FLOAT.fullmatch(node.value):
        raise _ambiguous(node, f"`{node.value[:20]}` is no number that JSON has: write plain digits")
    return float(node.value)


def _ambiguous(node: yaml.ScalarNode, problem: str) -> YamlRefused:
    return YamlRefused(_line(node), f"{problem}, or put it in quotes")


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _marked_line(error: yaml.MarkedYAMLError) -> int:
    mark = error.problem_mark or error.context_mark
    return mark.line + 1 if mark else 1
