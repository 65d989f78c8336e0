"""Selects the functions that compute the operations of a plan on tensors of torch, by guarantee.

    kernels = Kernels(level, threads)
    f = kernels.function(target, kernel, kwargs)    # call f(*operands, *constants) like the target of the graph

Under `none` and `run` they are torch's. Under `layout` and `exact` the bits of an element do not depend on cuts of dims
that are not summed. Products, convolutions and sums of rows are chains over the summed length (`kernels.contract`).
Operations on elements get only whole vectors, where vectors and tails would differ in bits. Rows are normalised in
contiguous memory. torch then uses one thread, because the shares of threads have tails too.

`Kernels(level, threads, anywhere=True)` has the same under `run`, and bits that do not follow the processor: what torch
may compute otherwise with other instruction sets is replaced (`fixed`). It raises ChoiceError for an operation that
cannot be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from math import prod
from typing import Any

import numpy as np
import torch
from torch.nn.functional import pad

from kernels.contract import native
from kernels.contract.native_attention import attention, attention_backward
from kernels.guarantees import ChoiceError, meets
from miniapps.partition import manual
from miniapps.partition.execution import ring
from miniapps.partition.execution.bound import Operation
from miniapps.partition.execution.draws import draw
from miniapps.partition.execution.fixed import fixed
from miniapps.partition.execution.parts import PARTS
from miniapps.partition.execution.ring import RING
from miniapps.partition.rules.manual import MANUAL
from miniapps.partition.rules.manual import NAMES as NAMES_OF_REGIONS

aten = torch.ops.aten
VECTOR = 64  # elements, a multiple of every vector length

# Correctly rounded, or without rounding, so that vectors and tails agree; add and sub only without a factor, since its
# product may be fused.
NAMES = """
    abs add bitwise_and bitwise_not bitwise_or bitwise_xor ceil clamp clamp_max clamp_min copy div eq fill floor ge gt
    hardtanh isfinite isinf isnan le leaky_relu logical_and logical_not logical_or logical_xor lt masked_fill maximum
    minimum mul ne neg relu round sgn sign sqrt sub threshold threshold_backward _to_copy trunc where
"""
ROUNDED = frozenset(NAMES.split())
# Copies, comparisons, and additions in the order of their places.
EXACT = (
    "all",
    "any",
    "amax",
    "amin",
    "embedding",
    "embedding_dense_backward",
    "gather",
    "index_select",
    "max",
    "min",
    "scatter",
    "topk",
)
NORMALISED = ("_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data")


def named(target: str) -> Callable:
    """torch's function for a target of the graph."""
    name, *overload = target.split(".")[1:]
    if target.startswith("partition."):
        return PARTS.get(name) or RING[name]
    if name == "view":
        return torch.reshape
    packet = getattr(aten, name)
    return FAST.get(target) or (getattr(packet, overload[0]) if overload else packet)


# torch's own names of operations cost less to call.
FAST: dict[str, Callable] = {
    "aten.mm.default": torch.mm,
    "aten.bmm.default": torch.bmm,
    "aten.add.Tensor": torch.add,
    "aten.sub.Tensor": torch.sub,
    "aten.mul.Tensor": torch.mul,
    "aten.div.Tensor": torch.div,
    "aten.permute.default": torch.permute,
    "aten.relu.default": torch.relu,
    "aten.sum.dim_IntList": torch.sum,
    "aten.cat.default": torch.cat,
}


