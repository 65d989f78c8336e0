"""Frames of `reductions`: samples, comparisons and refusals."""

import numpy as np
import pytest

from analysis.__main__ import main
from analysis.load.frames import load
from analysis.studies.sums.runs import NoReference, parse, references, sums
from analysis.studies.sums.tables import known_of
from tests.analysis.sums_runs import CONFIG, PROMISES, write_sums
from tests.analysis.synthetic import write_run

SPA, SPTR, EXACT, NUMPY = "sum:spa:native:8", "sum:sptr:native:8", "sum:exact:native:8", "sum:numpy:numpy:8"
VARYING = {SPA: [[4.0, 5.0, 4.0], [2.0, 2.0, 2.0]]}
FIXED = {SPTR: [[4.0] * 3, [2.5] * 3], EXACT: [[4.25] * 3, [2.0] * 3]}


def call(*arguments):
    return main([str(argument) for argument in arguments])


def row(frame, variant, **where):
    """The one row of `frame` of that variant."""
    rows = frame[frame["variant"] == variant]
    for column, value in where.items():
        rows = rows[rows[column] == value]
    assert len(rows) == 1
    return rows.iloc[0]


@pytest.mark.parametrize("name, parts", [
    ("sum:spa:emulated:1000000", ("sum", "spa", "emulated", 1000000)),
    ("dot:binned:native:0", ("dot", "binned", "native", 0)),
    ("allreduce.sums", None), ("sum:spa:emulated", None), ("sum:spa:emulated:1e6", None),
    ("sum::native:10", None), ("sum:spa:native:-1", None), ("sum:spa:native:²", None), ("a:b:c:d:1", None),
])  # fmt: skip
def test_names_have_four_parts(name, parts):
    assert parse(name) == parts


def test_frames_hold_every_sample_time_truth_and_bound(tmp_path):
    times = {SPA: [1.0, 2.0, 3.0], SPTR: [[2.0, 2.0, 2.0], [4.0, 4.0, 4.0]]}
    worst = {"worst-low:spa:native:8": [3.5, 1.0], "worst-high:spa:native:8": [6.0, 4.0]}
    write_sums(tmp_path / "r", VARYING | FIXED, times, size=2, truth={8: [4.25, 2.0]}, worst=worst, nbytes=64)
    records = sums(load([tmp_path]))
    samples = records.samples
    assert list(samples.columns) == [
        "case", "operation", "variant", "backend", "n", "array", "run", "repeat", "sample", "value",
    ]  # fmt: skip
    assert {c: str(samples[c].dtype) for c in ("n", "array", "repeat", "sample", "value")} == {
        "n": "int64", "array": "int32", "repeat": "int32", "sample": "int32", "value": "float64",
    }  # fmt: skip
    assert all(
        str(samples[c].dtype) == "category" for c in ("case", "operation", "variant", "backend", "run")
    )
    spa = samples[samples["variant"] == "spa"]
    assert spa["value"].tolist() == [4.0, 5.0, 4.0, 2.0, 2.0, 2.0]
    assert spa["array"].tolist() == [0, 0, 0, 1, 1, 1] and spa["sample"].tolist() == [0, 1, 2] * 2
    assert len(samples) == 18 and set(samples["case"]) == {"uniform float64, none/native on 2 ranks"}
    assert list(samples["variant"].cat.categories) == ["spa", "sptr", "exact"]  # as they were run
    sptr = records.times[records.times["variant"] == "sptr"]
    assert sptr[["rank", "sample", "calls", "seconds", "nbytes"]].to_numpy().tolist() == [
        [rank, sample, 2, seconds, 64.0] for rank, seconds in ((0, 0.002), (1, 0.004)) for sample in range(3)
    ]
    assert records.truth[["n", "array", "value"]].to_numpy().tolist() == [[8, 0, 4.25], [8, 1, 2.0]]
    assert records.worst[["array", "low", "high"]].to_numpy().tolist() == [[0, 3.5, 6.0], [1, 1.0, 4.0]]
    assert records.guarantee("uniform float64, none/native on 2 ranks", "sum", "sptr", "native") == "run"
    assert (
        records.guarantee("uniform float64, none/native on 2 ranks", "sum", "new", "native") == "not recorded"
    )


def other(**changed):
    """A configuration with another problem."""
    return {"config": CONFIG | {"problem": CONFIG["problem"] | changed}, "problem": str(sorted(changed))}


