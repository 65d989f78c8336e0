"""Dot products: their accuracy, and factors that do not fit."""

import re

import numpy as np
import pytest

from kernels import registry

from .sums import HERE, TYPES, each_type, exact_terms, in_each_type, named, sample

DOTS = [v for v in HERE if v.operation == "dot"]


@in_each_type(DOTS)
def test_products_that_are_exact_in_any_order_are_added_exactly(variant, kind):
    rng = np.random.default_rng(2)
    for n in (0, 1, 63, 64, 65, 5000):
        x, y = (rng.integers(-8, 9, n).astype(TYPES[kind]) for _ in range(2))
        assert variant(x, y) == np.dot(x.astype(np.int64), y.astype(np.int64))


@each_type
@pytest.mark.parametrize("seed", range(5))
def test_dot2_is_as_exact_as_with_twice_the_digits(kind, seed):
    """Ogita, Rump & Oishi 2005, proposition 5.5: |error| <= u |(x, y)| + gamma_n**2 (|x|, |y|)."""
    x, y = sample(400, kind, decades=5, seed=seed), sample(400, kind, decades=2, seed=seed + 50)
    x, y = np.concatenate([x, x[::-1]]), np.concatenate([y, -y[::-1]])
    y[::7] *= TYPES[kind](1.125)
    products = exact_terms([x, y])
    result = registry.get("dot", "dot2")(x, y)
    u = float(np.finfo(result.dtype).eps) / 2
    gamma = len(x) * u / (1 - len(x) * u)
    bound = u * abs(sum(products)) + gamma**2 * sum(map(abs, products))
    assert abs(float(result) - sum(products)) <= bound


@named(DOTS)
def test_factors_that_do_not_fit_are_refused(variant):
    whose = re.escape(f"dot {variant.name!r} ({variant.backend}): ")
    with pytest.raises(
        ValueError, match=whose + "cannot multiply 3 elements by 4: both factors need one length"
    ):
        variant(np.ones(3), np.ones(4))
    with pytest.raises(TypeError, match=whose + "cannot multiply float64 by float32: convert both"):
        variant(np.ones(3), np.ones(3, np.float32))
