"""`python -m benchmarks.allreduce`: its options, measurements and checks, under both MPI libraries."""

import json
from argparse import Namespace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from benchmarks.allreduce import __main__ as allreduce
from benchmarks.allreduce.cells import (
    Cell,
    available,
    contributions,
    memory,
    number_of_bytes,
    shuffled,
    sizes,
)
from benchmarks.allreduce.check import true_value
from benchmarks.allreduce.table import HEAD, merge, read, size_text, text
from benchmarks.allreduce.targets import FAST, Target, judged
from benchmarks.kernels.numbers import DISTRIBUTIONS
from kernels.guarantees import ChoiceError
from tests.launch import either_library, libraries
from tests.ranks import on_ranks

PROGRAM = Path(__file__).parent / "programs" / "allreduce_measured.py"
MODULE = ["-m", "benchmarks.allreduce"]
TINY = ["--rounds", "2", "--repetitions", "4", "--warm-up", "1", "--seconds", "0.001"]


@pytest.mark.parametrize(
    ("text", "value"),
    [("8", 8), ("64K", 65536), ("4m", 4 << 20), ("1.5K", 1536), ("2GiB", 2 << 30), ("8B", 8)],
)
def test_sizes_have_suffixes(text, value):
    assert number_of_bytes(text) == value


