"""The summary of times and predictions in the benchmark of shardings."""

import pytest

from benchmarks.apps.dlrm import summary


def problem(seconds, predicted, floor):
    """The last strategy is the one that was searched for."""
    chosen, fastest = (of.index(min(of[:-1])) for of in (predicted, seconds))
    return {"seconds": seconds, "predicted": predicted, "floor": floor, "chosen": chosen, "fastest": fastest}


def test_a_fastest_sharding_counts_where_it_is_faster_by_more_than_the_floor():
    right = problem([1.0, 1.2, 2.0, 0.9], [1.1, 1.3, 1.9, 0.8], 0.05)
    wrong = problem([1.0, 1.2, 2.0, 1.1], [1.3, 1.1, 1.9, 1.0], 0.05)
    close = problem([1.0, 1.02, 2.0, 1.0], [1.3, 1.1, 1.9, 1.0], 0.05)
    found = summary([right, wrong, close], ranks=2)
    assert (found["testable"], found["found"], found["found_share"]) == (2, 1, 0.5)
    assert (
        found["regret_mean"] == pytest.approx((0 + 0.2 + 0.02) / 3, abs=1e-4) and found["regret_most"] == 0.2
    )
    assert found["searched_over_fastest"] == pytest.approx((-0.1 + 0.1 + 0) / 3, abs=1e-4)
    # Pairs that differ by more than the floor: three, three and two, of which one is in the wrong order.
    assert found["pairs_right"] == pytest.approx(7 / 8)
