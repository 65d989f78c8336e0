"""What a policy lost, paired by seed."""

import numpy as np
import pytest

from benchmarks.harness.regret import regret


def test_regret_is_against_the_best_fixed_wire_and_paired():
    fixed = {"fp8": [0.80, 0.90, 0.70], "sign": [0.85, 0.95, 0.78]}
    lost = regret(fixed, [0.84, 0.94, 0.77])
    assert (lost.best, lost.seeds) == ("sign", 3) and lost.mean == pytest.approx(0.01)
    assert lost.low == pytest.approx(0.01) and lost.high == pytest.approx(
        0.01
    )  # seeds themselves do not count
    better = regret(fixed, [0.86, 0.96, 0.79])
    assert better.mean == pytest.approx(-0.01)


def test_the_interval_holds_the_mean_as_often_as_it_says():
    rng = np.random.default_rng(5)
    held = 0
    for k in range(60):
        lost = regret({"a": rng.normal(0.02, 0.01, 12)}, np.zeros(12), seed=k)
        held += lost.low <= 0.02 <= lost.high
    assert 48 <= held <= 60


def test_the_interval_repeats_and_widens_with_confidence():
    fixed, policy = {"a": np.linspace(0, 1, 8)}, np.linspace(0, 1, 8) ** 2
    narrow, wide = regret(fixed, policy, 0.5), regret(fixed, policy, 0.99)
    assert regret(fixed, policy, 0.5) == narrow
    assert wide.low < narrow.low < narrow.mean < narrow.high < wide.high


def test_one_seed_has_no_interval_and_of_equal_wires_the_first_is_best():
    lost = regret({"a": [0.5], "b": [0.5]}, [0.25])
    assert (lost.best, lost.mean) == ("a", 0.25) and np.isnan([lost.low, lost.high]).all()


@pytest.mark.parametrize("fixed, policy, message", [
    ({}, [0.5], "at least one fixed wire"),
    ({"a": []}, [], "at least one seed"),
    ({"a": [0.5, 0.5]}, [0.5], "give the same seeds"),
    ({"a": [np.nan]}, [0.5], "an outcome of a is not finite"),
    ({"a": [0.5]}, [np.inf], "an outcome of the policy is not finite"),
])  # fmt: skip
def test_what_cannot_be_compared_is_refused(fixed, policy, message):
    with pytest.raises(ValueError, match=message):
        regret(fixed, policy)
