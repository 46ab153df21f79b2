"""The workspace in memory: its objects, who may see them (classes), and what is scored (one view for each slice).

It is changed by what the store says and by new configurations, one object at a time, and asked by the pipeline
between two changes. It does no I/O and never decides by itself who may see what: classes come from `entitle`, scores
from `score`.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from weakref import WeakValueDictionary

from freshgate_crds.compiled import Config, Source
from freshgate_service.domain import (
    Asker,
    Change,
    Deleted,
    MemoryObject,
    Name,
    ObjectKey,
    Scored,
    SourceInfo,
)
from freshgate_service.entitle import ClassTable
from freshgate_service.score.analyse import Analyser
from freshgate_service.score.bm25f import Weights
from freshgate_service.score.documents import Document, Vocabulary
from freshgate_service.score.fast import View

VIEW_BYTES = 512 * 1024 * 1024
"""What all views together may hold; the ones longest unused go first."""

VIEW_OVERHEAD = 8 * 1024
"""What a view takes beyond what it counts itself: most of it, where an asker may see one record."""

SLICES = 4_096
"""Views at the most. Every change of an object passes all of them."""

ASKERS = 10_000
"""How many askers' last slices are kept in mind."""

Classes = frozenset[int]
Hint = tuple[tuple[Name, ...], frozenset[str] | None]


@dataclass(slots=True, weakref_slot=True, eq=False)
class Slice:
    """One view over the objects of some classes, and what has changed in them since it was last brought up to date.
    `size` is what was last counted of it."""

    classes: Classes
    view: View
    pending: set[ObjectKey] = field(default_factory=set)
    size: int = 0


