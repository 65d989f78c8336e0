"""What feedback keeps of a gradient between steps, in a checkpoint: by micro-batch, or by rank where that is what was
encoded, and of the total."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from kernels.allreduce.accumulate import order_free
from kernels.allreduce.coding import coding
from miniapps.training.buckets import Exchange

LOST, LOST_OF_TOTAL = "lost.", "lost of total."


def by_block(config, options) -> bool:
    """Whether every micro-batch is encoded by itself; else each rank's sum is."""
    _, accumulation = options.policy.of(2**20, config.training.wire)
    return config.training.calls == "block" and order_free(accumulation)


def described(config, options, size: int) -> dict[str, Any]:
    """What a checkpoint has beside the options of the problem, flat; nothing where no wire keeps what it loses."""
    used = coding(config.training.wire)
    if used is None or not used.feedback:
        return {}
    rows = config.training.blocks if by_block(config, options) else size
    return {"feedback.wire": config.training.wire, "feedback.rows": rows}


def own_rows(trainer) -> list[int]:
    """The rows of this rank, of those of the checkpoint."""
    return trainer.own if by_block(trainer.config, trainer.ctx.options) else [trainer.ctx.rank]


def gathered(trainer, count: int) -> dict[str, np.ndarray]:
    """The arrays of a checkpoint, {name: (count, *shape) and (*shape) float32}, on rank 0. Collective."""
    arrays = {}
    for tensor, (own, total) in sorted(trainer.exchange.lost().items()):
        name = list(trainer.shapes)[tensor]
        rows = np.zeros((count, *total.shape), np.float32)
        rows[own_rows(trainer)] = own
        words = rows.view(np.int32)  # of which one rank alone has bits
        trainer.ctx.comm.Reduce(MPI.IN_PLACE if trainer.ctx.rank == 0 else words, words, MPI.BOR)
        arrays[f"{LOST}{name}"], arrays[f"{LOST_OF_TOTAL}{name}"] = rows, total
    return arrays


def restore(trainer, count: int, arrays: dict[str, np.ndarray] | None) -> None:
    """Go on from the arrays that `gathered` gave, which rank 0 has. Collective."""
    exchange: Exchange = trainer.exchange
    kept = {}
    for tensor, (_, total) in sorted(exchange.lost().items()):
        name = list(trainer.shapes)[tensor]
        rows = np.empty((count, *total.shape), np.float32)
        if arrays is not None:
            rows[...], total[...] = arrays[f"{LOST}{name}"], arrays[f"{LOST_OF_TOTAL}{name}"]
        for array in (rows, total):
            trainer.ctx.comm.Bcast(array)
        kept[tensor] = rows[own_rows(trainer)], total
    exchange.restore_lost(kept)