def test_runs_of_one_problem_are_samples_of_one_case_and_others_are_kept_apart(tmp_path):
    write_sums(tmp_path / "a", VARYING)
    write_sums(tmp_path / "b", {SPA: [[7.0, 7.0, 7.0], [2.0, 2.0, 2.0]]})
    write_sums(tmp_path / "c", {SPA: [[9.0], [9.0]]}, **other(distribution="normal"))
    write_sums(tmp_path / "d", {SPA: [[8.0], [8.0]]}, size=2)
    write_sums(tmp_path / "e", {SPA: [[8.0], [8.0]]}, guarantee="run", ordering="direct")
    results = known_of(sums(load([tmp_path])))
    counts = results.arrays[results.arrays["array"] == 0].set_index("case")[["samples", "distinct"]]
    assert {case: row.tolist() for case, row in counts.iterrows()} == {
        "uniform float64, none/native on 1 rank": [6, 3],
        "uniform float64, none/native on 2 ranks": [1, 1],
        "uniform float64, run/direct on 1 rank": [1, 1],
        "normal float64, none/native on 1 rank": [1, 1],
    }


def test_a_parameter_of_the_distribution_tells_cases_apart(tmp_path):
    for condition in (1e8, 1e12):
        more = other(distribution="ill-conditioned", condition=condition) | {"problem": str(condition)}
        write_sums(tmp_path / str(condition), VARYING, **more)
    assert set(sums(load([tmp_path])).cases["case"]) == {
        f"ill-conditioned float64, none/native (condition={value}) on 1 rank"
        for value in (100000000.0, 1000000000000.0)
    }


def test_sizes_may_be_spread_over_runs(tmp_path):
    write_sums(tmp_path / "a", VARYING)
    write_sums(tmp_path / "b", {"sum:spa:native:80": [[1.0, 2.0]] * 3}, **other(sizes=[80], arrays=3))
    results = known_of(sums(load([tmp_path])))
    assert results.series[["n", "arrays"]].to_numpy().tolist() == [[8, 2], [80, 3]]
    assert results.series["case"].nunique() == 1


def test_an_emulated_run_from_the_same_seed_is_a_replay_and_no_new_sample(tmp_path):
    emulated = {"sum:spa:emulated:8": [[4.0, 5.0]]}
    write_sums(tmp_path / "a", emulated, repeats=2)
    write_sums(tmp_path / "b", emulated | {SPA: [[4.0, 5.0]]})
    results = known_of(sums(load([tmp_path])))
    assert row(results.arrays, "spa", backend="emulated")["samples"] == 2
    assert results.recorded.replays == 4
    assert any("4 emulated samples left out: they repeat the orders" in note for note in results.notes)


def test_samples_of_a_killed_run_count_and_those_with_a_fault_do_not(tmp_path):
    write_sums(tmp_path / "a", VARYING, complete=False)
    write_sums(tmp_path / "b", VARYING, method={"run.fault": ["nan@step=1,block=0"]})
    assert len(sums(load([tmp_path])).samples) == 6


def test_sptr_is_the_reference_where_it_was_run(tmp_path):
    write_sums(tmp_path / "r", VARYING | FIXED)
    reference, notes = references(sums(load([tmp_path])))
    assert reference["value"].tolist() == [4.0, 2.5] and set(reference["reference"]) == {"sptr (native)"}
    assert notes == []


def test_without_sptr_the_strongest_guarantee_is_the_reference(tmp_path):
    write_sums(tmp_path / "r", VARYING | {NUMPY: [[4.0] * 3, [2.0] * 3], EXACT: FIXED[EXACT]})
    assert set(references(sums(load([tmp_path])))[0]["reference"]) == {"exact (native)"}


def test_a_variant_that_breaks_its_promise_is_no_reference(tmp_path):
    broken = {SPTR: [[4.0, 4.0, 4.5], [2.5] * 3]}
    write_sums(tmp_path / "r", VARYING | broken | {NUMPY: [[4.0] * 3, [2.0] * 3]})
    frames = load([tmp_path])
    assert set(references(sums(frames))[0]["reference"]) == {"numpy (numpy)"}
    with pytest.raises(NoReference, match=r"sptr: gave several results .* possible references: numpy@numpy$"):
        references(sums(frames), "sptr")


def test_the_truth_is_the_reference_where_no_variant_can_be_or_where_it_is_asked_for(tmp_path):
    write_sums(tmp_path / "a", VARYING, truth={8: [4.25, 2.0]})
    frames = load([tmp_path])
    for wanted in (None, "truth"):
        reference, _ = references(sums(frames), wanted)
        assert reference["value"].tolist() == [4.25, 2.0] and set(reference["reference"]) == {"truth"}


