"""Attention: the bits of the definition for each sample and head, whatever lies beside it; small errors; refusals."""

import math

import numpy as np
import pytest
import torch

from kernels.contract import attention, attention_backward
from kernels.contract.native import LEVELS, PIECE
from kernels.contract.reference_attention import exponential, logarithm

from .attention import NAMES, all_same, both, drawn_mask, each_long_sum, each_type, hard_case, heads
from .contract import TYPES, moved, same, strided

# ---- the definition


@pytest.mark.parametrize("seed", range(24))
@each_type
def test_every_instruction_set_has_the_bits_of_the_definition(dtype, seed):
    operands, how = hard_case(dtype, seed)
    definition = both(*operands, variant="reference", **how)
    assert all(all_same(both(*operands, level=level, **how), definition) for level in LEVELS)


@each_long_sum
def test_sums_of_more_than_a_piece_have_the_bits_of_the_definition(queries, keys, depth, width, causal):
    operands = heads(np.random.default_rng(1), np.float32, 1, 1, queries, keys, depth, width)
    definition = both(*operands, variant="reference", causal=causal)
    assert all(all_same(both(*operands, level=level, causal=causal), definition) for level in LEVELS)


@pytest.mark.parametrize("level", LEVELS)
@each_type
def test_a_causal_query_is_one_that_has_no_later_keys(dtype, level):
    last = PIECE + 5
    gradient, q, k, v = heads(np.random.default_rng(4), dtype, 1, 1, last, last, 4, 3)
    causal = both(gradient, q, k, v, causal=True, level=level)
    for i in (0, 17, PIECE - 1, PIECE, last - 1):
        row, seen = slice(i, i + 1), slice(i + 1)
        alone = both(gradient[:, :, row], q[:, :, row], k[:, :, seen], v[:, :, seen], level=level)
        assert all(same(x[:, :, row], y) for x, y in zip(causal[:3], alone[:3], strict=True)), i


@each_type
def test_the_exponential_is_within_one_place_and_ends_where_it_says(dtype):
    low, high = (-87, 88) if dtype == np.float32 else (-708, 709)
    x = np.concatenate([np.linspace(low, high, 301), np.linspace(-1, 1, 101)]).astype(dtype)
    exact = np.exp(x.astype(np.longdouble))
    assert (np.abs(exponential(x) - exact) <= np.spacing(exact.astype(dtype))).all()
    ends = np.array([-np.inf, low - 1, 0, -0.0, np.inf, np.nan], dtype)
    found = exponential(ends)
    assert (
        same(found[:4], np.array([0, 0, 1, 1], dtype)) and found[4] == exponential(np.array([high], dtype))[0]
    )
    assert np.isnan(found[5])


@each_type
def test_the_logarithm_is_within_two_places(dtype):
    x = np.concatenate([np.linspace(1, 3, 201), np.logspace(0, 6, 101)]).astype(dtype)
    exact = np.log(x.astype(np.longdouble))
    assert (np.abs(logarithm(x) - exact) <= 2 * np.spacing(exact.astype(dtype))).all()


# ---- what bits do not depend on


@pytest.mark.parametrize(
    "block", [*range(4), *(pytest.param(b, marks=pytest.mark.slow) for b in range(4, 10))]
)
def test_heads_cut_moved_and_strided_keep_their_bits(block):
    for trial in range(32 * block, 32 * (block + 1)):
        rng = np.random.default_rng(trial)
        dtype, how = TYPES[trial % 2], dict(causal=trial % 4 < 2)
        samples, count, queries, keys, depth, width = (
            int(n) for n in rng.integers(1, (4, 5, 75, 75, 40, 40))
        )
        operands = heads(rng, dtype, samples, count, queries, keys, depth, width)
        mask = drawn_mask(rng, dtype, 1, 1, queries, keys) if trial % 3 == 0 else None
        whole = both(*operands, mask=mask, threads=1 + trial % 2, **how)
        (b, to_b), (h, to_h) = (sorted(rng.choice(n + 1, 2, replace=False)) for n in (samples, count))
        cut = [x[b:to_b, h:to_h] for x in operands]
        cut = [moved(x, trial % 17) if trial % 5 else strided(x)[trial % 4] for x in cut]
        level = LEVELS[-1 - trial % 7 % 2] if len(LEVELS) > 1 else LEVELS[0]
        part = both(*cut, mask=mask, level=level, threads=2 - trial % 2, **how)
        assert all_same(part, [x[b:to_b, h:to_h] for x in whole]), trial


