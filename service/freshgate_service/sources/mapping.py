"""From a source's raw record to what Freshgate knows of it: title, body, link, attributes, readers.

A path that leads nowhere is an error with the path's name and never an empty object: a renamed column must not look
like a record that has lost its text. What decides entitlement fails closed: an attribute that is null is unknown, and
readers that are absent or of a wrong type name nobody.

Texts of errors and problems name fields, paths and keys of the record, never a value.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Mapping as ReadOnly
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import jmespath
from jmespath.exceptions import JMESPathError
from jmespath.parser import ParsedResult

from freshgate_crds import compiled
from freshgate_service.domain import Access, Attribute, Name, ObjectKey, Readers, Record
from freshgate_service.errors import ConfigRefused, RecordMalformed
from freshgate_service.sources.text import clean

MAX_TITLE = 1000
MAX_URL = 2048

Raw = ReadOnly[str, Any]
Report = Callable[[str], None]


def compile_mapping(mapping: compiled.ObjectMapping, source: str) -> "Mapping":
    def path(field: str, text: str) -> Path:
        try:
            return Path(field, text, jmespath.compile(text))
        except JMESPathError:
            raise ConfigRefused(f"source {source}: object.{field}: `{text}` is no JMESPath expression") from None

    readers = mapping.readers
    named = {"users": readers.users, "groups": readers.groups} if readers else {}
    return Mapping(
        source=source,
        title=path("title", mapping.title),
        body=[path("body", text) for text in mapping.body],
        url=path("url", mapping.url) if mapping.url is not None else None,
        attributes={name: path(f"attributes.{name}", text) for name, text in mapping.attributes.items()},
        readers={kind: path(f"readers.{kind}", text) for kind, text in named.items() if text is not None},
        issuer=readers.issuer if readers else "",
    )


@dataclass(frozen=True, slots=True)
class Path:
    """A JMESPath expression, and the field of the mapping that it stands for."""

    field: str
    text: str
    parsed: ParsedResult

    def __str__(self) -> str:
        return f"{self.field}: path `{self.text}`"

    def find(self, raw: Raw) -> Any:
        absent = _absent_key(self.parsed.parsed, raw)
        if absent is not None:
            raise RecordMalformed(f"{self}: the record has no key `{absent}`; it has {_keys(raw)}")
        try:
            return self.parsed.search(raw)
        except RecursionError:
            raise
        except Exception:  # noqa: BLE001 - jmespath's functions raise whatever Python does, and quote values in it
            raise RecordMalformed(f"{self}: a function in it does not fit the types of the record's values") from None


@dataclass(frozen=True, slots=True)
class Mapping:
    """The object mapping of one source."""

    source: str
    title: Path
    body: Sequence[Path]
    url: Path | None
    attributes: ReadOnly[str, Path]
    readers: ReadOnly[str, Path]
    issuer: str

    def record(self, record_id: str, raw: Raw) -> Record:
        """Raises RecordMalformed. What is amiss but leaves a record is in its `problems`."""
        try:
            return self._record(ObjectKey(self.source, record_id), raw)
        except RecursionError:
            raise RecordMalformed("the record is nested too deeply") from None

    def _record(self, key: ObjectKey, raw: Raw) -> Record:
        problems: list[str] = []
        title = self._title(raw, problems.append)
        body = "\n".join(filter(None, (_text(path, path.find(raw), "\n") for path in self.body)))
        if not title and not body:
            raise RecordMalformed(f"{self.title} and all paths of body give no text; the record has {_keys(raw)}")
        url = _link(self.url, raw, problems.append)
        attributes = {name: _attribute(path, raw, problems.append) for name, path in self.attributes.items()}
        readers = self._readers(raw, problems.append)
        return Record(
            key=key,
            title=title,
            body=body,
            url=url,
            access=Access(self.source, attributes, readers),
            content_hash=_hash([title, body, url]),
            access_hash=_hash([attributes, sorted(readers.users), sorted(readers.groups)]),
            problems=tuple(problems),
        )

    def _title(self, raw: Raw, report: Report) -> str:
        title = " ".join(_text(self.title, self.title.find(raw), " ").split())
        if len(title) > MAX_TITLE:
            report(f"{self.title}: cut at {MAX_TITLE} characters")
        return title[:MAX_TITLE].rstrip()

    def _readers(self, raw: Raw, report: Report) -> Readers:
        """If one of its paths cannot be trusted, none is: it names nobody."""
        named: dict[str, frozenset[Name]] = {}
        for kind, path in self.readers.items():
            try:
                named[kind] = frozenset(Name(self.issuer, name) for name in _names(path, path.find(raw)))
            except RecordMalformed as error:
                report(f"{error}: the record names no readers")
                return Readers()
        return Readers(**named)


# --- paths -------------------------------------------------------------------------------------------------------

_FROM_THE_LEFT = frozenset(
    {"subexpression", "index_expression", "pipe", "projection", "value_projection", "filter_projection", "flatten"}
)
"""Nodes whose first child alone is looked up in the record; the others, in what that one gives."""


def _absent_key(node: Any, raw: Raw) -> str | None:
    """A key of the record that the expression starts from and that the record lacks."""
    kind, children = node["type"], node["children"]
    if kind == "field":
        return None if node["value"] in raw else str(node["value"])
    if kind in _FROM_THE_LEFT:
        return _absent_key(children[0], raw)
    if kind == "expref":
        return None
    absent = [_absent_key(child, raw) for child in children]
    if kind == "or_expression" or node.get("value") == "not_null":
        return absent[0] if None not in absent else None
    return next((key for key in absent if key is not None), None)


def _keys(raw: Raw) -> str:
    """A record's keys as an error may show them."""
    shown = [clean(str(key))[:60] for key in sorted(raw)[:20]]
    return ", ".join(shown + ["…"] * (len(raw) > len(shown))) or "none"


