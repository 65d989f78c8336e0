"""Emulated orders of arrival: a seed is an order, the same one everywhere, and only orders that can occur."""

import re

import numpy as np
import pytest

from kernels import registry
from kernels.guarantees import ChoiceError
from kernels.sums import emulated
from kernels.sums.launch import shape

from .hard import bits
from .sums import each_type, sample, terms
from .test_sum_orders import left_to_right, segments


class SplitMix64:
    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) % 2**64
        z = self.state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return z ^ (z >> 31)

    def below(self, n):
        while True:
            scaled = self.next() * n
            if scaled % 2**64 >= 2**64 % n:
                return scaled >> 64


def test_the_generator_is_splitmix64():
    """The first outputs for seed 1234567, as published with the generator."""
    random = SplitMix64(1234567)
    assert [random.next() for _ in range(3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


def arrivals_as_stated(units, resident, seed):
    random, order = SplitMix64(seed), []
    issued = min(resident, units) if resident else units
    flying = list(range(issued))
    while flying:
        place = random.below(len(flying))
        order.append(flying[place])
        if issued < units:
            flying[place] = issued
            issued += 1
        else:
            flying[place] = flying[-1]
            flying.pop()
    return order


@pytest.mark.parametrize("units", [0, 1, 2, 5, 100, 1000])
@pytest.mark.parametrize("resident", [0, 1, 3, 99, 5000])
def test_a_seed_is_the_order_stated(units, resident):
    for seed in [0, 1, 2, 2**64 - 1]:
        order = emulated.arrivals(units, resident, seed)
        assert order.dtype == np.int64 and order.tolist() == arrivals_as_stated(units, resident, seed)


def test_every_unit_is_served_once_and_none_before_it_is_issued():
    for resident in [1, 7, 64, 1000]:
        order = emulated.arrivals(500, resident, seed=3)
        assert sorted(order.tolist()) == list(range(500))
        assert all(unit < place + resident for place, unit in enumerate(order.tolist()))
    assert emulated.arrivals(500, 1).tolist() == list(range(500))


def test_all_orders_of_few_units_occur_alike():
    """24 orders of 4 units, 24,000 seeds: chi-squared with 23 degrees of freedom, exceeded once in 10**6 (70.7)."""
    counts = {}
    for seed in range(24000):
        key = tuple(emulated.arrivals(4, seed=seed).tolist())
        counts[key] = counts.get(key, 0) + 1
    assert len(counts) == 24
    assert sum((count - 1000) ** 2 / 1000 for count in counts.values()) < 70.7


@each_type
@pytest.mark.parametrize("n", [0, 1, 31, 32, 33, 5000])
@pytest.mark.parametrize("resident", [0, 5])
def test_samples_add_what_arrives_in_the_order_of_arrival(kind, n, resident):
    x, given = sample(n, kind), {"block": 32, "items": 2, "grid": 40}
    seeds = [5, 0, 2**64 - 1]
    warps, launched = -(-n // 32), shape(n, **given)
    elements, p = emulated.units("ao", x), emulated.units("spa", x, **given)
    assert bits(elements) == bits(terms([x]))
    assert bits(p) == bits(segments(terms([x]), launched.segment, 32) if n else np.zeros(1, p.dtype))

    by_element = [
        left_to_right(np.concatenate([elements[32 * u : 32 * u + 32] for u in order] + [elements[:0]]))
        for order in (emulated.arrivals(warps, resident, seed) for seed in seeds)
    ]
    assert bits(emulated.samples("ao", x, seeds, resident)) == bits(np.array(by_element, elements.dtype))
    by_block = [left_to_right(p[emulated.arrivals(launched.blocks, resident, seed)]) for seed in seeds]
    assert bits(emulated.samples("spa", x, seeds, resident, **given)) == bits(np.array(by_block, p.dtype))

    assert bits(registry.get("sum", "ao", "emulated")(x, seed=5, resident=resident)) == bits(by_element[0])
    spa = registry.get("sum", "spa", "emulated")
    assert bits(spa(x, **given, seed=5, resident=resident)) == bits(by_block[0])


@pytest.mark.parametrize("name", ["ao", "spa"])
def test_orders_show_and_threads_do_not(name):
    x = sample(100_000, decades=0)
    one = emulated.samples(name, x, range(40), threads=1)
    assert len(set(one.tolist())) > 5
    for threads in (2, 3, 8):
        assert bits(emulated.samples(name, x, range(40), threads=threads)) == bits(one)
    assert emulated.samples(name, x, []).shape == (0,)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: emulated.arrivals(3, seed=-1), ValueError, "seed -1: choose one from 0 to 2**64 - 1"),
        (lambda: emulated.arrivals(3, seed=2**64), ValueError, "choose one from 0"),
        (lambda: emulated.arrivals(3, seed=0.5), TypeError, "float"),
        (lambda: emulated.arrivals(-1), ValueError, "units -1: 0 or more"),
        (lambda: emulated.arrivals(3, resident=-2), ValueError, "resident -2: choose 1 unit"),
        (lambda: emulated.samples("sptr", np.ones(3), [0]), ChoiceError, "'sptr': choose one of ao, spa"),
        (lambda: emulated.units("xy", np.ones(3)), ChoiceError, "'xy': choose one of ao, spa"),
        (lambda: emulated.samples("ao", np.ones(3), [0], threads=-1), ValueError, "threads -1"),
        (
            lambda: registry.get("sum", "spa", "emulated")(np.ones(3), block=33),
            ValueError,
            "sum 'spa' (emulated): block 33: choose a power of two from 32 to 1024",
        ),
    ],
)
def test_what_cannot_be_emulated_is_refused(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call()
