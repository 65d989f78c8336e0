"""Tables on a terminal: no number and no word is broken at 80 columns, with 5, 25 and 200 names."""

import re

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from analysis.page.sections import Mark, Table
from analysis.page.tables import MOST_NAMES, steps_table, variability_tables
from analysis.page.terminal import laid_out
from analysis.studies.contract import frame
from analysis.studies.growth.runs import GROWN, LAWS, laws
from analysis.studies.growth.tables import growth_tables
from tests.analysis.test_steps_table import grown

NUMBER = re.compile(r"-?\d[\d,.]*(?:e[-+]\d+)?%?")


def name_of(k: int) -> str:
    return f"encoder.layers.{k:03d}.attention.weight"


def lines(title: str, table: Table, width: int) -> list[str]:
    """What a terminal of this width shows."""
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(laid_out(title, table, width))
    return captured.get().splitlines()


def whole(shown: list[str], table: Table, width: int) -> bool:
    """Whether no line is too wide, and every word of every cell of `table` stands in one line."""
    words = {word for row in table.rows for cell in row for word in getattr(cell, "text", str(cell)).split()}
    words |= {word for column in table.columns for word in column.split()}
    there = {word.rstrip(":") for line in shown for word in line.split()}
    return max(map(len, shown)) <= width and {word.rstrip(":") for word in words} <= there


def growing(names: int, equal: int) -> pd.DataFrame:
    """Five runs of one cell over 30 steps: `names` names that grow away from the first run, `equal` that never do."""
    rows = [
        {
            "group": "app none/arrival", "cell": "app none/arrival on 4 ranks", "reference": "a:0", "runs": 5,
            "comparable": True, "run": f"r{run}", "repeat": 0, "step": step, "kind": "values", "name": name_of(k),
            "elements": 10, "differing": 10 * (k < names), "fraction": float(k < names),
            "max_relative": 1e-15 * np.exp(0.5 * step) * (1 + run + k) * (k < names), "max_ulp": 1.0, "undefined": 0,
        }
        for k in range(names + equal) for run in range(4) for step in range(1, 31)
    ]  # fmt: skip
    return frame(rows, GROWN)


def apart(names: int, equal: int) -> pd.DataFrame:
    """Rows of `variability` of one cell: `names` names that differ, `equal` that do not."""
    return pd.DataFrame(
        {
            "group": "app none", "cell": "app none on 4 ranks", "ranks": [4], "name": name_of(k), "kind": "values",
            "step": 12, "against": against, "runs": 4, "distinct": 4 if k < names else 1,
            "effective": 4.0 if k < names else 1.0, "pairs": 6, "v_s_median": 1e-16 * k, "v_s_max": 1.25e-16 * k,
            "v_ermv_mean": 1.25e-16 * k, "v_ermv_max": 1e-16, "v_c_mean": float(k < names),
            "v_c_max": float(k < names), "ulp_mean": 1.0, "ulp_max": 1234567.0 + k, "undefined": 0,
            "bound": np.nan if k < names else 0.5271,
        }
        for against in ("each other", "exact-4:0")
        for k in range(names + equal)
    )  # fmt: skip


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize("names", [5, 25, 200])
def test_growth_of_many_names_is_readable_and_equal_ones_are_counted(names, width):
    differences = growing(names, 3)
    fitted = laws(differences)
    assert len(fitted) == names and list(fitted.columns) == list(LAWS)
    ((title, table),) = growth_tables(fitted, 1e-8, differences)
    assert len(table.rows) == min(names, MOST_NAMES)
    assert "; 3 names never differ; in all rows: samples 4" in title
    assert "of all rates: no interval (fewer than 6 samples)" in title
    assert "samples" not in table.columns and all(
        any(map(str, cells)) for cells in zip(*table.rows, strict=True)
    )
    assert whole(lines(title, table, width), table, width)


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize("names", [5, 25, 200])
def test_variability_of_many_names_is_readable_and_equal_ones_are_counted(names, width):
    ((title, table),), sentences = variability_tables(apart(names, 4))
    assert sentences == []
    assert len(table.rows) == 2 * min(names, MOST_NAMES)
    assert title.count("4 names do not differ (p < 53 % at 95 %)") == 2
    assert "in all rows: of values, step 12, pairs 6, distinct 4 of 4" in title
    assert [heading for heading, _ in table.parts] == ["each other", "against exact-4:0"]
    shown = lines(title, table, width)
    assert whole(shown, table, width)
    assert sum("each other" in line for line in shown) == 1  # what repeats is said once


def test_cells_in_which_nothing_differs_are_a_sentence_and_no_table():
    every = pd.concat([apart(0, 4), apart(0, 4).assign(cell="app none on 2 ranks")])
    tables, sentences = variability_tables(every)
    assert tables == []
    assert sentences == [
        "app none on 4 ranks; app none on 2 ranks: 4 names do not differ (p < 53 % at 95 %)."
    ]


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize("names", [5, 25, 200])
def test_steps_of_many_names_are_readable(names, width):
    title, table = steps_table(grown(names).assign(name=lambda rows: "encoder.layers." + rows["name"]))
    assert whole(lines(title, table, width), table, width)


def test_long_texts_follow_a_narrow_table_and_name_their_row():
    text = "4 of 4 runs differ on 2 ranks, first at step 3; " + "probable cause: message order; " * 4
    heads = ("verdict", "group", "ranks", "runs", "results", "final state", "what there is to say")
    rows = [
        (
            Mark("DIFFERS (message order)", "differs"),
            f"app: group {k}",
            "1, 2, 4",
            "12",
            6,
            "937ba7c7b720",
            text,
        )
        for k in range(2)
    ]
    table = Table(heads, rows, ("results",))
    shown = lines("Groups", table, 60)
    assert whole(shown, table, 60)
    after = shown[shown.index("what there is to say:") :]
    assert next(line for line in after if "app: group" in line).startswith("  app: group 0: 4 of 4 runs")


def test_a_table_that_fits_is_one_grid():
    table = Table(("name", "step 1"), [("energy", "1.2e-16"), ("mass", "3")], ("step 1",))
    shown = lines("Title", table, 80)
    assert shown[0].strip() == "Title" and sum("─" in line for line in shown) == 1
    assert [line.split() for line in shown if "e" in line][-1] == ["energy", "1.2e-16"]


def test_rows_are_named_by_the_columns_that_tell_them_apart():
    heads = ("app", "ordering", "against", *(f"quantity_{k}" for k in range(9)))
    rows = [
        ("coupled", ordering, against, *["1.234e-16"] * 9)
        for ordering in ("arrival", "library")
        for against in ("each other", "the reference")
    ]
    shown = lines("Title", Table(heads, rows, heads[3:]), 80)
    headings = [line for line in shown if "app" in line]
    assert len(headings) >= 2 and all("ordering" in line and "against" in line for line in headings)
    under = Table(("series", "ranks", *heads[3:]), [(s, n, *row[3:]) for s in "ab" for n, row in enumerate(rows)],
                  heads[3:], by="series")  # fmt: skip
    shown = lines("Title", under, 80)
    assert [line.strip() for line in shown if line.strip() in ("a", "b")] == ["a", "b"]
    assert all(line.split()[0] == "ranks" for line in shown if "quantity" in line)