# --- values ------------------------------------------------------------------------------------------------------


def _text(path: Path, value: Any, separator: str) -> str:
    """Strings as they are, numbers and booleans as JSON writes them, lists flattened; nulls and blanks are nothing."""
    if isinstance(value, list):
        return separator.join(filter(None, (_text(path, item, separator) for item in value)))
    match value:
        case None:
            return ""
        case str():
            return clean(value).strip()
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
    raise RecordMalformed(f"{path}: it gives an object; name the fields in it that hold text")


def _link(path: Path | None, raw: Raw, report: Report) -> str | None:
    value = path.find(raw) if path else None
    if value is None or value == "":
        return None
    if isinstance(value, str) and _is_link(value):
        return value
    report(f"{path}: left out, as it is no http or https link without credentials")
    return None


def _is_link(text: str) -> bool:
    if len(text) > MAX_URL or clean(text) != text or any(char.isspace() or char in '\\<>"' for char in text):
        return False
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        return False


def _attribute(path: Path, raw: Raw, report: Report) -> Attribute:
    value = path.find(raw)
    if _is_plain(value):
        return value
    report(f"{path}: taken as unknown, as it holds what is neither text nor a number (NUL, lone surrogate, NaN)")
    return None


def _is_plain(value: Any) -> bool:
    """Whether JSON, and a database, can hold it as it is. Mending it would make it equal to something else."""
    match value:
        case str():
            return "\0" not in value and _encodes(value)
        case float():
            return math.isfinite(value)
        case list():
            return all(map(_is_plain, value))
        case dict():
            return all(_is_plain(key) and _is_plain(item) for key, item in value.items())
    return True


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _names(path: Path, value: Any) -> Iterator[str]:
    """Exactly as they are written. A null in a list names nobody, as an unassigned record's does."""
    for name in value if isinstance(value, list) else [value]:
        if isinstance(name, str) and _is_plain(name):
            if name:
                yield name
        elif name is not None:
            raise RecordMalformed(f"{path}: gives something else than names")


def _hash(value: Any) -> str:
    """Of canonical JSON, in which 1, 1.0, "1" and true differ."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
