"""Products and sums over blocks: a chain for each block, added by the tree of `block-tree`, in one call."""

import numpy as np
import pytest

from kernels.allreduce.schedules.block_tree import children
from kernels.contract import conv_weight, matmul, reference, rowsum
from kernels.contract.native import LEVELS, PIECE

from .contract import TYPES, numbers, same, strided

each_type = pytest.mark.parametrize("dtype", TYPES)
LENGTHS = [
    [7],
    [3, 4],
    [5, 0, 1, 9, 2, 2, 3],
    [100, 100, 56, 1],  # a piece of three blocks, and one more
    [300, 20, 30, 600, 10],  # blocks of several pieces wait for each other
]


def added(parts):
    """The sum of the parts in the order of the tree, zeros without a sign."""

    def below(node):
        if node[1] - node[0] == 1:
            return parts[node[0]]
        left, right = (below(child) for child in children(node))
        return left + right + left.dtype.type(0)

    return below((0, len(parts)))


def pieces(x, lengths, dim):
    return np.split(x, np.cumsum(lengths)[:-1], axis=dim)


def factors(dtype, rows, depth, columns, seed=0):
    rng = np.random.default_rng(seed)
    return numbers(rng, dtype, rows, depth), numbers(rng, dtype, depth, columns)


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@each_type
def test_blocks_of_a_product_are_added_as_the_tree_has_it(lengths, dtype):
    for rows, columns in ((1, 3), (15, 33), (30, 70)):
        a, b = factors(dtype, rows, sum(lengths), columns)
        parts = zip(pieces(a, lengths, 1), pieces(b, lengths, 0), strict=True)
        whole = added([matmul(x, y) for x, y in parts])
        for level in LEVELS:
            assert same(matmul(a, b, blocks=lengths, level=level), whole)
        assert same(matmul(np.asfortranarray(a), np.asfortranarray(b), blocks=lengths), whole)
        for out in strided(np.zeros_like(whole)):
            assert same(matmul(a, b, out, blocks=lengths, threads=2), whole)


@pytest.mark.parametrize("lengths", LENGTHS[:3], ids=str)
def test_blocks_of_products_and_sums_have_the_bits_of_the_definition(lengths):
    a, b = factors(np.float32, 4, sum(lengths), 5)
    assert same(matmul(a, b, blocks=lengths), reference.matmul(a, b, blocks=lengths))
    x = numbers(np.random.default_rng(1), np.float32, 2, sum(lengths), 3)
    assert same(rowsum(x, (1, 2), blocks=lengths), reference.rowsum(x, (1, 2), blocks=lengths))


@pytest.mark.parametrize("blocks", range(1, 18))
def test_any_number_of_blocks_is_added_as_the_tree_has_it(blocks):
    for length in (2, 40, PIECE + 1):
        lengths = [length] * blocks
        a, b = factors(np.float32, 2, sum(lengths), 3)
        parts = zip(pieces(a, lengths, 1), pieces(b, lengths, 0), strict=True)
        assert same(matmul(a, b, blocks=lengths), added([matmul(x, y) for x, y in parts]))


@pytest.mark.parametrize(
    "shape, dims", [((30, 5), 0), ((5, 30), 1), ((4, 30, 3, 20), (1, 2, 3)), ((30, 4, 90), (0, 2))]
)
@each_type
def test_sums_of_blocks_are_added_or_kept_apart(shape, dims, dtype):
    lengths = [3, 0, 20, 5, 2]
    first = dims if isinstance(dims, int) else dims[0]
    x = numbers(np.random.default_rng(0), dtype, *shape)
    parts = [rowsum(part, dims) for part in pieces(x, lengths, first)]
    for y in (x, *strided(x)):
        assert same(rowsum(y, dims, blocks=lengths, apart=True, threads=2), np.stack(parts))
        assert all(same(rowsum(y, dims, blocks=lengths, level=level), added(parts)) for level in LEVELS)


@each_type
def test_blocks_of_samples_are_added_in_gradients_of_weights(dtype):
    rng = np.random.default_rng(0)
    x, gradient = numbers(rng, dtype, 7, 4, 6, 5), numbers(rng, dtype, 7, 3, 6, 5)
    lengths, how = [2, 3, 0, 2], dict(size=(3, 3), padding=1)
    parts = zip(pieces(x, lengths, 0), pieces(gradient, lengths, 0), strict=True)
    whole = added([conv_weight(a, b, **how) for a, b in parts])
    assert same(conv_weight(x, gradient, blocks=lengths, **how), whole)
    few = reference.conv_weight(x[:, :1], gradient[:, :1], blocks=lengths, **how)
    assert same(conv_weight(x[:, :1], gradient[:, :1], blocks=lengths, **how), few)


def test_sums_of_blocks_have_no_zero_with_a_sign():
    least = np.finfo(np.float32).smallest_subnormal
    a, b = np.full((1, 2), -least), np.full((2, 1), least)
    assert np.signbit(matmul(a[:, :1], b[:1])).all()  # less than nothing, rounded to -0.0
    assert not np.signbit(matmul(a, b, blocks=[1, 1])).any()


def test_nan_of_one_block_is_in_the_sum_and_nowhere_else():
    a, b = factors(np.float32, 20, 40, 40)
    plain = matmul(a, b, blocks=[10] * 4)
    a[3, 12] = np.nan
    found = matmul(a, b, blocks=[10] * 4)
    assert np.isnan(found[3]).all() and same(np.delete(found, 3, 0), np.delete(plain, 3, 0))


@pytest.mark.parametrize("level", LEVELS)
def test_nan_and_infinities_of_blocks_have_the_bits_of_a_product_for_each_block(level):
    """A NaN of a chain has no sign when it is added; what opposite infinities of two blocks give is the processor's."""
    a, b = factors(np.float32, 20, 40, 40)
    a[3, 12], a[5, 2], a[5, 31], a[7, 4], a[7, 6] = -np.nan, np.inf, np.inf, np.inf, -np.inf
    a[9, 25] = np.inf
    parts = [matmul(a[:, i : i + 10], b[i : i + 10], level=level) for i in range(0, 40, 10)]
    assert any(np.isnan(part[7]).any() for part in parts) and not any(
        np.isnan(part[5]).any() for part in parts
    )
    whole = matmul(a, b, blocks=[10] * 4, level=level)
    with np.errstate(invalid="ignore"):
        added = (parts[0] + parts[1]) + (parts[2] + parts[3]) + np.float32(0)
    assert np.isnan(whole[5]).any() and same(whole, added)


@pytest.mark.parametrize("lengths", [[3, 3], [8, -1], []], ids=str)
def test_blocks_that_do_not_make_up_the_whole_are_refused(lengths):
    with pytest.raises(ValueError, match=r"blocks \[.*\]: lengths of 0 or more that make up 7 are expected"):
        matmul(np.ones((2, 7)), np.ones((7, 2)), blocks=lengths)
    with pytest.raises(ValueError, match="rowsum: blocks"):
        rowsum(np.ones((7, 2)), 0, blocks=lengths)
