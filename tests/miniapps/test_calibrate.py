"""A calibration is an ordinary run: its measurements, records and errors."""

import time
from itertools import chain, repeat
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from mpi4py import MPI

from analysis.predict.costs.kernel_times import DIMS, KernelTimes
from analysis.predict.reading.calibration import read_calibration
from kernels.allreduce import Reduction
from kernels.allreduce.cost import cost
from miniapps.calibrate import APP, bandwidth, collectives, noise, run
from miniapps.calibrate.cases import Case
from miniapps.calibrate.collectives import counts, groups_along, most_near, spread_over
from miniapps.calibrate.noise import shares
from miniapps.calibrate.run import measure
from miniapps.calibrate.sharing import crowded
from miniapps.runner.main import main
from miniapps.system import quantum


def calibrate(out, *more, shapes=3):
    """Run the shortest calibration on this rank alone; its exit code."""
    short = ["--budget", "0", "--set", f"calibrate.shapes={shapes}", "--variant", "own"]
    return main(
        APP, [*short, *more, "--out", str(out), "--no-progress", "--log-level", "error"], MPI.COMM_SELF
    )


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    """A calibration of everything."""
    out = tmp_path_factory.mktemp("calibrations") / "all"
    few = mock.patch.object(collectives, "OTHER_RANKS", (3, 8))
    with few, mock.patch.object(bandwidth, "last_cache", return_value=0):
        assert calibrate(out, "--reduction", "direct in exact", "--reduction", "ring") == 0
    return read_calibration(out)


def test_every_kernel_is_measured_at_its_shapes(read):
    by_region = read.cases["region"].value_counts().to_dict()
    assert [by_region[f"{each}.own"] for each in ("matmul", "conv", "rowsum")] == [3, 3, 3]
    products = read.of("matmul.own")
    assert (products["flops"] == 2 * products["rows"] * products["depth"] * products["columns"]).all()
    assert (read.cases["seconds"] > 0).all()


def test_its_kernels_predict_their_own_shapes(read):
    products = read.of("matmul.own")
    columns = list(DIMS["matmul"])
    measured = [products[each].to_numpy(float) for each in (columns, "flops", "nbytes", "seconds")]
    predicted, errors, outside = KernelTimes(*measured).seconds(*measured[:3])
    assert not outside.any()
    assert np.isfinite(errors).all() and (errors > 0).all()
    assert np.isfinite(predicted).all() and (predicted > 0).all()


def test_a_call_costs_more_than_nothing(read):
    region, kernel = read.of("overhead.")["seconds"]
    assert 0 < region < kernel
    assert read.overhead == region + kernel


def test_shares_of_a_processor_are_recorded_by_window(read):
    assert read.noise.shape == (10, 1)
    assert ((read.noise >= 0) & (read.noise <= 1)).all()


def test_the_trace_states_what_schedules_do_on_other_rank_counts(read):
    ring = read.of("allreduce.ring:4096:")
    schedule = Reduction("ring", (4096,)).schedule(8)
    c = cost(schedule, 4096, 8)
    columns = ["messages:8", "bytes:8", "additions:8"]
    assert ring[columns].to_numpy().tolist() == [
        [c.critical_messages, c.critical_bytes, c.critical_additions]
    ]
    assert read.of("allreduce.direct in exact:4096:").shape[0]


def test_sums_whose_ranks_agree_first_have_more_messages():
    plain, exact = (counts(Reduction.named(each, (16,)), 8) for each in ("direct", "direct in exact"))
    assert exact["messages"] > plain["messages"]
    nothing = {"crossing_messages": 0, "crossing_bytes": 0}
    assert counts(Reduction("library", (16,)), 2) == {"messages": 1, "bytes": 128, "additions": 16} | nothing


def test_what_passes_between_nodes_is_counted_by_itself_and_a_node_shares_its_link():
    doubling = counts(Reduction("recursive-doubling", (16,)), 4, spread_over(4, 2))
    assert (doubling["messages"], doubling["bytes"]) == (1, 128)
    assert (doubling["crossing_messages"], doubling["crossing_bytes"]) == (1, 256)  # two ranks send 128 each
    assert spread_over(5, 2) == (0, 0, 0, 1, 1)
    assert spread_over(2, 4) == (0, 1)


