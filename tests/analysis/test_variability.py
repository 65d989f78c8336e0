"""Variability: outcomes are counted by bits, and run-to-run is apart from the change of algorithm."""

import math

import numpy as np
import pytest

from analysis.ends import final, outcomes
from analysis.groups import grouped
from analysis.load.frames import load
from analysis.pairs import EACH_OTHER, frame_of, pairs, reference
from analysis.variability import effective, variability
from kernels.bits import bound
from miniapps.trace import Tracer
from tests.analysis.synthetic import (
    BLOCKS,
    STEPS,
    attributes,
    field_at,
    flip_bit,
    region,
    write_result,
    write_run,
)


def bump(block, bit=0, at=STEPS - 1):
    """Flip a bit of `block` at one step."""

    def change(repeat, step, field):
        if step == at:
            flip_bit(field, block, bit=bit)

    return change


def test_no_difference_in_n_runs_bounds_its_probability():
    assert bound(299) < 0.01 < bound(298)
    assert bound(1) == 0.95
    for n in (10, 100, 1000):
        assert (1 - bound(n)) ** n == pytest.approx(
            0.05
        )  # so rare would it be to see none, were p at the bound
    assert bound(1000) == pytest.approx(3 / 1000, rel=0.01)


def test_effective_outcomes():
    assert effective([5]) == 1
    assert effective([1, 1, 1, 1]) == 4
    assert effective([3, 1]) == pytest.approx(1.6)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Three runs without a guarantee, two of them equal, and two of another algorithm with one."""
    root = tmp_path_factory.mktemp("mixed")
    write_run(root / "n1", size=2, change=bump(0))
    write_run(root / "n2", size=2, change=bump(0))
    write_run(root / "n3", size=2, change=bump(5, bit=30))
    for size in (1, 3):
        write_run(root / f"layout{size}", size=size, guarantee="layout", ordering="exact")
    return load([root])


def test_distinct_outcomes_are_counted_per_name(mixed):
    frame = variability(mixed).query("against == 'each other'").set_index(["cell", "name"])
    free = frame.loc["coupled none/arrival on 2 ranks"]
    assert free["runs"].tolist() == [3] * 4
    assert free["distinct"].to_dict() == {"vorticity": 2, "streamfunction": 2, "sample": 2, "energy": 2}
    assert free.loc["vorticity", "effective"] == pytest.approx(1.8)
    promised = frame.loc["coupled layout/exact"]
    assert promised["distinct"].tolist() == [1] * 4 and promised["ranks"].tolist() == [[1, 3]] * 4
    assert promised["bound"].tolist() == [bound(2)] * 4
    assert free["bound"].isna().all()


def test_run_to_run_is_apart_from_the_distance_to_the_reference(mixed):
    distances = frame_of(pairs(mixed)).query("name == 'vorticity'")
    assert distances.groupby(["cell", "against"]).size().to_dict() == {
        ("coupled layout/exact", EACH_OTHER): 1,
        ("coupled none/arrival on 2 ranks", EACH_OTHER): 3,
        ("coupled none/arrival on 2 ranks", "layout1:0"): 3,
    }
    within = distances.query("against == 'each other' and a == 'n1:0'").set_index("b")["v_c"]
    assert within.to_dict() == {"n2:0": 0, "n3:0": 2 / BLOCKS}
    outside = distances.query("against == 'layout1:0'").set_index("b")["v_c"]
    assert outside.to_dict() == {"n1:0": 1 / BLOCKS, "n2:0": 1 / BLOCKS, "n3:0": 1 / BLOCKS}


def test_metrics_of_a_vector_are_those_of_its_definition(mixed):
    row = frame_of(pairs(mixed)).query("name == 'sample' and against == 'layout1:0' and b == 'n3:0'").iloc[0]
    a, b = field_at(STEPS - 1), field_at(STEPS - 1)
    flip_bit(b, 5, bit=30)
    terms = abs(a[:, 0] - b[:, 0]) / abs(a[:, 0])
    metrics = row[["elements", "v_c", "max_ulp", "mean_ulp"]].tolist()
    assert metrics == [BLOCKS, 1 / BLOCKS, 2**30, 2**30 / BLOCKS]
    assert row["v_ermv"] == terms.mean()
    assert math.isnan(row["v_s"])


def test_v_s_is_given_for_single_numbers(mixed):
    row = frame_of(pairs(mixed)).query("name == 'energy' and against == 'layout1:0' and b == 'n3:0'").iloc[0]
    a, b = field_at(STEPS - 1), field_at(STEPS - 1)
    flip_bit(b, 5, bit=30)
    assert row["v_s"] == ((a**2).sum() - (b**2).sum()) / (a**2).sum() != 0


def test_the_reference_can_be_chosen_and_defaults_to_the_strongest_guarantee(mixed):
    assert reference(grouped(mixed.runs)) == ("layout1", 0)
    chosen = frame_of(pairs(mixed, ("n3", 0)))
    assert set(chosen["against"]) == {EACH_OTHER, "n3:0"}
    assert set(chosen.query("against == 'n3:0'")["cell"]) == {"coupled layout/exact"}


def test_without_a_guarantee_there_is_no_reference(tmp_path):
    for name in "ab":
        write_run(tmp_path / name)
    frames = load([tmp_path])
    assert reference(grouped(frames.runs)) is None
    assert {each.against for each in pairs(frames)} == {EACH_OTHER}


def test_a_run_with_an_injected_fault_is_no_reference(tmp_path):
    write_run(tmp_path / "a", guarantee="exact", method={"run.fault": ["bitflip@step=1,block=0"]})
    write_run(tmp_path / "b", guarantee="run")
    assert reference(grouped(load([tmp_path]).runs)) == ("b", 0)


def test_rank_counts_are_not_mixed_without_a_promise_across_them(tmp_path):
    for size in (1, 2):
        for name in "ab":
            write_run(tmp_path / f"{name}{size}", size=size, change=bump(size))
    frame = variability(load([tmp_path])).query("name == 'vorticity'")
    assert frame[["ranks", "runs", "distinct"]].values.tolist() == [[[1], 2, 1], [[2], 2, 1]]


def write_values(out, energies, vector=None, **more):
    """A run of one rank whose final energy is known; returns nothing."""
    out.mkdir(parents=True)
    with Tracer(out / "rank-00000.h5", attributes(0, 1, "none", "x", run_id=str(out), **more)) as tracer:
        for step, energy in enumerate(energies):
            tracer.at(0, step)
            tracer.value("energy", energy)
        if vector is not None:
            tracer.values("sample", np.arange(len(vector)), np.array(vector))


def test_zeros_of_either_sign_are_two_outcomes_at_no_distance(tmp_path):
    write_values(tmp_path / "a", [0.0])
    write_values(tmp_path / "b", [-0.0])
    row = variability(load([tmp_path])).iloc[0]
    assert (row["distinct"], row["v_s_max"], row["v_ermv_max"], row["v_c_max"], row["ulp_max"]) == (
        2,
        0,
        0,
        1,
        1,
    )
    assert math.isnan(row["bound"])


def test_equal_nans_are_one_outcome_and_undefined_terms_are_counted(tmp_path):
    write_values(tmp_path / "a", [np.nan], [1.0, np.nan, 3.0])
    write_values(tmp_path / "b", [np.nan], [1.0, np.nan, np.nan])
    frame = variability(load([tmp_path])).set_index("name")
    assert frame["distinct"].to_dict() == {"energy": 1, "sample": 2}
    assert frame["undefined"].to_dict() == {"energy": 0, "sample": 1}
    assert frame.loc["sample", ["v_ermv_max", "v_c_max", "ulp_max"]].tolist() == [0, 1 / 3, 0]


def test_the_last_common_step_is_compared(tmp_path):
    write_values(tmp_path / "a", [1.0, 2.0, 3.0])
    write_values(tmp_path / "b", [1.0, 2.0])
    frames = load([tmp_path])
    step, outcome, words = final(frames, "values", "energy", [("a", 0), ("b", 0)])
    assert step == 1 and outcome.tolist() == [0, 0] and words.view(np.float64).tolist() == [[[2.0]]]


def test_runs_that_recorded_other_blocks_have_no_distance_and_are_outcomes_by_those_in_common(tmp_path):
    write_values(tmp_path / "a", [], [1.0, 2.0])
    write_values(tmp_path / "b", [], [1.0, 2.0, 3.0])
    write_values(tmp_path / "other" / "c", [], [1.0, 2.5, 3.0])
    frames = load([tmp_path / "a", tmp_path / "b"])
    assert final(frames, "values", "sample", [("a", 0), ("b", 0)]) is None
    assert not pairs(frames)
    assert len(set(outcomes(frames, frames.runs))) == 1
    frames = load([tmp_path])
    a, b, c = outcomes(frames, frames.runs)
    assert a == b != c


def test_the_state_in_result_json_is_part_of_the_outcome(tmp_path):
    for name, state in (("a", "00"), ("b", "01"), ("c", "00")):
        write_run(tmp_path / name)
        write_result(tmp_path / name, fingerprints=[state])
    frames = load([tmp_path])
    a, b, c = outcomes(frames, frames.runs)
    assert a == c != b


def test_nothing_recorded_is_no_outcome(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        given = attributes(0, 1, "none", "x", run_id=name)
        with Tracer(tmp_path / name / "rank-00000.h5", given) as tracer:
            tracer.at(0, 0)
            tracer.event(region(tracer, "step"), tracer.clock())
    frames = load([tmp_path])
    assert outcomes(frames, frames.runs) is None
    assert variability(frames).empty
