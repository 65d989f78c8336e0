"""The kinds of cases."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from tests.fuzz import (
    kinds_documents,
    kinds_inputs,
    kinds_ledger,
    kinds_predict,
    kinds_readers,
    kinds_records,
    kinds_runs,
    kinds_self,
)
from tests.fuzz.base import Base


class Kind(NamedTuple):
    """`play(rng, base)` is one case and returns its outcome in a word; `weight`: how often it is drawn."""

    play: Callable[[random.Random, Base], str]
    weight: int


KINDS = {
    "bytes": Kind(kinds_runs.damaged_bytes, 1),
    "cache": Kind(kinds_runs.damaged_cache, 1),
    "crafted": Kind(kinds_runs.crafted, 1),
    "tree": Kind(kinds_runs.strange_tree, 1),
    "result": Kind(kinds_runs.damaged_result, 1),
    "checkpoint": Kind(kinds_inputs.checkpoint, 1),
    "journal": Kind(kinds_inputs.journal, 1),
    "campaign": Kind(kinds_inputs.campaign, 1),
    "deck": Kind(kinds_inputs.deck, 1),
    "matrix": Kind(kinds_inputs.matrix, 1),
    "ledger": Kind(kinds_ledger.ledger, 1),
    "calibration": Kind(kinds_predict.calibration, 1),
    "machine": Kind(kinds_predict.machine, 1),
    "prediction": Kind(kinds_predict.prediction, 1),
    "raw": Kind(kinds_records.raw, 1),
    "heads": Kind(kinds_records.heads, 1),
    "replay": Kind(kinds_records.replay, 1),
    "program": Kind(kinds_records.program, 1),
    "document": Kind(kinds_documents.document, 1),
    "numbers": Kind(kinds_documents.numbers, 1),
    "readers": Kind(kinds_readers.readers, 2),
    "self": Kind(kinds_self.broken, 0),
}
