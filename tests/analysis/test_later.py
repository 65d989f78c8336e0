"""A first difference that rounding explains does not speak for later ones: `analysis.divergence.later`."""

import numpy as np
import pytest

from analysis.divergence.cause import cause
from analysis.divergence.compare import compare
from analysis.load.frames import load
from miniapps.trace import Tracer
from tests.analysis.synthetic import attributes

ULP = 2.0**-52


def write(out, totals):
    """A run of one rank that recorded the total of each step."""
    out.mkdir()
    own = attributes(0, 1, "none", "library", run_id=str(out))
    own["reductions"] = {"sum": {**own["reductions"]["scalars"], "operation": "sum", "dtype": "float64"}}
    tracer = Tracer(out / "rank-00000.h5", own, size=1, level="regions")
    for step, total in enumerate(totals):
        tracer.at(0, step)
        tracer.array("total:sum", -1, np.array([total]))
    tracer.close(complete=True)


@pytest.mark.parametrize(
    ("later", "verdict"),
    [(1 + ULP, "rounding"), (1 + 4 * ULP, "rounding"), (1 + 1e-12, "open"), (1.5, "open"), (np.inf, "open")],
)
def test_rounding_is_no_excuse_for_what_comes_later(tmp_path, later, verdict):
    write(tmp_path / "a", [1.1, 1.1, 1.1])
    write(tmp_path / "b", [1.1, 1.1 * (1 + ULP), 1.1 * later])
    frames = load([tmp_path / "a", tmp_path / "b"])
    found = cause(frames, compare(frames, ("a", 0), ("b", 0)))
    assert found.at.step == 1
    assert found.rounding.verdict == verdict, found.rounding
    if verdict == "open":
        assert "of step 2 differs by" in found.rounding.why and "fpna cause" in found.next
