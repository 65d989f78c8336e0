"""The study's rules of lint: claims that the solves do not support."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analysis.limits import WARNING, Limit
from analysis.studies.solves.tables import Known


def extrapolated(known: Known) -> Iterator[Limit]:
    """Yields each prediction beyond the iterations of its fit (rule 12)."""
    for row in known.growth.itertuples(index=False):
        if not row.first <= row.predicted <= row.last and np.isfinite(row.predicted):
            yield Limit(
                WARNING, "solves-growth", f"{row.family}, {row.case}",
                f"the fit of iterations {row.first:g} to {row.last:g} predicts iteration {row.predicted:.0f}",
                "read the prediction as an extrapolation; compare it with the observed iterations",
            )  # fmt: skip
