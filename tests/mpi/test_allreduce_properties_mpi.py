"""The measuring command under MPI: the tables of the docs are what it prints, and it can fail."""

from pathlib import Path

import pytest

from kernels.allreduce.instruments.properties import COUNT, PLACEMENT, PROPERTIES, RANK, RUN, SIZE, every
from tests.launch import either_library, run_mpi
from tests.properties_table import documented, rows
from tests.ranks import on_ranks

COMMAND = ("-m", "kernels.allreduce", "properties")
WRONG = Path(__file__).parent / "programs" / "allreduce_wrong.py"
NAMES = every()
# Its cells also depend on how the library was built and configured.
LIBRARY_S = "library"


def measured(library, size, *arguments, timeout=120, by=on_ranks):
    run = by(size, [*COMMAND, *arguments], library=library, timeout=timeout)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "PROPERTIES: PASS" in run.stdout
    return run.stdout


@pytest.mark.parametrize(
    ("library", "ranks", "names"),
    [
        ("openmpi", "3,5", NAMES[::3]),
        *(pytest.param(*of, NAMES, marks=pytest.mark.slow) for of in (("openmpi", "3,5"), ("mpich", "2,6"))),
    ],
    ids=lambda of: f"{len(of)} orderings" if isinstance(of, list) else of,
)
def test_few_lengths_on_few_ranks_give_the_table_of_the_docs(library, ranks, names):
    """Both numbers of ranks are measured beside each other. No other test of these asks for as many."""
    few = ("--ranks", ranks, "--lengths", "5,1000", "--seeds", "1", "--dtype", "float64")
    text = measured(library, int(ranks[-1]), *few, "--orderings", ",".join(names), by=run_mpi)
    table, expected = rows(text), rows(documented(library))
    assert list(table) == names
    for name in (table.keys() & expected.keys()) - {LIBRARY_S}:
        if name == "arrival":  # on few ranks the order may be the same each time
            assert all(table[name][p] in (expected[name][p], "no") for p in PROPERTIES), table[name]
        else:
            assert table[name] == expected[name], name


@either_library
def test_promises_that_are_not_kept_are_named(library):
    arguments = (
        "--orderings boastful,egocentric,arrival --ranks 1,3,4 --lengths 1,5,1000 --seeds 1 --dtype float64"
    )
    run = run_mpi(4, [str(WRONG), "properties", *arguments.split()], library=library)  # it adds orderings
    assert run.returncode == 3, run.stdout + run.stderr
    assert "PROPERTIES: FAIL" in run.stdout
    table = rows(run.stdout)
    cells = {name: {p for p in PROPERTIES if table[name][p] == "yes"} for name in table}
    assert cells["boastful"] == {SIZE, COUNT}
    assert cells["egocentric"] == {RANK, PLACEMENT, COUNT}
    assert cells["arrival"] == {RUN, SIZE, PLACEMENT, COUNT}
    for message in (
        "ordering 'boastful' is declared 'layout', but depends on the rank count: float64, seed 1, the total: p 1, n ",
        "--orderings boastful --dtype float64 --seeds 1 --ranks 1,",
        "ordering 'egocentric' is declared 'run', but depends on the rank: float64, seed 1, ",
        "ordering 'arrival' is declared 'run', but depends on the run: ",
    ):
        assert message in run.stderr
    assert "ordering 'boastful' is declared 'layout', but depends on the message size: " in run.stderr
    assert "'egocentric' is declared 'run', but depends on the message size" not in run.stderr


def test_a_counterexample_can_be_had_again_by_the_options_it_is_shown_with():
    chosen = "--orderings ring --dtype float32 --seeds 2 --ranks 2,3 --lengths 5,1000 --show"
    shown = lines_of_the_ring(measured("mpich", 3, *chosen.split()))
    assert len(shown) == 2  # message size, rank count
    for line in shown:
        arguments = line.rpartition("(")[2].rstrip(")").split()
        assert line in lines_of_the_ring(measured("mpich", 3, *arguments, "--show"))


def lines_of_the_ring(text):
    return [line for line in text.splitlines() if line.startswith("ring depends on")]


def test_a_mistake_is_reported_once():
    run = on_ranks(2, [*COMMAND, "--ranks", "4"])
    assert run.returncode == 2 and run.stderr.count("--ranks 4: there are 2 ranks") == 1, run.stderr


@pytest.mark.slow
def test_all_numbers_of_ranks_give_the_table_of_the_docs():
    """The command writes the page by more seeds, types and longer vectors, which take it minutes."""
    few = ("--seeds", "1", "--lengths", "0,p,1000", "--dtype", "float32")
    table = rows(measured("openmpi", 8, *few, timeout=280))
    expected = rows(documented("openmpi"))
    assert list(table) == list(expected) == NAMES
    for name in table.keys() - {LIBRARY_S}:
        assert table[name] == expected[name], name


@pytest.mark.slow
def test_many_ranks():
    chosen = "direct,recursive-doubling,direct in exact"
    text = measured(
        "mpich",
        16,
        "--orderings",
        chosen,
        "--ranks",
        "16",
        "--lengths",
        "1,1000",
        "--seeds",
        "1",
    )
    expected = rows(documented("mpich"))
    assert rows(text) == {name: expected[name] for name in NAMES if name in chosen.split(",")}
