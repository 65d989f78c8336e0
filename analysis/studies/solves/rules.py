"""What the solves do not support: the study's rules of lint."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analysis.limits import WARNING, Limit
from analysis.studies.solves.tables import Known


def extrapolated(known: Known) -> Iterator[Limit]:
    """A fitted growth is used beyond the iterations that it was fitted to (rule 12)."""
    for row in known.growth.itertuples(index=False):
        if not row.first <= row.predicted <= row.last and np.isfinite(row.predicted):
            yield Limit(
                WARNING, "solves-growth", f"{row.family}, {row.case}",
                f"the fit of iterations {row.first:g} to {row.last:g} is used at iteration {row.predicted:.0f}",
                "read the prediction as an extrapolation; compare it with the observed iterations",
            )  # fmt: skip
