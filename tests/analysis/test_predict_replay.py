"""Replays of programs on ranks, with noise: known times, and the drawn distributions."""

import numpy as np
import pytest

from analysis.predict.simulation.noise import Noise, Quiet, Waiting, shared_out, turns_of
from analysis.predict.simulation.replay import MOST, Step, Wait, chosen_steps, simulate

ONE = np.ones(1)


def wait(before, cost=0.0, partners=None, inside=None, name="sum"):
    """A wait of ranks that work `before` seconds each."""
    before = np.array(before, float)
    inside = np.zeros(len(before)) if inside is None else np.array(inside, float)
    return Wait(name, np.full(len(before), cost), partners, before, inside, ONE, ONE)


def replayed(waits, tail, noise=None, replays=3, spread=0.0, steps=1, of=1, residuals=ONE, delays=None):
    """Steps of these waits, one after the other."""
    step = Step(waits, [(k, True, True) for k in range(len(waits))], np.array(tail, float), residuals)
    rng = np.random.default_rng(0)
    rate = np.exp(spread * rng.standard_normal(replays))
    return simulate([step] * steps, of, len(tail), noise or Quiet(), rate, rng, delays)


def test_all_wait_for_the_last_and_for_the_messages():
    result = replayed([wait([10, 4], cost=1)], [2, 3])
    assert result.wall.tolist() == [14, 14, 14]
    assert result.cpu.tolist() == [13.5] * 3  # who waits spins: rank 0 is done at 13, rank 1 at 14
    assert result.waiting == {"sum": (1 + 7) / 2}


def test_an_exchange_waits_for_its_partners_alone():
    partners = np.array([[1, 0], [0, 1], [2, 2]])
    result = replayed([wait([1, 2, 9], partners=partners)], [0, 0, 0], replays=1)
    assert result.wall.tolist() == [9]
    assert result.cpu[0] == pytest.approx((2 + 2 + 9) / 3)


def test_work_while_a_sum_travels_hides_it():
    assert replayed([wait([1, 3], inside=[2, 0])], [0, 0], replays=1).wall.tolist() == [3]
    assert replayed([wait([1, 3], inside=[5, 0])], [0, 0], replays=1).cpu.tolist() == [(6 + 3) / 2]


def test_a_rank_that_stands_still_delays_its_partner():
    """Both have 0.3 s of work; the processor of rank 1 is away for 0.5 s at the beginning."""
    shares = np.ones((1000, 2))
    shares[:500, 1] = 0.0
    noise = Noise(shares, 2, 1, 1.0, _first())
    result = replayed([wait([0.3, 0.3])], [0.0, 0.0], noise, replays=1)
    assert result.wall[0] == pytest.approx(0.795, abs=0.002)  # not 0.8: a rank gets 1 % at least
    assert result.cpu[0] == pytest.approx((0.795 + 0.3) / 2, abs=0.003)


def _first():
    """Draws that take the windows from the first on."""

    class First:
        def integers(self, low, high, shape):
            each = np.arange(shape[0])[:, None, None] * 200
            return np.minimum(np.broadcast_to(each, shape), high - 1)

    return First()


def test_work_is_done_when_the_windows_have_given_as_much():
    """Against the sum over windows, and in two parts as in one."""
    rng = np.random.default_rng(2)
    shares = 0.1 + 0.9 * rng.random((200, 1))
    noise = Noise(shares, 1, 1, 0.2, rng)
    given = shares[:, 0].cumsum() * 1e-3
    for k in (1, 17, 200):
        np.testing.assert_allclose(noise.after(np.zeros((1, 1)), given[k - 1]), k * 1e-3)
    whole = noise.after(np.full((1, 1), 0.0123), 0.9)
    np.testing.assert_allclose(noise.after(noise.after(np.full((1, 1), 0.0123), 0.3), 0.6), whole)
    assert whole[0, 0] > 0.2 + 0.9  # time went round


def test_waits_end_later_on_a_busy_machine_and_their_ranks_hardly_spin():
    busy = Waiting(np.array([1.0]), spinning=0.25)
    result = replayed([wait([2, 2], cost=0.5)], [0, 0], delays=busy, replays=1)
    assert result.wall.tolist() == [2 + 0.5 + 1.0]
    assert result.cpu.tolist() == [2 + 0.25 * 1.5]


