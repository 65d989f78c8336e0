"""The figures of the GraphSAGE benchmark for known runs."""

import numpy as np

from benchmarks.apps.graphsage import Run, compared
from kernels.bits import bound

ULP = np.float32(2.0**-23)


def a_run(weight=1.0, output=-2.0, prediction=3, accuracy=0.5):
    weights = np.array([weight, 1.0], np.float32)
    return Run(accuracy, weights, np.array([output, -1.0, -1.0, -1.0]), np.array([prediction, 4]))


def test_equal_runs_have_one_result_and_a_bound():
    row = compared([a_run(), a_run(), a_run()], None)
    assert (row["weights, distinct"], row["outputs, distinct"], row["predictions, distinct"]) == (1, 1, 1)
    assert row["weights, V_c"] == row["outputs, V_ermv"] == row["changed"] == row["sd"] == 0
    assert row["bound"] == bound(3) and row["outputs, V_c to D, D"] == ""


def test_runs_are_compared_with_the_first_and_with_the_deterministic_one():
    runs = [
        a_run(1 + ULP, -4.0, 3, 0.5),
        a_run(1 + ULP, -2.0, 5, 0.75),
        a_run(1 + 3 * ULP, -3.0, 3, 1.0),
    ]
    row = compared(runs, a_run())
    assert (row["weights, distinct"], row["outputs, distinct"], row["predictions, distinct"]) == (2, 3, 2)
    assert row["changed"] == 1 and row["bound"] == ""
    assert row["outputs, V_ermv"] == (0.5 / 4 + 0.25 / 4) / 2 and row["outputs, V_c"] == 0.25
    assert row["outputs, V_ermv to D, D"] == 0.5 / 4 and row["outputs, V_c to D, D"] == 0.25
    assert row["weights, V_c to D, D"] == 0.5 and row["weights, V_ermv to D, D"] == ULP / 2
    assert (row["accuracy"], row["sd"]) == (0.75, 0.25)
