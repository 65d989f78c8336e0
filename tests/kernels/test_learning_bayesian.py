"""Curves predicted by a Bayesian neural network: errors, standard deviations, seeds, mistakes."""

import numpy as np
import pytest

from kernels.learning import bayesian

U = np.arange(1.0, 13.0)
ENDS = {"pow": lambda u: 0.9 - 0.5 * (1 + u) ** -0.7, "exp": lambda u: 0.75 - 0.4 * np.exp(-0.3 * u)}
FEATURES = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]


def noisy(seed):
    """Two runs of the first kind and one of the second."""
    rng = np.random.default_rng(seed)
    return [(U, ENDS[kind](U) + 0.003 * rng.standard_normal(12)) for kind in ("pow", "exp", "pow")]


@pytest.fixture(scope="module")
def found():
    return bayesian.predict(FEATURES, noisy(2), 24.0, seed=2)


def test_ends_are_near_and_within_their_standard_deviations(found):
    """The path of the sampler follows the rounding of a processor, so other ones have other samples."""
    for kind, each in zip(("pow", "exp", "pow"), found, strict=True):
        apart = abs(each.mean - ENDS[kind](24.0))
        assert apart < 4 * each.sigma and 0.003 < each.sigma < 0.03 and not each.failed


def test_runs_with_equal_features_have_one_curve(found):
    assert found[0] == found[2] != found[1]


def test_one_seed_gives_one_result(found, monkeypatch):
    monkeypatch.setattr(bayesian, "BURN_IN", 20)
    monkeypatch.setattr(bayesian, "KEPT", 3)
    one, same, other = (bayesian.predict(FEATURES, noisy(1), 24.0, seed=seed) for seed in (1, 1, 2))
    assert one == same != other


@pytest.mark.parametrize(
    ("features", "curves", "at", "message"),
    [
        ([[1.0]], noisy(1), 24.0, "give a row for each"),
        ([1.0, 2.0, 3.0], noisy(1), 24.0, "give a row for each"),
        ([], [], 24.0, "at least one"),
        (FEATURES, noisy(1), 11.0, "12.0 or later"),
        ([[1.0]], [([1.0, 2.0], [0.5, np.nan])], 3.0, "leave out such points"),
        ([[1.0]], [([2.0, 1.0], [0.5, 0.6])], 3.0, "ascend"),
    ],
)
def test_what_is_no_curve_is_refused(features, curves, at, message):
    with pytest.raises(ValueError, match=message):
        bayesian.predict(features, curves, at)
