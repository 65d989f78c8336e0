"""Tables on sums, for the terminal and for the report."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from analysis.groups import LEVELS
from analysis.page.sections import Shown, Table, lines_of
from analysis.page.text import below, interval, number
from analysis.studies.sums.fit import fits
from analysis.studies.sums.price import prices
from analysis.studies.sums.runs import EMULATED, SERIES, Sums, references
from analysis.studies.sums.shape import MOST_MODES, shapes
from analysis.studies.sums.statistics import QUANTILE, of_arrays, of_series, worst_orders


@dataclass(frozen=True)
class Known:
    """All results on runs that compare variants: `recorded` (the frames), `arrays`, `series`, `prices`, `shapes`,
    `fits`, `worst`, each from the module of its name or from `statistics`, and `notes`: sentences on the limits of
    these results."""

    recorded: Sums
    arrays: pd.DataFrame
    series: pd.DataFrame
    prices: pd.DataFrame
    shapes: pd.DataFrame
    fits: pd.DataFrame
    worst: pd.DataFrame
    notes: list[str]


def known_of(sums: Sums, wanted: str | None = None) -> Known:
    """All results on `sums`. Raises NoReference if `wanted` cannot be a reference."""
    reference, notes = references(sums, wanted)
    arrays = of_arrays(sums, reference)
    if sums.replays:
        notes.append(
            f"{sums.replays:,} emulated samples left out: they repeat the orders of an earlier run with their seed"
        )
    return Known(
        recorded=sums,
        arrays=arrays,
        series=of_series(arrays),
        prices=prices(sums),
        shapes=shapes(sums, arrays),
        fits=fits(arrays),
        worst=worst_orders(sums, arrays),
        notes=notes,
    )


def all_tables(known: Known) -> list[tuple[str, Table]]:
    """Every table, in reading order."""
    return [
        *price_tables(known),
        *bits_tables(known),
        *shape_tables(known),
        *fit_tables(known),
        *worst_tables(known),
    ]


N = Shown("n", lambda row: f"{row.n:,}", number=True)
VARIANT = Shown("variant", lambda row: f"{row.variant} ({row.backend})")


def price_tables(known: Known) -> list[tuple[str, Table]]:
    """(title, table) per case and operation: time, its ratio, and the variation of the bits."""
    both = known.series.merge(known.prices.drop(columns=["guarantee", "samples"]), on=SERIES, how="left")
    both["guarantee"] = [known.recorded.guarantee(*row) for row in both[SERIES[:4]].itertuples(index=False)]
    both["base"] = both["base"].fillna("")
    return [(f"Price list: {title}", _price_table(same)) for title, same in _each(both)]


def _price_table(same: pd.DataFrame) -> Table:
    bases = sorted(set(same["base"]) - {""})
    columns = (
        N,
        VARIANT,
        Shown("guarantee", _kept),
        Shown("results", lambda row: number(row.distinct), number=True),
        Shown("max |V_s|", lambda row: number(row.v_s_max), number=True),
        Shown("error, ULP", lambda row: number(row.error_max), number=True),
        Shown("median time", _time, number=True),
        Shown("95 % interval", lambda row: interval(row.low_s, row.high_s, duration), number=True),
        Shown("GB/s", lambda row: number(row.gb_per_s), number=True),
        Shown(
            f"ratio to {bases[0]}" if len(bases) == 1 else "ratio",
            lambda row: f"{row.ratio:.3f}" if row.ratio == row.ratio else "", number=True,
        ),
        Shown("95 % interval of it", lambda row: interval(row.ratio_low, row.ratio_high, "{:.3f}".format), number=True),
    )  # fmt: skip
    return lines_of(same, columns)


BITS = (
    N,
    VARIANT,
    Shown("differing arrays", lambda row: f"{row.differing} of {row.arrays}"),
    Shown("samples", lambda row: number(row.samples), number=True),
    Shown("results", lambda row: number(row.distinct), number=True),
    Shown("effective", lambda row: number(row.effective), number=True),
    Shown("pair median", lambda row: number(row.pair_median), number=True),
    Shown("pair max", lambda row: number(row.pair_max), number=True),
    Shown("shift", lambda row: number(row.shift), number=True),
    Shown("max |V_s|", lambda row: number(row.v_s_max), number=True),
    Shown("95 % |V_s|", lambda row: number(row.v_s_quantile), number=True),
    Shown("max ULP", lambda row: number(row.ulp_max), number=True),
    Shown("p at 95 %", lambda row: below(row.bound), number=True),
)


def bits_tables(known: Known) -> list[tuple[str, Table]]:
    """(title, table) per case and operation: differences between samples, and separately from the reference."""
    tables = []
    for title, same in _each(known.series):
        against = sorted(set(same["reference"]) - {""})
        named = f"; reference: {', '.join(against)}" if against else "; no reference"
        tables.append((f"Bits: {title}{named}", lines_of(same, BITS)))
    return tables


SHAPE = (
    N,
    VARIANT,
    Shown("arrays", lambda row: number(row.shaped), number=True),
    Shown("samples", lambda row: number(row.samples), number=True),
    Shown("values", lambda row: _values(row)),
    Shown("KL, nats", lambda row: number(row.kl), number=True),
    Shown("95 % of normal samples", lambda row: number(row.normal_95), number=True),
    Shown("not normal", lambda row: f"{row.not_normal} of {row.shaped}", number=True),
    Shown("modes", lambda row: " to ".join(dict.fromkeys(map(_modes, (row.modes, row.modes_most)))), number=True),
)  # fmt: skip


def shape_tables(known: Known) -> list[tuple[str, Table]]:
    """(title, table) per case and operation: the distribution of V_s in the first arrays of each size."""
    return [(f"Distribution of V_s: {title}", lines_of(same, SHAPE)) for title, same in _each(known.shapes)]


def _values(row) -> str:
    return "discrete" if row.discrete == row.shaped else "continuous" if not row.discrete else "both"


def _modes(count: int) -> str:
    return str(count) if count <= MOST_MODES else f"more than {MOST_MODES}"


METRICS = {"v_s_max": "largest", "v_s_quantile": f"{QUANTILE:.0%} quantile"}
FIT = (
    VARIANT,
    Shown("|V_s|", lambda row: METRICS[row.metric]),
    Shown("alpha", lambda row: number(row.alpha), number=True),
    Shown("95 % interval", lambda row: interval(row.alpha_low, row.alpha_high), number=True),
    Shown("beta", lambda row: number(row.beta), number=True),
    Shown("95 % interval of it", lambda row: interval(row.beta_low, row.beta_high), number=True),
    Shown("sizes", lambda row: number(row.sizes), number=True),
    Shown("arrays", lambda row: number(row.arrays), number=True),
    Shown("samples", lambda row: " to ".join(dict.fromkeys(f"{m:,}" for m in (row.samples, row.samples_most))),
          number=True),
    Shown("remark", lambda row: _remark(row)),
)  # fmt: skip


def fit_tables(known: Known) -> list[tuple[str, Table]]:
    """(title, table) per case and operation: the power law of |V_s| in N."""
    return [
        (f"Growth, |V_s| = beta N^alpha: {operation} of {case}", lines_of(same, FIT))
        for (case, operation), same in known.fits.groupby(["case", "operation"], sort=False)
    ]


def _remark(row) -> str:
    """Why there is no fit, and how many sizes it leaves out."""
    sizes = "1 size" if row.left_out == 1 else f"{row.left_out} sizes"
    left = f"{sizes} left out: half of the arrays do not differ" if row.left_out else ""
    return "; ".join(filter(None, (row.nothing, left)))


SEARCHED = (
    N,
    VARIANT,
    Shown("arrays", lambda row: number(row.arrays), number=True),
    Shown("max |V_s| seen", lambda row: number(row.seen), number=True),
    Shown("max |V_s| by search", lambda row: number(row.bound), number=True),
    Shown("seen / searched range",
          lambda row: number(row.share) + (f", {row.outside} beyond it" if row.outside else ""), number=True),
)  # fmt: skip


def worst_tables(known: Known) -> list[tuple[str, Table]]:
    """(title, table) per case and operation: the search for the worst orders, over all arrays."""
    by = known.worst.groupby(SERIES, observed=True, sort=True)
    frame = by.agg(
        arrays=("array", "size"), seen=("v_s_max", "max"), bound=("bound", "max"), share=("share", "median"),
        outside=("outside", "sum"),
    ).reset_index()  # fmt: skip
    return [(f"Worst orders: {title}", lines_of(same, SEARCHED)) for title, same in _each(frame)]


def duration(seconds: float) -> str:
    """`12.3 µs`: three digits in a suitable unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def _kept(row) -> str:
    """The guarantee of a variant, and whether its samples break it."""
    return f"{row.guarantee}, BROKEN" if row.guarantee in LEVELS[1:] and row.distinct > 1 else row.guarantee


def _time(row) -> str:
    if row.backend == EMULATED:
        return EMULATED
    return duration(row.median_s) if row.median_s == row.median_s else "not timed"


def _each(frame: pd.DataFrame):
    """(title, rows by n) of each case and operation, as recorded."""
    for (case, operation), same in frame.groupby(["case", "operation"], observed=True, sort=True):
        yield f"{operation} of {case}", same.sort_values("n", kind="stable")
