"""Neighbourhood collectives are recorded with what each rank sent and got, and with its neighbours."""

import json
import shutil
import subprocess

import numpy as np
import pytest
import xxhash

from analysis.__main__ import main
from analysis.divergence.cause import cause
from miniapps.trace import read_run
from miniapps.trace.schema import EXCHANGE
from tests.mpi.test_observed_mpi import BOTH, HERE, built, compared, debian, observed, under_debian  # noqa: F401

NAMES = ("allgather", "allgatherv", "alltoall", "alltoallv", "alltoallw")
FORMS = ("MPI_Neighbor_{}", "MPI_Ineighbor_{}", "MPI_Neighbor_{}_init", "MPI_Neighbor_{}")


def parts_of(folder, rank):
    """(call, hash sent, hash received, neighbours) of each call of neighbours.c; a hash is None without a neighbour."""
    for line in (folder / f"parts-{rank}").read_text().splitlines():
        numbers, received, sources, targets = (part.strip() for part in line.split("|"))
        form, call, *sent = numbers.split()
        near = {"from": list(map(int, sources.split())), "to": list(map(int, targets.split()))}
        hashes = [
            xxhash.xxh3_128_hexdigest(bytes.fromhex(content)) if max(near[side], default=-1) >= 0 else None
            for content, side in (("".join(sent), "to"), (received, "from"))
        ]
        yield FORMS[int(form)].format(NAMES[int(call)]), *hashes, near


@pytest.mark.parametrize(
    ("library", "ranks"),
    [
        ("mpich", 3),
        *(pytest.param(*of, marks=pytest.mark.slow) for of in (("mpich", 2), ("mpich", 1), ("openmpi", 3))),
    ],
)
def test_every_form_on_every_topology_is_recorded_with_its_neighbours(library, ranks, built, tmp_path):  # noqa: F811
    """On rings and lines, on a star, on graphs with each neighbour twice, and with none."""
    printed = observed(
        ranks, library, tmp_path / "run", [built(library, "neighbours.c")], env={"PARTS": tmp_path}
    )
    assert "not recorded" not in printed
    topologies = ("cart 1", "cart 2", "graph 1", "graph 2", "graph 3")
    for rank in range(ranks):
        expected = list(parts_of(tmp_path, rank))
        (trace,) = read_run(tmp_path / "run", ranks=[rank])
        calls = [trace.names[name] for name in trace.tables["events"]["name"]]
        assert [call.partition(" at ")[0] for call in calls] == [call for call, *_ in expected]
        each = len(expected) // len(topologies)
        assert [call.rpartition(" on ")[2] for call in calls] == [
            name for name in topologies for _ in range(each)
        ]
        recorded = {}
        table = trace.tables["fingerprints"]
        for name, after, hi, lo in zip(table["name"], table["after"], table["hi"], table["lo"], strict=True):
            recorded[int(after) - 1, trace.names[name].partition(":")[0]] = f"{hi:016x}{lo:016x}"
        for i, (call, sent, received, near) in enumerate(expected):
            assert recorded.get((i, "sent")) == sent, (rank, i, calls[i])
            assert recorded.get((i, "received")) == received, (rank, i, calls[i])
            assert trace.attributes["neighbours"][calls[i]] == near, (rank, i, call)
            real = {other for side in near.values() for other in side if other >= 0}
            assert trace.attributes["partners"][calls[i]] == sorted(real)
        assert set(trace.attributes["regions"].values()) == {EXCHANGE}