@each_type
def test_a_nan_stays_in_its_head_and_is_the_same_everywhere(dtype):
    operands = heads(np.random.default_rng(2), dtype, 2, 2, 20, 20, 8, 8)
    plain = both(*operands)
    operands[2][1, 0, 3, 2] = -np.nan
    for level in LEVELS:
        found = both(*operands, level=level)
        for x, y in zip(found, plain, strict=True):
            assert same(x[0], y[0]) and same(x[1, 1], y[1, 1])
            nans = x[1, 0][np.isnan(x[1, 0])]
            assert len(nans) and same(nans, np.full(len(nans), np.nan, dtype))


def test_flushing_of_subnormals_by_the_caller_changes_nothing():
    gradient, q, k, v = heads(np.random.default_rng(10), np.float32, 2, 2, 20, 20, 8, 8)
    v, gradient = (x * np.finfo(np.float32).smallest_normal for x in (v, gradient))
    whole = both(gradient, q, k, v)
    assert ((whole[0] != 0) & (np.abs(whole[0]) < np.finfo(np.float32).smallest_normal)).any()
    torch.set_flush_denormal(True)
    try:
        flushed = [both(gradient, q, k, v, threads=threads) for threads in (1, 2)]
    finally:
        torch.set_flush_denormal(False)
    assert all(all_same(other, whole) for other in flushed)


@each_type
def test_what_comes_after_a_query_does_not_enter_a_causal_row(dtype):
    gradient, q, k, v = heads(np.random.default_rng(3), dtype, 1, 1, 90, 90, 8, 8)
    whole = both(gradient, q, k, v, causal=True)
    k[0, 0, 70], v[0, 0, 70], gradient[0, 0, 60:] = np.nan, np.inf, 0
    after = both(gradient, q, k, v, causal=True)
    for x, y in zip(whole[:3], after[:3], strict=True):
        assert same(x[:, :, :60], y[:, :, :60])


# ---- errors


@each_type
def test_results_and_gradients_are_near_those_of_float64(dtype):
    for trial, (queries, keys) in enumerate([(1, 5), (33, 70), (100, 100), (7, 300), (300, 7), (129, 128)]):
        rng = np.random.default_rng(trial)
        operands = heads(rng, dtype, 2, 2, queries, keys, 24, 17)
        causal = trial % 2 == 1
        gradient, q, k, v = (torch.from_numpy(x.astype(np.float64)).requires_grad_() for x in operands)
        scores = q @ k.transpose(-1, -2) / math.sqrt(24)
        if causal:
            scores = scores.masked_fill(~torch.ones(queries, keys, dtype=torch.bool).tril(), -math.inf)
        out = torch.softmax(scores, -1) @ v
        exact = [out, scores.logsumexp(-1), *torch.autograd.grad(out, (q, k, v), gradient)]
        for name, x, y in zip(NAMES, both(*operands, causal=causal), exact, strict=True):
            y = y.detach().numpy()
            # A sum of n terms of size 1 has an error of about sqrt(n) roundings; the oracle of float64 has its own.
            limit = 3 * math.sqrt(max(queries, keys, 24)) * np.finfo(dtype).eps * np.abs(y).max()
            assert np.abs(x - y).max() <= limit, (trial, name)


@each_type
def test_torchs_kernel_is_near_and_takes_the_same_options(dtype):
    rng = np.random.default_rng(5)
    operands = heads(rng, dtype, 2, 3, 40, 40, 16, 16)
    mask = drawn_mask(rng, dtype, 40, 40)
    mask[:, 0] = 0
    for how in (dict(causal=True), dict(scale=0.3), dict(mask=mask)):
        for x, y in zip(both(*operands, **how), both(*operands, variant="torch", **how), strict=True):
            assert x.shape == y.shape
            assert np.abs(x - y).max() <= 3 * math.sqrt(40) * np.finfo(dtype).eps * np.abs(y).max()


# ---- sizes and refusals


def test_tensors_give_tensors():
    operands = [torch.from_numpy(x) for x in heads(np.random.default_rng(6), np.float32, 1, 2, 5, 6, 4, 3)]
    assert all(isinstance(x, torch.Tensor) for x in both(*operands))


