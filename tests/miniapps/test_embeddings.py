"""The sharding of tables of embeddings; AUC from counts."""

import numpy as np
import pytest

from kernels.guarantees import ChoiceError
from miniapps.dlrm.auc import area, twice_wins
from miniapps.embeddings.bags import Bags
from miniapps.embeddings.sharding import SHARDINGS, Sharding, Table, parse, place

TABLES = [Table("a", 40, 6, 8), Table("b", 3, 6, 8), Table("c", 90, 6, 8), Table("d", 90, 6, 8)]


@pytest.mark.parametrize("name", SHARDINGS)
@pytest.mark.parametrize("size", [1, 2, 3, 9])
@pytest.mark.parametrize("shuffle", [0, 4])
def test_every_weight_is_on_one_rank_or_on_all(name, size, shuffle):
    for of in place(TABLES, [Sharding(name)] * 4, size, shuffle):
        held = np.zeros((of.table.rows, of.table.columns), int)
        for rank in range(size):
            held[of.rows(rank).global_rows(), of.columns(rank)] += 1
            assert (rank in of.holders()) == bool(of.rows(rank).m and of.width(rank))
        assert (held == (size if name == "replicated" else 1)).all()


def test_whole_tables_go_to_the_rank_that_has_least():
    placed = place(TABLES, [Sharding("table")] * 4, 2)
    assert [of.owner[0] for of in placed] == [0, 1, 0, 1]
    placed = place(TABLES, [Sharding("table"), Sharding("row"), Sharding("table", 0), Sharding("table")], 2)
    assert [of.owner[0] for of in placed[2:]] == [0, 1] and placed[0].owner[0] == 0


def test_shardings_that_do_not_fit_are_refused():
    assert [str(of) for of in parse("row, table:rank=1", 2, 2)] == ["row", "table:rank=1"]
    for text in (
        "rows",
        "row,row",
        "row:rank=0",
        f"table:rank={'9' * 5000}",
        "table:rank=2",
        "table:rank=-1",
        "table:rank=²",
        "table:x=1",
        "",
    ):
        with pytest.raises(ChoiceError, match="sharding"):
            parse(text, 3, 2)


def test_bags_are_taken_with_their_rows():
    bags = Bags(np.array([2, 0, 3, 1], np.int32), np.array([5, 6, 7, 8, 9, 1], np.int32))
    taken = bags.take(np.array([2, 1, 0]))
    assert taken.lengths.tolist() == [3, 0, 2] and taken.rows.tolist() == [7, 8, 9, 5, 6]
    assert taken.samples.tolist() == [0, 0, 0, 2, 2]


def test_the_area_is_that_of_all_pairs_with_ties_by_half():
    rng = np.random.default_rng(1)
    positive, negative = (rng.integers(0, 9, n).astype(np.float32) for n in (30, 50))
    pairs = np.sign(positive[:, None] - negative[None])
    assert twice_wins(positive, negative) == int((pairs + 1).sum())
    parts = [twice_wins(positive, part) for part in (negative[:7], negative[7:], negative[:0])]
    assert sum(parts) == twice_wins(positive, negative)
    assert area(parts[0] + parts[1], 30, 50) == pytest.approx((pairs + 1).mean() / 2)
    assert np.isnan(area(0, 0, 5))
