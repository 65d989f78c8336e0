"""The kinds of cases."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from tests.fuzz import kinds_inputs, kinds_runs, kinds_self
from tests.fuzz.base import Base


class Kind(NamedTuple):
    """`play(rng, base)` is one case and returns its outcome in a word; `weight`: how often it is drawn."""

    play: Callable[[random.Random, Base], str]
    weight: int


KINDS = {
    "bytes": Kind(kinds_runs.damaged_bytes, 30),
    "cache": Kind(kinds_runs.damaged_cache, 15),
    "crafted": Kind(kinds_runs.crafted, 25),
    "tree": Kind(kinds_runs.strange_tree, 10),
    "result": Kind(kinds_runs.damaged_result, 10),
    "checkpoint": Kind(kinds_inputs.checkpoint, 10),
    "journal": Kind(kinds_inputs.journal, 8),
    "campaign": Kind(kinds_inputs.campaign, 6),
    "deck": Kind(kinds_inputs.deck, 8),
    "matrix": Kind(kinds_inputs.matrix, 8),
    "self": Kind(kinds_self.broken, 0),
}
