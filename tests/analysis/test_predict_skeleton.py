"""A trace as a program of segments between waits, and what its clocks must be."""

from unittest import mock

import numpy as np
import pytest

from analysis.predict.reading.skeleton import skeleton
from analysis.predict.simulation.model import predict
from analysis.predict.simulation.target import target
from miniapps.trace import TraceError, Tracer
from tests.analysis.predict_programs import CALLS, STEPS, write_program
from tests.analysis.predict_runs import write_steps


def of_kind(run, key):
    """ms of the segments of one key, of the first step and of others."""
    return (run.segments.loc[[each[:3] == key for each in run.segments["key"]], "ns"] / 1e6).tolist()


def test_a_step_is_segments_between_waits(tmp_path):
    run = skeleton(write_program(tmp_path / "run"))
    assert (run.size, run.work, run.blocks, len(run.steps)) == (1, 128, 8, STEPS)
    assert run.waits["name"].tolist() == ["allreduce.sum"] * STEPS * CALLS
    assert of_kind(run, ("", "allreduce.sum", "work")) == pytest.approx([2.5] * STEPS)
    assert of_kind(run, ("allreduce.sum", "allreduce.sum", "work")) == pytest.approx(
        [2.5] * STEPS * (CALLS - 1)
    )
    assert of_kind(run, ("allreduce.sum", "", "work")) == pytest.approx([0.5] * STEPS)
    assert of_kind(run, ("allreduce.sum",) * 3) == pytest.approx([0.1] * STEPS * CALLS)
    assert run.cpu_s == pytest.approx(run.wall_s) == pytest.approx(8.3e-3)


def test_what_is_done_once_is_a_cost_of_the_first_step(tmp_path):
    """Loading a library in the first step moves neither the others nor how far these lie apart."""
    runs = [skeleton(write_program(tmp_path / f"n{n}", n=n, once=500.0)) for n in (128, 64)]
    answer = predict(target(runs, 1, {"grid.n": "96"}), None, clock="wall")
    steady = predict(target([skeleton(write_program(tmp_path / f"s{n}", n=n)) for n in (128, 64)], 1,
                            {"grid.n": "96"}), None, clock="wall")  # fmt: skip
    more = answer.prediction.median - steady.prediction.median
    assert more == pytest.approx(0.5 / STEPS, rel=0.1)  # the rate of the machine is drawn by the run's hash
    widths = [np.ptp(np.log(each.prediction.interval)) for each in (answer, steady)]
    assert widths[0] == pytest.approx(widths[1], rel=0.1)


def test_what_others_took_is_taken_from_the_segments_that_took_longer(tmp_path):
    stolen = {(2, 1): 30.0, (4, 0): 5.0, (4, 2): 12.0}
    run = skeleton(write_program(tmp_path / "run", stolen=stolen.items()))
    assert of_kind(run, ("", "allreduce.sum", "work")) == pytest.approx([2.5] * STEPS)
    assert of_kind(run, ("allreduce.sum", "allreduce.sum", "work")) == pytest.approx(
        [2.5] * STEPS * (CALLS - 1)
    )
    assert run.segments["ns"].sum() / 1e9 == pytest.approx(STEPS * run.cpu_s)


def test_work_before_the_first_event_of_a_step_was_not_taken_by_others(tmp_path):
    run = skeleton(write_program(tmp_path / "run", unseen={3: 20.0}.items(), stolen={(2, 1): 30.0}.items()))
    assert run.segments["ns"].sum() / 1e9 == pytest.approx(STEPS * run.cpu_s)
    assert of_kind(run, ("allreduce.sum", "allreduce.sum", "work")) == pytest.approx(
        [2.5] * STEPS * (CALLS - 1)
    )
    assert sorted(of_kind(run, ("allreduce.sum", "", "(no region)"))) == pytest.approx([20.0])


def test_clocks_that_are_not_to_be_trusted(tmp_path):
    back = write_steps(tmp_path / "back", [10.0], jump=2)
    with pytest.raises(TraceError, match="its clock ran backwards"):
        skeleton(back)
    used = Tracer.usage
    with mock.patch.object(
        Tracer, "usage", lambda self, name, step, value: used(self, name, step, float("nan"))
    ):
        nowhere = write_program(tmp_path / "nan")
    with pytest.raises(TraceError, match="a CPU time of nan s"):
        skeleton(nowhere)


def test_a_trace_without_steps_is_refused(tmp_path):
    with mock.patch.object(Tracer, "usage", lambda *given: None):
        run = write_program(tmp_path / "run")
    with pytest.raises(TraceError, match="recorded no steps with times"):
        skeleton(run)