def test_without_any_reference_only_samples_against_each_other_are_given(tmp_path):
    write_sums(tmp_path / "a", VARYING)
    results = known_of(sums(load([tmp_path])))
    spa = row(results.series, "spa")
    assert spa["pair_max"] == 0.2 and np.isnan(spa["v_s_max"]) and np.isnan(spa["error_max"])
    assert spa["undefined"] == 0 and spa["reference"] == ""
    assert "no variant whose samples all agree, and no truth" in results.notes[0]


def test_the_named_reference_decides(tmp_path):
    write_sums(tmp_path / "r", VARYING | FIXED, truth={8: [4.25, 2.0]})
    frames = load([tmp_path])
    for wanted in ("exact", "exact@native"):
        assert row(known_of(sums(frames), wanted).series, "spa")["shift"] == 0.25 / 4.25


def test_the_command_prints_prices_and_bits(tmp_path, capsys):
    write_sums(tmp_path / "r", VARYING | FIXED, {SPA: [1.0, 2.0, 3.0], SPTR: [3.0, 4.0, 5.0]})
    assert call("sums", tmp_path / "r", "--csv", tmp_path / "csv") == 0
    out = capsys.readouterr().out
    assert (
        "Price list: sum of uniform float64, no guarantee, sums by native on 1 rank" in out
        and "none/native" not in out
        and "reference: sptr (native)" in out
    )
    assert "2 ms" in out and "2.000" in out  # the median of spa, and the ratio of sptr to it
    header, first = (tmp_path / "csv" / "arrays.csv").read_text().splitlines()[:2]
    assert header.startswith("case,operation,variant,backend,n,array") and first.startswith(
        '"uniform float64, none/native on 1 rank",sum,spa,native,8,0,'
    )


def test_without_runs_that_compare_variants_the_command_exits_with_2(tmp_path, capsys):
    write_run(tmp_path / "a")
    assert call("sums", tmp_path) == 2
    assert "no run among these (coupled) recorded sums by variant" in capsys.readouterr().err


def test_a_run_without_sums_exits_with_2(tmp_path, capsys):
    write_sums(tmp_path / "r", {"something": [[1.0]]})
    assert call("sums", tmp_path / "r") == 2
    assert "(reductions) recorded sums by variant" in capsys.readouterr().err


@pytest.mark.parametrize("wanted, words", [
    ("spa", "spa: gave several results for one array, so it cannot be a reference; possible references: sptr@native"),
    ("sprt", "sprt: was not recorded; possible references: sptr@native, exact@native"),
    ("truth", "truth: was not recorded; possible references"),
])  # fmt: skip
def test_a_reference_that_cannot_be_exits_with_2_and_names_those_that_can(tmp_path, capsys, wanted, words):
    write_sums(tmp_path / "r", VARYING | FIXED)
    assert call("sums", tmp_path / "r", "--reference", wanted) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and words in captured.err


def test_a_place_for_csv_that_cannot_be_exits_with_2(tmp_path, capsys):
    run = write_sums(tmp_path / "r", VARYING)
    (tmp_path / "file").write_text("")
    assert call("sums", run, "--csv", tmp_path / "file") == 2
    assert "is a file; give a directory" in capsys.readouterr().err
    assert call("sums", run, "--csv", tmp_path / "file" / "below") == 2
    assert "cannot be written" in capsys.readouterr().err


def test_single_samples_are_analysed(tmp_path):
    write_sums(tmp_path / "r", {SPA: [[4.0]], SPTR: [[4.5]]}, {SPA: [1.0], SPTR: [2.0]})
    results = known_of(sums(load([tmp_path])))
    spa = row(results.series, "spa")
    assert (spa["samples"], spa["distinct"], spa["pair_max"]) == (1, 1, 0) and np.isnan(spa["pair_median"])
    assert spa["v_s_max"] == spa["shift"] == 0.5 / 4.5
    assert row(results.prices, "sptr")["ratio"] == 2 and np.isnan(row(results.prices, "sptr")["ratio_low"])


def test_promises_are_those_of_the_trace(tmp_path):
    write_sums(tmp_path / "r", VARYING, promises={"sum:spa:native": "run"})
    results = known_of(sums(load([tmp_path])))
    assert (
        results.recorded.guarantee("uniform float64, none/native on 1 rank", "sum", "spa", "native") == "run"
    )
    assert PROMISES["sum:spa:native"] == "none"
