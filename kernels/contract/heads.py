"""What attention accepts: queries, keys and values of heads, checked once for all variants."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np

from kernels.contract.operands import array_of
from kernels.contract.shapes import Shape


class How(TypedDict, total=False):
    """Options: query i sees keys 0 to i alone (`causal`); the factor of scores, 1 / sqrt(depth) unless given; what is
    added to them, broadcast to (samples, heads, queries, keys); the share of weights that are dropped, 0 alone."""

    causal: bool
    scale: float | None
    mask: Any
    dropout: float


@dataclass(frozen=True)
class Heads:
    """q (samples, heads, queries, depth), k (samples, heads, keys, depth), v (samples, heads, keys, width) and the mask
    (samples, heads, queries, keys) or None, all of one type, and the other options."""

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
        """(samples, heads, queries, width): that of the result."""
        return (*self.rows, self.v.shape[3])

    def given(self, gradient: Any, out: Any, logsumexp: Any) -> list[np.ndarray]:
        """As arrays what the backward pass takes beside q, k and v; ValueError unless type and shape are right."""
        wanted = {
            "gradient": (gradient, self.shape),
            "out": (out, self.shape),
            "logsumexp": (logsumexp, self.rows),
        }
        arrays = []
        for name, (x, shape) in wanted.items():
            array = array_of(x, "attention", name)
            if array.shape != shape or array.dtype != self.q.dtype:
                raise ValueError(
                    f"attention: {name} is {array.dtype} of shape {array.shape}; {self.q.dtype} of shape {shape} is"
                    " expected"
                )
            arrays.append(array)
        return arrays


def heads_of(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    scale: float | None = None,
    mask: Any = None,
    dropout: float = 0.0,
) -> Heads:
    """The operands as arrays in the same memory; TypeError and ValueError for such as do not fit each other."""
    if dropout:
        raise ValueError(f"attention: dropout {dropout}: only 0 is computed here; drop weights outside")
    qs, ks, vs = (array_of(x, "attention", name) for x, name in ((q, "q"), (k, "k"), (v, "v")))
    if not qs.dtype == ks.dtype == vs.dtype:
        raise TypeError(
            f"attention: q, k and v are of {qs.dtype}, {ks.dtype} and {vs.dtype}: give them one type"
        )
    if {qs.ndim, ks.ndim, vs.ndim} != {4} or ks.shape[:2] != qs.shape[:2] or vs.shape[:3] != ks.shape[:3]:
        shapes = f"{qs.shape}, {ks.shape} and {vs.shape}"
        raise ValueError(
            f"attention: q, k and v of shapes {shapes}: (samples, heads, queries, depth), (samples, heads, keys, depth)"
            " and (samples, heads, keys, width) are expected"
        )
    if ks.shape[3] != qs.shape[3]:
        raise ValueError(f"attention: the last dims of q {qs.shape} and k {ks.shape} must be equal")
    factor = 1 / math.sqrt(max(1, qs.shape[3])) if scale is None else float(scale)
    return Heads(qs, ks, vs, _whole(mask, qs, ks), factor, bool(causal))


def _whole(mask: Any, q: np.ndarray, k: np.ndarray) -> np.ndarray | None:
    if mask is None:
        return None
    added = array_of(mask, "attention", "mask")
    if added.dtype != q.dtype:
        raise TypeError(f"attention: mask is of {added.dtype} and q of {q.dtype}: give them one type")
    shape = (*q.shape[:3], k.shape[2])
    try:
        return np.broadcast_to(added, shape)
    except ValueError:
        raise ValueError(f"attention: mask of shape {added.shape} cannot be broadcast to {shape}") from None
