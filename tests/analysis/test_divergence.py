"""First divergence: the tool names exactly the bit that was changed, whoever owned it."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.comparison import first_of_each
from analysis.divergence.compare import NothingInCommon, compare
from analysis.divergence.steps import growth, growths
from analysis.load.frames import load
from kernels import bits
from miniapps.trace import Tracer
from tests.analysis.synthetic import BLOCKS, CONFIG, STEPS, attributes, field_at, flip_bit, owners, write_run


def flip(at_step, block, element=0, bit=0, lasting=True):
    """A change that flips one bit of one block in `at_step`, and in all later steps if it lasts."""

    def change(repeat, step, field):
        if step == at_step or (lasting and step > at_step):
            flip_bit(field, block, element, bit)

    return change


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return {
        size: write_run(tmp_path_factory.mktemp("good") / f"on{size}", size=size) for size in (1, 2, 3, 4)
    }


@settings(
    max_examples=settings.default.max_examples // 8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    sizes=st.tuples(st.sampled_from([1, 2, 3, 4]), st.sampled_from([1, 2, 3, 4])),
    step=st.integers(0, STEPS - 1), block=st.integers(0, BLOCKS - 1), bit=st.integers(0, 51),
    shuffle=st.integers(0, 5),
)  # fmt: skip
def test_one_flipped_bit_is_named_exactly(good, tmp_path_factory, sizes, step, block, bit, shuffle):
    change = flip(step, block, bit=bit)
    bad = write_run(tmp_path_factory.mktemp("bad") / "bad", size=sizes[1], change=change, shuffle=shuffle)
    frames = load([good[sizes[0]], bad])
    a, b = sorted(frames.runs["run"], key=lambda run: run.endswith("bad"))
    divergence = compare(frames, (a, 0), (b, 0))
    at = divergence.fingerprint
    assert (at.step, at.name, at.block) == (step, "vorticity", block)
    assert at.rank_a == owners(BLOCKS, sizes[0])[block]
    assert at.rank_b == owners(BLOCKS, sizes[1], shuffle)[block]
    assert (at.differing, at.recorded) == (1, BLOCKS)
    (value,) = [point for point in divergence.values if point.name == "sample"]
    assert (value.step, value.block, value.a) == (step, block, field_at(step)[block, 0])
    assert bits.ulp_distance(value.a, value.b) == 2**bit
    assert not divergence.equal and divergence.first == at


@pytest.mark.parametrize("lost", [np.nan, 0.5])
def test_where_all_blocks_differ_the_largest_difference_is_named(good, tmp_path, lost):
    def change(repeat, step, field):
        if step == 3:
            for block in range(BLOCKS):
                flip_bit(field, block)  # what a global sum does to all
            field[7, 0] = lost

    bad = write_run(tmp_path / "bad", change=change)
    frames = load([good[1], bad])
    a, b = sorted(frames.runs["run"], key=lambda run: run.endswith("bad"))
    divergence = compare(frames, (a, 0), (b, 0))
    assert (divergence.first.step, divergence.first.block, divergence.first.differing) == (3, 0, BLOCKS)
    assert (divergence.largest.step, divergence.largest.name, divergence.largest.block) == (3, "sample", 7)


def test_equal_runs_are_equal_whatever_their_rank_count(good):
    frames = load(good.values())
    runs = [(run, 0) for run in frames.runs["run"]]
    for other in runs[1:]:
        divergence = compare(frames, runs[0], other)
        assert (
            divergence.equal
            and divergence.first is None
            and divergence.order is None
            and divergence.values == ()
        )
        assert (divergence.only_a, divergence.only_b) == (0, 0)
        assert divergence.compared == STEPS * (3 * BLOCKS + 1)
        assert divergence.through == STEPS - 1


def test_a_difference_that_vanishes_again_is_found(good, tmp_path):
    bad = write_run(tmp_path / "bad", change=flip(2, 5, element=3, lasting=False))
    frames = load([good[2], bad])
    a, b = frames.runs["run"]
    divergence = compare(frames, (a, 0), (b, 0))
    assert (divergence.first.step, divergence.first.block) == (2, 5)


def write_names(out, size, step_names, changed=()):
    """A run of one step on `size` ranks: `step_names[rank]` are recorded in this order, for the blocks of the
    rank; names in `changed` differ."""
    out.mkdir()
    owner = owners(4, size)
    for rank in range(size):
        with Tracer(
            out / f"rank-{rank:05d}.h5", attributes(rank, size, "none", "x", run_id=str(out)), size=size
        ) as tracer:
            tracer.at(0, 0)
            for name in sorted(step_names[rank]):
                tracer.name(name)  # numbers in another order than that of recording
            for name in step_names[rank]:
                for block in np.flatnonzero(owner == rank) if name != "weights" else [99]:
                    tracer.fingerprint(name, int(block), bytes([name in changed]) * 16)
    return out


def test_within_a_step_the_name_recorded_first_comes_first(tmp_path):
    names = [["zeta", "alpha", "weights", "mid"], ["zeta", "alpha", "mid"]]
    write_names(tmp_path / "a", 2, names)
    for changed, first in [
        (("alpha", "mid"), "alpha"),
        (("mid", "weights"), "weights"),
        (("alpha", "zeta"), "zeta"),
    ]:
        write_names(tmp_path / first, 2, names, changed)
        frames = load([tmp_path / "a", tmp_path / first])
        assert compare(frames, ("a", 0), (first, 0)).first.name == first


def test_a_name_recorded_several_times_in_a_step_is_told_apart(tmp_path):
    def write(out, third):
        out.mkdir()
        with Tracer(out / "rank-00000.h5", attributes(0, 1, "none", "x", run_id=str(out))) as tracer:
            tracer.at(0, 4)
            for stage in range(3):
                for block in (0, 1):
                    changed = stage == 2 and block == 1 and third
                    tracer.fingerprint("stage", block, bytes([0] * 15 + [changed]))

    write(tmp_path / "a", False)
    write(tmp_path / "b", True)
    at = compare(load([tmp_path]), ("a", 0), ("b", 0)).first
    assert (at.step, at.block, at.occurrence, at.differing, at.recorded) == (4, 1, 2, 1, 2)


def test_a_value_that_differs_before_any_fingerprint_is_the_first_divergence(tmp_path):
    def write(out, dt):
        out.mkdir()
        with Tracer(out / "rank-00000.h5", attributes(0, 1, "none", "x", run_id=str(out))) as tracer:
            for step in range(3):
                tracer.at(0, step)
                tracer.value("dt", dt if step == 1 else 0.1)
                tracer.fingerprint("vorticity", 0, bytes([step == 2 and dt != 0.1]) * 16)

    write(tmp_path / "a", 0.1)
    write(tmp_path / "b", -0.1)
    divergence = compare(load([tmp_path]), ("a", 0), ("b", 0))
    assert (divergence.first.step, divergence.first.name, divergence.first.a, divergence.first.b) == (
        1,
        "dt",
        0.1,
        -0.1,
    )
    assert divergence.fingerprint.step == 2


@pytest.mark.parametrize("x, y", [(0.0, -0.0), (np.nan, 1.0), (np.inf, -np.inf)])
def test_values_are_compared_as_bits(tmp_path, x, y):
    def write(out, energy):
        out.mkdir()
        with Tracer(out / "rank-00000.h5", attributes(0, 1, "none", "x", run_id=str(out))) as tracer:
            tracer.at(0, 0)
            tracer.value("energy", energy)

    write(tmp_path / "a", x)
    write(tmp_path / "b", y)
    write(tmp_path / "c", x)
    frames = load([tmp_path])
    assert not compare(frames, ("a", 0), ("b", 0)).equal
    assert compare(frames, ("a", 0), ("c", 0)).equal


def test_the_first_other_arrival_order_is_named(tmp_path):
    orders = {"a": [[0, 1, 2], [0, 2, 1]], "b": [[0, 1, 2], [0, 2, 1]], "c": [[0, 1, 2], [1, 2, 0]]}
    for name, own in orders.items():
        write_run(
            tmp_path / name,
            size=3,
            orders=lambda repeat, step, own=own: own if step == 2 else [[0, 1, 2]] * 2,
        )
    frames = load([tmp_path])
    assert compare(frames, ("a", 0), ("b", 0)).order is None
    assert compare(frames, ("a", 0), ("c", 0)).order == (2, "scalars", 1, (0, 2, 1), (1, 2, 0))


def test_orders_of_different_rank_counts_are_not_compared(tmp_path):
    for size in (2, 3):
        write_run(tmp_path / f"on{size}", size=size, orders=lambda repeat, step, n=size: [np.arange(n)[::-1]])
    assert compare(load([tmp_path]), ("on2", 0), ("on3", 0)).order is None


def test_a_restarted_run_is_compared_where_both_recorded(tmp_path):
    write_run(tmp_path / "a")
    restart = CONFIG | {"output": {"restart": "checkpoint.h5"}}
    write_run(tmp_path / "b", first_step=3, config=restart)
    write_run(tmp_path / "c", first_step=3, change=flip(4, 1), config=restart)
    frames = load([tmp_path])
    divergence = compare(frames, ("a", 0), ("b", 0))
    per_step = 3 * BLOCKS + 1
    assert divergence.equal and (divergence.compared, divergence.only_a, divergence.only_b) == (
        3 * per_step,
        3 * per_step,
        0,
    )
    assert compare(frames, ("a", 0), ("c", 0)).first.step == 4


def test_runs_with_nothing_in_common_cannot_be_compared(tmp_path):
    write_run(tmp_path / "a", steps=2)
    write_run(tmp_path / "b", steps=4, first_step=2, method={"run.method": "another"})
    with pytest.raises(NothingInCommon, match=r"a:0 and b:0 .* nothing of the same step.*give two runs"):
        compare(load([tmp_path]), ("a", 0), ("b", 0))


def test_growth_counts_blocks_and_measures_values_at_each_step(tmp_path):
    def change(repeat, step, field):
        for block in range(max(0, step - 1)):
            flip_bit(field, block, bit=step)

    write_run(tmp_path / "a", size=2)
    write_run(tmp_path / "b", size=3, change=change)
    frame = growth(load([tmp_path]), ("a", 0), ("b", 0))
    blocks = frame.query("name == 'vorticity'")
    assert blocks["differing"].tolist() == [max(0, step - 1) for step in range(STEPS)]
    assert blocks["fraction"].tolist() == [max(0, step - 1) / BLOCKS for step in range(STEPS)]
    sample = frame.query("name == 'sample'")
    assert sample["max_ulp"].tolist() == [0, 0] + [2.0**step for step in range(2, STEPS)]
    largest = [0, 0]
    for step in range(2, STEPS):
        a, b = field_at(step), field_at(step)
        change(0, step, b)
        largest.append((abs(a[:, 0] - b[:, 0]) / abs(a[:, 0])).max())
    assert sample["max_relative"].tolist() == largest
    assert set(frame["kind"]) == {"fingerprints", "values"}


def test_growth_counts_what_has_no_distance(tmp_path):
    def change(repeat, step, field):
        if step == 2:
            field[3, 0] = np.nan

    write_run(tmp_path / "a")
    write_run(tmp_path / "b", change=change)
    row = growth(load([tmp_path]), ("a", 0), ("b", 0)).query("name == 'sample' and step == 2").iloc[0]
    assert (row["differing"], row["undefined"], row["max_ulp"]) == (1, 1, 0)


def test_growths_say_of_which_run(tmp_path):
    for name in "abc":
        write_run(tmp_path / name)
    frame = growths(load([tmp_path]), ("a", 0), [("b", 0), ("c", 0)])
    assert frame.groupby(["run", "repeat"]).size().to_dict() == {("b", 0): 4 * STEPS, ("c", 0): 4 * STEPS}
    assert growths(load([tmp_path]), ("a", 0), []).empty


def test_of_remarks_with_one_label_the_first_are_shown_and_the_others_counted():
    told = [("spread", "8 of 8"), *(("value there", f"{i}") for i in range(2000)), ("messages", "none")]
    assert first_of_each(told) == [*told[:13], ("value there", "and 1,988 more"), told[-1]]
    assert first_of_each(told[:13]) == told[:13]
