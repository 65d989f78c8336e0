"""Boxes: numbering by blocks, rows of stencils, coarser boxes, Galerkin coefficients, manufactured solutions."""

import numpy as np
import pytest
import scipy.sparse as sparse
import scipy.sparse.linalg as linalg

from kernels.guarantees import ChoiceError
from miniapps.layout.blocks import BlocksError
from miniapps.linear import entries
from miniapps.linear.box import Box, coarsen, parents
from miniapps.linear.entries import interpolation, restriction, rows
from miniapps.linear.stencils import KINDS, galerkin, stencil
from miniapps.solver.manufactured import manufactured

SHAPES = [(8, 9, 7), (6, 5, 10), (4, 4, 4), (13, 16, 2), (1, 3, 12)]
BLOCKS = [(3, 4, 2), (4, 4, 4), (1, 1, 1), (8, 2, 16)]
SYMMETRIC = ("poisson27", "poisson7", "anisotropic")


def matrix(arrays, columns):
    indptr, indices, data = arrays
    return sparse.csr_matrix((data, indices, indptr), (len(indptr) - 1, columns))


def everything(box):
    return np.arange(box.count)


def coarser(box):
    axes = tuple(n > 1 for n in box.shape)
    return coarsen(box, axes), axes


def by_hand(box, coefficients):
    """The matrix of a stencil in lexicographic order, point by point, then numbered as the box does."""
    nz, ny, nx = box.shape
    dense = np.zeros((box.n, box.n))
    at = {p: i for i, p in enumerate(zip(*(c.tolist() for c in box.points(everything(box))), strict=True))}
    for (z, y, x), i in at.items():
        of = coefficients[int(z == nz - 1), int(y == ny - 1), int(x == nx - 1)]
        for (a, b, c), value in np.ndenumerate(of):
            j = at.get((z + a - 1, y + b - 1, x + c - 1))
            if j is not None:
                dense[i, j] = value
    return dense


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("block", BLOCKS)
def test_blocks_are_contiguous_rows_and_points_know_their_numbers(shape, block):
    box = Box(*shape, block)
    z, y, x = box.points(everything(box))
    assert (box.number(z, y, x) == np.arange(box.n)).all()
    assert len(set(zip(z.tolist(), y.tolist(), x.tolist(), strict=True))) == box.n == box.starts[-1]
    for b in range(box.count):
        mine = slice(box.starts[b], box.starts[b + 1])
        where = np.stack([z[mine] // block[0], y[mine] // block[1], x[mine] // block[2]])
        assert (where == where[:, :1]).all()
        inside = np.lexsort((x[mine], y[mine], z[mine]))
        assert (inside == np.arange(len(inside))).all()


def test_a_box_that_cannot_be_is_refused_with_the_axis():
    with pytest.raises(BlocksError, match="at least one point along y, not 0"):
        Box(4, 0, 4, (2, 2, 2))
    with pytest.raises(BlocksError, match="block needs at least one point along x, not 0"):
        Box(4, 4, 4, (2, 2, 0))
    with pytest.raises(BlocksError, match="cuts along z must increase from 0 to 4"):
        Box(4, 4, 4, (np.array([0, 3, 3, 4]), 2, 2))
    with pytest.raises(BlocksError, match="three edges"):
        Box(4, 4, 4, (2, 2))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("shape", "block"), [((3, 4, 5), (2, 2, 2)), ((4, 1, 3), (3, 1, 1)), ((2, 16, 17), (2, 16, 16))]
)
def test_rows_are_the_stencil_with_zero_outside(kind, shape, block):
    box = Box(*shape, block)
    coefficients = stencil(kind, box.h).coefficients
    assert np.array_equal(
        matrix(rows(box, stencil(kind, box.h), everything(box)), box.n).toarray(), by_hand(box, coefficients)
    )


def test_rows_follow_the_classes_of_the_last_points():
    fine = Box(6, 8, 4, (2, 3, 4))
    coarse, of = coarsen(fine), galerkin(stencil("poisson27"), fine.shape)
    assert not np.array_equal(of.coefficients[0, 0, 0], of.coefficients[1, 1, 1])
    assert np.array_equal(
        matrix(rows(coarse, of, everything(coarse)), coarse.n).toarray(), by_hand(coarse, of.coefficients)
    )


def test_rows_of_seven_points_hold_no_more_than_seven_entries():
    box = Box(5, 5, 5, (2, 2, 2))
    assert np.diff(rows(box, stencil("poisson7"), everything(box))[0]).max() == 7
    assert np.diff(rows(box, stencil("poisson27"), everything(box))[0]).max() == 27


@pytest.mark.parametrize("make", ["rows", "interpolation", "restriction"])
def test_rows_are_the_same_whoever_makes_them_and_sorted(make, monkeypatch):
    fine = Box(9, 8, 12, (4, 3, 5))
    coarse, _ = coarser(fine)
    of = galerkin(stencil("poisson7"), fine.shape)
    box, maker = {
        "rows": (coarse, lambda blocks: rows(coarse, of, blocks)),
        "interpolation": (fine, lambda blocks: interpolation(fine, coarse, blocks)),
        "restriction": (coarse, lambda blocks: restriction(fine, coarse, blocks)),
    }[make]
    indptr, columns, data = maker(everything(box))
    assert indptr.dtype == columns.dtype == np.int64 and data.dtype == np.float64
    inside = np.ones(len(columns) - 1, bool)
    inside[indptr[1:-1] - 1] = False
    assert (np.diff(columns)[inside] > 0).all()
    monkeypatch.setattr(entries, "CHUNK", 7)
    for some in ([0], [box.count - 1], list(range(0, box.count, 2)), []):
        mine = np.concatenate([np.arange(box.starts[b], box.starts[b + 1]) for b in some] or [[]]).astype(int)
        which = np.concatenate([np.arange(indptr[i], indptr[i + 1]) for i in mine] or [[]]).astype(int)
        got = maker(some)
        assert np.array_equal(got[0], np.concatenate([[0], np.cumsum(np.diff(indptr)[mine])]))
        assert np.array_equal(got[1], columns[which]) and np.array_equal(got[2], data[which])


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_coarse_block_lies_where_its_points_are(shape, block):
    fine = Box(*shape, block)
    while max(fine.shape) > 1:
        coarse, axes = coarser(fine)
        home = parents(fine, coarse)
        assert len(home) == coarse.count and (np.diff(coarse.starts) > 0).all()
        for b in range(coarse.count):
            first = [int(c[0]) for c in coarse.points([b])]
            there = fine.number(*(2 * c + 1 if chosen else c for c, chosen in zip(first, axes, strict=True)))
            assert fine.starts[home[b]] <= there < fine.starts[home[b] + 1]
        fine = coarse


def test_blocks_halve_and_merge_only_when_they_are_too_small():
    fine = Box(32, 32, 64, (8, 8, 8))
    middle = coarsen(fine)
    assert middle.blocks == fine.blocks and np.diff(middle.cuts[2]).tolist() == [4] * 8
    coarse = coarsen(coarsen(middle))
    assert coarse.shape == (4, 4, 8) and coarse.blocks == (2, 2, 4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("all_axes", [True, False])
def test_galerkin_coefficients_are_those_of_r_a_p(kind, shape, all_axes):
    fine, of = (
        Box(*shape, (3, 4, 2)),
        stencil(kind, 1 / 8, **({"velocity": (1, -2, 3)} if "conv" in kind else {})),
    )
    while max(fine.shape) > 1:
        axes = tuple(n > 1 and (all_axes or n == max(fine.shape)) for n in fine.shape)
        coarse = coarsen(fine, axes)
        a, p = (
            matrix(rows(fine, of, everything(fine)), fine.n),
            matrix(interpolation(fine, coarse, everything(fine)), coarse.n),
        )
        r = matrix(restriction(fine, coarse, everything(coarse)), fine.n)
        assert (r != p.T).nnz == 0
        of = galerkin(of, fine.shape, axes)
        expected, got = (
            (r @ a @ p).toarray(),
            matrix(rows(coarse, of, everything(coarse)), coarse.n).toarray(),
        )
        if kind == "anisotropic":  # 0.1 and 0.01 are not dyadic
            assert np.abs(got - expected).max() <= 64 * np.finfo(float).eps * np.abs(expected).max()
        else:
            assert np.array_equal(got, expected)
        fine = coarse


def test_interpolation_is_linear_between_coarse_points_and_towards_zero_outside():
    fine = Box(1, 1, 8, (1, 1, 3))
    coarse = coarsen(fine, (False, False, True))
    p = matrix(interpolation(fine, coarse, everything(fine)), coarse.n)
    assert (p @ np.array([2.0, 4.0, 6.0, 8.0])).tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    fine = Box(1, 1, 5, (1, 1, 5))
    coarse = coarsen(fine, (False, False, True))
    p = matrix(interpolation(fine, coarse, everything(fine)), coarse.n)
    assert (p @ np.array([2.0, 4.0])).tolist() == [1.0, 2.0, 3.0, 4.0, 2.0]


@pytest.mark.parametrize("kind", KINDS)
def test_symmetry_is_known_and_the_bound_holds(kind):
    box, of = Box(7, 6, 8, (4, 4, 4)), stencil(kind, 1 / 9)
    assert of.symmetric == (kind in SYMMETRIC)
    for _ in range(2):
        a = matrix(rows(box, of, everything(box)), box.n)
        assert ((a != a.T).nnz == 0) == (kind in SYMMETRIC)
        scaled = sparse.diags(1 / a.diagonal()) @ a
        assert np.abs(np.linalg.eigvals(scaled.toarray())).max() <= of.bound()
        of, box = galerkin(of, box.shape), coarsen(box)


def test_couplings_are_the_diffusion_along_the_axes_in_units_of_the_grid():
    assert stencil("poisson27").couplings().tolist() == [9.0, 9.0, 9.0]
    fine = stencil("anisotropic", eps_z=0.25, eps_y=0.5)
    assert fine.couplings().tolist() == [0.25, 0.5, 1.0]
    coarse = galerkin(fine, (9, 9, 9), (False, False, True)).couplings()
    assert coarse.tolist() == [0.5, 1.0, 0.5]  # that along x has fallen to a quarter of the others


CASES = [
    ("poisson27", {}, 2),
    ("poisson7", {}, 2),
    ("anisotropic", {"eps_z": 0.05, "eps_y": 4.0}, 2),
    ("convection-diffusion", {"scheme": "central", "velocity": (3.0, -2.0, 5.0)}, 2),
    ("convection-diffusion", {"scheme": "upwind", "velocity": (3.0, -2.0, 5.0)}, 1),
]


@pytest.mark.parametrize(("kind", "parameters", "order"), CASES, ids=[f"{k}-{o}" for k, _, o in CASES])
def test_errors_fall_with_the_order_of_the_differences(kind, parameters, order):
    errors = []
    for n in (9, 19):
        box = Box(n, (n + 1) // 2 - 1, n, (4, 5, 6))
        a = matrix(rows(box, stencil(kind, box.h, **parameters), everything(box)), box.n)
        solution, right_side = manufactured(kind, box, **parameters)
        at = box.coordinates(everything(box))
        answer, expected = linalg.spsolve(a.tocsc(), right_side(*at)), solution(*at)
        errors.append(np.abs(answer - expected).max() / np.abs(expected).max())
    observed = np.log2(errors[0] / errors[1])
    assert abs(observed - order) < 0.3, (errors, observed)
    assert errors[1] < 0.1


def test_wrong_choices_are_refused_with_what_there_is():
    with pytest.raises(ChoiceError, match=r"unknown kind of problem 'poisson'.*poisson27, poisson7"):
        stencil("poisson")
    with pytest.raises(ChoiceError, match=r"unknown scheme 'down'.*upwind, central"):
        stencil("convection-diffusion", scheme="down")
    with pytest.raises(ValueError, match="poisson7 has no parameter 'eps_y'; it has: none"):
        stencil("poisson7", eps_y=1.0)
    with pytest.raises(ValueError, match=r"eps_y = 0.0: the diffusion along an axis must be positive"):
        stencil("anisotropic", eps_y=0.0)
    with pytest.raises(ValueError, match="three finite numbers"):
        stencil("convection-diffusion", velocity=(1.0, np.nan, 0.0))
