"""One call of a case: forward, or forward and backward, and its result as NumPy's."""

from __future__ import annotations

import hashlib
import time
from contextlib import contextmanager

import numpy as np
import torch

from kernels.torchops.cases.inputs import Draw, placed
from kernels.torchops.cases.operations import Prepared

Result = tuple[np.ndarray, ...]


class Calls:
    """Calls of one case with the numbers of one seed, on a device ("cpu", "cuda"). Raises what torch raises."""

    def __init__(self, case: Prepared, direction: str, device: str, name: str, seed: int):
        self.case, self.backward, self.device = case, direction == "backward", device
        self._cotangents: list[np.ndarray] = []
        self._draw = Draw(f"{name} cotangent", seed)

    @property
    def samples(self) -> int:
        """How many samples the batch has; 0 where there is none."""
        return len(self.case.tensors[self.case.batch[0]]) if self.case.batch else 0

    def result(self, rows: np.ndarray | None = None, offset: int = 0) -> Result:
        """All results of a call on fresh copies of its inputs: outputs, or gradients for backward.

        `rows`: the samples of the batch, in this order, instead of all; then backward differentiates with respect to
        the batch alone, whose rows belong to samples. `offset`: bytes that every input lies beyond a multiple of 64.
        """
        return tuple(_array(y) for y in self._compute(self._inputs(rows, offset), rows, offset))

    def seconds(self) -> float:
        """The time of a call, without the copies of its inputs."""
        tensors = self._inputs(None, 0)
        begin = time.perf_counter()
        self._compute(tensors, None, 0)
        return time.perf_counter() - begin

    def changed_inputs(self) -> list[int]:
        """Which tensors a call writes to."""
        tensors = self._inputs(None, 0)
        before = [_array(x).tobytes() for x in tensors]
        self._compute(tensors, None, 0)
        return [n for n, x in enumerate(tensors) if _array(x).tobytes() != before[n]]

    def _inputs(self, rows: np.ndarray | None, offset: int) -> list[torch.Tensor]:
        case = self.case
        arrays = [x[rows] if rows is not None and n in case.batch else x for n, x in enumerate(case.tensors)]
        wanted = self._wanted(rows)
        return [self._tensor(x, offset).requires_grad_(n in wanted) for n, x in enumerate(arrays)]

    def _wanted(self, rows: np.ndarray | None) -> list[int]:
        """What is differentiated with respect to."""
        case = self.case
        return [n for n in case.differentiate if rows is None or n in case.batch] if self.backward else []

    def _compute(
        self, tensors: list[torch.Tensor], rows: np.ndarray | None, offset: int
    ) -> list[torch.Tensor]:
        with torch.set_grad_enabled(self.backward):
            outputs = _tensors(self.case.call(*tensors))
            if self.backward:
                smooth = [y for y in outputs if y.requires_grad]
                cotangents = [
                    self._tensor(self._cotangent(k, y, rows), offset).to(y.dtype)
                    for k, y in enumerate(smooth)
                ]
                wanted = [tensors[n] for n in self._wanted(rows)]
                gradients = torch.autograd.grad(smooth, wanted, cotangents, allow_unused=True)
                outputs = _tensors([gradient for gradient in gradients if gradient is not None])
        if self.device == "cuda":
            torch.cuda.synchronize()
        return outputs

    def _tensor(self, array: np.ndarray, offset: int) -> torch.Tensor:
        copy = placed(array, offset)
        if copy.dtype.name == "bfloat16":  # which NumPy has of ml_dtypes
            tensor = torch.from_numpy(copy.view(np.uint16)).view(torch.bfloat16)
        else:
            tensor = torch.from_numpy(copy)
        return tensor if self.device == "cpu" else tensor.to(self.device)

    def _cotangent(self, number: int, output: torch.Tensor, rows: np.ndarray | None) -> np.ndarray:
        """What is multiplied with an output: drawn once, of the shape that the whole batch has."""
        if len(self._cotangents) <= number:
            shape = tuple(output.shape)
            whole = (self.samples, *shape[1:]) if rows is not None else shape
            self._cotangents.append(self._draw.normal(whole, "float64").astype(_numpy_type(output.dtype)))
        drawn = self._cotangents[number]
        return drawn if rows is None else drawn[rows]


@contextmanager
def threads(count: int):
    """torch's threads inside operations, and as many as before at the end."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def deterministic(on: bool):
    """torch's deterministic algorithms, or those by default; the mode of before at the end."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(on)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def digest(result: Result) -> str:
    """32 hex digits that two results share exactly if they have the same bits, types and shapes."""
    hashed = hashlib.blake2b(digest_size=16)
    for array in result:
        hashed.update(f"{array.dtype.str}{array.shape}".encode())
        hashed.update(array.tobytes())
    return hashed.hexdigest()


def _tensors(output) -> list[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        return [output.to_dense() if output.layout != torch.strided else output]
    return [tensor for each in output for tensor in _tensors(each)]


def _array(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if tensor.dtype is torch.bfloat16:
        import ml_dtypes

        return tensor.contiguous().view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return np.ascontiguousarray(tensor.numpy())


def _numpy_type(dtype: torch.dtype) -> str:
    return {torch.float64: "float64", torch.complex128: "complex128", torch.complex64: "complex64"}.get(
        dtype, "float32"
    )
