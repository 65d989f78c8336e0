"""Where the difference of two runs lies among those that rounding makes: `miniapps.cause.placing`."""

import numpy as np
import pytest

from miniapps.cause.placing import NOT_ROUNDING, OPEN, ROUNDING, Directed, judge
from miniapps.cause.sizes import KEY, Sizes
from miniapps.trace.layouts import Layout

NAMES = {"total:sum": 0, "received:MPI_Recv at f": 1}
EPS = 2.0**-52


def recorded(*rows, sources=None, layout=None):
    """Sizes of rows (name, step, number, l1)."""
    keys = np.zeros(len(rows), KEY)
    numbers, l1 = np.zeros((len(rows), 4)), np.zeros(len(rows))
    for i, (name, step, number, size) in enumerate(rows):
        keys[i]["name"], keys[i]["step"], numbers[i, 0], l1[i] = NAMES[name], step, number, size
    order = np.argsort(keys.view(f"V{KEY.itemsize}"))
    return Sizes(
        keys.view(f"V{KEY.itemsize}")[order],
        numbers[order],
        l1[order],
        np.ones(len(rows), np.int64),
        np.full(len(rows), 2.0**-53),
        sources or {},
        layout or Layout(1, {}, {}),
    )


def total(*numbers, sources=None):
    return recorded(
        *(("total:sum", step, number, abs(number)) for step, number in enumerate(numbers)), sources=sources
    )


def launches(centre, spread, n=10, seed=0):
    """`n` launches around the numbers `centre`, moved by up to `spread` (relative)."""
    moves = np.random.default_rng(seed).uniform(-1, 1, (n, len(centre)))
    return [total(*(c * (1 + spread * m) for c, m in zip(centre, move, strict=True))) for move in moves]


def told(a, b, spread, still=None, **more):
    own = total(*a)
    return judge(own, total(*b), still or [own, own], launches(a, spread, **more), NAMES)


def test_a_difference_that_disturbed_launches_make_too_is_rounding():
    assert told([1.1, 2.3], [1.1 * (1 + EPS), 2.3 * (1 - EPS)], 2 * EPS).kind == ROUNDING


def test_a_difference_far_beyond_them_is_not():
    verdict = told([1.1, 2.3], [1.1, 2.3 * (1 + 1e-9)], 2 * EPS)
    assert verdict.kind == NOT_ROUNDING
    assert verdict.worst.step == 1 and verdict.worst.ratio > 1e5


def test_a_bug_is_seen_behind_an_earlier_difference_that_is_rounding():
    verdict = told([1.1, 2.3], [1.1 * (1 + EPS), 2.3 * (1 + 1e-9)], 2 * EPS)
    assert verdict.kind == NOT_ROUNDING
    assert (verdict.first.step, verdict.worst.step) == (0, 1)


def test_chaos_that_moves_as_far_is_rounding_however_large():
    assert told([0.552, 0.31], [0.653, 0.44], 0.5).kind == ROUNDING


def test_between_both_it_is_open():
    assert told([1.1], [1.1 * (1 + 10 * EPS)], 2 * EPS).kind == OPEN


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_number_that_is_none_in_one_run_alone_is_no_rounding(number):
    assert told([1.1], [number], 2 * EPS).kind == NOT_ROUNDING


def test_what_differs_without_disturbance_by_much_is_no_rounding():
    a = [1.1, 2.3]
    verdict = told(a, [1.1, 2.3 * (1 + 1e-3)], 2 * EPS, still=[total(*a), total(1.1, 9.9)])
    assert verdict.kind == NOT_ROUNDING
    assert verdict.unstable == 1 and verdict.worst is None and verdict.unrepeated.step == 1


def test_undisturbed_launches_that_differ_as_rounding_does_leave_it_open():
    a = [1.1, 2.3]
    assert (
        told(a, [1.1, 2.3 * (1 + EPS)], 2 * EPS, still=[total(*a), total(1.1, 2.3 * (1 - EPS))]).kind == OPEN
    )


def test_a_launch_that_does_not_repeat_says_nothing_of_rounding():
    """As of a race that two undisturbed launches did not meet by chance."""
    a = [1.1, 2.3]
    own, others = total(*a), launches(a, 1e-3)
    b = total(1.1, 2.3 * (1 + 1e-4))
    excused = judge(own, b, [own, own], others, NAMES)
    assert excused.kind == ROUNDING
    same = judge(own, b, [own, own], others, NAMES, {excused.launch: others[excused.launch]})
    assert same.kind == ROUNDING
    assert judge(own, b, [own, own], others, NAMES, {excused.launch: total(1.1, 2.31)}).kind == NOT_ROUNDING


