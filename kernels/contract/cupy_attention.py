"""Attention on a GPU, in CUDA C++ (kernels/cuda/attention.cu): the bits of `native`.

Operands are arrays of CuPy on one device; arrays with gaps are copied first. Results are new arrays; a call returns
when its work is queued on the current stream. The gradients of keys and values compute the weights again, so the matrix
of weights is never stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from kernels.contract.cupy import NUMBERS, new, operands
from kernels.contract.heads import Heads, How, check_given, fitted
from kernels.contract.native_attention import WHY
from kernels.contract.promises import promised
from kernels.contract.shapes import Shape
from kernels.cuda import kernel
from kernels.sums.cupy import missing

if TYPE_CHECKING:
    import cupy

THREADS = 128  # as in kernels/cuda/attention.cu
BLOCKS = 1024  # at most; a block then takes several rows. Each block has memory for the weights of a row


@promised("attention", "own", backend="cupy", available=missing, why=WHY)
def attention(
    q: cupy.ndarray, k: cupy.ndarray, v: cupy.ndarray, **how: Unpack[How]
) -> tuple[cupy.ndarray, cupy.ndarray]:
    """As `native`: a block takes a query, and one thread adds an element of the result."""
    of = fitted(operands, q, k, v, **how)
    out, logs = new(of.q, of.shape), new(of.q, of.rows)
    _rows("attention_forward", logs.size, of.k.shape[2], _arguments(of), out, logs)
    return out, logs


@promised("attention_backward", "own", backend="cupy", available=missing, why=WHY)
def attention_backward(
    gradient: cupy.ndarray,
    q: cupy.ndarray,
    k: cupy.ndarray,
    v: cupy.ndarray,
    out: cupy.ndarray,
    logsumexp: cupy.ndarray,
    **how: Unpack[How],
) -> tuple[cupy.ndarray, cupy.ndarray, cupy.ndarray]:
    """As `native`: a block takes a query, then a key; one thread adds an element of a gradient."""
    of = fitted(operands, q, k, v, **how)
    heads = _arguments(of)
    q, k, v = of.q, of.k, of.v
    given = dict(zip(("gradient", "out", "logsumexp"), (gradient, out, logsumexp), strict=True))
    gradient, out, logs = (operands("attention", **{name: x})[0] for name, x in given.items())
    check_given(q, v, gradient=gradient, out=out, logsumexp=logs)
    dots = new(q, logs.shape)
    found = [new(q, x.shape) for x in (q, k, v)]
    if logs.size:
        run = _kernel("attention_dots", q)
        with q.device:
            run(
                (min(BLOCKS, -(-logs.size // THREADS)),),
                (THREADS,),
                (logs.size, v.shape[3], gradient, out, dots),
            )
    _rows("attention_backward_q", logs.size, k.shape[2], heads, gradient, logs, dots, found[0])
    keys = k.shape[0] * k.shape[1] * k.shape[2]
    _rows("attention_backward_kv", keys, 2 * q.shape[2], heads, gradient, logs, dots, *found[1:])
    return found[0], found[1], found[2]


def _arguments(of: Heads) -> tuple:
    """The leading arguments that all kernels share; operands are contiguous."""
    sizes = (*of.rows, of.k.shape[2], of.q.shape[3], of.v.shape[3])
    mask, steps = (of.q, (0,) * 4) if of.mask is None else (of.mask, _steps(of.mask.shape))
    return *sizes, int(of.causal), of.scale, of.q, of.k, of.v, mask, int(of.mask is not None), *steps


def _steps(shape: Shape) -> Shape:
    """Strides of a contiguous mask of this shape in the four dims of scores; 0 in broadcast dims."""
    found, step = [], 1
    for n in reversed((1,) * (4 - len(shape)) + shape):
        found.append(step if n > 1 else 0)
        step *= n
    return tuple(reversed(found))


def _rows(name: str, rows: int, elements: int, heads: tuple, *arrays: cupy.ndarray) -> None:
    """Queues a kernel over `rows` rows; each of its blocks has memory for `elements` numbers."""
    if not rows:
        return
    blocks = min(BLOCKS, rows)
    work = new(arrays[0], (blocks * elements,))
    run = _kernel(name, arrays[0])
    with arrays[0].device:
        run((blocks,), (THREADS,), (*heads, *arrays, work))


def _kernel(name: str, array: cupy.ndarray):
    return kernel("attention", name, NUMBER=NUMBERS[array.dtype.name])