def test_a_wait_without_messages_has_no_delay():
    assert replayed([wait([2])], [0], delays=Waiting(np.array([1.0])), replays=1).wall.tolist() == [2]


def test_delays_are_drawn_in_runs():
    drawn = Waiting(np.arange(100.0)).drawn(50, 7, np.random.default_rng(0))
    assert drawn.shape == (50, 7)
    steps = np.diff(drawn, axis=0) % 100
    assert (steps[[k for k in range(49) if k % 20 != 19]] == 1).all()
    assert Waiting().drawn(0, 3, np.random.default_rng(0)).shape == (0, 3)


def test_ranks_without_a_core_of_their_own_take_turns():
    turns = turns_of(4, 2, calibrated=1, calibrated_cores=2)
    noise = Noise(np.ones((300, 1)), 4, 2, 1.0, np.random.default_rng(0), turns)
    np.testing.assert_allclose(noise.after(np.zeros((4, 2)), 0.1), 0.2)


@pytest.mark.parametrize(
    ("size", "cores", "share"), [(8, 2, 0.25), (16, 2, 0.125), (2, 2, 1.0), (1, 2, 1.0), (64, 16, 0.25)]
)
def test_turns_that_a_calibration_took_are_not_counted_again(size, cores, share):
    """Eight ranks spun on two cores: a quarter of one each is in their windows."""
    turns = turns_of(size, cores, calibrated=8, calibrated_cores=2)
    noise = Noise(np.full((300, 8), 0.25), size, 2, 1.0, np.random.default_rng(0), turns)
    np.testing.assert_allclose(noise.after(np.zeros((size, 2)), 0.1), 0.1 / share)


def test_nobody_takes_turns_on_cores_that_are_not_known():
    assert turns_of(64, None, calibrated=2, calibrated_cores=None) == 1.0


def test_the_same_seed_gives_the_same_replays():
    drawn = [
        replayed([wait([1, 1])], [1, 1], spread=0.1, residuals=np.array([0.5, 1.5]), replays=20)
        for _ in range(2)
    ]
    assert drawn[0].wall.tobytes() == drawn[1].wall.tobytes()
    assert len(set(drawn[0].wall.tolist())) == 20


def test_fewer_steps_than_a_run_has_do_not_widen_its_time():
    """The mean of 4 steps of a run of 400 lies apart ten times as far as that of the run."""
    residuals = np.random.default_rng(3).uniform(0.5, 1.5, 1000)
    spreads = [
        replayed([], [1.0], residuals=residuals, steps=4, of=of, replays=2000).wall.std() for of in (4, 400)
    ]
    # So many replays tell either to 2 %. The first of the 4 stands for itself, the others for 133 each.
    assert spreads[0] / spreads[1] == pytest.approx(10.0, rel=0.05)


def test_steps_are_left_out_where_there_are_too_many_waits():
    assert chosen_steps(40, 40 * 100, 2, 200).tolist() == list(range(40))
    few = chosen_steps(40, 40 * 1000, 64, 200)
    assert (len(few), few[0], few[-1]) == (2, 0, 39)
    assert len(few) * 1000 * 64 * 200 < 2 * MOST
    assert chosen_steps(1, 0, 1, 200).tolist() == [0]


def test_the_first_of_few_steps_stands_for_itself_alone():
    """What is done once, such as loading a library, is in the first step: it is not multiplied."""
    once, others = (Step([], [], np.full(1, seconds), np.ones(1)) for seconds in (9.0, 1.0))
    replays = simulate([once, others, others], 101, 1, Quiet(), np.ones(3), np.random.default_rng(1))
    assert replays.wall.tolist() == replays.cpu.tolist() == pytest.approx([109.0 / 101] * 3)


def test_slices_of_ranks_that_share_cores_are_shared_out_evenly_and_what_others_take_stays():
    turns = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [0.5, 0.0, 0.1]])
    assert shared_out(turns, 2).tolist() == [pytest.approx([each] * 3) for each in (2 / 3, 2 / 3, 0.2)]
    assert shared_out(turns, 3) is turns and shared_out(turns, None) is turns
