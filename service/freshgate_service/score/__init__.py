"""Lexical scoring of an entitled slice: deterministic, weighted by field, explained to the last bit."""

from freshgate_service.score.analyse import Analyser
from freshgate_service.score.bm25f import Weights
from freshgate_service.score.documents import Document, Vocabulary
from freshgate_service.score.fast import View
from freshgate_service.score.reference import Analysed, cut, score_all

__all__ = ["Analysed", "Analyser", "Document", "View", "Vocabulary", "Weights", "cut", "score_all"]
