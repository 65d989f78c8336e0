"""Variability by factor: results of a level against each other, apart from a change of algorithm."""

import numpy as np
import pytest

from analysis.__main__ import main
from analysis.factors import DEFAULT, FACTORS, REFERENCE, by_factor
from analysis.load.frames import load
from analysis.pairs import EACH_OTHER
from miniapps.trace import Tracer
from miniapps.trace.schema import rank_file
from tests.analysis.synthetic import attributes, flip_bit, write_run


def differ(block):
    def change(repeat, step, field):
        flip_bit(field, block)

    return change


@pytest.fixture(scope="module")
def frames(tmp_path_factory):
    """arrival: 3 results in 3 runs on 2 ranks; ring: one of its own in 2 runs; exact (layout): one, on 1 and 2
    ranks."""
    path = tmp_path_factory.mktemp("runs")
    for block in range(3):
        write_run(path / f"arrival-{block}", change=differ(block))
    for name in "ab":
        write_run(path / f"ring-{name}", guarantee="run", ordering="ring", change=differ(7))
    for size in (1, 1, 2):
        write_run(path / f"exact-{size}-{len(list(path.iterdir()))}", size, "layout", "exact")
    return load([path], processes=1)


def row(frame, level, against=EACH_OTHER):
    (record,) = frame[(frame["level"] == level) & (frame["against"] == against)].to_dict("records")
    return record


def test_run_to_run_and_change_of_algorithm_are_apart(frames):
    table = by_factor(frames, "ordering")
    own, changed = row(table, "ring"), row(table, "ring", REFERENCE)
    assert (own["distinct"], own["runs"], own["differing"], own["v_c_max"]) == (1, 2, 0, 0)
    assert own["note"].startswith("0 of 2 differ: p < 78 %") and own["bound"] == pytest.approx(1 - 0.05**0.5)
    assert (changed["pairs"], changed["differing"], changed["note"]) == (2, 2, "") and changed["v_c_max"] > 0
    assert np.isnan(changed["bound"])


def test_distinct_and_effective_outcomes_are_of_whole_runs(frames):
    arrival = row(by_factor(frames, "ordering"), "arrival")
    assert (arrival["distinct"], arrival["runs"], arrival["effective"]) == (3, 3, pytest.approx(3))
    assert (arrival["pairs"], arrival["differing"]) == (3, 3) and arrival["ulp_max"] >= 1


def test_rank_counts_of_one_group_are_no_run_to_run_variation(frames):
    table = by_factor(frames, "ranks")
    one = row(table, "1")
    assert (one["cells"], one["runs"], one["distinct"]) == (1, 2, 1)
    across = row(table, "1", "other ranks")
    assert (across["pairs"], across["differing"]) == (2, 0) and across["note"].startswith("0 of 2 differ")


def test_the_kernel_is_what_is_left_of_the_method(tmp_path):
    for name, kernel in (("a", "csr"), ("b", "csr"), ("c", "atomic"), ("d", "atomic")):
        write_run(tmp_path / name, method={"solver.spmv": kernel}, change=differ(1) if name == "d" else None)
    table = by_factor(load([tmp_path]), "kernel")
    assert row(table, "spmv=csr")["distinct"] == 1 and row(table, "spmv=atomic")["distinct"] == 2


def test_without_a_kernel_to_tell_apart_it_says_so(frames):
    assert set(by_factor(frames, "kernel")["level"]) == {DEFAULT}


def test_a_single_run_is_not_tested(tmp_path):
    write_run(tmp_path / "r")
    (record,) = by_factor(load([tmp_path]), "app").to_dict("records")
    assert (
        record["note"] == "1 run, no two of one cell: not compared"
        and np.isnan(record["bound"])
        and record["pairs"] == 0
    )


def test_runs_that_recorded_no_results_were_not_compared(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        of_run = attributes(0, 1, "none", "arrival", run_id=name)
        tracer = Tracer(tmp_path / name / rank_file(0), of_run)
        tracer.at(0, 0)
        tracer.array("sent:halo", 0, np.ones(3))
        tracer.close(complete=True)
    (record,) = by_factor(load([tmp_path]), "app").to_dict("records")
    assert record["note"] == "2 runs of one cell recorded no result that all of them have: not compared"
    assert record["pairs"] == 0 and np.isnan(record["distinct"])


def test_an_unknown_factor_is_refused(frames):
    with pytest.raises(ValueError, match="ordering, kernel, ranks, guarantee, app"):
        by_factor(frames, "weather")


@pytest.mark.parametrize("factor", FACTORS)
def test_the_command_prints_every_factor(tmp_path, capsys, factor):
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", change=differ(3))
    assert (
        main(
            ["variability", str(tmp_path / "a"), str(tmp_path / "b"), "--by", factor, "--csv", str(tmp_path)]
        )
        == 0
    )
    assert "2 in 2 runs" in capsys.readouterr().out and (tmp_path / f"variability-by-{factor}.csv").exists()
