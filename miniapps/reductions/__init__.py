"""Sums of arrays by every variant, inside a rank and then across ranks by any ordering: the founding study.

    mpirun -n 4 python -m miniapps.reductions --guarantee layout

The same numbers are added again and again, by deterministic variants and by such whose order is left to chance;
every sum and every time goes to the trace. See docs/explanation/reductions.md.
"""

from miniapps.reductions.config import ReductionsConfig
from miniapps.runner.main import App

APP = App(
    name="reductions",
    config=ReductionsConfig,
    serves=("device",),
    summary="sums of arrays by every variant, across ranks by any ordering: their bits and their times",
)