def test_a_calibration_of_one_part_has_no_others(tmp_path):
    assert calibrate(tmp_path / "run", "--what", "kernels") == 0
    kernels = read_calibration(tmp_path / "run")
    assert {each.partition(".")[0] for each in kernels.cases["region"]} == {*DIMS, "overhead"}
    assert kernels.noise.shape == (0, 1)
    assert (kernels.delays.tolist(), kernels.spinning) == ([0.0], 1.0)
    assert np.isnan(kernels.spread) and np.isnan(kernels.memory)


def test_memory_is_measured_by_arrays_larger_than_the_last_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(bandwidth, "last_cache", lambda: 0)
    assert calibrate(tmp_path / "run", "--what", "memory") == 0
    measured = read_calibration(tmp_path / "run")
    by = measured.cases.set_index(["region", "length"])["nbytes"].to_dict()
    assert by == {(f"memory.{which}", 2.0**22): 8.0 * 2**22 * arrays
                  for which, arrays in (("copy", 2), ("triad", 5))}  # fmt: skip
    rates = measured.cases["nbytes"] / measured.cases["seconds"]
    assert rates.min() <= measured.memory <= rates.max()


def test_a_calibration_that_does_not_fit_into_memory_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("miniapps.system.resources.free_memory", lambda root: 2**30)
    assert calibrate(tmp_path / "run", "--what", "kernels", shapes=5000) == 2
    assert "--shapes 5000: a rank needs about 2.0 GiB" in (error := capsys.readouterr().err)
    assert "choose at most --shapes 2348" in error
    monkeypatch.setattr("miniapps.system.resources.free_memory", lambda root: 2**27)
    assert calibrate(tmp_path / "run", "--what", "memory", "--what", "noise") == 2
    assert "--what memory: a rank needs about" in (error := capsys.readouterr().err)
    assert "leave memory out: --what noise" in error
    assert not (tmp_path / "run").exists()


def test_what_is_sent_is_written_before_each_call(monkeypatch):
    """Else it lies in its receivers' caches since the call before."""
    order = []
    ctx = SimpleNamespace(tracer=mock.MagicMock(clock=lambda: 0), comm=MPI.COMM_SELF)
    case = Case("sum", lambda: order.append("sent"), {}, traced=True, prepare=lambda: order.append("written"))
    measure(ctx, case, 2)
    assert order == ["written", "sent"] * 2


def test_a_round_visits_a_case_again_after_the_others(tmp_path, monkeypatch):
    order = []

    def case(name, visits):
        return Case(name, list, {}, record=lambda tracer: order.append(name), visits=visits)

    monkeypatch.setattr(run, "kernel_cases", lambda ctx: [case("a", 1), case("b", 3), case("c", 2)])
    assert calibrate(tmp_path / "run", "--what", "kernels") == 0
    assert "".join(order) == "abcbcb"


def test_cores_are_crowded_where_more_ranks_may_use_them_than_there_are():
    both = (0, 1)
    assert not crowded([("a", both), ("a", both), ("b", both)])
    assert crowded([("a", both), ("b", both), ("a", both), ("a", both)])
    assert not crowded([("a", (0,)), ("a", (1,))])  # each is bound to its own
    assert crowded([("a", (0,)), ("a", (0,))])


