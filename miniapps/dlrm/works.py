"""What the calls of a step compute, and how large they are, beside torch's: their keys, dims, operations and bytes.

Each function of WORKS gets the trainer, the result of a call and its arguments; None: the call does nothing. A key has
the sharding of a table, since each sharding has its own code; a part that this rank does not hold is `elsewhere`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from miniapps.layout.owners import contiguous_owner
from miniapps.learning.optimisers import Adam
from miniapps.partition.pricing.keys import PREFIX, update_of
from miniapps.untrusted.program import Work

if TYPE_CHECKING:
    from miniapps.dlrm.trainer import DlrmTrainer

BETWEEN = "between_calls own"
FLOAT, NUMBER, WORD = 4, 4, 8  # bytes of a weight, of a row's number, of a drawn word


def work(name: str, dims: Sequence[int], nbytes: int, flops: int = 0) -> Work:
    """The work of a call of this suite's code; empty dims count as 1."""
    return Work(
        f"{PREFIX}{name} by {len(dims)}", tuple(max(int(n), 1) for n in dims), int(flops), int(nbytes)
    )


def between(calls: int, nbytes: int) -> Work:
    """All of a step between this suite's calls: their number, and the bytes of messages."""
    return work(BETWEEN, (calls, nbytes + 1), nbytes)


def is_of_torch(done: Work) -> bool:
    """Whether a work is a kernel of torch."""
    return " torch" in done.key


def recorded(elements: int, arrays: int) -> Work:
    """The fingerprints of arrays with so many elements together."""
    return work("fingerprint", (elements, arrays), FLOAT * elements)


def handed_over(found: Any) -> dict[int, int]:
    """{rank: bytes that the result of a call for a table has for it}; {} for results that stay here."""
    parts = found[0] if isinstance(found, tuple) else found
    if not isinstance(parts, dict):
        return {}
    return {
        rank: part.nbytes if isinstance(part, np.ndarray) else part.lengths.nbytes + part.rows.nbytes
        for rank, part in parts.items()
    }


def tables_recorded(trainer: DlrmTrainer) -> tuple[int, int]:
    """(elements, blocks) of the tables that this rank records: each block once, by one rank."""
    elements = blocks = 0
    for of in trainer.placed:
        heights = np.diff(of.table.starts)
        owner = contiguous_owner(len(heights), of.size) if of.owner is None else of.owner
        own = heights[owner == trainer.ctx.rank]
        elements, blocks = elements + int(own.sum()) * of.table.columns, blocks + len(own)
    return elements, blocks


def _trace_weights(trainer: DlrmTrainer, found: None, tables: bool) -> Work | None:
    weights = trainer.weights if trainer.ctx.rank == 0 else []
    elements, blocks = tables_recorded(trainer) if tables else (0, 0)
    arrays = len(weights) + blocks
    return recorded(elements + sum(array.size for array in weights), arrays) if arrays else None


def _drawn(trainer: DlrmTrainer, found: Any, step: int) -> Work:
    whole = found[1]
    lookups = sum(len(bags.rows) for bags in whole.bags)
    words = len(whole.labels) + whole.dense.size + lookups
    kind = "drawn" if trainer.samples.drawn else "given"
    dims = len(whole.labels), len(trainer.own), words, trainer.samples.different
    return work(f"samples own {kind}", dims, WORD * words)


def _requested(trainer: DlrmTrainer, found: Any, t: int, bags: Any, learn: bool) -> Work:
    of, lookups = trainer.placed[t], len(bags.rows)
    dims = len(bags.lengths), lookups, len(of.holders())
    return work(f"request own int32 {of.sharding}", dims, NUMBER * lookups * of.by_rows)


def _looked(trainer: DlrmTrainer, found: np.ndarray, t: int) -> Work:
    tables = trainer.tables
    rows, width = found.shape
    held = tables.shards[t].weights.shape[0]
    return _of_table(trainer, t, "lookup", (rows, width, held, tables.size), 2 * FLOAT * found.size)


def _answers(trainer: DlrmTrainer, found: Any, t: int, looked: np.ndarray, limbs: Any) -> Work:
    samples = sum(map(len, trainer.tables.asked[t].numbers))
    sent = sum(array.nbytes for array in found.values())
    dims = *looked.shape, samples, trainer.tables.size
    return _of_table(trainer, t, "bags", dims, looked.nbytes + 2 * sent, looked.size)