def directed(a, b, changed, still=None):
    """Launches as B, and as both runs upward and downward, between whose middle and A and B `changed` lies."""
    return Directed(
        still or total(*b),
        *([total(*(x * (1 + changed + w) for x in side)) for w in (3 * EPS, -3 * EPS)] for side in (a, b)),
    )


@pytest.mark.parametrize(("apart", "kind"), [(500 * EPS, NOT_ROUNDING), (20 * EPS, OPEN), (EPS, ROUNDING)])
def test_a_bug_below_the_reach_of_launches_stays_where_rounding_changes(apart, kind):
    a = [1.1, 2.3, 1.7]
    b = [x * (1 + apart) for x in a]
    own = total(*a)
    far = launches(a, 1000 * EPS)
    assert judge(own, total(*b), [own, own], far, NAMES).kind == ROUNDING
    verdict = judge(own, total(*b), [own, own], far, NAMES, None, directed(a, b, 2 * EPS))
    assert verdict.kind == kind, verdict
    assert verdict.at[0] == "total:sum"


def test_it_is_not_asked_where_a_launch_as_b_is_not_b():
    a, b = [1.1, 2.3], [1.1 * (1 + 500 * EPS), 2.3 * (1 + 500 * EPS)]
    own, far = total(*a), launches([1.1, 2.3], 1000 * EPS)
    verdict = judge(own, total(*b), [own, own], far, NAMES, None, directed(a, b, 2 * EPS, still=own))
    assert verdict.kind == ROUNDING and verdict.stay is None


def test_whole_numbers_that_no_launch_changed_are_left_open():
    verdict = told([3.0], [4.0], 0.0)
    assert verdict.kind == OPEN and verdict.integers == 1


def test_messages_of_other_ranks_are_no_difference_of_numbers():
    def run(number, source):
        name = "source:MPI_Recv at f"
        return recorded(("received:MPI_Recv at f", 0, number, number), sources={name: [source]})

    a = run(1.5, 1)
    verdict = judge(a, run(7.5, 2), [a, a], [a, a, a], NAMES)
    assert verdict.kind == OPEN and not verdict.differing


def test_nothing_in_common_is_said():
    empty = recorded()
    assert judge(empty, empty, [empty, empty], [empty] * 3, NAMES).compared == 0


@pytest.mark.parametrize("seed", range(5))
def test_runs_that_are_two_more_such_launches_are_never_accused(seed):
    """2,000 records that rounding moves, of two runs drawn as the launches are."""
    centre = np.random.default_rng(seed).lognormal(size=2000)
    a, b, *others = launches(centre, 1e-12, n=14, seed=seed + 100)
    assert judge(a, b, others[:1] * 2, others[2:], NAMES).kind != NOT_ROUNDING


@pytest.mark.parametrize("seed", range(12))
def test_runs_on_other_numbers_of_ranks_are_placed_call_by_call(seed):
    """A sum over two ranks is a step where there are no more, and shifts no call there; by itself it is left out."""
    draw = np.random.default_rng(seed)
    calls = ["total:sum", *draw.choice(["total:sum", "total:other", "total:row"], 30)]
    for name in calls:
        NAMES.setdefault(name, len(NAMES))
    options = {
        "recording.of_ranks": {
            "of_ranks": True,
            "records": ["fingerprints:total:* by rank *", "values:source:*"],
        }
    }

    def run(ranks, difference=0.0):
        rows, step = [], 0
        for i, name in enumerate(calls):
            own = name == "total:row"
            rows.append((name, step, 1.0 + i + (0.5 * ranks if own else difference), 1.0 + i))
            step += not own or ranks == 2
        stated = {
            name.removeprefix("total:"): {"ranks": 2 if name == "total:row" else ranks} for name in set(calls)
        }
        return recorded(*rows, layout=Layout(ranks, options, stated))

    for a, b in ((2, 4), (4, 2)):
        disturbed = [run(a, float(d)) for d in draw.uniform(-1e-12, 1e-12, 10)]
        equal = judge(run(a), run(b), [run(a)], disturbed, NAMES)
        assert (equal.differing, equal.compared) == (0, sum(name != "total:row" for name in calls))
        assert judge(run(a), run(b, 1e-13), [run(a)], disturbed, NAMES).kind == ROUNDING
        assert judge(run(a), run(b, 1e-6), [run(a)], disturbed, NAMES).kind == NOT_ROUNDING
