"""The cases of a certificate: operations with random operands, and the dims of their results that can be cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kernels.contract.pointwise import flat
from kernels.contract.torch import in_threads
from kernels.registry import get

if TYPE_CHECKING:
    import torch

Operands = Sequence[Any]


@dataclass(frozen=True)
class Cut:
    """A cut of the result in `dim`: `take(operands, low, high)` returns the operands of the part low to high - 1."""

    dim: int  # of the result
    take: Callable[[Operands, int, int], Operands]


@dataclass(frozen=True)
class Case:
    """An operation by one variant: `run(operands, threads)` computes it, `draw(sizes, dtype)` makes random operands."""

    operation: str
    variant: str
    run: Callable[[Operands, int], torch.Tensor]
    draw: Callable[[Sizes, torch.dtype], Operands]
    cuts: dict[str, Cut]


@dataclass(frozen=True)
class Sizes:
    """Random sizes, and tensors of standard normal numbers."""

    rng: np.random.Generator
    most: int  # of a dim that is not a channel, a head, ...

    def some(self, least: int = 2, most: int | None = None) -> int:
        return int(self.rng.integers(least, (most or self.most) + 1))

    def tensor(self, dtype: torch.dtype, *shape: int) -> torch.Tensor:
        import torch

        return torch.from_numpy(self.rng.standard_normal(shape)).to(dtype)


def along(result: int, *dims: int | None) -> Cut:
    """A cut of dim `result` that cuts operand k in dim dims[k]; None keeps the operand whole."""

    def take(operands: Operands, low: int, high: int) -> Operands:
        return [
            x if dim is None else x.narrow(dim, low, high - low)
            for x, dim in zip(operands, dims, strict=True)
        ]

    return Cut(result, take)


def cases() -> list[Case]:
    """All cases: those with variants own and torch first, then torch's normalisations."""
    both = [
        case for make in (products, attentions, pointwise) for name in ("own", "torch") for case in make(name)
    ]
    return [*both, *rowwise()]


# ---- products


def products(variant: str) -> list[Case]:
    """Matrices, convolutions and row sums by the variant of that name."""

    def by(operation: str, *more: Any, **moves: Any) -> Callable[[Operands, int], torch.Tensor]:
        kernel = get(operation, variant)
        return lambda operands, threads: kernel(*operands, *more, threads=threads, **moves)

    def matrices(s: Sizes, dtype: torch.dtype) -> Operands:
        m, k, n = s.some(), s.some(), s.some()
        return s.tensor(dtype, m, k), s.tensor(dtype, k, n)

    def transposed(s: Sizes, dtype: torch.dtype) -> Operands:
        a, b = matrices(s, dtype)
        return a, b.T.contiguous().T

    def batches(s: Sizes, dtype: torch.dtype) -> Operands:
        n, k = s.some(most=12), s.some(most=64)
        return s.tensor(dtype, n, s.some(most=64), k), s.tensor(dtype, n, k, s.some(most=64))

    def images(s: Sizes, dtype: torch.dtype) -> Operands:
        c, o = s.some(1, 16), s.some(2, 24)
        return s.tensor(dtype, s.some(2, 6), c, s.some(6, 34), s.some(6, 34)), s.tensor(dtype, o, c, 3, 3)

    def gradients(s: Sizes, dtype: torch.dtype) -> Operands:
        x, w = images(s, dtype)
        return s.tensor(dtype, x.shape[0], w.shape[0], 18, 18), w

    def both(s: Sizes, dtype: torch.dtype) -> Operands:
        n = s.some(2, 6)
        return s.tensor(dtype, n, s.some(2, 16), 20, 20), s.tensor(dtype, n, s.some(2, 24), 18, 18)

    def matrix(s: Sizes, dtype: torch.dtype) -> Operands:
        return (s.tensor(dtype, s.some(), s.some()),)

    cuts = {"rows": along(0, 0, None), "columns": along(1, None, 1)}
    in_batch = {"batch": along(0, 0, 0), "rows": along(1, 1, None), "columns": along(2, None, 2)}
    space = Cut(
        2, lambda xs, low, high: [xs[0][:, :, low : high + 2], xs[1]]
    )  # a 3x3 window needs two more rows
    of_images = {"batch": along(0, 0, None), "channels": along(1, None, 0), "space": space}
    of_weights = {"outputs": along(0, None, 1), "inputs": along(1, 1, None)}
    return [
        Case("matmul", variant, by("matmul"), matrices, cuts),
        Case("matmul, B transposed", variant, by("matmul"), transposed, cuts),
        Case("bmm", variant, by("matmul"), batches, in_batch),
        Case("conv2d", variant, by("conv"), images, of_images),
        Case(
            "conv2d, gradient of x",
            variant,
            by("conv_input", (20, 20)),
            gradients,
            {"batch": along(0, 0, None), "channels": along(1, None, 1)},
        ),
        Case("conv2d, gradient of w", variant, by("conv_weight", (3, 3)), both, of_weights),
        Case("sum over dim 0", variant, by("rowsum", 0), matrix, {"columns": along(0, 1)}),
        Case("sum over dim 1", variant, by("rowsum", 1), matrix, {"rows": along(0, 0)}),
    ]


