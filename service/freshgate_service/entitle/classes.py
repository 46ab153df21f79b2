"""Decides once for all objects that no policy can tell apart.

Objects of one source with equal attributes and readers share an access class, and askers of whom the policies say the
same share one answer. An answer is worked out through the index and then kept right as classes come and go. Each class
in it was decided by `decide` alone; nothing here may soften that, and the border check relies on nothing here.
"""

from collections import OrderedDict
from collections.abc import Hashable, Set
from dataclasses import dataclass, field

from freshgate_crds.compiled import Entitlements
from freshgate_service.domain import Access, Asker, ObjectKey
from freshgate_service.entitle.decide import Party, all_see, parties
from freshgate_service.entitle.grants import Grants
from freshgate_service.entitle.index import Index
from freshgate_service.entitle.values import is_present, scalars

ANSWERS = 256
"""Answers kept. A new class is decided for each of them, so this bounds what adding one costs."""

ASKERS = 4_096
"""Whose grants are kept in mind: a verified token is the same asker each time that it is shown."""

ANSWERED_CLASSES = 4_000_000
"""Class ids held by all answers together, at about 50 bytes each."""

IDLE = 1_000
"""An answer that nobody asked for while so many classes came is dropped: a backfill does not work for the absent."""

NOTHING: frozenset[int] = frozenset()


@dataclass(slots=True)
class _Class:
    """`access` is one member's, and stands for all of them."""

    access: Access
    likeness: Hashable
    members: set[ObjectKey] = field(default_factory=set)


@dataclass(slots=True)
class _Answer:
    """The classes of one grant. `asked_at` counts classes that had come when it was last asked for."""

    parties: tuple[Party, ...]
    classes: frozenset[int]
    asked_at: int
    came: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)

    def current(self) -> frozenset[int]:
        """The same set, not only an equal one, for as long as nothing of it changes."""
        if self.came or self.gone:
            self.classes = (self.classes - self.gone) | self.came
            self.came, self.gone = set(), set()
        return self.classes

    def add(self, class_id: int) -> None:
        self.came.add(class_id)

    def remove(self, class_id: int) -> None:
        self.came.discard(class_id)
        if class_id in self.classes:
            self.gone.add(class_id)


class ClassTable:
    """Objects by access class, and the classes of an asker.

    A class id is never used twice, and says nothing about the class. Asking costs a few lookups where the answer is
    kept; else it follows the classes that the narrowest demand of each Allow leads to, denied ones among them. A new
    class costs a decision for each answer that is kept.
    """

    def __init__(self, entitlements: Entitlements) -> None:
        self._entitlements = entitlements
        self._grants = Grants(entitlements.policies)
        self._granted: dict[int, tuple[Asker, Hashable | None]] = {}
        self._answers: OrderedDict[Hashable, _Answer] = OrderedDict()
        self._classes: dict[int, _Class] = {}
        self._by_likeness: dict[Hashable, int] = {}
        self._by_object: dict[ObjectKey, int] = {}
        self._index = Index()
        self._arrivals = 0

    def add(self, key: ObjectKey, access: Access) -> int:
        """Puts the object into the class of its access, out of any other; gives the class id."""
        likeness = _likeness(access)
        class_id = self._by_likeness.get(likeness)
        if class_id is None:
            class_id = self._open(likeness, access)
        if self._by_object.get(key) != class_id:
            self.remove(key)
            self._classes[class_id].members.add(key)
            self._by_object[key] = class_id
        return class_id

    def remove(self, key: ObjectKey) -> None:
        """Does nothing where the object is unknown."""
        class_id = self._by_object.pop(key, None)
        if class_id is None:
            return
        members = self._classes[class_id].members
        members.discard(key)
        if not members:
            self._close(class_id)

    def members(self, class_id: int) -> Set[ObjectKey]:
        """The table's own set, not a copy: empty once the class is gone."""
        return self._classes[class_id].members if class_id in self._classes else frozenset()

    def class_of(self, key: ObjectKey) -> int | None:
        return self._by_object.get(key)

    def access(self, class_id: int) -> Access:
        return self._classes[class_id].access

    def classes_of(self, asker: Asker) -> frozenset[int]:
        """All classes that the asker is entitled to. The same object as before where nothing of it changed."""
        grant = None if self._entitlements.denied else self._grant(asker)
        if grant is None:
            return NOTHING
        answer = self._answers.get(grant)
        if answer is None:
            answer = self._answers[grant] = self._work_out(asker)
            self._forget_oldest()
        self._answers.move_to_end(grant)
        answer.asked_at = self._arrivals
        return answer.current()

    def replace(self, entitlements: Entitlements) -> None:
        """Obeys another revision. Classes stay; answers stay only where no policy changed."""
        if entitlements.policies != self._entitlements.policies:
            self._grants = Grants(entitlements.policies)
            self._granted.clear()
            self._answers.clear()
        self._entitlements = entitlements

    def _grant(self, asker: Asker) -> Hashable | None:
        """By identity: askers that Python calls equal may differ in the type of a claim."""
        known = self._granted.get(id(asker))
        if known is not None:
            return known[1]
        if len(self._granted) >= ASKERS:
            self._granted.clear()
        grant = self._grants.of(asker)
        self._granted[id(asker)] = (asker, grant)  # held, so that its identity is nobody else's
        return grant

    def _open(self, likeness: Hashable, access: Access) -> int:
        self._arrivals += 1
        class_id = self._by_likeness[likeness] = self._arrivals
        self._classes[class_id] = _Class(access, likeness)
        self._index.add(class_id, access)
        self._forget_idle()
        for answer in self._answers.values():
            if all_see(answer.parties, access):
                answer.add(class_id)
        return class_id

    def _close(self, class_id: int) -> None:
        closed = self._classes.pop(class_id)
        del self._by_likeness[closed.likeness]
        self._index.remove(class_id, closed.access)
        for answer in self._answers.values():
            answer.remove(class_id)

    def _work_out(self, asker: Asker) -> _Answer:
        everyone = parties(asker, self._entitlements)
        candidates = self._index.candidates(everyone)
        entitled = (each for each in candidates if all_see(everyone, self._classes[each].access))
        return _Answer(everyone, frozenset(entitled), self._arrivals)

    def _forget_oldest(self) -> None:
        held = sum(len(answer.classes) for answer in self._answers.values())
        while len(self._answers) > ANSWERS or (held > ANSWERED_CLASSES and len(self._answers) > 1):
            held -= len(self._answers.popitem(last=False)[1].classes)

    def _forget_idle(self) -> None:
        while self._answers:
            oldest = next(iter(self._answers))
            if self._answers[oldest].asked_at >= self._arrivals - IDLE:
                break
            del self._answers[oldest]


def _likeness(access: Access) -> Hashable:
    """Equal for accesses that no condition tells apart, and for no others: nested, so that no name can run into the
    next, and with the types, which Python's equality forgets."""
    attributes = frozenset(
        (name, isinstance(value, list), scalars(value))
        for name, value in access.attributes.items()
        if is_present(value)
    )
    return access.source, attributes, access.readers