class Kernels:
    """Functions for the operations of a plan; `threads`: of the suite's kernels, and of torch under `none` and
    `run`."""

    def __init__(self, level: str, threads: int = 1, anywhere: bool = False):
        self.layout, self.threads, self.anywhere = anywhere or meets(level, "layout"), threads, anywhere

    def function(self, target: str, kernel: str, kwargs: dict[str, Any]) -> Callable:
        """The function that computes `target`, to be called with all of its arguments. Raises ChoiceError if none has
        the bits of any processor."""
        if kernel == MANUAL:
            if self.anywhere:
                raise ChoiceError(f"manual region: torch may compute {target} otherwise on another processor")
            return manual.backward if target.split(".")[1] == NAMES_OF_REGIONS[1] else manual.forward
        return self.own(target, kernel, kwargs) or self.by_torch(target, kernel, kwargs)

    def drawn(
        self, step: Operation, indices: Sequence[np.ndarray], whole: Sequence[int], seed: int
    ) -> Callable:
        """The function that draws the random numbers of an operation (`draws.draw`)."""
        return draw(step, indices, whole, seed)

    def own(self, target: str, kernel: str, kwargs: dict[str, Any]) -> Callable | None:
        """The kernel of this suite that computes an operation; None where torch does."""
        name = target.split(".")[1]
        if not self.layout:
            return None
        if target.startswith("conv."):
            return self.own_weight if name == "weight" else self.own_image
        if kernel == "matmul":
            return self.product(name)
        if kernel == "rowsum":
            return self.rowsum
        if name == "_scaled_dot_product_flash_attention_for_cpu":
            return self.attention
        if name == "_scaled_dot_product_flash_attention_for_cpu_backward":
            return self.attention_backward
        if name == "attention_step":
            exp, log = self.elements("exp"), self.elements("log")
            return partial(ring.attention_step, attend=self.attention, exp=exp, log=log)
        if name == "attention_step_backward":
            return partial(ring.attention_step_backward, back=self.attention_backward)
        if name == "prod":
            return product_of_rows
        if self.anywhere:
            return fixed(name, kwargs, self.threads)
        return self.logsumexp if name == "logsumexp" else None

    def by_torch(self, target: str, kernel: str, kwargs: dict[str, Any]) -> Callable:
        """torch's function for an operation, on elements and rows whose places change no bit of the guarantee."""
        name = target.split(".")[1]
        if target.startswith("conv."):
            return torch_weight if name == "weight" else torch_image
        exact = name in ROUNDED and "alpha" not in kwargs and "rounding_mode" not in kwargs
        if self.anywhere:
            parts = target.startswith("partition.") and name != "scan_blocks"  # which calls torch's cumsum
            if not (exact or parts or name in EXACT or kernel in ("view", "create", "random")):
                raise ChoiceError(f"torch computes {name}, and chooses its kernels by the processor")
        elif self.layout and kernel == "pointwise" and not exact:
            return flat(named(target))
        elif self.layout and name in NORMALISED:
            return along_last(named(target), 2 if "backward" in name else 1)
        return named(target)

    def over_blocks(self, target: str, lengths: Sequence[int], apart: bool) -> Callable:
        """The function that computes a product or a sum over blocks of these lengths under `layout`. It adds the blocks
        by the tree, with unsigned zeros, or keeps them `apart` (sums only)."""
        if target == "conv.weight":
            return partial(self.own_weight, blocks=lengths)
        if target.startswith("aten.sum."):
            return partial(self.rowsum, blocks=lengths, apart=apart)
        return partial(native.matmul, blocks=lengths, threads=self.threads)

    # ---- products and sums

    def product(self, name: str) -> Callable:
        """The product of matrices or vectors, by chains over the contracted length."""
        matmul, threads = native.matmul, self.threads
        if name in ("mm", "bmm"):
            return lambda a, b: matmul(a, b, threads=threads)
        if name == "mv":
            return lambda a, x: matmul(a, x[:, None], threads=threads)[:, 0]
        if name == "dot":
            return lambda a, b: matmul(a[None], b[:, None], threads=threads)[0, 0]
        return lambda a, b: torch.mul(a[:, None], b)  # outer

    def elements(self, name: str) -> Callable:
        """A function of elements of torch, with bits that follow no cut."""
        return (fixed(name, {}, self.threads) if self.anywhere else None) or flat(getattr(torch, name))

    def rowsum(self, x, dims: Sequence[int], keep: bool = False, dtype=None, blocks=None, apart=False):
        """The sum over whole dims; see `over_blocks`."""
        if dtype is not None:
            x = x.to(dtype)
        if not x.is_floating_point():  # sums of integers do not depend on order
            return torch.sum(x, list(dims), keep)
        total = native.rowsum(x, tuple(dims), blocks=blocks, apart=apart, threads=self.threads)
        if not keep:
            return total
        gone = [d % x.dim() for d in dims]
        first = [len(blocks)] if apart else []
        return total.reshape(first + [1 if d in gone else n for d, n in enumerate(x.shape)])

    def logsumexp(self, x, dims: Sequence[int], keep: bool = False):
        """log(sum(exp(x))) over `dims`, after subtracting the largest element."""
        dims = tuple(d % x.dim() for d in dims)
        top = torch.amax(x, dims, True)
        top = torch.where(top.abs() == torch.inf, 0, top)
        found = flat(torch.log)(self.rowsum(flat(torch.exp)(x - top), dims, True)) + top
        return found if keep else found.reshape([n for d, n in enumerate(x.shape) if d not in dims])

    # ---- attention, with torch's signature

    def attention(self, q, k, v, dropout=0.0, causal=False, *, attn_mask=None, scale=None):
        """Returns the result, and the logarithms of the sums of exponentials."""
        how = dict(causal=causal, scale=scale, mask=attn_mask, dropout=dropout, threads=self.threads)
        return attention(q, k, v, **how)

    def attention_backward(
        self, gradient, q, k, v, out, logsumexp, dropout, causal, *, attn_mask=None, scale=None
    ):
        """Returns the gradients of q, k and v."""
        how = dict(causal=causal, scale=scale, mask=attn_mask, dropout=dropout, threads=self.threads)
        return attention_backward(gradient, q, k, v, out, logsumexp, **how)

    # ---- convolutions: (image or gradient, weight or gradient, stride, dilation, groups, transposed, sides, size);
    # `sides`: zeros before the first place of the image, or for a transposed convolution the number of places of its
    # whole result before the first of `size`

    def own_image(self, x, w, stride, dilation, groups, transposed, sides, size):
        """A convolution or, if transposed, the gradient of its image, by chains over channels and window."""
        reaches = reach(w.shape[2:], dilation)
        how = dict(stride=stride, dilation=dilation, groups=groups, threads=self.threads)
        if transposed:
            borders = across(size, x.shape[2:], sides, reaches, stride)
            return native.conv_input(x, w, size, padding=borders, **how)
        borders = across(x.shape[2:], size, sides, reaches, stride)
        return native.conv(x, w, padding=borders, **how)

    def own_weight(self, x, gradient, stride, dilation, groups, transposed, sides, size, blocks=None):
        """The gradient of a weight, by chains over samples and positions; `blocks` as in `over_blocks`."""
        borders = across(x.shape[2:], gradient.shape[2:], sides, reach(size, dilation), stride)
        how = dict(stride=stride, dilation=dilation, groups=groups, threads=self.threads, blocks=blocks)
        return native.conv_weight(x, gradient, size, padding=borders, **how)


