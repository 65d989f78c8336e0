"""What is recorded between records of the state, and the faults that strike there, under real MPI."""

from tests.launch import libraries
from tests.ranks import on_ranks


@libraries
def test_records_do_not_depend_on_the_layout_and_faults_strike_once(library):
    run = on_ranks(3, ["tests/mpi/programs/watch_properties.py"], library=library)
    assert run.returncode == 0 and run.stdout.strip() == "OK", run.stdout + run.stderr