@pytest.mark.parametrize("library", BOTH)
def test_runs_part_at_other_numbers_and_at_other_neighbours(library, built, tmp_path, capsys):  # noqa: F811
    command = [built(library, "neighbours.c")]
    for name, env in (("a", {}), ("b", {}), ("odd", {"ODD": "1"}), ("turned", {"TURNED": "1"})):
        observed(3, library, tmp_path / name, command, env={"PARTS": tmp_path, **env})
    assert main(["divergence", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    judged = cause(*compared(tmp_path / "a", tmp_path / "odd"))
    assert (judged.kind, judged.rank) == ("local kernel", 1)
    assert judged.name.startswith("MPI_Neighbor_alltoallv at every (neighbours.c:")
    judged = cause(*compared(tmp_path / "a", tmp_path / "turned"))
    assert judged.name.startswith("MPI_Neighbor_allgather at every") and judged.name.endswith(" on graph 2")
    assert (
        "it receives from ranks 2, 2 in one run, from ranks 1, 1 in the other: its neighbours differ"
        in judged.why
    )
    assert main(["show", str(tmp_path / "a"), "--json"]) == 0
    capsys.readouterr()


IN_FORTRAN = """\
program ring
  use mpi
  implicit none
  integer :: ierr, rank, ranks, comm, request
  double precision :: x(2), y(4)
  integer :: counts(2) = [1, 1], places(2) = [0, 1], types(2) = MPI_DOUBLE_PRECISION
  integer(MPI_ADDRESS_KIND) :: bytes(2) = [0, 8]
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  call MPI_Cart_create(MPI_COMM_WORLD, 1, [ranks], [.true.], .false., comm, ierr)
  x = [rank + 0.5d0, rank + 0.25d0]
  y = 0
  call MPI_Neighbor_allgather(x, 2, MPI_DOUBLE_PRECISION, y, 2, MPI_DOUBLE_PRECISION, comm, ierr)
  call MPI_Neighbor_allgatherv(x, 1, MPI_DOUBLE_PRECISION, y, counts, places, MPI_DOUBLE_PRECISION, comm, ierr)
  call MPI_Neighbor_alltoall(x, 1, MPI_DOUBLE_PRECISION, y, 1, MPI_DOUBLE_PRECISION, comm, ierr)
  call MPI_Neighbor_alltoallv(x, counts, places, MPI_DOUBLE_PRECISION, y, counts, places, &
                              MPI_DOUBLE_PRECISION, comm, ierr)
  call MPI_Neighbor_alltoallw(x, counts, bytes, types, y, counts, bytes, types, comm, ierr)
  call MPI_Ineighbor_alltoall(x, 1, MPI_DOUBLE_PRECISION, y, 1, MPI_DOUBLE_PRECISION, comm, request, ierr)
  call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
  call MPI_Finalize(ierr)
end program
"""


@pytest.mark.slow
@pytest.mark.parametrize("module", ["mpi", "mpi_f08"])
def test_neighbours_of_fortran_are_recorded(module, tmp_path):
    if not shutil.which("mpif90.openmpi") or not shutil.which("gfortran"):
        pytest.skip("no gfortran")
    text = IN_FORTRAN
    if module == "mpi_f08":
        text = text.replace("use mpi\n", "use mpi_f08\n").replace(", comm, request\n", "\n")
        text = text.replace(", types(2) = MPI_DOUBLE_PRECISION", "").replace(
            "  integer(MPI_ADDRESS_KIND)",
            "  type(MPI_Comm) :: comm\n  type(MPI_Request) :: request\n  type(MPI_Datatype) :: types(2)\n"
            "  integer(MPI_ADDRESS_KIND)",
        )
        text = text.replace("  y = 0\n", "  y = 0\n  types = MPI_DOUBLE_PRECISION\n")
    (tmp_path / "ring.f90").write_text(text)
    command = ["mpif90.openmpi", "-g", "-o", tmp_path / "ring", tmp_path / "ring.f90"]
    subprocess.run(command, check=True, env=debian(), capture_output=True)
    under_debian(3, tmp_path / "run", [tmp_path / "ring"])
    (trace,) = read_run(tmp_path / "run", ranks=[0])
    calls = [trace.names[name] for name in trace.tables["events"]["name"]]
    wanted = [f"MPI_Neighbor_{name}" for name in NAMES] + ["MPI_Ineighbor_alltoall"]
    assert [call.partition(" at ")[0] for call in calls] == wanted
    assert all("MAIN__ (ring.f90:" in call or "ring (ring.f90:" in call for call in calls), calls
    assert set(map(json.dumps, trace.attributes["neighbours"].values())) == {'{"from": [2, 1], "to": [2, 1]}'}
    table = trace.tables["fingerprints"]
    got = [
        f"{hi:016x}{lo:016x}" for name, hi, lo in zip(table["name"], table["hi"], table["lo"], strict=True)
        if trace.names[name].startswith("received:")
    ]  # fmt: skip
    own = {rank: [rank + 0.5, rank + 0.25] for rank in range(3)}
    before, after = (
        own[2],
        own[1],
    )  # rank 0 sends its first number to the rank before it, and gets the second of that
    numbers = [before + after, [before[0], after[0]], *[[before[1], after[0]]] * 4]
    assert got == [xxhash.xxh3_128_hexdigest(np.array(of)) for of in numbers]
