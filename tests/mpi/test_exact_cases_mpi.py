"""Drawn sums under `layout` by every carrier, against rational arithmetic: the program draws more by hand."""

import json

from tests.mpi.sectioned import PROGRAMS, layouts
from tests.ranks import on_ranks


@layouts(1, 3, slow=(2, 8), others=(2,))
def test_every_element_is_the_rational_sum_rounded_once(library, size):
    run = on_ranks(
        size, [str(PROGRAMS / "exact_cases.py"), "--cases", "60", "--seed", str(size)], library, timeout=240
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert json.loads(run.stdout)["failures"] == []
