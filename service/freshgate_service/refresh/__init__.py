"""Refreshing: flights read records again, the loop decides when nobody asks."""

from freshgate_service.refresh.breath import Breath
from freshgate_service.refresh.flights import Flights
from freshgate_service.refresh.loop import Loop
from freshgate_service.refresh.outcome import Changed, Confirmed, Failed, Gone, Outcome
from freshgate_service.refresh.ports import Follower, Journal, Reader, Remembered

__all__ = [
    "Breath",
    "Changed",
    "Confirmed",
    "Failed",
    "Flights",
    "Follower",
    "Gone",
    "Journal",
    "Loop",
    "Outcome",
    "Reader",
    "Remembered",
]