def reach(window: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """The distance between first and last place of a window, by dim."""
    return [(k - 1) * d for k, d in zip(window, dilation, strict=True)]


def across(image, places, low, reaches, stride) -> list[tuple[int, int]]:
    """The numbers of zeros before and after an image for which a window fits at `places` places."""
    return [
        (before, (m - 1) * step + far + 1 - n - before)
        for n, m, before, far, step in zip(image, places, low, reaches, stride, strict=True)
    ]


def bordered(x, borders: Sequence[tuple[int, int]]):
    """An image with zeros around it; negative borders remove places."""
    flat_borders = [side for pair in reversed(borders) for side in pair]
    return pad(x, flat_borders) if any(flat_borders) else x


def torch_image(x, w, stride, dilation, groups, transposed, sides, size):
    """A convolution or, if transposed, the gradient of its image by torch, with torch's padding for equal sides."""
    reaches = reach(w.shape[2:], dilation)
    none = [0] * len(stride)
    if transposed:
        borders = across(size, x.shape[2:], sides, reaches, stride)
        extra = [b - a for a, b in borders]  # minus torch's output padding
        if all(0 <= -e < step for e, step in zip(extra, stride, strict=True)):
            return aten.convolution(x, w, None, stride, sides, dilation, True, [-e for e in extra], groups)
        full = aten.convolution(x, w, None, stride, none, dilation, True, none, groups)
        for d, (begin, n) in enumerate(zip(sides, size, strict=True), start=2):
            full = full.narrow(d, begin, n)
        return full
    borders = across(x.shape[2:], size, sides, reaches, stride)
    if all(-step < b - a <= 0 for (a, b), step in zip(borders, stride, strict=True)):
        return aten.convolution(x, w, None, stride, sides, dilation, False, none, groups)
    return aten.convolution(bordered(x, borders), w, None, stride, none, dilation, False, none, groups)


def torch_weight(x, gradient, stride, dilation, groups, transposed, sides, size):
    """The gradient of a weight by torch's backward pass, which reads only the shape of the weight."""
    borders = across(x.shape[2:], gradient.shape[2:], sides, reach(size, dilation), stride)
    none = [0] * len(stride)
    padding = sides
    if not all(-step < b - a <= 0 for (a, b), step in zip(borders, stride, strict=True)):
        x, padding = bordered(x, borders), none
    weight = x.new_empty((gradient.shape[1], x.shape[1] // groups, *size))
    how = stride, padding, dilation, False, none, groups
    return aten.convolution_backward(gradient, x, weight, None, *how, [False, True, False])[1]


# ---- elements and rows


def flat(function: Callable) -> Callable:
    """Wraps an operation on elements: calls it on contiguous vectors padded to a multiple of VECTOR elements."""

    def filled(*args, **kwargs):
        tensors = [x for x in args if isinstance(x, torch.Tensor) and x.dim()]
        if not tensors:
            return function(*args, **kwargs)
        shape = tensors[0].shape
        if any(x.shape != shape for x in tensors):
            shape = torch.broadcast_shapes(*(x.shape for x in tensors))
        n = prod(shape)
        if n == 0:
            return function(*args, **kwargs)
        more = -n % VECTOR
        if not more and all(x.shape == shape and x.is_contiguous() for x in tensors):
            return function(*args, **kwargs)

        def vector(x):
            if not isinstance(x, torch.Tensor) or not x.dim():
                return x
            x = x.expand(shape).reshape(-1)
            return pad(x, (0, more)) if more else x

        return function(*map(vector, args), **kwargs)[:n].view(shape)

    return filled


def product_of_rows(x, dim: int | None = None, keep: bool = False, *, dtype=None):
    """The product along a dim, or of all elements, from the first on, in `dtype`; integers in int64."""
    if dtype is None and not x.is_floating_point():
        dtype = torch.int64
    x = x if dtype is None else x.to(dtype)
    x, dim = (x.reshape(-1), 0) if dim is None or not x.dim() else (x, dim)
    one = torch.ones([n for d, n in enumerate(x.shape) if d != dim % x.dim()], dtype=x.dtype)
    total = reduce(torch.mul, x.unbind(dim), one)
    return total.unsqueeze(dim) if keep else total


def along_last(function: Callable, tensors: int) -> Callable:
    """Wraps a normalisation of rows: moves its dim to the end of contiguous tensors."""

    def moved(*args):
        dim = args[tensors] % args[0].dim()
        if dim == args[0].dim() - 1:
            return function(*(x.contiguous() for x in args[:tensors]), *args[tensors:])
        turned = [x.movedim(dim, -1).contiguous() for x in args[:tensors]]
        return function(*turned, -1, *args[tensors + 1 :]).movedim(-1, dim)

    return moved
