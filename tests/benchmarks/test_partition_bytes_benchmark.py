"""Bytes that cross between nodes in a step are those that `explain` counts; ranks in network namespaces."""

import pytest

from benchmarks.apps.partition import CASES, LIMIT, NODES, crossed
from jobs.cluster import cluster, iproute
from miniapps.partition import models

if reason := iproute.why_not():
    pytest.skip(f"no nodes here: {reason}", allow_module_level=True)


@pytest.mark.slow
def test_what_crosses_between_nodes_is_what_explain_counts():
    with cluster(nodes=NODES) as nodes:
        rows = [crossed(nodes, recipe, 2) for recipe in ("zero", "spatial")]
    for row in rows:
        assert abs(row["crossed"] / row["explained"] - 1) <= LIMIT, row
        assert row["planned messages"] == row["explained, moved"] > 0


def test_every_recipe_has_a_case():
    assert {recipe for name in ("gpt", "unet", "moe") for recipe in models.model(name).RECIPES} - {
        "dp+spatial"
    } == set(CASES)
