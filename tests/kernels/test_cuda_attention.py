"""Attention on the GPU: the bits of the definition, whatever the order of blocks and threads.

It needs a device; `test_cuda_on_host.py` runs this file without one.
"""

import numpy as np
import pytest

from kernels.contract import cupy_attention as gpu
from kernels.registry import get
from kernels.sums.cupy import missing

from .attention import all_same, both, each_long_sum, each_type, hard_case, heads
from .contract import numbers, same

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(bool(missing()), reason=missing() or "")]


def run(gradient, q, k, v, mask=None, **how):
    """The results of both passes on the host, of operands that are copied to the device."""
    import cupy

    gradient, q, k, v = map(cupy.asarray, (gradient, q, k, v))
    how["mask"] = None if mask is None else cupy.asarray(mask)
    done = gpu.attention(q, k, v, **how)
    return [x.get() for x in (*done, *gpu.attention_backward(gradient, q, k, v, *done, **how))]


@pytest.mark.parametrize("seed", range(24))
@each_type
def test_both_passes_have_the_bits_of_the_definition(dtype, seed):
    operands, how = hard_case(dtype, seed)
    assert all_same(run(*operands, **how), both(*operands, variant="reference", **how))


@each_long_sum
def test_sums_of_more_than_a_piece_have_the_bits_of_the_definition(queries, keys, depth, width, causal):
    operands = heads(np.random.default_rng(1), np.float32, 1, 1, queries, keys, depth, width)
    assert all_same(run(*operands, causal=causal), both(*operands, variant="reference", causal=causal))


@pytest.mark.parametrize("causal", [False, True])
@each_type
def test_several_heads_in_fewer_blocks_than_rows_have_the_bits_of_the_cpu(dtype, causal, monkeypatch):
    monkeypatch.setattr(gpu, "BLOCKS", 3)
    operands = heads(np.random.default_rng(2), dtype, 2, 3, 35, 2 * gpu.THREADS + 9, 7, 5)
    assert all_same(run(*operands, causal=causal), both(*operands, causal=causal))


@pytest.mark.parametrize("shape", [(5, 6), (2, 1, 5, 6), (3, 1, 6), (1, 3, 5, 1), (2, 3, 5, 6), (1,)])
def test_a_mask_is_broadcast(shape):
    rng = np.random.default_rng(3)
    operands = heads(rng, np.float64, 2, 3, 5, 6, 4, 3)
    mask = numbers(rng, np.float64, *shape, decades=0)
    assert all_same(run(*operands, mask=mask), both(*operands, mask=mask))


@each_type
def test_a_query_that_sees_no_key_gives_the_bits_of_the_cpu(dtype):
    operands = heads(np.random.default_rng(4), dtype, 1, 2, 4, 3, 5, 6)
    mask = np.zeros((4, 3), dtype)
    mask[2] = -np.inf
    found = run(*operands, mask=mask)
    assert all_same(found, both(*operands, mask=mask))
    assert not found[0][:, :, 2].any() and (found[1][:, :, 2] == -np.inf).all()


@pytest.mark.parametrize(
    "sizes",
    [
        (0, 2, 3, 3, 4, 4),
        (2, 0, 3, 3, 4, 4),
        (1, 1, 0, 3, 4, 4),
        (1, 1, 3, 0, 4, 4),
        (1, 1, 3, 3, 0, 4),
        (1, 1, 3, 3, 4, 0),
    ],
)
def test_what_is_empty_has_the_results_of_the_cpu(sizes):
    operands = heads(np.random.default_rng(5), np.float64, *sizes)
    assert all_same(run(*operands), both(*operands))


@each_type
def test_subnormal_results_are_kept(dtype):
    gradient, q, k, v = heads(np.random.default_rng(6), dtype, 1, 2, 9, 11, 4, 3)
    v, gradient = (x * np.finfo(dtype).smallest_normal for x in (v, gradient))
    found = run(gradient, q, k, v)
    assert all_same(found, both(gradient, q, k, v))
    assert ((found[0] != 0) & (np.abs(found[0]) < np.finfo(dtype).smallest_normal)).any()


def test_operands_with_gaps_are_copied():
    import cupy

    whole = [cupy.asarray(x) for x in heads(np.random.default_rng(7), np.float32, 1, 4, 6, 6, 5, 5)[1:]]
    cut = gpu.attention(*(x[:, ::2] for x in whole), causal=True)
    assert all(
        same(x.get(), y.get()[:, ::2]) for x, y in zip(cut, gpu.attention(*whole, causal=True), strict=True)
    )


def test_it_is_registered_beside_the_cpu():
    assert get("attention", "own", "cupy").function is not get("attention", "own").function
    assert get("attention", "own").backend == "native" == get("attention_backward", "own").backend


def test_what_no_kernel_takes_is_refused():
    import cupy

    gradient, q, k, v = map(cupy.asarray, heads(np.random.default_rng(0), np.float64, 1, 2, 5, 6, 4, 3))
    with pytest.raises(TypeError, match=r"k is ndarray; cupy\.asarray copies an array to the device"):
        gpu.attention(q, k.get(), v)
    with pytest.raises(TypeError, match="operands are of float32 and float64"):
        gpu.attention(q, k, v.astype(np.float32))
    with pytest.raises(ValueError, match=r"mask of shape \(5, 7\) cannot be broadcast to \(1, 2, 5, 6\)"):
        gpu.attention(q, k, v, mask=cupy.asarray(np.zeros((5, 7))))
    with pytest.raises(ValueError, match=r"dropout 0\.1: only 0 is supported"):
        gpu.attention(q, k, v, dropout=0.1)
    out, logs = gpu.attention(q, k, v)
    for i, name in enumerate(("gradient", "out", "logsumexp")):
        given = [gradient, q, k, v, out, logs]
        given[(0, 4, 5)[i]] = cupy.asarray(np.zeros((1, 2, 4, 3)))
        with pytest.raises(ValueError, match=rf"attention: {name} is float64 of shape .*\(1, 2, 5"):
            gpu.attention_backward(*given)
