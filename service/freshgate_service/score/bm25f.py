"""The ranking formula, as the reference scorer and the fast one both obey it.

BM25F after Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), section 3.6:

    weighted(term, field)  = weight(field) · tf / (1 − B + B · length(field) / average length(field))
    pseudo-frequency(term) = weighted(term, title) + weighted(term, body)
    share(term, field)     = idf(term) · weighted(term, field) / (K1 + pseudo-frequency(term))

A score is the sum of its shares. Each share is rounded to a multiple of QUANTUM, and a match has one QUANTUM at least:
sums of such numbers are exact in float64 (below 2²¹, which takes 80,000 terms), so they are the same in any order, and
an explanation adds up to its score to the last bit. All statistics are those of the asker's entitled slice.
"""

import math
from typing import NamedTuple

K1 = 2.0
B = 0.5
# Measured on the Cranfield collection with titles weighted 3 (nDCG@10 0.394): round numbers from the middle of a
# plateau that both halves of its queries share. K1 is higher than plain BM25's 1.2, since a title adds 3 to the
# frequency that it saturates. A B for each field gained less than 0.002.

QUANTUM = 2.0**-32
MAX_FREQUENCY = 65_535
"""Occurrences of one term in one field that count. Far past saturation; it lets an index keep them in two bytes."""


class Weights(NamedTuple):
    title: float
    body: float = 1.0


def idf(objects: int, having: int) -> float:
    return math.log(1 + (objects - having + 0.5) / (having + 0.5))
