"""Checkpoints of training: weights, and the errors that feedback keeps: of gradients, by micro-batch or by rank
(whichever is encoded), and of the total."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from kernels.allreduce.accumulate import order_free
from kernels.allreduce.coding import coding
from miniapps.learning.course.checkpoint import Arrays, Expected, Held, Holding
from miniapps.learning.course.options import SAMPLES
from miniapps.learning.discovery import require_data
from miniapps.training import models
from miniapps.training.config import TrainingConfig
from miniapps.untrusted.regular import Refused

LOST, LOST_OF_TOTAL = "lost.", "lost of total."
WIRE, ROWS = "feedback.wire", "feedback.rows"


class Weights(Holding):
    """The contents of checkpoints. With feedback, runs must share more options, because its errors belong to a wire."""

    def require(self, config) -> None:
        super().require(config)
        require_data(config, {name: model.DATA for name, model in models.every().items()})

    def tensors(self, config) -> dict[str, tuple[int, ...]]:
        model = models.model(config.model.name)
        return model.shapes(config.model, model.edge(config.data.name))

    def described(self, config, options, size: int) -> dict[str, Any]:
        used = coding(config.training.wire)
        if used is None or not used.feedback:
            return {}
        rows = config.training.blocks if _by_block(config, options) else size
        return {WIRE: config.training.wire, ROWS: rows}

    def kept(self, held: Held) -> Expected:
        rows = held.more.get(ROWS, 0)
        if not isinstance(rows, int) or not 0 <= rows <= SAMPLES:
            raise Refused(
                f"{ROWS} is from 0 to {SAMPLES}; this program did not write the checkpoint: leave it out"
            )
        if not rows:
            return {}
        tensors = self.tensors(held.config).items()
        kept: Expected = {f"{LOST}{name}": ("float32", (rows, *shape)) for name, shape in tensors}
        return kept | {f"{LOST_OF_TOTAL}{name}": ("float32", shape) for name, shape in tensors}

    def gathered(self, trainer, held: Held) -> Arrays:
        arrays = {}
        for tensor, (own, total) in sorted(trainer.exchange.lost().items()):
            name = list(trainer.shapes)[tensor]
            rows = np.zeros((held.more[ROWS], *total.shape), np.float32)
            rows[_own_rows(trainer)] = own
            words = rows.view(np.int32)  # only one rank has nonzero bits of each
            trainer.ctx.comm.Reduce(MPI.IN_PLACE if trainer.ctx.rank == 0 else words, words, MPI.BOR)
            arrays[f"{LOST}{name}"], arrays[f"{LOST_OF_TOTAL}{name}"] = rows, total
        return arrays

    def restored(self, trainer, held: Held, arrays: Arrays | None) -> None:
        kept = {}
        for tensor, (_, total) in sorted(trainer.exchange.lost().items()):
            name = list(trainer.shapes)[tensor]
            rows = np.empty((held.more[ROWS], *total.shape), np.float32)
            if arrays is not None:
                rows[...], total[...] = arrays[f"{LOST}{name}"], arrays[f"{LOST_OF_TOTAL}{name}"]
            for array in (rows, total):
                trainer.ctx.comm.Bcast(array)
            kept[tensor] = rows[_own_rows(trainer)], total
        trainer.exchange.restore_lost(kept)


def _by_block(config, options) -> bool:
    """Whether every micro-batch is encoded separately; else each rank's sum is."""
    _, accumulation = options.policy.of(2**20, config.training.wire)
    return config.training.calls == "block" and order_free(accumulation)


def _own_rows(trainer) -> list[int]:
    """The rows of this rank in a checkpoint."""
    return trainer.own if _by_block(trainer.config, trainer.ctx.options) else [trainer.ctx.rank]


HOLDING = Weights("training", TrainingConfig)
