"""The sections of the report about sums."""

from __future__ import annotations

from analysis.page.sections import Section, folded
from analysis.power import power_note
from analysis.sums.figures import (
    DRAWN,
    bits_figures,
    growth_figures,
    left_out,
    shape_figures,
)
from analysis.sums.price_figures import price_figures
from analysis.sums.shape import FEWEST_SAMPLES
from analysis.sums.tables import (
    Study,
    bits_tables,
    fit_tables,
    price_tables,
    shape_tables,
    worst_tables,
)


def sums_sections(results: Study) -> list[Section]:
    """Price list, variability, distribution, growth and worst orders of the sums."""
    return [_prices(results), _bits(results), _shapes(results), _growth(results), _worst(results)]


def _prices(results: Study) -> Section:
    intro = (
        "What a sum costs by each variant, beside what is known of its bits; ratios are to the fastest way "
        "without a guarantee or by a library's own sum, of the same data, method and rank count. Emulated "
        "variants draw orders of arrival from a seed and have no price."
    )
    if rest := left_out(results):
        intro += f" Figures are drawn for the first {DRAWN} cases; {rest} more have tables only."
    intro = " ".join([intro, *(f"{note[:1].upper()}{note[1:]}." for note in results.notes)])
    return Section(
        "sums-prices", "Sums: price list", "", intro, price_figures(results), folded(price_tables(results))
    )


def _bits(results: Study) -> Section:
    intro = (
        "Samples of one array against each other (pair) say what changes from run to run. The median sample against "
        "the reference (shift) is the change of algorithm. |V_s| and ULP are against the reference and hold both. Only "
        "sums of one case are compared: other data, methods and rank counts never count as variation."
    )
    return Section(
        "sums-variability",
        "Sums: run-to-run variability",
        "",
        intro,
        bits_figures(results),
        folded(bits_tables(results)),
    )


def _shapes(results: Study) -> Section:
    intro = (
        "How V_s is spread over samples. KL is the distance from the normal distribution of the same mean and "
        "variance; above the value that 95 % of normal samples stay below, the samples are not normal."
    )
    nothing = (
        f"No array has {FEWEST_SAMPLES} samples, some of them different, so there is no distribution to show."
    )
    figures, tables = shape_figures(results), folded(shape_tables(results))
    return Section(
        "sums-distribution",
        "Sums: distribution of V_s",
        nothing,
        intro if figures or tables else "",
        figures,
        tables,
    )


def _growth(results: Study) -> Section:
    intro = (
        "How |V_s| grows with the number of elements: alpha near 0.5 is a random walk of rounding errors, near 1 the "
        "errors add up. The largest of several samples also grows with their number, the quantile hardly."
    )
    fewest = results.series["samples"].min()
    nothing = f"The samples of no variant differ, so nothing grows: in each {power_note(int(fewest))}."
    figures, tables = growth_figures(results), folded(fit_tables(results))
    return Section(
        "sums-growth", "Sums: growth with N", nothing, intro if figures or tables else "", figures, tables
    )


def _worst(results: Study) -> Section:
    intro = (
        "What a search for the worst orders of arrival reached, beside what the samples came to. The share is the "
        "range of the samples over the range of the search; a sample beyond it shows that the search fell short."
    )
    nothing = "No search for the worst orders was made (--worst), so only what was sampled is known."
    tables = folded(worst_tables(results))
    return Section("sums-worst", "Sums: worst orders", nothing, intro if tables else "", tables=tables)
