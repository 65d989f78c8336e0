"""Superaccumulator: sums as integers wide enough for every float64, so that no addition rounds.

Words are C-contiguous int64 arrays (*shape, WORDS). Each sum has 67 chunks with the value
`sum(chunk[i] * 2**(32 i - 1075))`, then the counts of NaN, +inf and -inf (Neal, arXiv 1505.05571). Every function that
adds leaves the words carried, so no sequence of calls overflows. Words of up to 2**20 ranks may be added as integers
before the next call of a function of this module.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernels import _native
from kernels.environment import guarded
from kernels.exact.reference import WORDS


def zeros(shape: int | tuple[int, ...] = ()) -> np.ndarray:
    """Words of empty sums: int64 (*shape, WORDS). To reset words in place, assign 0 to them."""
    return np.zeros((*((shape,) if isinstance(shape, int) else shape), WORDS), dtype=np.int64)


@guarded
def add(words: np.ndarray, x: np.ndarray) -> None:
    """Adds `x` (k, *shape) over its first axis to `words` (*shape, WORDS), in place.

    x is float64 or a narrower floating type; k may be 0. Words are carried afterwards. Allocates nothing for
    C-contiguous float64. Raises TypeError for other types, ValueError for other shapes.
    """
    x = _doubles(x)
    if words.shape[:-1] != x.shape[1:] or words.shape[-1] != WORDS:
        raise ValueError(
            f"words of shape {words.shape} cannot take contributions of shape {x.shape[1:]}: "
            f"make them with zeros({x.shape[1:]})"
        )
    _call(_native.exact_add, words, x)


@guarded
def add_products(words: np.ndarray, a: np.ndarray, b: np.ndarray, threads: int = 1) -> None:
    """Adds the sum of all products a*b (arrays of one shape) to `words` (WORDS,), in place.

    A product is added as p = fl(ab) and e = fl(ab - p) (TwoProduct by fused multiply-add). This is exact when
    |ab| >= 2**-969 (about 2e-292) or ab is a multiple of 2**-1074. Any other product has an error of at most 2**-1075,
    the same in every order, so the sum does not depend on the order. A product beyond the largest float64 counts as an
    infinity, as in IEEE multiplication. Exactness without these two limits would take twice the words in every message.
    `threads` share the products and do not change the words. Raises as `add`.
    """
    a, b = _factors(a, b)
    if a.shape != b.shape or words.shape != (WORDS,):
        raise ValueError(
            f"factors of shapes {a.shape} and {b.shape} into words of shape {words.shape}: "
            f"the factors need one shape, the words ({WORDS},)"
        )
    _call(_native.exact_add_products, words, [a], [b], threads)


@guarded
def add_many_products(
    words: np.ndarray, pairs: Sequence[tuple[np.ndarray, np.ndarray]], threads: int = 1
) -> None:
    """Adds the sum of all products a*b of pair k to words[k], `words` (len(pairs), WORDS), in place.

    All arrays have one shape. The words are those of `add_products` for each pair, but a vector in several pairs is
    read from memory once. Allocates nothing for C-contiguous arrays that are all float64 or all float32. Raises as
    `add`.
    """
    if words.shape != (len(pairs), WORDS):
        raise ValueError(
            f"words of shape {words.shape} for {len(pairs)} sums of products: make them with zeros({len(pairs)})"
        )
    factors = _factors(*[x for pair in pairs for x in pair])
    for x in factors:
        if x.shape != factors[0].shape:
            raise ValueError(
                f"factors of shapes {factors[0].shape} and {x.shape}: the factors of all products need one shape"
            )
    _call(_native.exact_add_products, words, factors[::2], factors[1::2], threads)


def carry(words: np.ndarray) -> None:
    """Normalises `words` in place, so that equal values have equal words: to compare them, or to send them again."""
    if words.shape[-1] != WORDS:
        raise ValueError(
            f"{words.shape} is not a shape of words: the last dimension must be {WORDS}, see zeros()"
        )
    _call(_native.exact_carry, words)


def round(words: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """The sums in `words` (*shape, WORDS), each rounded once, to nearest even: float64 (*shape,).

    `words` need not be carried and are not changed. A NaN, or infinities of both signs, give the quiet NaN
    0x7ff8000000000000. Infinities of one sign give that infinity, and so does a sum too large for the type. A zero sum
    is +0.0, even of negative zeros alone, for which IEEE addition gives -0.0. `out`: a C-contiguous array (*shape,) to
    fill and return; sums are rounded to its type, float64, float32, float16 or bfloat16. Raises ValueError for shapes
    that do not fit.
    """
    if out is None:
        out = np.empty(words.shape[:-1])
    if words.shape[-1] != WORDS or out.shape != words.shape[:-1]:
        raise ValueError(
            f"words of shape {words.shape} cannot be rounded into shape {out.shape}: "
            f"expected ({', '.join(map(str, (*out.shape, WORDS)))})"
        )
    _call(_native.exact_round, words, out)
    return out


def _factors(*arrays: np.ndarray) -> list[np.ndarray]:
    """The arrays, contiguous and of one type for C++: all float64, or all float32."""
    for x in arrays:
        if getattr(x, "dtype", None) != np.float32:
            return [_doubles(x) for x in arrays]
    return [np.ascontiguousarray(x) for x in arrays]


def _doubles(x: np.ndarray) -> np.ndarray:
    x = np.asarray(x)
    if x.dtype != np.float64:
        if x.dtype.name != "bfloat16" and (x.dtype.kind != "f" or x.dtype.itemsize > 8):
            raise TypeError(
                f"cannot add {x.dtype} exactly: convert it to float64 first, or to float32 or float16"
            )
        x = x.astype(np.float64)
    return x if x.flags.c_contiguous else np.ascontiguousarray(x)


def _call(function, words: np.ndarray, *arguments) -> None:
    try:
        function(words, *arguments)
    except TypeError:  # raised by the binding, which works in place and so converts nothing
        arrays = [a for a in (words, *arguments) if isinstance(a, np.ndarray)]
        given = ", ".join(
            f"{a.dtype} {'C-contiguous' if a.flags.c_contiguous else 'strided'}" for a in arrays
        )
        raise TypeError(
            f"needs C-contiguous words of int64 and arrays of float64 (or to round into, float32), not {given}"
        ) from None
