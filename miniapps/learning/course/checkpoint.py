"""Checkpoints of a learner: weights, states of the optimiser and others, and the step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np

from kernels.guarantees import ChoiceError
from miniapps.checkpoints import file, restart
from miniapps.checkpoints.file import Checkpoint, Head, Kind
from miniapps.errors import UsageError
from miniapps.learning.course.checks import require_cut
from miniapps.learning.course.trainer import Trainer
from miniapps.learning.optimisers import OPTIMISERS
from miniapps.learning.weights import combined, fingerprints
from miniapps.runner.config import build, convert, effective, of_role, options
from miniapps.untrusted.regular import Refused

WEIGHTS, BUFFER = "weights.", "buffer."

Arrays = dict[str, np.ndarray]
Expected = dict[str, tuple[str, tuple[int, ...]]]  # {name: (dtype, shape)}


@dataclass(frozen=True)
class Held:
    """The data that decide the arrays in a checkpoint: a configuration, and further statements in `more`."""

    config: Any
    more: dict[str, Any]

    def prefixes(self) -> list[str]:
        """The prefixes of a tensor's arrays: for its weights, and for each state of the optimiser."""
        return [WEIGHTS, *(f"{name}." for name in OPTIMISERS[self.config.training.optimiser].NAMES)]


class Holding(ABC):
    """The contents of the checkpoints of the application `app`; `config`: the class of its configuration. Methods get
    the configuration as an argument, because it may come from a file."""

    REMEDIES: ClassVar[Mapping[str, str]] = {}  # what to do if a statement of `described` differs

    def __init__(self, app: str, config: type):
        self.kind = Kind(
            app, 1, Head, self._held, self._expected, self._check, self._prints, self._fingerprint
        )
        self._config = config

    def require(self, config) -> None:
        """Raise UsageError or ChoiceError for contradicting options, which define no problem."""
        require_cut(config.training)

    @abstractmethod
    def tensors(self, config) -> dict[str, tuple[int, ...]]:
        """{name: shape} of weights and biases."""

    def buffers(self, config) -> Expected:
        """Names, dtypes and shapes of further arrays that change from step to step."""
        return {}

    def blocks(self, config, arrays: Arrays) -> dict[str, list[np.ndarray]]:
        """{name in the trace: blocks} of records beside `weights`; `arrays`: the buffers, by name."""
        return {}

    def described(self, config, options, size: int) -> dict[str, Any]:
        """Further statements in a checkpoint beside the options of the problem, flat."""
        return {}

    def stated(self, trainer) -> dict[str, Any]:
        """What `described` returns, of a run that has a trainer."""
        return self.described(trainer.config, trainer.ctx.options, trainer.ctx.size)

    def kept(self, held: Held) -> Expected:
        """The arrays that follow from `described`. Raises Refused."""
        return {}

    def gathered(self, trainer, held: Held) -> Arrays:
        """The arrays of `kept`, on rank 0. Collective."""
        return {}

    def restored(self, trainer, held: Held, arrays: Arrays | None) -> None:
        """Restore the arrays of `kept`, which rank 0 passes. Collective."""
        return

    # ---- of a run

    def save(self, trainer: Trainer, step: int) -> None:
        """Writes RUN/checkpoints/repeat-R-step-S.h5, for any number of ranks; rank 0 writes. Collective."""
        held = self._own(trainer)
        arrays = self.gathered(trainer, held)
        for prefix, kept in zip(held.prefixes(), trainer.state(), strict=True):
            names = self.tensors(trainer.config)
            arrays |= {f"{prefix}{name}": array for name, array in zip(names, kept, strict=True)}
        arrays |= {f"{BUFFER}{name}": array for name, array in trainer.buffers().items()}
        file.write(trainer.ctx, self.kind, step, self._problem(trainer.config) | held.more, arrays)

    def load(self, trainer: Trainer) -> int:
        """Restores the checkpoint of `output.restart`, verified again, since it may have changed; returns its step.
        Collective."""
        ctx, config = trainer.ctx, trainer.config
        held, step, before, arrays = self._own(trainer), -1, "", None
        if ctx.rank == 0:
            checkpoint = self.verify(config, ctx.options, ctx.size)
            restart.log_comparison(ctx, config.output.restart, checkpoint)
            step, before, arrays = checkpoint.head.step, checkpoint.head.chain, checkpoint.arrays
        self.restored(trainer, held, arrays)
        shared = {
            name: _shared(ctx.comm, arrays, name, *expected) for name, expected in self._state(held).items()
        }
        tensors = self.tensors(config)
        trainer.restore([[shared[f"{prefix}{name}"] for name in tensors] for prefix in held.prefixes()])
        trainer.restore_buffers({name: shared[f"{BUFFER}{name}"] for name in self.buffers(config)})
        step, before = ctx.comm.bcast((step, before))
        ctx.continue_chain(step, before)
        return step

    def check(self, config, options, size: int) -> None:
        """Raise UsageError unless this run can continue from the checkpoint of `output.restart`, if it has one."""
        if config.output.restart:
            restart.compare_with_trace(config.output.restart, self.verify(config, options, size))

    def verify(self, config, options, size: int) -> Checkpoint:
        """Reads the checkpoint of `output.restart`; it must have the same problem and seed, and a step of this run."""
        held = Held(config, self.described(config, options, size))
        need = 4 * sum(prod(shape) for _, shape in self._expected(held).values())
        problem = self._problem(config) | held.more
        last = config.training.last
        return restart.verify(
            config.output.restart,
            self.kind,
            problem,
            options.seed,
            last,
            "--until",
            need,
            remedies=self.REMEDIES,
        )

    def _own(self, trainer: Trainer) -> Held:
        return Held(trainer.config, self.stated(trainer))

    # ---- of a file

    def _problem(self, config) -> dict[str, Any]:
        """The options that a run and the checkpoint that it continues from must share, flat."""
        known = options(self._config)
        return of_role(known, effective(known, config), "problem")

    def _held(self, given: dict[str, Any], where: str) -> Held:
        """The configuration from the options in a checkpoint. Raises Refused."""
        known = {option.key: option for option in options(self._config) if option.role == "problem"}
        if missing := [key for key in known if key not in given]:
            raise Refused(f"{where}: it lacks {missing[0]}; this program did not write it: leave it out")
        try:
            config = build(
                self._config, {key: convert(o, given[key], "its options") for key, o in known.items()}
            )
            self.require(config)
        except (UsageError, ChoiceError) as error:
            raise Refused(f"{where}: {error}; this program did not write it: leave it out") from None
        return Held(config, {key: value for key, value in given.items() if key not in known})

    def _state(self, held: Held) -> Expected:
        """Names, dtypes and shapes of weights, states of the optimiser, and buffers."""
        tensors = self.tensors(held.config).items()
        kept: Expected = {
            f"{prefix}{name}": ("float32", shape) for prefix in held.prefixes() for name, shape in tensors
        }
        return kept | {f"{BUFFER}{name}": of for name, of in self.buffers(held.config).items()}

    def _expected(self, held: Held) -> Expected:
        return self._state(held) | self.kept(held)

    def _check(self, head: Head, held: Held, arrays: Arrays, where: str) -> None:
        """Accepts any finite numbers."""
        return

    def _prints(self, held: Held, arrays: Arrays, hashed: str = "xxh3") -> dict[str, list[bytes]]:
        buffers = {name: arrays[f"{BUFFER}{name}"] for name in self.buffers(held.config)}
        weights = [arrays[f"{WEIGHTS}{name}"] for name in self.tensors(held.config)]
        every = {"weights": weights} | self.blocks(held.config, buffers)
        return {name: fingerprints(blocks, hashed) for name, blocks in every.items()}

    def _fingerprint(self, held: Held, arrays: Arrays) -> str:
        return combined(digest for of_name in self._prints(held, arrays).values() for digest in of_name)


def _shared(comm, arrays: Arrays | None, name: str, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Rank 0's array `name` on every rank."""
    array = np.empty(shape, dtype) if arrays is None else np.ascontiguousarray(arrays[name])
    comm.Bcast(array)
    return array
