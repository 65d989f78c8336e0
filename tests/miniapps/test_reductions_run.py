"""A repeat of the reductions app in the test's own process: its verification and its findings."""

import contextlib
import itertools
import logging

import numpy as np
import pytest
from mpi4py import MPI

from kernels import registry
from kernels.sums import emulated, worst
from miniapps.reductions import data
from miniapps.reductions.checks import roundoff
from miniapps.reductions.parts import Parts
from miniapps.reductions.record import Record
from miniapps.reductions.run import run
from miniapps.reductions.study import Batch
from miniapps.reductions.validate import validate
from miniapps.runner.context import Context
from miniapps.runner.options import RunOptions
from miniapps.trace import Tracer, read
from miniapps.trace.head import orderings
from tests.miniapps.test_reductions import configured

SMALL = dict(problem__sizes=(10, 2000), problem__arrays=2, problem__block=300, method__samples=4)


def repeat(tmp_path, options=None, **settings):
    """(outcome, trace) of one repeat on one rank."""
    path = tmp_path / f"{len(list(tmp_path.glob('*.h5')))}.h5"
    config, options = configured(**(SMALL | settings)), RunOptions(**(options or {}))
    validate(config, options, 1)
    with Tracer(path, {"rank": 0}) as tracer:
        ctx = Context(MPI.COMM_SELF, config, options, tracer, logging.getLogger(), tmp_path)
        ctx.begin_repeat(0)
        outcome = run(ctx)
        ctx.end_repeat()
    return outcome, read(path)


def failed(outcome):
    return {check.name: check.detail for check in outcome.checks if not check.passed}


@contextlib.contextmanager
def registered(name, guarantee, function):
    """A variant of `sum` that exists inside."""
    registry.variant("sum", name, backend="native", guarantee=guarantee, why="a test")(function)
    try:
        yield
    finally:
        del registry.VARIANTS["sum", name, "native"]


@pytest.mark.parametrize("guarantee", ["none", "run", "layout", "exact"])
@pytest.mark.parametrize("operation", ["sum", "dot"])
def test_every_variant_that_suits_passes_verification(tmp_path, guarantee, operation):
    for settings in (
        dict(problem__distribution="lognormal"),
        dict(problem__distribution="ill-conditioned", problem__dtype="float32"),
    ):
        settings |= dict(problem__operation=operation, problem__condition=200.0)
        outcome, _ = repeat(tmp_path, dict(guarantee=guarantee), **settings)
        assert failed(outcome) == {}
        assert len(outcome.checks) == 3 and len(outcome.fingerprint) == 32


def test_a_variant_that_does_not_repeat_is_found_out_with_place(tmp_path):
    calls = itertools.count()

    def wavering(x):
        return np.sum(x) * (
            1 + 2**-52 * (next(calls) == 11)
        )  # 10 calls for each array of 10: a warm-up and 4 samples

    with registered("wavering", "run", wavering):
        outcome, _ = repeat(
            tmp_path, method__variants=("wavering", "numpy"), problem__sizes=(10,), problem__arrays=3
        )
        assert list(failed(outcome)) == ["promises"]
        message = failed(outcome)["promises"]
        assert message.startswith(
            "sum:wavering:native: the partial sums on rank 0 differ from earlier samples, n = 10, array 2, sample 1"
        )


def test_a_variant_that_depends_on_the_order_and_promises_not_to_is_found_out(tmp_path):
    with registered("liar", "layout", lambda x: np.cumsum(x)[-1]):
        outcome, _ = repeat(tmp_path, method__variants=("liar",))
    assert "sum:liar:native: other bits for the reversed array" in failed(outcome)["promises"]


def test_a_variant_that_is_wrong_by_more_than_roundoff_is_found_out(tmp_path):
    with registered("wrong", "run", lambda x: np.sum(x[1:])):
        outcome, _ = repeat(tmp_path, method__variants=("wrong",))
    assert list(failed(outcome)) == ["roundoff"]
    assert failed(outcome)["roundoff"].startswith("sum:wrong:native: off by ")


def test_a_variant_that_is_not_correctly_rounded_and_promises_it_is_found_out(tmp_path):
    with registered("nearly", "exact", lambda x: np.nextafter(np.float64(sum(x.tolist())), np.inf)):
        outcome, _ = repeat(tmp_path, dict(guarantee="exact"), method__variants=("nearly",))
    assert "is not the correctly rounded" in failed(outcome)["correctly rounded"]


