"""Costs at sizes without runs: known laws of batch and width, and the message if runs do not determine a law."""

import dataclasses
from itertools import product

import numpy as np
import pandas as pd
import pytest

from analysis.errors import Unreachable
from analysis.predict.costs.laws import LAW, laws_of, varied
from analysis.predict.reading.skeleton import Skeleton
from analysis.predict.simulation.model import predict
from analysis.predict.simulation.target import target
from miniapps.trace.head import problem_hash
from tests.analysis.synthetic import attributes

PRODUCT, UPDATE = ("", "", "product"), ("", "", "update")
NAMES = ["training.batch", "model.width"]


def seconds_of(batch, width):
    """What a step takes: of a product of matrices, and of an update that has no batch."""
    return {PRODUCT: 2e-6 + 3e-9 * batch * width + 1e-10 * batch * width**2, UPDATE: 1e-6 + 4e-10 * width**2}


def run_of(batch, width, layers=2, size=1, off=1.0):
    """A run of those sizes whose steps take `off` times what the laws say."""
    sizes = {"training.batch": batch, "model.width": width, "model.layers": layers}
    rows = [
        {"wait": -1, "inside": False, "step": step, "key": key, "ns": 1e9 * off * seconds}
        for step in (1, 2)
        for key, seconds in seconds_of(batch, width).items()
    ]
    known = attributes(0, size, "none", "ring")
    head = known | {
        "problem_options": sizes,
        "problem": problem_hash(known["app"], sizes),
        "config": {"training": {"batch": batch}, "model": {"width": width, "layers": layers}},
        "options": {name: {"effect": "size"} for name in sizes},
        "size": size,
    }
    work = float(batch * width * layers)
    waits = pd.DataFrame(columns=["name", "kind", "step", "bytes", "own"])
    return Skeleton(
        f"{batch}-{width}", head, size, np.array([1, 2]), work, 0, waits, [], pd.DataFrame(rows), 0.0, 0.0, "",
        sizes={name: float(value) for name, value in sizes.items()},
    )  # fmt: skip


def grid(batches=(16, 32), widths=(64, 128, 256), **more):
    return [run_of(batch, width, **more) for batch, width in product(batches, widths)]


@pytest.mark.parametrize("batch, width", [(24, 96), (20, 200), (64, 512)])
def test_laws_of_batch_and_width_are_those_that_the_runs_follow(batch, width):
    laws = laws_of(grid(), NAMES, {"training.batch": batch, "model.width": width}, 2.0 * batch * width)
    for key, seconds in seconds_of(batch, width).items():
        assert laws.costs[key].seconds(np.array([2.0 * batch * width]))[0] == pytest.approx(seconds, rel=1e-6)
        assert laws.costs[key].how == LAW
    assert ("sizes beyond those of the runs" in laws.extrapolated) == (width > 256)
    assert laws.freedom == 0  # six terms, six sizes


def test_of_more_sizes_than_terms_what_is_left_over_is_the_error_of_the_laws():
    runs = grid(batches=(16, 32, 64, 128), widths=(32, 64, 128, 256))
    off = [1.04, 0.96]
    noisy = [
        dataclasses.replace(run, segments=run.segments.assign(ns=run.segments["ns"] * off[k % 2]))
        for k, run in enumerate(runs)
    ]
    at = {"training.batch": 48.0, "model.width": 96.0}
    exact, left = (laws_of(some, NAMES, at, 1.0) for some in (runs, noisy))
    assert exact.freedom == left.freedom == 16 - 9
    assert exact.error < 1e-6
    assert 0.02 < left.error < 0.08


def test_two_widths_tell_no_square_and_it_is_said():
    laws = laws_of(grid(widths=(64, 128)), NAMES, {"training.batch": 16, "model.width": 96}, 1.0)
    assert any(
        "two values of model.width (64 and 128) do not distinguish a square" in each for each in laws.remarks
    )


def test_runs_that_leave_a_corner_out_do_not_tell_how_sizes_act_together():
    runs = [run_of(16, 64), run_of(16, 128), run_of(32, 64)]
    laws = laws_of(runs, NAMES, {"training.batch": 16, "model.width": 96}, 1.0)
    assert "sizes that act together" in laws.extrapolated


def test_sizes_that_vary_together_or_alone_have_no_laws_of_their_own():
    sizes = [run.sizes for run in grid()]
    assert varied(sizes) == NAMES
    assert varied(sizes[:3]) == []  # widths alone
    assert varied([run_of(16, 64).sizes, run_of(32, 128).sizes]) == []
    assert varied([]) == []


def test_a_step_of_unseen_sizes_is_predicted():
    chosen = target(grid(), 1, {"training.batch": "24", "model.width": "96"})
    assert chosen.varied == NAMES
    answer = predict(chosen, None, replays=50)
    assert answer.regions["seconds"].sum() == pytest.approx(sum(seconds_of(24, 96).values()), rel=1e-6)
    assert not any("sizes" in each for each in answer.prediction.extrapolated)


def test_an_option_that_no_run_varies_is_refused():
    with pytest.raises(Unreachable, match=r"--set model.layers=4: all runs have 2.*another model.layers"):
        target(grid(), 1, {"training.batch": "24", "model.layers": "4"})


def test_one_size_goes_with_the_product_as_before():
    runs = [run_of(16, 64), run_of(32, 64)]
    chosen = target(runs, 1, {"training.batch": "24"})
    assert not chosen.varied
    assert not any("sizes" in each for each in chosen.extrapolated)
    both = target(runs, 1, {"training.batch": "24", "model.width": "96"})
    assert "several sizes, by their product" in both.extrapolated