class Memory:
    """`objects` holds every object, candidates or not; `specs` the sources in force."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.specs: Mapping[str, Source] = {source.name: source for source in config.sources}
        self.objects: dict[ObjectKey, MemoryObject] = {}
        self.complete: set[str] = set()
        self._by_source: dict[str, set[ObjectKey]] = defaultdict(set)
        self._classes = ClassTable(config.entitlements)
        self._slices: OrderedDict[Classes, Slice] = OrderedDict()
        self._held = 0
        self._last: WeakValueDictionary[Hint, Slice] = WeakValueDictionary()
        self._read_with(config)

    def _read_with(self, config: Config) -> None:
        """(Re)builds all that depends on the ranking's language and weights."""
        self._analyser = Analyser(config.ranking.language)
        self._weights = Weights(title=config.ranking.title_weight)
        self._vocabulary = Vocabulary()
        self._documents: dict[ObjectKey, Document] = {}
        self._slices.clear()
        self._held = 0

    # changes

    def apply(self, change: Change) -> None:
        """Takes one change in, unless a newer one of the same object is here already."""
        known = self.objects.get(change.key)
        if known is not None and known.change >= change.change:
            return
        if isinstance(change, Deleted):
            self._forget(change.key)
        elif isinstance(change, MemoryObject):
            self._remember(change)
        elif known is not None:
            self._remember(replace(known, clock=change.clock, version=change.version, change=change.change))

    def replace_config(self, config: Config) -> None:
        """Takes a new configuration into force, whole, between two queries."""
        old, self.config = self.config, config
        self.specs = {source.name: source for source in config.sources}
        if config.ranking != old.ranking:
            self._read_with(config)
            for key in self.objects:
                self._document(key)
        self._classes.replace(config.entitlements)
        # Whether an object is a candidate hangs on the reading spec alone: an edited TTL passes over no object.
        for name in {name for name, _ in _reading_specs(config) ^ _reading_specs(old)}:
            for key in self.keys(name):
                self._admit(key, self.objects[key])

    def _remember(self, changed: MemoryObject) -> None:
        known = self.objects.get(changed.key)
        self.objects[changed.key] = changed
        self._by_source[changed.key.source].add(changed.key)
        if known is None or _text(known) != _text(changed):
            self._documents.pop(changed.key, None)
            self._admit(changed.key, changed)
        elif _admission(known) != _admission(changed):
            self._admit(changed.key, changed)

    def _forget(self, key: ObjectKey) -> None:
        if self.objects.pop(key, None) is not None:
            self._by_source[key.source].discard(key)
            self._documents.pop(key, None)
            self._expel(key)

    def _admit(self, key: ObjectKey, remembered: MemoryObject) -> None:
        """Makes an object a candidate under its class, or none at all where it was read under another spec: what its
        attributes mean is not known then."""
        spec = self.specs.get(key.source)
        self._expel(key)
        if spec is not None and spec.spec_hash == remembered.spec_hash:
            self._document(key)
            self._note(self._classes.add(key, remembered.access), key)

    def _expel(self, key: ObjectKey) -> None:
        class_id = self._classes.class_of(key)
        if class_id is not None:
            self._classes.remove(key)
            self._note(class_id, key)

    def _note(self, class_id: int, key: ObjectKey) -> None:
        for classes, piece in self._slices.items():
            if class_id in classes:
                piece.pending.add(key)

    def _document(self, key: ObjectKey) -> Document:
        if self._vocabulary.overgrown:
            self._vocabulary.prune(self._documents.values())
        if key not in self._documents:
            remembered = self.objects[key]
            terms = self._analyser.terms
            self._documents[key] = self._vocabulary.document(terms(remembered.title), terms(remembered.summary))
        return self._documents[key]

    # looking at all objects: for refreshing, never for an answer

    def get(self, key: ObjectKey) -> MemoryObject | None:
        return self.objects.get(key)

    def keys(self, source: str) -> Collection[ObjectKey]:
        return tuple(self._by_source[source])

    def remembered_sources(self) -> set[str]:
        return {name for name, keys in self._by_source.items() if keys}

    # the asker's slice

    def find(self, asker: Asker, key: ObjectKey) -> MemoryObject | None:
        """One object, if the asker's slice has it."""
        class_id = self._classes.class_of(key)
        if class_id is None or class_id not in self._classes.classes_of(asker):
            return None
        return self.objects[key]

    def sources(self, asker: Asker) -> set[str]:
        return {self._classes.access(class_id).source for class_id in self._classes.classes_of(asker)}

    def source_info(self, name: str) -> SourceInfo:
        return SourceInfo(name, self.specs[name].ttl_seconds, name in self.complete)

    def slice(self, asker: Asker, sources: frozenset[str] | None) -> Slice:
        """All that the asker may see, or the part of it that comes from `sources`."""
        classes = self._narrowed(self._classes.classes_of(asker), sources)
        # Only a hint where to start from, so it need not tell apart all that tells askers apart.
        hint = (tuple(principal.name for principal in asker.everyone), sources)
        piece = self._slices.get(classes)
        if piece is None:
            piece = self._slices[classes] = self._derived(classes, self._last.get(hint))
        self._slices.move_to_end(classes)
        self._keep_in_mind(hint, piece)
        if piece.pending:
            self._patch(classes, piece)
        self._count(piece)
        self._evict()
        return piece

    def top(self, entitled: Slice, query: str, limit: int) -> list[Scored]:
        """The best `limit` of a slice. It sees nothing but the slice."""
        return entitled.view.top(self._analyser.query_terms(query), limit)

    def _narrowed(self, classes: Classes, sources: frozenset[str] | None) -> Classes:
        if sources is None:
            return classes
        return frozenset(class_id for class_id in classes if self._classes.access(class_id).source in sources)

    def _derived(self, classes: Classes, last: Slice | None) -> Slice:
        """A slice for classes that have none: from the one that the asker had before, where they differ by little."""
        if last is None or self._slices.get(last.classes) is not last:  # one that is not kept is told of no change
            return Slice(classes, self._built(classes))
        differing = {key for class_id in classes ^ last.classes for key in self._classes.members(class_id)}
        return Slice(classes, last.view.fork(), last.pending | differing)

    def _patch(self, classes: Classes, piece: Slice) -> None:
        for key in piece.pending:
            inside = self._classes.class_of(key) in classes
            piece.view.replace(key, self._documents[key] if inside else None)
        piece.pending.clear()

    def _built(self, classes: Classes) -> View:
        keys = (key for class_id in classes for key in self._classes.members(class_id))
        return View(((key, self._documents[key]) for key in keys), self._weights, self._vocabulary)

    def _keep_in_mind(self, hint: Hint, piece: Slice) -> None:
        """For as long as the slice itself is kept."""
        if len(self._last) >= ASKERS:
            self._last.clear()
        self._last[hint] = piece

    def _count(self, piece: Slice) -> None:
        """Anew each time that it is used: it grows with what is asked of it."""
        size = VIEW_OVERHEAD + piece.view.nbytes
        self._held += size - piece.size
        piece.size = size

    def _evict(self) -> None:
        """It costs what goes: however many views there are, an asker's first query pays for its own."""
        while len(self._slices) > 1 and (self._held > VIEW_BYTES or len(self._slices) > SLICES):
            _, piece = self._slices.popitem(last=False)
            self._held -= piece.size


def _reading_specs(config: Config) -> set[tuple[str, str]]:
    return {(source.name, source.spec_hash) for source in config.sources}


def _text(remembered: MemoryObject) -> tuple[str, str]:
    return remembered.title, remembered.summary


def _admission(remembered: MemoryObject) -> tuple[str, str]:
    return remembered.access_hash, remembered.spec_hash
