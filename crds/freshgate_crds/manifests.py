"""Manifests as written: which resources there are and where each stands, not yet whether they can be obeyed.

A folder is read as `kubectl apply` would take it: a file that cannot be read changes nothing, so what was last read of
it stays. At a start nothing was, and the file could hold anything, a Deny too: `compile` must know (`unknown`). Reading
the folder is the only I/O here; the operator makes the same `Manifests` from what its watches hold.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from freshgate_crds import strict_yaml
from freshgate_crds.errors import DocumentRefused, ManifestsUnavailable, WorkspaceNotChosen, YamlRefused
from freshgate_crds.v1alpha1.models import GROUP, LABEL, SUBDOMAIN, VERSION

API_VERSION = f"{GROUP}/{VERSION}"
SOURCE, POLICY, WORKSPACE = "MemorySource", "EntitlementPolicy", "Workspace"
KINDS = (SOURCE, POLICY, WORKSPACE)
MAX_FILE_BYTES = 4 * 1024 * 1024
_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Place:
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Document:
    """One resource of a kind of ours. Only its name is known to be good; the rest of `body` is as written."""

    kind: str
    namespace: str
    name: str
    body: Mapping[str, Any]
    place: Place | None = None

    @classmethod
    def of(cls, body: Mapping[str, Any], place: Place | None = None) -> Self:
        """Raises DocumentRefused."""
        kind = body.get("kind")
        if kind not in KINDS:
            raise DocumentRefused(f"kind: there is no such kind in {GROUP}; write one of {', '.join(KINDS)}")
        metadata = body.get("metadata")
        metadata = metadata if isinstance(metadata, Mapping) else {}
        return cls(
            kind,
            _name("default" if metadata.get("namespace") is None else metadata["namespace"], LABEL, 63, "namespace"),
            _name(metadata.get("name"), SUBDOMAIN, 253, "name"),
            body,
            place,
        )

    @property
    def file(self) -> str | None:
        return self.place.file if self.place else None

    @property
    def identity(self) -> tuple[str, str, str]:
        return self.kind, self.namespace, self.name


@dataclass(frozen=True, slots=True)
class Problem:
    """A file that could not be read. `kept` says that it changes nothing: what was last read of it stays in force."""

    place: Place
    reason: str
    problem: str
    kept: bool

    @property
    def message(self) -> str:
        until_then = "what was last read of it stays in force" if self.kept else "it counts as a Deny of everything"
        return f"{self.problem}. Until the file is mended, {until_then}."


@dataclass(frozen=True, slots=True)
class Note:
    """Nothing wrong, but perhaps not what was meant."""

    place: Place | None
    text: str


@dataclass(frozen=True, slots=True)
class Manifests:
    documents: tuple[Document, ...] = ()
    problems: tuple[Problem, ...] = ()
    notes: tuple[Note, ...] = ()

    @property
    def unknown(self) -> tuple[str, ...]:
        """Files that could not be read since the start."""
        return tuple(sorted({problem.place.file for problem in self.problems if not problem.kept}))

    def named(self, kind: str, namespace: str, name: str) -> tuple[Document, ...]:
        return tuple(document for document in self.documents if document.identity == (kind, namespace, name))

    def by_name(self, kind: str, namespace: str) -> dict[str, list[Document]]:
        """In the order of names; more than one document of a name is a mistake, and `compile` says so."""
        found: defaultdict[str, list[Document]] = defaultdict(list)
        for document in self.documents:
            if (document.kind, document.namespace) == (kind, namespace):
                found[document.name].append(document)
        return dict(sorted(found.items()))

    @property
    def workspaces(self) -> tuple[tuple[str, str], ...]:
        """(namespace, name) of each."""
        return tuple(sorted({(d.namespace, d.name) for d in self.documents if d.kind == WORKSPACE}))


def choose_workspace(manifests: Manifests, name: str | None, namespace: str | None) -> tuple[str, str]:
    """(namespace, name) of the one Workspace that is meant. Raises WorkspaceNotChosen."""
    fitting = [
        (its_namespace, its_name)
        for its_namespace, its_name in manifests.workspaces
        if name in (None, its_name) and namespace in (None, its_namespace)
    ]
    if len(fitting) == 1:
        return fitting[0]
    there = ", ".join("/".join(workspace) for workspace in manifests.workspaces) or "none"
    trouble = "Several Workspaces fit" if fitting else "No Workspace fits"
    raise WorkspaceNotChosen(f"{trouble}. The manifests hold: {there}. Name one with --workspace and --namespace.")


def _name(value: Any, pattern: str, longest: int, field: str) -> str:
    if not isinstance(value, str) or len(value) > longest or not re.fullmatch(pattern, value):
        raise DocumentRefused(
            f"metadata.{field}: needed are at most {longest} lower-case letters, digits and hyphens, like `support-2`"
        )
    return value


def load_directory(path: Path, previous: Manifests | None = None) -> Manifests:
    """All *.yaml and *.yml below the folder, in the order of their paths. Raises ManifestsUnavailable."""
    documents: list[Document] = []
    problems: list[Problem] = []
    notes: list[Note] = []
    for file in _files(path, notes):
        try:
            documents += _resources(path / file, file, notes)
        except _FileRefused as refused:
            kept = previous is not None and file not in previous.unknown
            documents += _last_read(file, previous)
            problems.append(Problem(refused.place, refused.reason, str(refused), kept))
    return Manifests(tuple(documents), tuple(problems), tuple(notes))


def files_of(folder: Path) -> list[Path]:
    """The files that `load_directory` reads. Raises ManifestsUnavailable."""
    return [folder / file for file in _files(folder, [])]


class _FileRefused(Exception):
    def __init__(self, place: Place, reason: str, problem: str) -> None:
        super().__init__(problem)
        self.place = place
        self.reason = reason


def _files(folder: Path, notes: list[Note]) -> list[str]:
    """Relative to the folder. Hidden ones are an editor's or a volume's own; links to folders could be circular."""
    found: list[str] = []
    for root, folders, files in os.walk(folder, onerror=_unavailable):
        here = Path(root).relative_to(folder)
        links = [name for name in folders if (Path(root) / name).is_symlink() and not name.startswith(".")]
        notes += [Note(None, f"{here / name} is a link to a folder and is not read") for name in sorted(links)]
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [(here / name).as_posix() for name in files if name.endswith(_SUFFIXES) and not name.startswith(".")]
    return sorted(found)


def _unavailable(error: OSError) -> None:
    raise ManifestsUnavailable(
        f"{error.filename} cannot be read: {error.strerror}. Give a folder that holds manifests."
    )


def _last_read(file: str, previous: Manifests | None) -> list[Document]:
    return [document for document in previous.documents if document.file == file] if previous else []


def _resources(path: Path, file: str, notes: list[Note]) -> list[Document]:
    """Raises _FileRefused."""
    resources = []
    for value, line in _parsed(path, file):
        place = Place(file, line)
        for body in _flattened(value, place):
            if _is_ours(body):
                resources.append(_document(body, place))
            else:
                notes.append(Note(place, f"a {body.get('kind')} is none of Freshgate's kinds and is not read"))
    return resources


def _parsed(path: Path, file: str) -> list[strict_yaml.YamlDocument]:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise _FileRefused(Place(file, 1), "FileTooLarge", f"it is larger than {MAX_FILE_BYTES} bytes: split it")
        return list(strict_yaml.documents(path.read_bytes()))
    except YamlRefused as error:
        raise _FileRefused(Place(file, error.line), "NotYaml", str(error)) from error
    except OSError as error:
        raise _FileRefused(Place(file, 1), "FileUnreadable", f"it cannot be read: {error.strerror}") from error


def _flattened(value: Any, place: Place) -> Iterator[Mapping[str, Any]]:
    """The items of a List, as `kubectl get` writes them, or the one resource."""
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        raise _FileRefused(
            place, "NoResource", "a document is no resource: it needs apiVersion, kind, metadata and spec"
        )
    if value["kind"] != "List":
        yield value
        return
    items = value.get("items")
    for item in items if isinstance(items, list) else [None]:
        yield from _flattened(item, place)


def _is_ours(body: Mapping[str, Any]) -> bool:
    return body["kind"] in KINDS or str(body.get("apiVersion")).split("/")[0] == GROUP


def _document(body: Mapping[str, Any], place: Place) -> Document:
    try:
        return Document.of(body, place)
    except DocumentRefused as error:
        raise _FileRefused(place, "NoResource", str(error)) from error
