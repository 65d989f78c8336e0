"""Figures of merit, and the summary table of a run."""

from __future__ import annotations

import statistics

from kernels.registry import Variant
from miniapps.reductions.choice import label
from miniapps.reductions.record import Record


def figures(record: Record, variants: list[Variant], n: int) -> dict[str, tuple[float, str]]:
    """Figures for the largest size `n`: the rate of the reference, the largest |V_s| of variants without a promise and,
    if worst orders were searched, the largest |V_s| of these."""
    seconds = statistics.median(record.series[n, record.reference].seconds)
    figures_of_merit = {"reference_rate": (1e-6 * n / seconds if seconds else 0.0, "Melement/s")}
    if free := [label(v) for v in variants if v.guarantee == "none"]:
        figures_of_merit["max_abs_vs"] = (max(record.series[n, name].largest for name in free), "")
    if record.worst:
        figures_of_merit["worst_abs_vs"] = (record.worst[n], "")
    return figures_of_merit


def summary(record: Record, variants: list[Variant], n: int) -> str:
    """A table of the largest size `n`, one row per variant."""
    rows = [("variant", "promises", "us/sum", "results", "max |V_s|", "max error")]
    for variant in variants:
        series = record.series[n, label(variant)]
        time = f"{1e6 * statistics.median(series.seconds):.2f}" if series.seconds else "emulated"
        rows.append(
            (
                f"{variant.name} ({variant.backend})",
                variant.guarantee,
                time,
                str(series.distinct),
                f"{series.largest:.2e}",
                f"{series.error:.2e}",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  "
        + "  ".join(
            cell.rjust(w) if k > 1 else cell.ljust(w)
            for k, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    about = (
        f"sums of {n} numbers, sum|x| / |sum x| up to {record.condition[n]:.3g}; results: different bits of one array; "
        f"V_s against {record.reference}; error as a part of sum|x|"
    )
    return "\n".join([about, *lines])