def test_calls_on_a_disturbed_core_do_not_count(tmp_path, monkeypatch):
    """Every second sample lies between long quanta of work, and takes longer; of one case all do."""
    slow = [False]

    def taken():
        slow[:] = [next(quanta) // 2 % 2 == 1]
        return 300_000 if slow[0] else 100_000

    def call():
        end = time.thread_time() + (0.02 if slow[0] else 0.001)
        while time.thread_time() < end:
            pass

    monkeypatch.setattr(noise, "quantum", taken)
    monkeypatch.setattr(noise, "chain", lambda: 20_000)
    monkeypatch.setattr(noise.Quiet, "wait", lambda self, seconds: True)
    for cases in (3, 2):  # of an even number, each is always or never disturbed
        quanta = iter(range(10**6))
        each = [Case(f"case {k}", call, {}) for k in range(cases)]
        monkeypatch.setattr(run, "kernel_cases", lambda ctx, each=each: each)
        out = tmp_path / str(cases)
        argv = [
            "--budget",
            "1",
            "--what",
            "kernels",
            "--out",
            str(out),
            "--no-progress",
            "--log-level",
            "error",
        ]
        assert main(APP, argv, MPI.COMM_SELF) == 0
        read = read_calibration(out)
        assert 0.3 < read.undisturbed < 0.7
        assert read.chain == pytest.approx(2e-5)
        seconds = read.cases["seconds"].tolist()
        assert all(each < 0.01 for each in seconds) if cases == 3 else min(seconds) < 0.01 < max(seconds)


def test_a_core_is_undisturbed_when_a_quantum_is_about_as_short_as_before(monkeypatch):
    """A single fast quantum among many is no measure: then half of the usual ones would be disturbed."""
    usual = [100, 124, 126, *(100 + k % 10 for k in range(20))]
    taken = iter([*usual, 80, 101, 124, 126, 200])
    monkeypatch.setattr(quantum, "quantum", lambda: next(taken))
    core = quantum.Core()
    assert [core.undisturbed() for _ in usual] == [True, True, False, *[True] * 20]
    assert [core.undisturbed() for _ in range(5)] == [True, True, True, False, False]


def test_processors_are_waited_for(monkeypatch):
    answers = chain([True, False, False, True], repeat(False))
    monkeypatch.setattr(noise, "undisturbed", lambda: next(answers))
    quiet = noise.Quiet(MPI.COMM_SELF)
    assert quiet.wait(60) and (quiet.waits, quiet.at_once) == (1, 1)
    assert quiet.wait(60) and (quiet.waits, quiet.at_once) == (2, 1)  # the third time
    assert not quiet.wait(0.01) and (quiet.waits, quiet.at_once) == (3, 1)


def test_several_contributions_of_a_rank_are_cases_of_their_own_where_one_travels_as_it_is(read):
    words = read.of("allreduce.direct in exact:256:").set_index("contributions")["bytes:8"]
    assert words[2.0] > words[1.0] > 0
    assert read.of("allreduce.ring:256:")["contributions"].tolist() == [1.0]


def test_a_rank_stood_still_before_it_ran():
    """Looks at 0, 1, 4 and 5 ms; between the second and the third the rank had 1 ms."""
    walls, used = np.array([0.0, 1.0, 4.0, 5.0]), np.array([0.0, 1.0, 2.0, 3.0])
    assert shares(walls, used, np.arange(6.0)).tolist() == [1, 0, 0, 1, 1]
    assert shares(walls, used, np.array([0.0, 2.0, 5.0])).tolist() == pytest.approx([0.5, 2 / 3])


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["--reduction", "arrival"], "choose one with a schedule"),
        (["--reduction", "rung"], "ring"),
        (["--what", "gpus"], "kernels, programs, collectives, noise, memory"),
        (["--budget", "-1"], "0 to 86400"),
        (["--shapes", "0"], "1 to 10000"),
        (["--variant", "reference"], "own, torch"),
    ],
)
def test_what_cannot_be_measured_is_refused(tmp_path, capsys, more, why):
    assert calibrate(tmp_path / "run", *more) == 2
    assert why in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_sums_along_some_axes_of_a_mesh_are_among_groups_of_ranks():
    rows, columns = [(0, 1), (2, 3)], [(0, 2), (1, 3)]
    assert list(groups_along({"data": 2, "model": 2})) == [columns, rows]
    assert list(groups_along({"data": 2, "stage": 2})) == [columns]
    assert list(groups_along({"data": 1, "model": 4})) == list(groups_along({"stage": 4})) == []
    sizes = [
        [len(group) for group in groups] for groups in groups_along({"data": 2, "model": 3, "sequence": 2})
    ]
    assert sizes == [[2] * 6, [3] * 4, [2] * 6, [6] * 2, [4] * 3, [6] * 2]
    for groups in groups_along({"data": 2, "stage": 3, "model": 2}):
        assert sorted(rank for group in groups for rank in group) == list(range(12))


def test_the_most_ranks_on_one_node_count_as_near():
    assert [most_near(nodes) for nodes in ((0,), (0, 0, 1), (2, 1, 0))] == [1, 2, 1]
