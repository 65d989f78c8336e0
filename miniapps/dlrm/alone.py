"""One rank's step without the other ranks: the trainer that runs, with a communicator that nobody shares. No MPI.

    step = Alone(config, options, rank, size)
    step.run(2)

The samples of a step follow from the configuration, so what other ranks ask for is known exactly. Their vectors are
zeros, and a reduction returns this rank's first contribution. So any rank of any number can be asked.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from kernels.allreduce import Reduction
from miniapps.dlrm import ratings
from miniapps.dlrm.ratings import Ratings
from miniapps.dlrm.trainer import DlrmTrainer
from miniapps.embeddings.asked import requested, requests
from miniapps.embeddings.tables import MESSAGES
from miniapps.runner.context import Context
from miniapps.runner.options import RunOptions
from miniapps.trace import Tracer
from miniapps.untrusted.program import Wait

AXIS = "ranks"  # of the mesh
COUNT = 8  # bytes of the length of a message
# The exchanges of a step, in order: first each rank tells the lengths of its requests.
EXCHANGES = (f"lengths of {MESSAGES[0]}", *MESSAGES)
Tell = Callable[[Wait], None]


class Absent:
    """The communicator of `rank` among `size` ranks, of which no other exists. `tell` gets each wait; `coming`: the
    requests from each rank in the current step."""

    def __init__(self, rank: int, size: int):
        self.rank, self.size = rank, size
        self.coming: Sequence[np.ndarray] = ()
        self.tell: Tell = _nothing
        self.begin()

    def begin(self) -> None:
        """Begin a step: its messages get their names by their order."""
        self._exchanges, self._ranges = iter(EXCHANGES), 0

    def Dup(self) -> Absent:
        """Itself."""
        return self

    def Free(self) -> None:
        """Nothing."""

    def Allreduce(self, sent: Any, received: np.ndarray, operation: Any) -> None:
        """Leave this rank's numbers: the ranges of terms of exact sums."""
        self._ranges += 1
        self.tell(
            Wait(
                f"ranges {self._ranges}",
                "reduction",
                (AXIS,),
                "library",
                received.size,
                received.itemsize,
            )
        )

    def Alltoall(self, sent: np.ndarray, received: np.ndarray) -> None:
        """The lengths of all requests to this rank."""
        received[...] = [len(stream) for stream in self.coming]
        self._tell_exchange(COUNT * (self.size - 1))

    def Alltoallv(self, sent: Sequence[np.ndarray], received: Sequence[np.ndarray]) -> None:
        """The requests to this rank, or else zeros, and this rank's own part."""
        (outgoing, counts), (incoming, known) = sent, received
        own, at = (int(of[: self.rank].sum()) for of in (counts, known))
        length = int(counts[self.rank])
        if self._tell_exchange(int(counts.sum()) - length) == MESSAGES[0]:
            np.concatenate([stream.view(np.uint8) for stream in self.coming], out=incoming)
        else:
            incoming[...] = 0
            incoming[at : at + length] = outgoing[own : own + length]

    def _tell_exchange(self, nbytes: int) -> str:
        name = next(self._exchanges)
        others = tuple((step,) for step in range(1, self.size))
        self.tell(Wait(name, "exchange", (AXIS,), nbytes=nbytes, offsets=others))
        return name


class Unsummed:
    """The stand-in of a reducer."""

    def __init__(self, name: str, reduction: Reduction, comm: Absent):
        self.name, self.reduction, self.comm = name, reduction, comm

    def __call__(self, contributions: np.ndarray, out: None = None) -> np.ndarray:
        of = self.reduction
        self.comm.tell(
            Wait(
                f"{of.collective}.{self.name}",
                "reduction",
                (AXIS,),
                of.label,
                prod(of.shape),
                of.dtype.itemsize,
                len(contributions),
            )
        )
        return contributions[0]

    def start(self, contributions: np.ndarray) -> None:
        """Begin; ranks wait at the end."""
        self._given = contributions

    def progress(self) -> bool:
        """Whether the sum is there."""
        return True

    def finish(self) -> np.ndarray:
        """What a call returns."""
        return self(self._given)


class AloneContext(Context):
    """The context of a run whose other ranks do not exist."""

    def reducer(
        self,
        name: str,
        shape: tuple[int, ...] = (),
        dtype: str = "float64",
        comm: Any = None,
        blocks: Sequence[int] | None = None,
        tree: bool = False,
        summed: bool = False,
        by: tuple[str, str] | None = None,
        *others: Any,
        **more: Any,
    ) -> Any:
        """The stand-in of a reduction, with the ordering that `Context.reducer` chooses."""
        ordering, accumulation = by or self.options.policy.of(prod(shape), tree=tree)
        reduction = Reduction(ordering, shape, np.dtype(dtype), accumulation=accumulation)
        return Unsummed(name, reduction, self.comm)


class Requests:
    """What all ranks ask of each other in a step."""

    def __init__(self, trainer: DlrmTrainer):
        self._trainer, self._step = trainer, 0
        self._streams: list[list[np.ndarray]] = []

    def to(self, rank: int, step: int) -> list[np.ndarray]:
        """The requests from each rank to `rank`."""
        if step != self._step:
            self._streams, self._step = [self._of(q, step) for q in range(self._trainer.ctx.size)], step
        return [streams[rank] for streams in self._streams]

    def _of(self, rank: int, step: int) -> list[np.ndarray]:
        trainer = self._trainer
        blocks = [
            trainer.samples.block(step, block) for block in np.flatnonzero(trainer.owner == rank).tolist()
        ]
        bags = zip(trainer.placed, ratings.joined(blocks).bags, strict=True)
        return requests([requested(of, rank, own, True)[0] for of, own in bags], trainer.ctx.size)


class Alone:
    """The step of `rank` of `size`, for a complete `config`, a `DlrmConfig`. `given`: the ratings, unless samples are
    drawn. `drawn`: whether tables have memory. `requests`: of another rank's `Alone`, which ranks share."""

    def __init__(
        self,
        config: Any,
        options: RunOptions,
        rank: int,
        size: int,
        given: Ratings | None = None,
        drawn: bool = True,
        requests: Requests | None = None,
    ):
        self.rank, self.comm = rank, Absent(rank, size)
        self._folder = tempfile.TemporaryDirectory(prefix="alone-")
        tracer = Tracer(Path(self._folder.name) / "rank.h5", {"rank": rank}, size=size)
        self.ctx = AloneContext(
            comm=self.comm,
            config=config,
            options=replace(options, record="state"),
            tracer=tracer,
            log=logging.getLogger(__name__),
            out=Path(self._folder.name),
        )
        self.trainer = DlrmTrainer(self.ctx, given, drawn)
        self.requests = requests or Requests(self.trainer)

    def prepare(self, step: int) -> None:
        """Make what the other ranks send in `step`."""
        self.comm.coming = self.requests.to(self.rank, step)
        self.comm.begin()

    def run(self, step: int) -> None:
        """Run a step that was prepared, as a course of steps does."""
        self.ctx.begin_step(step, step, self.trainer.peek)
        self.trainer.advance(step)

    def close(self) -> None:
        """Remove the trace."""
        self.ctx.tracer.close()
        self._folder.cleanup()


def _nothing(wait: Wait) -> None:
    """Ignores a wait."""
