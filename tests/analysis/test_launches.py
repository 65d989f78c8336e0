"""Several launches of a calibration count as one."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from analysis.predict.reading import launches
from analysis.predict.reading.launches import pooled, read_calibrations
from miniapps.trace import TraceError
from tests.analysis.plan_runs import program
from tests.analysis.predict_programs import calibrated

STEP = program(size=2)


def launch(name, factor, **changed):
    """The calibration, `factor` times as slow."""
    one = calibrated()
    cases = one.cases.assign(seconds=factor * one.cases["seconds"], nbytes=0.0)
    steps = ((STEP, factor * 1e-3),)
    found = replace(one, path=name, cases=cases, steps=steps, hashes=(name,), delays=np.full(3, factor))
    return replace(found, **changed)


def test_times_are_medians_over_launches_and_their_spread_is_between_them():
    first, *others = (launch(name, factor) for name, factor in (("a", 1.0), ("b", 1.1), ("c", 2.0)))
    found = pooled([first, *others])
    assert len(found.cases) == len(first.cases)
    assert found.cases["seconds"].to_numpy() == pytest.approx(1.1 * first.cases["seconds"].to_numpy())
    logs = np.log([1.0, 1.1, 2.0])
    assert found.cases["spread"].to_numpy() == pytest.approx(logs.std(ddof=1))
    assert found.steps == ((STEP, pytest.approx(1.1e-3)),)
    assert found.step_spread == pytest.approx(logs.std(ddof=1))
    assert (found.path, found.hashes, len(found.delays)) == ("a, b, c", ("a", "b", "c"), 9)
    assert found.hash not in ("a", "b", "c", "")


def test_a_case_or_a_step_of_one_launch_keeps_its_own_time_and_spread():
    first, other = launch("a", 1.0), launch("b", 3.0, steps=())
    one = first.cases.iloc[:1].assign(region="kernel alone", spread=0.25)
    found = pooled([replace(first, cases=pd.concat([first.cases, one]), step_spread=0.1), other])
    alone = found.cases[found.cases["region"] == "kernel alone"].iloc[0]
    assert (alone["seconds"], alone["spread"]) == (one["seconds"].iloc[0], 0.25)
    assert found.steps == first.steps and found.step_spread == 0.1


def test_calibrations_on_other_numbers_of_ranks_stay_apart(monkeypatch):
    known = {"a": launch("a", 1.0), "b": launch("b", 3.0), "four": launch("four", 1.0, size=4)}
    monkeypatch.setattr(launches, "read_calibration", known.get)
    two, four = read_calibrations(["a", "four", "b", "a"])
    assert two.path == "a, b" and four is known["four"]


def test_launches_on_different_machines_are_refused():
    first, other = (launch(name, 1.0, environment={"cpu": cpu}) for name, cpu in (("a", "old"), ("b", "new")))
    with pytest.raises(TraceError, match=r"a and b: calibrations on 2 ranks .* differ in cpu: old .*new"):
        pooled([first, other])


def test_times_are_brought_to_one_clock_by_their_chains():
    """A launch on a clock that is a tenth slower says the same as the others."""
    known = [
        launch(name, factor, chain=factor * 50e-6) for name, factor in (("a", 1.0), ("b", 1.1), ("c", 1.2))
    ]
    found, one = pooled(known), known[1]
    assert found.chain == pytest.approx(55e-6)
    assert found.cases["seconds"].to_numpy() == pytest.approx(one.cases["seconds"].to_numpy())
    assert found.cases["spread"].to_numpy() == pytest.approx(0.0, abs=1e-9)
    assert found.steps == ((STEP, pytest.approx(1.1e-3)),) and found.step_spread == pytest.approx(
        0.0, abs=1e-9
    )
    assert found.delays == pytest.approx(np.full(9, 1.1))


def test_launches_without_chains_keep_their_times():
    found = pooled([launch("a", 1.0), launch("b", 1.2, chain=50e-6)])
    assert found.step_spread == pytest.approx(np.log(1.2) / np.sqrt(2)) and np.isnan(found.chain)
