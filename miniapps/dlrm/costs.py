"""Seconds of a table under a sharding, by part of a step and rank, from a priced step in which all tables have it.

A step has five parts. After the first four, ranks wait for each other: for requested rows, for answers, for the sums of
the perceptrons' gradients, for the gradients of rows. The messages of a table take seconds in proportion to its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from miniapps.dlrm.watched import Call

# The part of a step to which the calls of a method for a table belong.
PARTS = {
    "requested": 0,
    "looked": 1,
    "answers": 1,
    "assembled": 2,
    "cut": 3,
    "distinct": 4,
    "summed": 4,
    "learn": 4,
}
HOLDERS = (
    "looked",
    "answers",
    "distinct",
    "summed",
    "learn",
)  # called for rows of a rank, others for its samples


def costs_of(
    calls: Sequence[Sequence[Call]], seconds: Mapping[str, float], per_byte: float, holder: int | None
) -> np.ndarray:
    """float64 (choices, parts, ranks) in seconds, from the `calls` of each rank for one table, and the `seconds` of a
    call of each work by its text.

    If the rank `holder` holds the whole table, there is a choice for each rank: it would do the work of `holder`, and
    send nothing for its own samples. Otherwise `holder` is None, and there is one choice."""
    size = len(calls)
    held, asked, sent, stays = np.zeros((4, max(PARTS.values()) + 1, size))
    for rank, of_rank in enumerate(calls):
        for call in of_rank:
            at = PARTS[call.method], rank
            every, own = per_byte * sum(call.nbytes.values()), per_byte * call.nbytes.get(rank, 0)
            if call.method in HOLDERS:
                held[at] += seconds[str(call.work)] + every - own
            else:
                asked[at] += seconds[str(call.work)]
                sent[at] += every
                stays[at] += own
    if holder is None:
        return (held + asked + sent - stays)[None]
    here, elsewhere = held[:, [holder]], held[:, [(holder + 1) % size]]
    ranks = np.arange(size)
    return np.stack([np.where(ranks == rank, here, elsewhere + sent) + asked for rank in ranks])
