"""The cost model finds the constants that made the times."""

import numpy as np
import pytest

from benchmarks.allreduce.model import GOOD, Piece, Point, fit
from kernels.allreduce import orderings
from kernels.allreduce.cost import cost

SIZES = [8 << k for k in range(0, 20, 2)]


def points(seconds):
    """One point for each ordering with a schedule and size; `seconds(bytes, Cost)` is its time."""
    measurements = []
    for ordering in orderings():
        if ordering.name in ("direct", "linear", "ring", "recursive-doubling"):
            for nbytes in SIZES:
                c = cost(ordering.schedule(4), nbytes // 8, 8)
                counts = c.critical_messages, c.critical_bytes, c.critical_additions, 0, 0
                measurements.append(Point(nbytes, counts, seconds(nbytes, c)))
    return measurements


def test_the_constants_are_found():
    model = fit(points(lambda nbytes, c: c.seconds(2e-6, 3e-10, 5e-10)))
    (piece,) = model.pieces
    assert (piece.alpha, piece.beta, piece.gamma) == pytest.approx((2e-6, 3e-10, 5e-10), rel=1e-6)
    assert model.error < 1e-9 and model.verdict == "good"


def test_no_constant_is_negative_and_one_without_effect_is_zero():
    (piece,) = fit(points(lambda nbytes, c: c.seconds(2e-6, 0, 0))).pieces
    assert (piece.alpha, piece.beta, piece.gamma) == pytest.approx((2e-6, 0, 0), abs=1e-15)


def test_short_vectors_count_as_much_as_long_ones():
    rng = np.random.default_rng(4)
    noisy = fit(points(lambda nbytes, c: c.seconds(2e-6, 3e-10, 5e-10) * rng.uniform(0.9, 1.1)))
    (piece,) = noisy.pieces
    assert piece.alpha == pytest.approx(2e-6, rel=0.1)
    assert 0 < noisy.error <= 0.1 < GOOD


def test_other_constants_for_long_vectors_are_found_too():
    def eager_or_not(nbytes, c):
        return c.seconds(1e-6, 1e-10, 0) if nbytes <= 8192 else c.seconds(9e-6, 4e-10, 0)

    model = fit(points(eager_or_not))
    short, long = model.pieces
    assert (short.upto, long.upto) == (8192, None)
    assert (short.alpha, short.beta) == pytest.approx((1e-6, 1e-10), rel=1e-6)
    assert (long.alpha, long.beta) == pytest.approx((9e-6, 4e-10), rel=1e-6)
    assert model.seconds(Point(64, (2, 100, 0, 0, 0), 1.0)) == pytest.approx(2e-6 + 1e-8)


def test_a_model_that_explains_nothing_says_so():
    rng = np.random.default_rng(5)
    model = fit(points(lambda nbytes, c: 10 ** rng.uniform(-6, -2)))
    assert model.verdict.startswith("poor") and model.error > 0.3


def test_too_few_points_give_no_model():
    assert fit(points(lambda nbytes, c: 1.0)[:5]) is None


def test_a_piece_adds_up_messages_bytes_and_additions():
    assert Piece(1.0, 0.1, 0.01, 2.0, 0.5).seconds((3, 20, 100, 4, 6)) == pytest.approx(17.0)


def test_links_between_nodes_have_constants_of_their_own():
    constants = 1e-6, 2e-10, 5e-10, 3e-5, 8e-9
    nodes = [0, 0, 1, 1]
    measurements = []
    for ordering in (
        o for o in orderings() if o.name in ("direct", "two-level", "ring", "recursive-doubling")
    ):
        around = {"nodes": nodes} if "nodes" in ordering.needs else {}
        for nbytes in SIZES:
            c = cost(ordering.schedule(4, **around), nbytes // 8, 8, nodes=nodes)
            counts = c.critical_messages, c.critical_bytes, c.critical_additions
            counts += c.crossing_messages, c.crossing_bytes
            measurements.append(Point(nbytes, counts, c.seconds(*constants)))
    (piece,) = fit(measurements).pieces
    found = piece.alpha, piece.beta, piece.gamma, piece.alpha_across, piece.beta_across
    assert found == pytest.approx(constants, rel=1e-6)
