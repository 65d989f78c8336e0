"""What is known of the sums as tables, for the terminal and for the report."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from analysis.groups import LEVELS
from analysis.page.sections import Table
from analysis.page.text import below, interval, number
from analysis.sums.fit import fits
from analysis.sums.frames import EMULATED, SERIES, Sums, references
from analysis.sums.price import prices
from analysis.sums.shape import MOST_MODES, shapes
from analysis.sums.statistics import QUANTILE, of_arrays, of_series, worst_orders


@dataclass(frozen=True)
class Study:
    """All that is computed of runs that compare variants: `recorded` (the frames), `arrays`, `series`, `prices`,
    `shapes`, `fits`, `worst`, each by the module of its name or by `statistics`, and `notes`, sentences on what limits
    them."""

    recorded: Sums
    arrays: pd.DataFrame
    series: pd.DataFrame
    prices: pd.DataFrame
    shapes: pd.DataFrame
    fits: pd.DataFrame
    worst: pd.DataFrame
    notes: list[str]


def study(sums: Sums, wanted: str | None = None) -> Study:
    """Everything about `sums`, which must not be empty; raises NoReference where `wanted` cannot be
    a reference."""
    reference, notes = references(sums, wanted)
    arrays = of_arrays(sums, reference)
    if sums.replays:
        notes.append(
            f"{sums.replays:,} emulated samples repeat the orders of an earlier run of the same seed: left out"
        )
    return Study(
        recorded=sums,
        arrays=arrays,
        series=of_series(arrays),
        prices=prices(sums),
        shapes=shapes(sums, arrays),
        fits=fits(arrays),
        worst=worst_orders(sums, arrays),
        notes=notes,
    )


def all_tables(results: Study) -> list[tuple[str, Table]]:
    """Every table, in the order in which they are read."""
    return [
        *price_tables(results),
        *bits_tables(results),
        *shape_tables(results),
        *fit_tables(results),
        *worst_tables(results),
    ]


def exported(results: Study) -> dict[str, pd.DataFrame]:
    """The frames of `results` that are written as CSV, by name."""
    return {
        name: getattr(results, name) for name in ("arrays", "series", "prices", "shapes", "fits", "worst")
    }


def price_tables(results: Study) -> list[tuple[str, Table]]:
    """(title, table) per case and operation: time, its ratio, and what is known of the bits."""
    both = results.series.merge(results.prices.drop(columns=["guarantee", "samples"]), on=SERIES, how="left")
    both["guarantee"] = [results.recorded.guarantee(*row) for row in both[SERIES[:4]].itertuples(index=False)]
    both["base"] = both["base"].fillna("")
    return [(f"Price list: {title}", _price_table(same)) for title, same in _each(both)]


def _price_table(same: pd.DataFrame) -> Table:
    bases = sorted(set(same["base"]) - {""})
    ratio = f"ratio to {bases[0]}" if len(bases) == 1 else "ratio"
    columns = ("n", "variant", "guarantee", "results", "max |V_s|", "error, ULP", "median time", "95 % interval",
               "GB/s", ratio, "95 % interval of it")  # fmt: skip
    rows = [
        (
            f"{row.n:,}", f"{row.variant} ({row.backend})", _kept(row), number(row.distinct), number(row.v_s_max),
            number(row.error_max), _time(row), interval(row.low_s, row.high_s, duration), number(row.gb_per_s),
            f"{row.ratio:.3f}" if row.ratio == row.ratio else "",
            interval(row.ratio_low, row.ratio_high, "{:.3f}".format),
        )
        for row in same.itertuples(index=False)
    ]  # fmt: skip
    return Table(columns, rows, (columns[0], *columns[3:]))


def bits_tables(results: Study) -> list[tuple[str, Table]]:
    """(title, table) per case and operation: samples against each other, apart from against the reference."""
    columns = ("n", "variant", "differing arrays", "samples", "results", "effective", "pair median", "pair max",
               "shift", "max |V_s|", "95 % |V_s|", "max ULP", "p at 95 %")  # fmt: skip
    tables = []
    for title, same in _each(results.series):
        rows = [
            (
                f"{row.n:,}", f"{row.variant} ({row.backend})", f"{row.differing} of {row.arrays}",
                number(row.samples), number(row.distinct), number(row.effective), number(row.pair_median),
                number(row.pair_max), number(row.shift), number(row.v_s_max), number(row.v_s_quantile),
                number(row.ulp_max), below(row.bound),
            )
            for row in same.itertuples(index=False)
        ]  # fmt: skip
        against = sorted(set(same["reference"]) - {""})
        named = f"; reference: {', '.join(against)}" if against else "; no reference"
        tables.append((f"Bits: {title}{named}", Table(columns, rows, (columns[0], *columns[3:]))))
    return tables


def shape_tables(results: Study) -> list[tuple[str, Table]]:
    """(title, table) per case and operation: how V_s is distributed in the first arrays of each size."""
    columns = ("n", "variant", "arrays", "samples", "values", "KL, nats", "95 % of normal samples", "not normal",
               "modes")  # fmt: skip
    tables = []
    for title, same in _each(results.shapes):
        rows = [
            (
                f"{row.n:,}", f"{row.variant} ({row.backend})", number(row.shaped), number(row.samples),
                "discrete" if row.discrete == row.shaped else "continuous" if not row.discrete else "both",
                number(row.kl), number(row.normal_95), f"{row.not_normal} of {row.shaped}",
                " to ".join(dict.fromkeys(map(_modes, (row.modes, row.modes_most)))),
            )
            for row in same.itertuples(index=False)
        ]  # fmt: skip
        numbers = (columns[0], *columns[2:4], *columns[5:])
        tables.append((f"Distribution of V_s: {title}", Table(columns, rows, numbers)))
    return tables


def _modes(count: int) -> str:
    return str(count) if count <= MOST_MODES else f"more than {MOST_MODES}"


def fit_tables(results: Study) -> list[tuple[str, Table]]:
    """(title, table) per case and operation: the power law of |V_s| in N."""
    columns = ("variant", "|V_s|", "alpha", "95 % interval", "beta", "95 % interval of it", "sizes", "arrays",
               "samples", "remark")  # fmt: skip
    named = {"v_s_max": "largest", "v_s_quantile": f"{QUANTILE:.0%} quantile"}
    tables = []
    for (case, operation), same in results.fits.groupby(["case", "operation"], sort=False):
        rows = [
            (
                f"{row.variant} ({row.backend})", named[row.metric], number(row.alpha),
                interval(row.alpha_low, row.alpha_high), number(row.beta), interval(row.beta_low, row.beta_high),
                number(row.sizes), number(row.arrays),
                " to ".join(dict.fromkeys(f"{m:,}" for m in (row.samples, row.samples_most))), _remark(row),
            )
            for row in same.itertuples(index=False)
        ]  # fmt: skip
        table = Table(columns, rows, columns[2:9])
        tables.append((f"Growth, |V_s| = beta N^alpha: {operation} of {case}", table))
    return tables


def _remark(row) -> str:
    """Why there is no fit, and which sizes it leaves out."""
    sizes = "1 size" if row.left_out == 1 else f"{row.left_out} sizes"
    left = f"{sizes} left out: half of the arrays do not differ" if row.left_out else ""
    return "; ".join(filter(None, (row.nothing, left)))


def worst_tables(results: Study) -> list[tuple[str, Table]]:
    """(title, table) per case and operation: what a search for the worst orders reached, over all arrays."""
    columns = ("n", "variant", "arrays", "max |V_s| seen", "max |V_s| by search", "seen / searched range")
    by = results.worst.groupby(SERIES, observed=True, sort=True)
    frame = by.agg(
        arrays=("array", "size"), seen=("v_s_max", "max"), bound=("bound", "max"), share=("share", "median"),
        outside=("outside", "sum"),
    ).reset_index()  # fmt: skip
    tables = []
    for title, same in _each(frame):
        rows = [
            (
                f"{row.n:,}", f"{row.variant} ({row.backend})", number(row.arrays), number(row.seen),
                number(row.bound), number(row.share) + (f", {row.outside} beyond it" if row.outside else ""),
            )
            for row in same.itertuples(index=False)
        ]  # fmt: skip
        tables.append((f"Worst orders: {title}", Table(columns, rows, (columns[0], *columns[2:]))))
    return tables


def duration(seconds: float) -> str:
    """`12.3 µs`: three digits with the unit that suits."""
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
