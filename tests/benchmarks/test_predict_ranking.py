"""Rankings by price: counts of a benchmark from prices and times that are given."""

import numpy as np
import pytest

from benchmarks.predict.ranking import choice, guarantees, summary

TEXTS = {
    level: {f"mlp {name} guarantee={level}": f"{name} over data=2" for name in ("dp", "zero", "tp")}
    for level in ("none", "layout")
}
PRICES = {
    "mlp dp guarantee=none": 1.0, "mlp zero guarantee=none": 1.1, "mlp dp guarantee=layout": 1.5,
    "mlp zero guarantee=layout": 1.4, "mlp tp guarantee=layout": 2.0,
}  # fmt: skip
TIMES = {
    "mlp dp guarantee=none": [1.0, 1.2], "mlp zero guarantee=none": [0.9, 1.1], "mlp dp guarantee=layout": [1.4, 1.4],
    "mlp zero guarantee=layout": [2.0, 2.0], "mlp tp guarantee=layout": [3.0, 3.0],
}  # fmt: skip


def chosen(level):
    return choice(level, TEXTS[level], PRICES, TIMES)


def test_a_choice_is_compared_with_the_fastest_run():
    alike, wrong = chosen("none"), chosen("layout")
    assert (alike["candidates"], alike["unpriced"]) == (2, 1)
    assert not alike["best"] and alike["alike"] and alike["regret"] == pytest.approx(0.1)
    assert not wrong["best"] and not wrong["alike"] and wrong["regret"] == pytest.approx(2 / 1.4 - 1)
    assert alike["tau"] == -1 and wrong["tau"] == pytest.approx(1 / 3)
    row = summary("all", 2, [alike, wrong])
    assert (row["alike"], row["best"], row["targets"], row["unpriced"]) == (0.5, 0, 2, 1)
    assert row["most_regret"] == pytest.approx(2 / 1.4 - 1)


def test_the_price_of_a_guarantee_has_a_sign():
    rows = guarantees("mlp", 2, [chosen("none"), chosen("layout")])
    by = {row["what"]: row["bias"] for row in rows}
    assert by == {
        "mlp: dp over data=2": pytest.approx(np.log(1.5 / (1.4 / 1.1))),
        "mlp: zero over data=2": pytest.approx(np.log(1.4 / 1.1 / 2.0)),
    }
