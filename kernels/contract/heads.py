"""Operands of attention: checks queries, keys, values and options, once for all variants."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict, Unpack

import numpy as np

from kernels.contract.operands import array_of
from kernels.contract.shapes import Shape


class How(TypedDict, total=False):
    """Options of attention.

    `causal`: query i sees only keys 0 to i. `scale`: factor of the scores, 1 / sqrt(depth) by default. `mask`: added to
    the scores, broadcast to (samples, heads, queries, keys). `dropout`: must be 0.
    """

    causal: bool
    scale: float | None
    mask: Any
    dropout: float


@dataclass(frozen=True)
class Heads:
    """q (samples, heads, queries, depth), k (samples, heads, keys, depth), v (samples, heads, keys, width) and the mask
    or None, all of one type, and the other options."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    mask: np.ndarray | None
    scale: float
    causal: bool

    @property
    def rows(self) -> Shape:
        """(samples, heads, queries): the shape of logsumexp."""
        return self.q.shape[:3]

    @property
    def shape(self) -> Shape:
        """(samples, heads, queries, width): the shape of the result."""
        return (*self.rows, self.v.shape[3])

    def given(self, gradient: Any, out: Any, logsumexp: Any) -> list[np.ndarray]:
        """Returns the other operands of the backward pass as arrays; raises ValueError for a wrong type or shape."""
        arrays = {
            name: array_of(x, "attention", name)
            for name, x in (("gradient", gradient), ("out", out), ("logsumexp", logsumexp))
        }
        check_given(self.q, self.v, **arrays)
        return list(arrays.values())


def heads_of(q: Any, k: Any, v: Any, **how: Unpack[How]) -> Heads:
    """The operands as arrays in the same memory, with the mask broadcast to (samples, heads, queries, keys).

    Raises TypeError and ValueError for operands that do not fit each other."""
    of = fitted(_in_memory, q, k, v, **how)
    return of if of.mask is None else replace(of, mask=np.broadcast_to(of.mask, scores_shape(of.q, of.k)))


def _in_memory(what: str, **arrays: Any) -> list[np.ndarray]:
    return [array_of(x, what, name) for name, x in arrays.items()]


# ---- checks of shapes and types, for arrays of NumPy and of CuPy


def fitted(
    arrays_of: Callable[..., Sequence[Any]],
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    scale: float | None = None,
    mask: Any = None,
    dropout: float = 0.0,
) -> Heads:
    """The operands that `arrays_of("attention", q=..., k=..., v=...)` returns; the mask keeps its shape.

    Raises TypeError and ValueError for operands that do not fit each other."""
    named = {"q": q, "k": k, "v": v} | ({} if mask is None else {"mask": mask})
    q, k, v, *masks = arrays_of("attention", **named)
    added = masks[0] if masks else None
    check_fit(q, k, v, added, dropout)
    factor = 1 / math.sqrt(max(1, q.shape[3])) if scale is None else float(scale)
    return Heads(q, k, v, added, factor, bool(causal))


def check_fit(q: Any, k: Any, v: Any, mask: Any, dropout: float) -> None:
    """Raises TypeError or ValueError for operands that do not fit each other, and for dropout; `mask` may be None."""
    if dropout:
        raise ValueError(f"attention: dropout {dropout}: only 0 is supported; drop weights outside")
    if not q.dtype == k.dtype == v.dtype:
        raise TypeError(
            f"attention: q, k and v are of {q.dtype}, {k.dtype} and {v.dtype}: give them one type"
        )
    if {q.ndim, k.ndim, v.ndim} != {4} or k.shape[:2] != q.shape[:2] or v.shape[:3] != k.shape[:3]:
        shapes = f"{q.shape}, {k.shape} and {v.shape}"
        raise ValueError(
            f"attention: q, k and v of shapes {shapes}: (samples, heads, queries, depth), (samples, heads, keys, depth)"
            " and (samples, heads, keys, width) are expected"
        )
    if k.shape[3] != q.shape[3]:
        raise ValueError(f"attention: the last dims of q {q.shape} and k {k.shape} must be equal")
    if mask is None:
        return
    if mask.dtype != q.dtype:
        raise TypeError(f"attention: mask is of {mask.dtype} and q of {q.dtype}: give them one type")
    whole = scores_shape(q, k)
    lead = (1,) * (len(whole) - mask.ndim) + mask.shape
    if len(lead) != len(whole) or any(n not in (1, m) for n, m in zip(lead, whole, strict=True)):
        raise ValueError(f"attention: mask of shape {mask.shape} cannot be broadcast to {whole}")


def check_given(q: Any, v: Any, **arrays: Any) -> None:
    """Raises ValueError unless gradient, out and logsumexp have the type and shapes of the forward pass's results."""
    for name, array in arrays.items():
        shape = q.shape[:3] if name == "logsumexp" else (*q.shape[:3], v.shape[3])
        if array.shape != shape or array.dtype != q.dtype:
            raise ValueError(
                f"attention: {name} is {array.dtype} of shape {array.shape}; {q.dtype} of shape {shape} is expected"
            )


def scores_shape(q: Any, k: Any) -> Shape:
    """The shape of the scores: (samples, heads, queries, keys)."""
    return (*q.shape[:3], k.shape[2])