def test_numbers_that_are_no_numbers_are_added_and_recorded(tmp_path):
    x = np.random.default_rng(1).normal(size=(3, 500))
    x[0, 7], x[1, 8], x[2, :2] = np.nan, np.inf, (np.inf, -np.inf)
    np.save(tmp_path / "x.npy", x)
    settings = dict(problem__distribution="file", problem__file=str(tmp_path / "x.npy"), method__worst=True)
    outcome, trace = repeat(tmp_path, **settings)
    assert failed(outcome) == {}
    table = trace.tables["values"]
    for array, expected in enumerate((np.nan, np.inf, np.nan)):
        values = table["value"][table["block"] == array]
        assert len(values) > 4 and np.array_equal(values, np.full(len(values), expected), equal_nan=True)


def test_worst_orders_are_those_of_the_search_and_bound_what_was_sampled(tmp_path):
    outcome, trace = repeat(
        tmp_path, method__variants=("ao", "spa"), method__worst=True, launch__block=32, launch__items=1
    )
    table = trace.tables["values"]
    recorded = {
        (trace.names[name], block): value
        for name, block, value in zip(
            table["name"].tolist(), table["block"].tolist(), table["value"], strict=True
        )
    }
    problem = configured(**SMALL).problem
    for array in range(2):
        (x,) = data.vectors(problem, 1, array, Parts(2000, 300))
        for name in emulated.UNITS:
            numbers = emulated.units(name, x, 32, 1)
            search = worst.search(numbers, emulated.UNITS[name], seed=1)
            low, high = (recorded[f"worst-{side}:{name}:emulated:2000", array] for side in ("low", "high"))
            assert (low, high) == (search.lowest.value, search.highest.value) and low < high
            assert low <= recorded[f"sum:{name}:emulated:2000", array] <= high
    assert outcome.fom["worst_abs_vs"][0] >= outcome.fom["max_abs_vs"][0] > 0


def test_the_same_sums_whether_the_trace_has_times_or_not_and_values_in_order_of_samples(tmp_path):
    _, trace = repeat(
        tmp_path, method__variants=("lanes", "spa"), method__samples=10_000, problem__sizes=(10,)
    )
    table = trace.tables["values"]
    for name in ("sum:lanes:native:10", "sum:spa:emulated:10", "sum:sptr:native:10"):
        for array in range(2):
            rows = (table["name"] == trace.names.index(name)) & (table["block"] == array)
            assert (table["step"][rows] == np.arange(10_000)).all()
    events = trace.tables["events"]
    assert (events["name"] == trace.names.index("sum:lanes:native:10")).sum() == 20_000


def test_fingerprints_of_the_data_name_size_array_and_block(tmp_path):
    _, trace = repeat(tmp_path, method__variants=("lanes",))
    table = trace.tables["fingerprints"]
    rows = {
        (trace.names[name], step): []
        for name, step in zip(table["name"].tolist(), table["step"].tolist(), strict=True)
    }
    assert sorted(rows) == [("data:10", 0), ("data:10", 1), ("data:2000", 0), ("data:2000", 1)]
    last = (table["step"] == 1) & (table["name"] == trace.names.index("data:2000"))
    assert table["block"][last].tolist() == list(range(7))


def test_results_are_counted_for_each_array_by_itself_over_all_its_batches():
    record = Record("sum:sptr:native", roundoff(np.dtype(np.float64), 2, "sum"))
    batches = {0: ([1.0, 1.0], [1.0, 3.0]), 1: ([2.0, 5.0], [2.0, 4.0])}  # by array; ranks send them by turns
    for k in (0, 1):
        for array, values in batches.items():
            batch = Batch(10, array, 2 * k, k == 1, truth=1.0, magnitude=1e20)
            batch.values = {"sum:sptr:native": np.full(2, 2.0), "sum:spa:emulated": np.array(values[k])}
            record.add(batch, set())
    series = record.series[10, "sum:spa:emulated"]
    assert (series.distinct, series.largest) == (3, 1.5)  # 2, 4, 5 of array 1; |1 - 5/2|


def test_the_bound_of_roundoff_is_that_of_the_type():
    assert roundoff(np.dtype(np.float64), 1, "sum")(99) == pytest.approx(100 * 2**-53, rel=1e-10)
    assert roundoff(np.dtype(np.float32), 2, "dot")(97) == pytest.approx(100 * 2**-24, rel=1e-4)
    assert roundoff(np.dtype(np.float32), 1, "sum")(2**25) == np.inf


def test_the_all_reduce_of_true_sums_is_stated_and_no_factor(tmp_path):
    _, trace = repeat(tmp_path, {"guarantee": "run"})
    stated = trace.attributes["reductions"]
    truth = stated["truth"]
    assert (truth["accumulation"], truth["decided"], truth["calls"]) == (
        "exact",
        "application",
        4,
    )  # two of each size
    assert orderings(stated) == ["recursive-doubling"]
