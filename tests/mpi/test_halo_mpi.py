"""Halo exchange, gather and scatter under real MPI."""

import pytest

from tests.launch import libraries
from tests.ranks import on_ranks


@libraries
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_halos_hold_the_periodic_neighbourhood(ranks, library):
    run = on_ranks(ranks, ["tests/mpi/programs/halo_properties.py"], library=library)
    assert run.returncode == 0 and run.stdout.strip() == "OK", run.stdout + run.stderr
