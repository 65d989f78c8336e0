"""Growth of a rounding difference with the iteration of a solver.

The samples of a drift study are solves with injected orders of addition. Each runs in lock step with a solve by exact
sums and is compared with it.
"""

from __future__ import annotations

import pandas as pd

from analysis.studies.contract import frame
from analysis.studies.growth.law import LAW, law
from analysis.studies.solves.runs import Solves
from kernels.as_json import Column

GROWTH = {"family": Column("str"), "case": Column("str"), **LAW}


def growth(solves: Solves) -> pd.DataFrame:
    """A row per case with a drift study; columns GROWTH: `analysis.studies.growth.law.law` of its samples, with the
    tolerance of the solver."""
    rows = []
    for (family, case), same in solves.samples.groupby(["family", "case"], sort=False):
        own = solves.solves[(solves.solves["family"] == family) & (solves.solves["case"] == case)]
        table = differences(same)
        if table.shape[1]:
            rows.append({"family": family, "case": case, **law(table, own["tolerance"].iloc[0])})
    return frame(rows, GROWTH)


def differences(samples: pd.DataFrame) -> pd.DataFrame:
    """The `difference` of the samples of one case: a row per iteration, a column per sample; NaN where not recorded."""
    known = samples[samples["difference"].notna()]
    table = known.set_index(["step", "run", "repeat", "sample"])["difference"]
    return table.unstack(["run", "repeat", "sample"]).sort_index()
