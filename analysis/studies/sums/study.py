"""The study of sums."""

from __future__ import annotations

import argparse

from analysis.errors import Usage
from analysis.overview import Overview
from analysis.page.sections import Section, folded
from analysis.power import power_note
from analysis.studies.contract import Data, Nothing, Study
from analysis.studies.sums.columns import ARRAYS, FITS, OVER_ARRAYS, PRICES, SHAPES, WORST
from analysis.studies.sums.figures import DRAWN, bits_figures, growth_figures, left_out, shape_figures
from analysis.studies.sums.price_figures import price_figures
from analysis.studies.sums.runs import NoReference, sums
from analysis.studies.sums.shape import FEWEST_SAMPLES
from analysis.studies.sums.tables import (
    Known,
    all_tables,
    bits_tables,
    fit_tables,
    known_of,
    price_tables,
    shape_tables,
    worst_tables,
)


def read(overview: Overview, options: argparse.Namespace | None) -> Known:
    """All results on the sums of the runs. Raises Usage for an impossible reference."""
    recorded = sums(overview.frames)
    if recorded.samples.empty:
        raise Nothing
    try:
        return known_of(recorded, options.reference if options else None)
    except NoReference as error:
        raise Usage(str(error)) from error


def sections(known: Known) -> list[Section]:
    """Price list, variability, distribution, growth and worst orders of the sums."""
    return [_prices(known), _bits(known), _shapes(known), _growth(known), _worst(known)]


def _prices(known: Known) -> Section:
    intro = (
        "The time of a sum by each variant, beside its bits. Ratios are to the fastest variant without a guarantee or "
        "from a library, for the same data, method and rank count. Emulated variants draw orders of arrival from a "
        "seed and have no price."
    )
    if rest := left_out(known):
        intro += f" Figures are drawn for the first {DRAWN} cases; {rest} more have tables only."
    intro = " ".join([intro, *(f"{note[:1].upper()}{note[1:]}." for note in known.notes)])
    tables = folded(price_tables(known))
    return Section("sums-prices", "Sums: price list", "", intro, price_figures(known), tables)


def _bits(known: Known) -> Section:
    intro = (
        "Differences between samples of one array (pair) are run-to-run variation. The difference of the median sample "
        "from the reference (shift) is the change of algorithm. |V_s| and ULP are from the reference and include both. "
        "Only sums of one case are compared: other data, methods and rank counts never count as variation."
    )
    title = "Sums: run-to-run variability"
    return Section("sums-variability", title, "", intro, bits_figures(known), folded(bits_tables(known)))


def _shapes(known: Known) -> Section:
    intro = (
        "The distribution of V_s over samples. KL is the divergence from the normal distribution with the same mean "
        "and variance. Above its 95 % quantile for normal samples, the samples are not normal."
    )
    nothing = (
        f"No array has {FEWEST_SAMPLES} samples that are not all equal, so there is no distribution to show."
    )
    figures, tables = shape_figures(known), folded(shape_tables(known))
    title = "Sums: distribution of V_s"
    return Section("sums-distribution", title, nothing, intro if figures or tables else "", figures, tables)


def _growth(known: Known) -> Section:
    intro = (
        "The growth of |V_s| with the number of elements: near alpha = 0.5, rounding errors are a random walk; near 1, "
        "they add up. The largest of several samples also grows with their number, the quantile hardly."
    )
    fewest = known.series["samples"].min()
    nothing = f"The samples of no variant differ, so nothing grows: in each {power_note(int(fewest))}."
    figures, tables = growth_figures(known), folded(fit_tables(known))
    title = "Sums: growth with N"
    return Section("sums-growth", title, nothing, intro if figures or tables else "", figures, tables)


def _worst(known: Known) -> Section:
    intro = (
        "Extremes that a search for the worst orders of arrival found, beside the samples. The share is the range of "
        "the samples over that of the search. A sample outside shows that the search missed the worst order."
    )
    nothing = "No search for the worst orders was made (--worst), so only the samples are known."
    tables = folded(worst_tables(known))
    return Section("sums-worst", "Sums: worst orders", nothing, intro if tables else "", tables=tables)


STUDY = Study(
    read=read,
    data=(
        Data("arrays", "a row per variant and array", ARRAYS, lambda known: known.arrays),
        Data(
            "series", "a row per variant and size, over its arrays", OVER_ARRAYS, lambda known: known.series
        ),
        Data("prices", "the price of each variant", PRICES, lambda known: known.prices),
        Data("shapes", "the distribution of V_s", SHAPES, lambda known: known.shapes),
        Data("fits", "the power law of |V_s| in n", FITS, lambda known: known.fits),
        Data("worst", "the search for the worst orders", WORST, lambda known: known.worst),
    ),
    tables=all_tables,
    sections=sections,
    notes=lambda known: known.notes,
    words=lambda known: known.recorded.words,
)
