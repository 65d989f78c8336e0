"""Steps of ranks that share cores: known times, and bounds that drawn ones keep."""

from math import inf

import numpy as np
import pandas as pd
import pytest

from analysis.predict.reading.calibration import BURST, leaves_of
from analysis.predict.simulation.noise import Quiet
from analysis.predict.simulation.replay import Step, Wait, simulate
from analysis.predict.simulation.sharing import share_of, shared

ONE = np.ones(1)


def wait(before, cost=0.0, partners=None, inside=None):
    """A wait of ranks that work `before` seconds each."""
    zeros = np.zeros(len(before))
    inside = zeros if inside is None else np.array(inside, float)
    return Wait("wait", zeros + cost, partners, np.array(before, float), inside, ONE, ONE)


def step(waits, tail):
    return Step(waits, [(k, True, True) for k in range(len(waits))], np.array(tail, float), ONE)


def alone(of, slower=1.0):
    """Seconds of the step on a core for each rank, or a part of one."""
    rng = np.random.default_rng(0)
    return float(simulate([of], 1, len(of.tail), Quiet(slower), np.ones(1), rng).wall[0])


def in_turns(bursts, each):
    """Two ranks, of which one works while the other waits for it."""
    waits = [wait([each, 0.0] if k % 2 == 0 else [0.0, each]) for k in range(bursts)]
    return step(waits, [0.0, 0.0])


def test_ranks_that_work_together_share_their_cores_evenly():
    together = step([wait([3.0] * 4, cost=1.0)], [2.0] * 4)
    assert shared(together, 4, 2, leaves=inf) == pytest.approx(2 * 5 + 1)  # messages take as long as ever
    assert share_of(together, 4, 2, inf) == pytest.approx(0.5)
    assert share_of(together, 4, 4, 0.0) == share_of(together, 4, 8, 0.0) == 1.0


@pytest.mark.parametrize(("leaves", "taken"), [(inf, 6.0), (3.0, 6.0), (1.0, 9.0), (0.0, 12.0)])
def test_a_rank_that_waits_leaves_its_core_for_a_while(leaves, taken):
    """Three bursts of two seconds: what is left of each after `leaves` takes twice as long."""
    assert shared(in_turns(3, 2.0), 2, 1, leaves) == pytest.approx(taken)


def test_the_last_rank_of_three_has_a_core_to_itself():
    """The others wait for it, and take a share of the two cores sooner or later."""
    uneven = step([wait([1.0, 1.0, 4.0])], [0.0] * 3)
    assert shared(uneven, 3, 2, leaves=inf) == pytest.approx(1.5 + 3.0)
    assert shared(uneven, 3, 2, leaves=1.0) == pytest.approx(1.5 + 1.0 + 2.0 * 1.5)
    assert shared(uneven, 3, 2, leaves=0.0) == pytest.approx(1.5 * 4.0)


def test_a_pair_waits_for_its_partner_alone():
    partners = np.array([[1, 0], [0, 1], [2, 2]])
    pair = step([wait([1.0, 2.0, 8.0], partners=partners)], [1.0, 0.0, 0.0])
    assert shared(pair, 3, 3, leaves=0.0) == alone(pair) == 8.0


@pytest.mark.parametrize("seed", range(30))
def test_drawn_steps_take_no_less_than_alone_and_no_more_than_with_even_shares(seed):
    rng = np.random.default_rng(seed)
    size, cores = int(rng.integers(2, 7)), int(rng.integers(1, 4))
    pairs = np.array([[rank, rank ^ 1 if rank ^ 1 < size else rank] for rank in range(size)])
    waits = [
        wait(rng.exponential(1.0, size) * (rng.random(size) < 0.7), rng.exponential(0.3),
             pairs if rng.random() < 0.5 else None, rng.exponential(0.2, size))
        for _ in range(5)
    ]  # fmt: skip
    drawn = step(waits, rng.exponential(1.0, size))
    times = [shared(drawn, size, cores, leaves) for leaves in (inf, 1.0, 0.3, 0.0)]
    assert alone(drawn) <= times[0] + 1e-9
    assert times[-1] <= alone(drawn, max(size / cores, 1.0)) + 1e-9
    assert all(
        min(1.0, cores / size) - 1e-9 <= share_of(drawn, size, cores, x) <= 1.0 for x in (inf, 0.3, 0.0)
    )
    if cores >= size:
        assert times == pytest.approx([alone(drawn)] * 4)


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_a_step_of_other_units_takes_as_many_of_them(unit):
    rng = np.random.default_rng(1)
    seconds = [rng.exponential(1.0, 5) for _ in range(6)]
    found = [
        shared(step([wait(u * each, 0.3 * u) for each in seconds], u * seconds[0]), 5, 2, 0.4 * u)
        for u in (1.0, unit)
    ]
    assert found[1] == pytest.approx(unit * found[0], rel=1e-5)


def bursts(taken):
    """Work of 5 ms that took so long."""
    return pd.DataFrame({"seconds": taken, BURST: 0.005})


def test_how_long_a_core_is_left_follows_from_the_length_of_bursts():
    assert leaves_of(bursts([0.008, 0.008]), even=0.5) == pytest.approx(0.002)  # 2 ms alone, 3 ms shared
    assert leaves_of(bursts([0.017]), even=0.25) == pytest.approx(0.001)
    assert leaves_of(bursts([0.006, 0.014]), even=0.5) == pytest.approx(0.0)
    assert leaves_of(bursts([0.05]), even=0.5) == 0.0  # something else used the core, too
    assert leaves_of(bursts([0.0051, 0.005]), even=0.5) == inf  # ranks that wait sleep
    assert leaves_of(bursts([]), even=0.5) == leaves_of(pd.DataFrame({"seconds": [0.01]}), even=0.5) == 0.0
    assert leaves_of(bursts([0.01]), even=1.0) == 0.0  # each has a core
