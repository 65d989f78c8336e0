"""One call of a case, forward or forward and backward, with its result as named arrays."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from kernels.torchops.cases.inputs import Draw
from kernels.torchops.cases.operation import Prepared
from kernels.torchops.given import Named, as_tensors, copies
from kernels.torchops.results import Result, taken_apart, walk

UNDIFFERENTIATED = "it needs no gradient"


class Nothing(Exception):
    """A call has no number to compare; the message says why."""


class Calls:
    """Calls of one case with the numbers of one seed, on a device ("cpu", "cuda"). Errors of torch pass through.

    `ended(seconds)` is called after every call, with its duration.
    """

    def __init__(
        self,
        case: Prepared,
        direction: str,
        device: str,
        name: str,
        seed: int,
        ended: Callable[[float], None] | None = None,
    ):
        self.case, self.backward, self.device = case, direction == "backward", device
        self.arguments = [as_tensors(given) for given in case.tensors]
        self._cotangents: list[np.ndarray] = []
        self._name, self._seed, self._draw = name, seed, Draw(f"{name} cotangent", seed)
        self._ended = ended

    @property
    def samples(self) -> int:
        """The number of samples in the batch; 0 where there is no batch."""
        return len(self.arguments[self.case.batch[0]]) if self.case.batch else 0

    def result(self, rows: np.ndarray | None = None, offset: int = 0) -> Result:
        """All results of a call on fresh copies of its inputs: outputs, or gradients for backward.

        `rows`: the samples of the batch, in this order, instead of all; backward then differentiates with respect to
        the arguments of the batch alone. `offset`: bytes from a multiple of 64 to the storage of every input. Raises
        Nothing for backward without a gradient.
        """
        given, named = self._inputs(rows, offset)
        return self._compute(given, named, rows, offset)[0]

    def seconds(self) -> float:
        """The seconds of a call, without the copies of its inputs."""
        given, named = self._inputs(None, 0)
        return self._compute(given, named, None, 0)[1]

    def changed_inputs(self) -> list[int]:
        """The numbers of the arguments that a call changes, as far as they hold numbers."""
        given, named = self._inputs(None, 0)
        before = [taken_apart(x).digest() for x in given]
        self._compute(given, named, None, 0)
        return [n for n, x in enumerate(given) if taken_apart(x).digest() != before[n]]

    def placed(self) -> bool:
        """Whether the address of any argument can be chosen."""
        return self.device == "cpu" and any(
            each.tensor.layout is torch.strided for each in self._inputs(None, 0)[1]
        )

    def _inputs(self, rows: np.ndarray | None, offset: int) -> tuple[list[Any], list[Named]]:
        given, named = copies(self.arguments, self.device, offset, rows, self.case.batch)
        wanted = {id(each.tensor) for each in self._wanted(named, rows)}
        for each in named:
            if id(each.tensor) in wanted or (each.flagged and not self.backward):
                each.tensor.requires_grad_()
        return given, named

    def _wanted(self, named: Sequence[Named], rows: np.ndarray | None) -> list[Named]:
        """The tensors for which backward differentiates: of the arguments to differentiate, those that require a
        gradient or, if none does, all that can have one."""
        case = self.case
        smooth = [
            each
            for each in named
            if each.argument in case.differentiate
            and (each.tensor.is_floating_point() or each.tensor.is_complex())
        ]
        asked = [each for each in smooth if each.flagged] or smooth
        return (
            [each for each in asked if rows is None or each.argument in case.batch] if self.backward else []
        )

    def _compute(
        self, given: list[Any], named: list[Named], rows: np.ndarray | None, offset: int
    ) -> tuple[Result, float]:
        """The result of a call, and its seconds."""
        begin = time.perf_counter()
        with torch.enable_grad():  # as in a plain call; nothing is recorded if no input requires a gradient
            output = self.case.call(*given)
            result = self._gradients(output, named, rows, offset) if self.backward else None
        if self.device == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
        answer = result or taken_apart(output)
        if self._ended is not None:
            self._ended(time.perf_counter() - begin)
        return answer, seconds

    def _gradients(self, output: Any, named: list[Named], rows: np.ndarray | None, offset: int) -> Result:
        wanted = self._wanted(named, rows)
        leaves = [(name, leaf) for name, leaf in walk(output, "result") if leaf is not None]
        smooth = [(n, y) for n, y in leaves if isinstance(y, torch.Tensor) and y.requires_grad]
        skipped = {
            n: UNDIFFERENTIATED for n, y in leaves if not (isinstance(y, torch.Tensor) and y.requires_grad)
        }
        if rows is not None:
            kept = [(n, y) for n, y in smooth if y.ndim and len(y) == len(rows)]
            if not kept:
                shapes = ", ".join(f"{n} has shape {tuple(y.shape)}" for n, y in smooth)
                raise ValueError(
                    f"no result with a gradient has a first axis of {len(rows)} samples: {shapes}"
                )
            smooth = kept
        if not wanted:
            raise Nothing("no input can have a gradient")
        if not smooth:
            raise Nothing("no result needs a gradient")
        dense = [y if y.layout is torch.strided else y.to_dense() for _, y in smooth]
        cotangents = [
            self._placed(self._cotangent(k, y, rows), offset).to(y.dtype) for k, y in enumerate(dense)
        ]
        gradients = torch.autograd.grad(
            dense, [each.tensor for each in wanted], cotangents, allow_unused=True
        )
        result = Result({}, skipped)
        for each, gradient in zip(wanted, gradients, strict=True):
            if gradient is None:
                result.skipped[f"gradient of {each.name}"] = "no result depends on it"
            else:
                apart = taken_apart(gradient, f"gradient of {each.name}")
                result.leaves.update(apart.leaves)
                result.skipped.update(apart.skipped)
        if not result.leaves:
            raise Nothing("no result depends on an input that can have a gradient")
        return result

    def _placed(self, array: np.ndarray, offset: int) -> torch.Tensor:
        return copies([as_tensors(array)], self.device, offset)[0][0]

    def _cotangent(self, number: int, output: torch.Tensor, rows: np.ndarray | None) -> np.ndarray:
        """The cotangent of an output: drawn once, in the shape for the whole batch."""
        shape = tuple(output.shape)
        whole = (self.samples, *shape[1:]) if rows is not None else shape
        dtype = _numpy_type(output.dtype)
        if len(self._cotangents) == number:
            self._cotangents.append(np.asarray(self._draw.normal(whole, "float64"), dtype))
        drawn = self._cotangents[number] if number < len(self._cotangents) else None
        if drawn is None or drawn.shape != whole:  # the number or shape of results depends on the batch
            again = Draw(f"{self._name} cotangent {number} {whole}", self._seed)
            drawn = np.asarray(again.normal(whole, "float64"), dtype)
        return drawn if rows is None else drawn[rows]


@contextmanager
def deterministic(on: bool):
    """A context with torch's deterministic algorithms, or with the default ones; restores the mode at the end."""
    before = torch.are_deterministic_algorithms_enabled()
    _use_deterministic(on)
    try:
        yield
    finally:
        _use_deterministic(before)


def _use_deterministic(on: bool) -> None:
    """Sets the mode. torch sets it in its compiler too, and loads the compiler for that, which is slow: avoided if the
    compiler is not loaded and the mode is its default."""
    if on or "torch._inductor.config" in sys.modules:
        torch.use_deterministic_algorithms(on)
    else:
        torch.set_deterministic_debug_mode("default")


def _numpy_type(dtype: torch.dtype) -> str:
    return {torch.float64: "float64", torch.complex128: "complex128", torch.complex64: "complex64"}.get(
        dtype, "float32"
    )
