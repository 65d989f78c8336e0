"""The table of how a difference grows: names are rows, so that 200 of them stay readable."""

import pandas as pd
import pytest

from analysis.page.tables import steps_table


def grown(names: int, equal: int = 0) -> pd.DataFrame:
    """Differences of `names` names over 40 steps, each larger than the name before; `equal` names never differ."""
    return pd.DataFrame(
        {
            "step": step, "kind": "values", "name": f"name_{k:03d}", "elements": 1000, "differing": k * step,
            "fraction": k * step / 1000, "max_relative": 1e-16 * k * step, "max_ulp": float(k), "undefined": 0,
        }
        for step in range(1, 41)
        for k in [*range(1, names + 1), *[0] * bool(equal)]
    )  # fmt: skip


@pytest.mark.parametrize("names, shown", [(1, 1), (5, 5), (25, 25), (200, 25)])
def test_a_row_is_a_name_and_the_most_different_are_shown(names, shown):
    title, table = steps_table(grown(names))
    assert table.columns == (
        "name",
        "step 1",
        "step 7",
        "step 14",
        "step 21",
        "step 27",
        "step 33",
        "step 40",
    )
    assert [row[0] for row in table.rows] == [f"name_{k:03d}" for k in range(names - shown + 1, names + 1)]
    assert ("25 of 200 names" in title) == (names == 200)


def test_names_that_never_differ_are_counted():
    title, table = steps_table(grown(2, equal=1))
    assert [row[0] for row in table.rows] == ["name_001", "name_002"]
    assert title.endswith("; 1 name never differs")


def test_nothing_that_differs_is_no_row():
    assert steps_table(grown(0, equal=1))[1].rows == []
