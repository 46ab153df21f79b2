"""Who may see what: the definition (`entitled`), a fast equal of it (`ClassTable`), and the check that trusts only the
first (`check`)."""

from freshgate_service.entitle.border import check
from freshgate_service.entitle.classes import ClassTable
from freshgate_service.entitle.decide import Decision, Grounds, entitled, judge, why

__all__ = ["ClassTable", "Decision", "Grounds", "check", "entitled", "judge", "why"]
