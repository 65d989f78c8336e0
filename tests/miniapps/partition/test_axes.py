"""Cuts of dims: joined, split, merged."""

import pytest

from miniapps.partition.cuts.axes import Axis, AxisError, canonical, evenly, merge, split, text, whole

BATCH = (14, "batch")


def test_equal_cuts_are_equal_tuples():
    assert canonical([(14, None), (1, None), (16, None)]) == ((224, None),)
    assert canonical([BATCH, (4, None), (4, None)]) == (BATCH, (16, None))
    assert whole((3, 1)) == (((3, None),), ())


def test_two_tensors_agree_on_the_axes_of_both():
    assert merge((BATCH, (16, None)), ((14, None), (4, "heads"), (4, None))) == (
        BATCH,
        (4, "heads"),
        (4, None),
    )
    assert merge(((224, None),), (BATCH, (16, None))) == (BATCH, (16, None))


@pytest.mark.parametrize("other", [((14, "heads"), (16, None)), ((28, "heads"), (8, None))])
def test_axes_that_cross_contradict_each_other(other):
    assert merge((BATCH, (16, None)), other) is None


def test_a_dim_is_split_between_factors_but_not_inside_one_with_an_axis():
    assert split((BATCH, (64, None)), (14, 16, 4)) == [(BATCH,), ((16, None),), ((4, None),)]
    assert split((BATCH, (64, None)), (7, 128)) is None


def test_blocks_of_another_resolution_are_scaled():
    rows = Axis("rows", (0, 4, 12, 24))
    assert rows.at(24) == rows.starts and rows.at(12) == (0, 2, 6, 12) and rows.at(48) == (0, 8, 24, 48)


def test_the_first_blocks_are_longer_where_they_do_not_come_out_even():
    assert evenly("batch", 14, 4).starts == (0, 4, 8, 11, 14)


def test_an_axis_without_elements_in_a_block_is_refused():
    with pytest.raises(AxisError, match="choose 1 to 3"):
        evenly("batch", 3, 4)
    with pytest.raises(AxisError, match="ascend"):
        Axis("batch", (0, 2, 2))


def test_a_cut_in_words():
    assert text(((BATCH, (16, None)), ((64, None),), ())) == "batch:14*16 x 64 x 1"