def attentions(variant: str) -> list[Case]:
    """Causal attention and its concatenated gradients by the variant of that name."""
    forward, backward = get("attention", variant), get("attention_backward", variant)

    def heads(s: Sizes, dtype: torch.dtype) -> Operands:
        shape = s.some(most=4), s.some(most=8), s.some(most=64), 8 * s.some(1, 8)
        return [s.tensor(dtype, *shape) for _ in range(3)]

    def with_gradient(s: Sizes, dtype: torch.dtype) -> Operands:
        q, k, v = heads(s, dtype)
        return [s.tensor(dtype, *v.shape), q, k, v]

    def result(operands: Operands, threads: int) -> torch.Tensor:
        return forward(*operands, causal=True, threads=threads)[0]

    def gradients(operands: Operands, threads: int) -> torch.Tensor:
        import torch

        gradient, *given = operands
        done = forward(*given, causal=True, threads=threads)
        return torch.cat(backward(gradient, *given, *done, causal=True, threads=threads), -1)

    def by_head(operands: int) -> dict[str, Cut]:
        return {"batch": along(0, *[0] * operands), "heads": along(1, *[1] * operands)}

    return [
        Case("attention", variant, result, heads, by_head(3)),
        Case("attention, gradients", variant, gradients, with_gradient, by_head(4)),
    ]


# ---- elementwise


def functions() -> dict[str, tuple[int, Callable]]:
    """{name: (number of operands, function)} of torch's elementwise functions that models use."""
    import torch

    F, aten = torch.nn.functional, torch.ops.aten
    return {
        "exp": (1, torch.exp),
        "log": (1, lambda x: torch.log(x.abs())),
        "sqrt": (1, lambda x: torch.sqrt(x.abs())),
        "rsqrt": (1, lambda x: torch.rsqrt(x.abs())),
        "tanh": (1, torch.tanh),
        "erf": (1, torch.erf),
        "sin": (1, torch.sin),
        "pow 1.7": (1, lambda x: torch.pow(x.abs(), 1.7)),
        "pow 3": (1, lambda x: torch.pow(x, 3)),
        "sigmoid": (1, torch.sigmoid),
        "silu": (1, F.silu),
        "softplus": (1, F.softplus),
        "gelu": (1, F.gelu),
        "gelu tanh": (1, lambda x: F.gelu(x, approximate="tanh")),
        "elu": (1, F.elu),
        "div": (2, torch.div),
        "addcmul": (3, lambda x, y, z: torch.addcmul(x, y, z, value=0.3)),
        "lerp": (3, torch.lerp),
        "sigmoid, backward": (2, aten.sigmoid_backward),
        "tanh, backward": (2, aten.tanh_backward),
        "silu, backward": (2, aten.silu_backward),
        "softplus, backward": (2, lambda g, x: aten.softplus_backward(g, x, 1.0, 20.0)),
        "gelu, backward": (2, aten.gelu_backward),
        "gelu tanh, backward": (2, lambda g, x: aten.gelu_backward(g, x, approximate="tanh")),
    }


def pointwise(variant: str) -> list[Case]:
    """The elementwise functions, by torch alone or through `flat`."""

    def case(name: str, count: int, function: Callable) -> Case:
        def run(operands: Operands, threads: int) -> torch.Tensor:
            with in_threads(threads):
                return flat(function, *operands) if variant == "own" else function(*operands)

        def draw(s: Sizes, dtype: torch.dtype) -> Operands:
            n = s.some(1, 300 * s.most)
            return [s.tensor(dtype, n) for _ in range(count)]

        return Case(name, variant, run, draw, {"elements": along(0, *[0] * count)})

    return [case(name, count, function) for name, (count, function) in functions().items()]


# ---- along rows


def rowwise() -> list[Case]:
    """Softmax, log-softmax and layer norm by torch."""
    import torch

    F = torch.nn.functional

    def in_torch(function: Callable) -> Callable[[Operands, int], torch.Tensor]:
        def run(operands: Operands, threads: int) -> torch.Tensor:
            with in_threads(threads):
                return function(*operands)

        return run

    def matrix(s: Sizes, dtype: torch.dtype) -> Operands:
        return (s.tensor(dtype, s.some(), s.some()),)

    def three(s: Sizes, dtype: torch.dtype) -> Operands:
        return (s.tensor(dtype, s.some(most=12), s.some(most=64), s.some(most=64)),)

    def norm(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, x.shape[-1:])

    rows = {"rows": along(0, 0)}
    others = {"batch": along(0, 0), "columns": along(2, 2)}
    return [
        Case("softmax over rows", "torch", in_torch(lambda x: torch.softmax(x, -1)), matrix, rows),
        Case("softmax over dim 1 of 3", "torch", in_torch(lambda x: torch.softmax(x, 1)), three, others),
        Case("log_softmax over rows", "torch", in_torch(lambda x: torch.log_softmax(x, -1)), matrix, rows),
        Case("layer norm", "torch", in_torch(norm), matrix, rows),
    ]