def _assembled(trainer: DlrmTrainer, found: np.ndarray, t: int, *others: Any) -> Work:
    of, asked = trainer.placed[t], trainer.tables.asked[t]
    rows = len(asked.bags.rows) if of.by_rows else len(found)
    dims = rows, found.shape[1], len(found), len(asked.sent)
    return _ordered(trainer, t, "assemble", dims, FLOAT * rows * found.shape[1] + found.nbytes)


def _stacked(trainer: DlrmTrainer, found: np.ndarray, pooled: Any) -> Work:
    return work("stack own float32", found.shape, 2 * found.nbytes)


def _agreed(trainer: DlrmTrainer, found: Any, of_tables: Sequence[Any]) -> Work | None:
    arrays = [x for x in of_tables if x is not None]
    elements = sum(x.size for x in arrays)
    return work("ranges own float32", (elements, len(arrays)), FLOAT * elements) if arrays else None


def _cut(trainer: DlrmTrainer, found: Any, t: int, gradient: np.ndarray, limbs: Any) -> Work:
    elements = sum(array.size for array in found.values())
    return _ordered(trainer, t, "cut", (elements, gradient.size, len(found)), 2 * FLOAT * elements)


def _distinct(trainer: DlrmTrainer, found: np.ndarray, t: int) -> Work:
    rows = len(trainer.tables.asked[t].ordered[0])
    held = trainer.tables.shards[t].weights.shape[0]
    return work("sort own int32", (rows, held, len(found)), 2 * NUMBER * rows)


def _summed(trainer: DlrmTrainer, found: np.ndarray, t: int, *others: Any) -> Work:
    asked, (distinct, width) = trainer.tables.asked[t], found.shape
    rows, samples = len(asked.ordered[0]), sum(map(len, asked.numbers))
    nbytes = FLOAT * width * (2 * rows + 2 * samples + distinct)
    return _ordered(trainer, t, "sum", (rows, width, samples, distinct), nbytes, rows * width)


def _learn(
    trainer: DlrmTrainer, found: None, t: int, rows: np.ndarray, total: np.ndarray, *rates: float
) -> Work:
    held = trainer.tables.shards[t].weights.shape[0]
    return _of_table(trainer, t, "update", (*total.shape, held), 4 * total.nbytes, 3 * total.size)


def _sound(trainer: DlrmTrainer, found: bool, arrays: Sequence[np.ndarray]) -> Work:
    elements = sum(array.size for array in arrays)
    return work("isfinite own float32", (elements, len(arrays)), FLOAT * elements)


def _update(trainer: DlrmTrainer, found: None, *others: Any) -> Work:
    elements = [array.size for array in trainer.weights]
    if isinstance(trainer.optimiser, Adam):
        return update_of(elements)
    return work("momentum", (sum(elements), len(elements)), 5 * FLOAT * sum(elements), 4 * sum(elements))


def _ordered(
    trainer: DlrmTrainer, t: int, name: str, dims: Sequence[int], nbytes: int, flops: int = 0
) -> Work:
    """A work whose code follows the order of sums, too."""
    how = f"{trainer.placed[t].sharding} {trainer.config.model.aggregate}"
    return work(f"{name} own float32 {how}", dims, nbytes, flops)


def _of_table(
    trainer: DlrmTrainer, t: int, name: str, dims: Sequence[int], nbytes: int, flops: int = 0
) -> Work:
    """A work on this rank's part of a table."""
    sharding = trainer.placed[t].sharding
    if not trainer.tables.shards[t].weights.size:
        return work(f"{name} own float32 {sharding} elsewhere", (1,), 0)
    if name == "bags":
        return _ordered(trainer, t, name, dims, nbytes, flops)
    return work(f"{name} own float32 {sharding}", dims, nbytes, flops)


# The parts of a step by the object that has the method: the trainer, its tables, its optimiser.
WORKS: Mapping[str, Mapping[str, Callable[..., Work | None]]] = {
    "trainer": {"trace_weights": _trace_weights, "drawn": _drawn, "sound": _sound},
    "tables": {
        "requested": _requested, "looked": _looked, "agreed": _agreed, "answers": _answers,
        "assembled": _assembled, "stacked": _stacked, "cut": _cut, "distinct": _distinct, "summed": _summed,
        "learn": _learn,
    },
    "optimiser": {"step": _update},
}  # fmt: skip