@pytest.mark.parametrize(
    "sizes", [(0, 2, 3, 3, 4, 4), (2, 0, 3, 3, 4, 4), (1, 1, 0, 3, 4, 4), (1, 1, 3, 3, 4, 0)]
)
def test_what_is_empty_has_empty_results(sizes):
    operands = heads(np.random.default_rng(7), np.float64, *sizes)
    found = both(*operands, threads=2)
    assert [x.shape for x in found] == [x.shape for x in (operands[0], operands[1][..., 0], *operands[1:])]


@each_type
def test_a_query_that_sees_no_key_gives_zeros(dtype):
    gradient, q, k, v = heads(np.random.default_rng(8), dtype, 1, 1, 4, 0, 5, 6)
    out, logs, dq, _, _ = both(gradient, q, k, v)
    assert same(out, np.zeros_like(gradient)) and same(dq, np.zeros_like(q)) and (logs == -np.inf).all()
    gradient, q, k, v = heads(np.random.default_rng(8), dtype, 1, 1, 4, 3, 5, 6)
    mask = np.zeros((4, 3), dtype)
    mask[2] = -np.inf
    out, logs, dq, dk, dv = both(gradient, q, k, v, mask=mask)
    assert same(out[0, 0, 2], np.zeros(6, dtype)) and same(dq[0, 0, 2], np.zeros(5, dtype))
    without = [x[:, :, [0, 1, 3]] for x in (gradient, q)]
    assert all(same(x, y) for x, y in zip((dk, dv), both(*without, k, v)[3:], strict=True))
    assert logs[0, 0, 2] == -np.inf


def test_without_a_depth_all_keys_weigh_the_same():
    gradient, q, k, v = heads(np.random.default_rng(9), np.float64, 1, 1, 3, 4, 0, 2)
    assert np.allclose(both(gradient, q, k, v)[0], v.mean(2), rtol=0, atol=4 * np.finfo(float).eps)


@pytest.mark.parametrize(
    "change, error, message",
    [
        (dict(dropout=0.1), ValueError, "dropout 0.1: only 0 is supported"),
        (
            dict(mask=np.zeros((5, 7))),
            ValueError,
            r"mask of shape \(5, 7\) cannot be broadcast to \(2, 3, 5, 6\)",
        ),
        (dict(mask=np.zeros((5, 6), np.float32)), TypeError, "mask is of float32 and q of float64"),
        (dict(k=np.zeros((2, 3, 6, 5))), ValueError, "the last dims of q .* must be equal"),
        (dict(k=np.zeros((2, 2, 6, 4))), ValueError, "q, k and v of shapes"),
        (
            dict(v=np.zeros((2, 3, 6, 4), np.float32)),
            TypeError,
            "q, k and v are of float64, float64 and float32",
        ),
        (dict(q=np.zeros((3, 5, 4))), ValueError, "q, k and v of shapes"),
        (dict(level="avx9"), ValueError, "unknown instruction set 'avx9'"),
        (dict(threads=-1), ValueError, "threads"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_sentence(change, error, message):
    given = dict(q=np.zeros((2, 3, 5, 4)), k=np.zeros((2, 3, 6, 4)), v=np.zeros((2, 3, 6, 4)))
    with pytest.raises(error, match=message):
        attention(**{**given, **change})


@pytest.mark.parametrize("name", ["gradient", "out", "logsumexp"])
def test_the_backward_pass_names_what_does_not_fit(name):
    gradient, q, k, v = heads(np.random.default_rng(0), np.float64, 1, 2, 5, 6, 4, 3)
    out, logsumexp = attention(q, k, v)
    given = dict(gradient=gradient, q=q, k=k, v=v, out=out, logsumexp=logsumexp)
    with pytest.raises(ValueError, match=rf"attention: {name} is float64 of shape .*\(1, 2, 5"):
        attention_backward(**{**given, name: np.zeros((1, 2, 4, 3))})


def test_torchs_kernel_refuses_a_width_of_its_own():
    _, q, k, v = heads(np.random.default_rng(0), np.float64, 1, 2, 5, 6, 4, 3)
    with pytest.raises(
        ValueError, match="depth 4 and v width 3: torch's kernel needs them equal; use the variant own"
    ):
        attention(q, k, v, variant="torch")
