"""Types x reductions x operations x guarantees of a wrapped communicator, as in docs/tutorials/own-programs.md."""

import pytest

from tests.wrapped_types import block, documented, measured, rows_of, wrong


def test_the_cells_tried_are_right_or_refused_and_as_documented():
    table = measured("--quick")
    assert wrong(table) == []
    found, page = rows_of(block(table)), rows_of(documented())
    assert {key: page.get(key) for key in found} == found


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_cell_is_right_or_refused_and_as_documented():
    table = measured()
    assert wrong(table) == []
    assert block(table) == documented()
