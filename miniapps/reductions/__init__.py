"""Sums of arrays by every variant, inside a rank and then across ranks by any ordering: the founding study.

    mpirun -n 4 python -m miniapps.reductions --guarantee layout

The app adds the same numbers again and again, by deterministic variants and by variants whose order depends on chance.
The trace records every sum and every time. See docs/explanation/reductions.md.
"""

from miniapps.reductions.config import ReductionsConfig
from miniapps.runner.main import App

APP = App(
    name="reductions",
    config=ReductionsConfig,
    serves=("device", "processor"),
    summary="sums of arrays by every variant, across ranks by any ordering: their bits and their times",
)