@pytest.mark.parametrize("text", ["", "x", "-8", "0", "1.3", "4T", "K", "nan", "inf"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ChoiceError, match="not a number of bytes"):
        number_of_bytes(text)


def test_sizes_go_up_by_the_factor_and_end_with_the_largest():
    assert sizes(8, 100, 2, 8) == [8, 16, 32, 64, 96]
    assert sizes(1, 64, 4, 4) == [4, 16, 64]
    assert sizes(8, 8, 2, 8) == [8]
    assert sizes(3, 5, 1.01, 8) == [8]


def test_every_round_measures_every_cell_in_another_order_with_lengths_together():
    cells = [Cell(name, n, 8 * n) for n in (1, 10, 100) for name in "abcd"]
    orders = [shuffled(cells, 7, turn) for turn in range(4)]
    assert all(sorted(order, key=cells.index) == cells for order in orders)
    assert len({tuple(order) for order in orders}) == 4
    for order in orders:
        lengths = [cell.count for cell in order]
        assert sum(a != b for a, b in pairwise(lengths)) == 2
    assert shuffled(cells, 7, 2) == orders[2] != shuffled(cells, 8, 2)


@pytest.mark.parametrize("op", ["sum", "prod"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64"])
def test_shorter_data_begin_longer_ones_and_ranks_differ(dtype, op):
    long, short = (contributions(1, 2, n, np.dtype(dtype), op) for n in (1000, 10))
    assert short.dtype == dtype and long[:10].tobytes() == short.tobytes()
    assert short.tobytes() != contributions(1, 3, 10, np.dtype(dtype), op).tobytes()
    assert np.isfinite(long.astype(float)).all()


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_data_of_any_distribution_begin_alike_and_cancelling_ranks_do(distribution):
    a, b = (contributions(1, rank, 70_000, np.dtype("float64"), "sum", distribution) for rank in (2, 3))
    short = contributions(1, 2, 9, np.dtype("float64"), "sum", distribution)
    assert a.shape == (70_000,) and a[:9].tobytes() == short.tobytes() and a.tobytes() != b.tobytes()
    assert (a + b == 0).all() == (distribution == "cancelling")


def test_orderings_are_listed_by_commas_also_within_their_parameters():
    asked, _ = allreduce.understood(["--orderings", "ring, k-nomial:k=4,tree=far,bare,direct in exact,ring"])
    assert asked.orderings == ["ring", "k-nomial:k=4,tree=far", "direct in exact"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--orderings", "rign"], "unknown all-reduce ordering 'rign': choose one of"),
        (["--orderings", "library:k=4"], "library takes no parameters"),
        (["-b", "64", "-e", "8"], "--min-bytes 64 is more than --max-bytes 8"),
        (["-f", "1"], "--factor 1: choose more than 1"),
        (["-f", "nan"], "--factor nan: choose more than 1"),
        (["--rounds", "0"], "--rounds 0: choose 1 or more"),
        (["--seconds", "0"], "--seconds 0: choose more than 0"),
        (["--seed", "-1"], "--seed -1"),
        (["--json", "/"], "--json /: is a directory"),
        (["--json", "/proc/none/one.json"], "--json /proc/none/one.json: cannot be written"),
        (["--dtype", "float8"], "invalid choice: 'float8'"),
    ],
)
def test_wrong_options_are_explained(argv, message, capsys):
    assert allreduce.understood(argv) == (None, 2)
    assert message in capsys.readouterr().err


def asked(**options):
    about = {
        "contributions": 1,
        "nodes": (0,) * 4,
        "accumulate": "working",
        "dtype": np.dtype(np.float64),
        "op": "sum",
    }
    return Namespace(**about | options)


def test_memory_counts_contributions_total_and_scratch():
    assert memory("bare", 0, 4, 1000, 8, asked()) == 3 * 8000
    assert memory("arrival", 0, 4, 1000, 8, asked()) == 6 * 8000 > memory("arrival", 1, 4, 1000, 8, asked())
    assert memory("linear", 0, 4, 1000, 8, asked()) >= 6 * 8000
    assert memory("direct in exact", 0, 4, 1000, 8, asked()) > 10 * 8000


def test_free_memory_is_the_least_of_what_machine_and_group_allow(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal: 100 kB\nMemAvailable:   64 kB\n")
    assert available(tmp_path / "meminfo", tmp_path) == 65536
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("1000\n")
    (tmp_path / "memory.stat").write_text("anon 400\ninactive_file 250\n")
    assert available(tmp_path / "meminfo", tmp_path) == 4250
    (tmp_path / "memory.max").write_text("max\n")
    assert available(tmp_path / "meminfo", tmp_path) == 65536
    assert available(tmp_path / "none", tmp_path) is None


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_every_order_of_additions_is_within_the_bound_and_a_missing_number_is_not(dtype):
    x = np.stack([contributions(1, rank, 200, np.dtype(dtype), "sum") for rank in range(6)])
    value, bound = true_value(x, "sum")
    for seed in range(20):
        total = x[0] * 0
        for row in np.random.default_rng(seed).permutation(6):
            total = total + x[row]
        assert (abs(total.astype(float) - value) <= bound).all()
    missing = abs(x[0].astype(float))
    seen = missing > 2 * bound  # the total is off by at most the bound
    assert (abs(total.astype(float) - x[0].astype(float) - value) > bound)[seen].all() and seen.mean() > 0.5


@cache
def measured(library):
    run = on_ranks(3, [str(PROGRAM)], library=library, timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr
    return json.loads(run.stdout)


@either_library
def test_right_results_have_no_wrong_element(library):
    assert set(measured(library)["right"].values()) == {0}


@either_library
def test_every_injected_fault_is_counted(library):
    # 5 elements on 3 ranks. What the library adds may be off by some last bits, but must be the same on all ranks.
    faults = {
        "last_bit_on_rank_1": 1,
        "last_bit_everywhere": 3,
        "one_contribution_missing": 15,
        "not_a_number": 15,
    }
    for fault, count in faults.items():
        expected = dict.fromkeys(("library", "arrival", "ring", "direct in exact"), count)
        if fault == "last_bit_everywhere":
            expected["library"] = 0
        assert measured(library)["wrong"][fault] == expected


@either_library
def test_all_ranks_measure_the_same_shuffles(library):
    first, *others = measured(library)["shuffles"]
    assert others == [first, first]
    assert len({json.dumps(order) for order in first}) == 3


@either_library
def test_repetitions_that_begin_late_are_counted_and_left_out(library):
    overrun = measured(library)["overrun"]
    # Only the first can begin in time: the others are due while rank 1 still sleeps.
    assert overrun["late"] >= 4 and len(overrun["times"]) == 5 - overrun["late"]
    assert len(overrun["own"]) == 3 and all(t >= 0.005 for t in overrun["times"])


@either_library
def test_windows_that_are_no_use_give_way_to_barriers_and_the_reason_is_told(library):
    sync, repetitions = measured(library)["fallback"]
    assert sync["method"] == "barrier" and repetitions == 4
    assert "late" in sync["reason"] or "share" in sync["reason"] or "known to" in sync["reason"]


@either_library
def test_ranks_of_one_node_find_that_they_have_one_clock(library):
    first, *others = measured(library)["truth"]
    assert first == [0, 0, 0]
    for offset, error, drift in others:
        assert abs(offset) <= error and error > 0 and drift == 0


@either_library
def test_clocks_with_known_offset_and_drift_are_found_within_their_bounds(library):
    for rank in measured(library)["clocks"]:
        assert rank["missed"] <= rank["allowed"] + 1e-9
        assert rank["drift_missed"] <= rank["drift_allowed"] + 1e-12
        assert rank["errors"][0] == 0 < min(rank["errors"][1:])


@either_library
def test_a_clock_that_jumps_is_given_up_by_all_ranks(library):
    first, *others = measured(library)["jump"]
    assert "the clock of rank 1 has no constant rate" in first and others == [first, first]


@libraries
def test_a_launch_writes_all_there_is(library, tmp_path):
    names = ["bare", "direct", "library"]
    options = ["--orderings", ",".join(names), "-b", "8", "-e", "1K", "-f", "128", "--check", *TINY]
    run = on_ranks(3, [*MODULE, *options, "--json", str(tmp_path / "one.json")], library=library, timeout=120)
    assert run.returncode == 0, run.stderr
    report = read(tmp_path / "one.json")
    assert {(row["ordering"], row["bytes"]) for row in report["rows"]} == {
        (n, b) for n in names for b in (8, 1024)
    }
    for row in report["rows"]:
        assert row["wrong"] == 0
        assert [len(r["own"]) for r in row["rounds"]] == [3, 3]
        assert sum(len(r["times"]) + r["late"] for r in row["rounds"]) >= 2
        assert row["repetitions"] == sum(len(r["times"]) for r in row["rounds"])
    assert report["about"]["size"] == 3 and report["about"]["options"]["seed"] == 1
    assert ("Open MPI" in report["about"]["mpi"]) == (library == "openmpi")
    assert report["syncs"][0]["method"] in ("clock", "barrier")
    assert text(report) in run.stdout and all(name in run.stdout for name in HEAD)


@libraries
def test_what_does_not_fit_memory_is_refused_by_all_ranks(library):
    run = on_ranks(3, [*MODULE, "-b", "1000000G", "-e", "1000000G"], library=library, timeout=120)
    assert run.returncode == 2
    assert run.stderr.count("needs") == 1 and "choose a smaller size" in run.stderr


def test_wrong_options_are_said_once_for_all_ranks():
    run = on_ranks(3, [*MODULE, "--orderings", "rign"])
    assert run.returncode == 2 and run.stderr.count("unknown all-reduce ordering 'rign'") == 1


def test_one_rank_is_measured_and_told_that_ratios_mean_nothing():
    run = on_ranks(1, [*MODULE, "--orderings", "direct", "-e", "8", *TINY])
    assert run.returncode == 0, run.stderr
    assert "one rank: there is no communication" in run.stdout


def one_launch(factor=1.0, **about):
    """A result with two orderings at two sizes; the library takes 1 s, direct `factor` s."""
    from benchmarks.allreduce.table import result

    def rounds(seconds):
        return [{"times": [seconds] * 5, "own": [seconds] * 3, "late": 0, "wrong": None} for _ in range(3)]

    cells = [
        {"ordering": name, "bytes": b, "counts": counts, "rounds": rounds(seconds)}
        for b in (8, 64)
        for name, counts, seconds in (("bare", None, 1.0), ("direct", [2, b, b // 8], factor))
    ]
    common = {
        "size": 2,
        "launches": 1,
        "dtype": "float64",
        "op": "sum",
        "accumulate": "working",
        "distribution": "mixed",
        "contributions": 1,
    }
    common |= {"mpi": "X", "node_count": 1, "machine": {"cores": 4, "cpu": "Y"}}
    return result(cells, common | about, [{"method": "barrier", "reason": "asked for"}])


def test_launches_are_read_together():
    joint = merge([one_launch(2.0), one_launch(3.0), one_launch(4.0)])
    assert joint["about"]["launches"] == 3 and len(joint["syncs"]) == 3
    row = next(r for r in joint["rows"] if (r["ordering"], r["bytes"]) == ("direct", 64))
    assert row["repetitions"] == 45 and row["median"] == 3.0 and row["interval"] == (3.0, 3.0)
    assert row["ratio"] == {"median": 3.0, "min": 2.0, "max": 4.0, "n": 9}
    assert "3 launches" in text(joint)


@pytest.mark.parametrize("about", [{"size": 3}, {"dtype": "float32"}, {"mpi": "Z"}])
def test_launches_of_different_things_are_not_merged(about):
    with pytest.raises(ChoiceError, match=f"launches differ in {next(iter(about))}"):
        merge([one_launch(), one_launch(**about)])


def test_merge_reads_and_writes_files(tmp_path, capsys):
    from benchmarks.allreduce.table import write

    for k in (1, 2):
        write(one_launch(float(k)), str(tmp_path / f"{k}.json"))
    files = [str(tmp_path / f"{k}.json") for k in (1, 2)]
    assert allreduce.main(["merge", *files, "--json", str(tmp_path / "joint.json")]) == 0
    assert "2 launches" in capsys.readouterr().out
    joint = read(tmp_path / "joint.json")
    assert joint == json.loads(json.dumps(merge([read(f) for f in files])))
    (tmp_path / "bad.json").write_text("{}")
    assert allreduce.main(["merge", str(tmp_path / "bad.json")]) == 2
    assert "is not a result of benchmarks.allreduce" in capsys.readouterr().err
    assert allreduce.main(["merge", str(tmp_path / "absent.json")]) == 2
    assert "cannot read" in capsys.readouterr().err


def test_a_target_is_judged_by_the_better_ordering_at_the_worst_size():
    target = Target(FAST, "float64", 8, 64, 1.5)
    ratios = {
        ("direct", "float64", 8): [1.0, 1.2, 1.4],
        ("block-tree", "float64", 8): [1.1, 1.3, 1.5],
        ("direct", "float64", 64): [9.0, 1.4, 1.6],
        ("block-tree", "float64", 64): [1.4, 1.5, 3.0],
        ("direct", "float64", 128): [5.0, 5.0, 5.0],
        ("direct", "float32", 8): [7.0, 7.0, 7.0],
    }
    row = judged(target, ratios, "mpich", 4)
    assert (row["by"], row["worst at"], row["met"]) == ("block-tree", "64 bytes", "yes")
    assert row["ratio"] == {"median": 1.5, "min": 1.4, "max": 3.0, "n": 3}
    ratios["block-tree", "float64", 64] = ratios["direct", "float64", 64] = [1.4, 1.51, 3.0]
    assert judged(target, ratios, "mpich", 4)["met"] == "no"
    assert judged(target, {}, "mpich", 4)["met"] == "no"


def test_sizes_are_shown_in_binary_units():
    assert [size_text(n) for n in (8, 1024, 1536, 4 << 20, 3 << 30)] == [
        "8 bytes", "1 KiB", "1536 bytes", "4 MiB", "3 GiB",
    ]  # fmt: skip
