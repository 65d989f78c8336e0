"""Halo exchange, gather and scatter under real MPI."""

from tests.mpi.sectioned import layouts
from tests.ranks import on_ranks


@layouts(1, 2, 3, 4, slow=(8,))
def test_halos_hold_the_periodic_neighbourhood(library, size):
    run = on_ranks(size, ["tests/mpi/programs/halo_properties.py"], library=library)
    assert run.returncode == 0 and run.stdout.strip() == "OK", run.stdout + run.stderr
