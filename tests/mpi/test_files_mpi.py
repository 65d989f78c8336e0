"""`fpna run`: calls that write and read files, with known bytes at known places."""

import os
import re
import shutil
import subprocess

import numpy as np
import pytest
import xxhash

from analysis.__main__ import main
from analysis.comparison import remarks
from analysis.divergence.calls import by_call
from analysis.divergence.cause import cause
from analysis.divergence.in_files import on_byte, writes
from miniapps.trace import read_run
from miniapps.trace.records import OF_FILE, OFFSET, READ, VIEW_OFFSET, WRITTEN
from tests.mpi.test_observed_mpi import BOTH, HERE, built, compared, debian, observed, under_debian  # noqa: F401


def transfers(trace):
    """[call, base name of its file, offset as in files.c, digest] of each call on a file; None: not recorded."""
    names = [trace.names[name].partition(" at ")[0] for name in trace.tables["events"]["name"]]
    found = [[name, None, "-1", None] for name in names]
    table = trace.tables["values"]
    for name, after, value in zip(table["name"], table["after"], table["value"], strict=True):
        text, row = trace.names[name], found[after - 1]
        if text.startswith(OF_FILE):
            row[1] = trace.attributes["files"][str(int(value))].rpartition("/")[2]
        elif text.startswith((OFFSET, VIEW_OFFSET)):
            row[2] = f"{'~' * text.startswith(VIEW_OFFSET)}{value:.0f}"
    table = trace.tables["fingerprints"]
    for name, after, hi, lo in zip(table["name"], table["after"], table["hi"], table["lo"], strict=True):
        if trace.names[name].startswith((WRITTEN, READ)):
            found[after - 1][3] = f"{hi:016x}{lo:016x}"
    return [row for row in found if row[0].startswith("MPI_File_")]


@pytest.mark.parametrize("library", BOTH)
def test_every_call_on_a_file_has_its_place_and_the_hash_of_its_bytes(library, built, tmp_path):  # noqa: F811
    out = tmp_path / "run"
    observed(3, library, out, [built(library, "files.c"), tmp_path])
    for rank in range(3):
        (trace,) = read_run(out, ranks=[rank])
        lines = [line.split(" ") for line in (tmp_path / f"expected-{rank}").read_text().splitlines()]
        got = transfers(trace)
        assert [name for name, *_ in got] == [name for name, *_ in lines]
        for i, ((name, *rest), found) in enumerate(zip(lines, got, strict=True)):
            if rest == ["failed"]:
                assert found[1] is None, (rank, i, found)
                continue
            base, offset, content = rest
            digest = xxhash.xxh3_128_hexdigest(bytes.fromhex(content))
            assert found == [name, base, offset, digest], (rank, i, content)


@pytest.fixture
def checkpoints(built, tmp_path):  # noqa: F811
    """checkpoints("a", ORDER="21"): a run of checkpoint.c on 3 ranks, and the file that it wrote."""
    given = np.array([0.1, 1e9, 0.3, 0.7, 0.2, -1e9, 0.1, 0.9, 1e-3, 0.3, 0.5, 0.6])

    def run(name, ranks=3, number=0.1, **env):
        folder = tmp_path / f"in-{name}"
        folder.mkdir()
        given[0] = number
        given.tofile(folder / "in.dat")
        at, words = os.getcwd(), ("in.dat", "out.dat", 4)
        os.chdir(folder)
        try:
            observed(
                ranks,
                "mpich",
                tmp_path / name,
                [built("mpich", "checkpoint.c"), *words],
                env={"ORDER": "12"} | env,
            )
        finally:
            os.chdir(at)
        return tmp_path / name, (folder / "out.dat").read_bytes()

    return run


def differing(a, b):
    """The first byte in which two files differ."""
    return next(i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)


def judged(a, b):
    frames, comparison = compared(a, b)
    return cause(frames, comparison)


def test_the_first_write_that_differs_is_named_with_its_place_in_the_file(checkpoints):
    (a, one), (b, other) = checkpoints("a"), checkpoints("b", NUDGE="1,2")
    found = judged(a, b)
    assert found.at.name.startswith(f"{WRITTEN}MPI_File_write_at_all at dump (checkpoint.c:")
    assert (found.kind, found.rank) == ("local kernel", 1)
    begin = (2 * 3 + 1) * 32
    assert begin <= differing(one, other) < begin + 32
    assert f"rank 1 wrote other bytes: 32 bytes of out.dat (from byte {begin} on)" in found.why


def test_the_writes_of_a_byte_are_found(checkpoints, built, tmp_path, capsys):  # noqa: F811
    runs = [str(checkpoints(name, **env)[0]) for name, env in (("a", {}), ("b", {"NUDGE": "1,2"}))]
    main(["divergence", *runs, "--byte", "out.dat:255", "--byte", "out.dat:384", "--byte", "other:0"])
    printed = capsys.readouterr().out
    for run in "ab":
        assert re.search(
            r"byte 255 +MPI_File_write_at_all at dump \(.*\) from main \(.*\) on file 1, step 6, "
            rf"on rank 1: 32 bytes of out.dat \(from byte 224 on\) in {run}:0\n",
            printed,
        )
        assert f"byte 384       no write is known to hold it in {run}:0" in printed
    assert "byte 0         no write to other is recorded; recorded are out.dat" in printed


def test_the_place_of_a_byte_may_be_unknown_and_shared_pointers_move_by_arrival(built, tmp_path):  # noqa: F811
    for name in "ab":
        (tmp_path / f"in-{name}").mkdir()
        at = tmp_path / f"in-{name}"
        observed(2, "mpich", tmp_path / name, [built("mpich", "files.c"), at], "--same-but", at)
    own = {"a:0": writes(str(tmp_path / "a"), 0)}
    assert on_byte(own, "in-a/view", 40) == [
        "no write is known to hold it in a:0", "2 writes in views with gaps may hold it in a:0"
    ]  # fmt: skip
    assert on_byte(own, "shared", 1)[1] == "16 writes at places that are not recorded may hold it in a:0"
    first, again = on_byte(own, "forms", 31)
    for call, said in (("write_all_forms (", first), ("write_all_forms_c (", again)):
        assert said.startswith(f"MPI_File_write at {call}") and said.endswith("forms (from byte 0 on) in a:0")
    assert on_byte(own, "orms", 31)[0].startswith("no write to orms is recorded; recorded are ")
    found = judged(tmp_path / "a", tmp_path / "b")
    if found:  # reads with the shared pointer came in another order
        assert found.kind == "message order" and "MPI_File_read_shared" in found.name


HDF5 = """\
import sys
import numpy as np
import h5py
from mpi4py import MPI
comm = MPI.COMM_WORLD
with h5py.File(sys.argv[1], "w", driver="mpio", comm=comm) as file:
    data = file.create_dataset("x", (8 * comm.size,), "f8")
    own = np.arange(8.0) + 100 * comm.rank + float(sys.argv[2]) * (comm.rank == 1)
    with data.collective:
        data[8 * comm.rank : 8 * comm.rank + 8] = own
"""


@pytest.mark.slow
def test_writes_of_parallel_hdf5_are_seen(tmp_path, monkeypatch):
    env = debian()
    python, check = "/usr/bin/python3", "import h5py, mpi4py; assert h5py.get_config().mpi"
    env.pop("PYTHONPATH")
    alone = ["mpirun.openmpi", "-n", "1", python, "-c", check]
    if subprocess.run(alone, env=env, capture_output=True).returncode:
        pytest.skip("no parallel h5py of Debian (apt-get install python3-h5py-mpi python3-mpi4py)")
    script = tmp_path / "h5.py"
    script.write_text(HDF5)
    for name, value in (("a", 0), ("b", 2**-40)):
        options = ["--same-but", f"{name}.h5", "--same-but", str(value)]
        under_debian(2, tmp_path / name, [python, script, f"{name}.h5", value], *options, cwd=tmp_path)
    found = judged(tmp_path / "a", tmp_path / "b")
    assert found.at.name.startswith(f"{WRITTEN}MPI_File_write_at") and found.rank == 1, found
    a, b = ((tmp_path / f"{name}.h5").read_bytes() for name in "ab")
    (said, *_) = on_byte({"b:0": writes(str(tmp_path / "b"), 0)}, "b.h5", differing(a, b))
    assert "on rank 1" in said


def test_a_write_that_differs_after_another_order_of_messages_is_their_effect(checkpoints):
    (a, one), (b, other) = checkpoints("a", ORDER="12"), checkpoints("b", ORDER="21")
    found = judged(a, b)
    assert one != other and found.kind == "message order"
    assert found.name.startswith("MPI_Recv at total (checkpoint.c:")
    frames, comparison = compared(a, b)
    calls = by_call(frames, comparison.a, comparison.b)
    (writes,) = calls[calls["call"].str.startswith("MPI_File_write_at_all")].to_dict("records")
    assert (writes["given"], writes["given_differing"]) == (12, 12)


def test_another_input_and_another_place_are_named_as_such(checkpoints):
    a, _ = checkpoints("a")
    found = judged(a, checkpoints("b", number=0.11)[0])
    assert (found.kind, found.instead) == ("input", "message order")  # it also writes files
    assert "rank 0 read other bytes: 32 bytes of in.dat (from byte 0 on)" in found.why
    moved = judged(a, checkpoints("c", MOVE="2,3")[0])
    assert moved.at.name.startswith("offset:MPI_File_write_at_all at dump") and moved.rank == 2
    places = [f"32 bytes of out.dat (from byte {at} on)" for at in (352, 360)]
    assert (
        f"the call is at another place in one run: {places[0]} in one run, {places[1]} in the other"
        in moved.why
    )
    other = judged(a, checkpoints("d", ELSEWHERE="1")[0])
    assert other.at.name.startswith("file:") and "32 bytes of out.dat.2 (from byte 288 on)" in other.why[0]


def test_writes_of_other_numbers_of_ranks_are_not_compared(checkpoints):
    frames, comparison = compared(checkpoints("a", ranks=1)[0], checkpoints("b", ranks=2)[0])
    assert comparison.first.name.startswith("global:MPI_Bcast")
    told = [text for what, text in remarks(comparison, frames) if what == "left out"]
    assert "writes and reads of files: compared by rank, so only between equal numbers of ranks" in told


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("-DF08",)], ids=["mpi", "mpi_f08"])
def test_calls_of_fortran_on_files_are_recorded_as_those_of_c(options, tmp_path):
    env = debian()
    if not shutil.which("mpif90.openmpi") or not shutil.which("gfortran"):
        pytest.skip("no gfortran")
    command = ["mpif90.openmpi", "-g", *options, "-o", tmp_path / "files", HERE / "files.F90"]
    subprocess.run(command, check=True, env=env, capture_output=True)
    under_debian(2, tmp_path / "run", [tmp_path / "files"], cwd=tmp_path)
    forms = ["", "_at", "_all", "_at_all"]
    own = [*forms, *(f"i{form}" for form in forms), "_all_begin", "_at_all_begin"]
    shared = ["_shared", "_ordered", "i_shared", "_ordered_begin"]
    for rank in range(2):
        (trace,) = read_run(tmp_path / "run", ranks=[rank])
        assert trace.attributes["unseen"] == {}
        expected = []

        def digest(of, call):
            return xxhash.xxh3_128_hexdigest(1000.0 * of + call + np.arange(4) / 16)

        for verb in ("write", "read"):
            pointer, apart = 4096 * rank, 4096 * rank + 512
            for call, form in enumerate(own, start=1):
                name = f"MPI_File_{form[: form.startswith('i')]}{verb}{form.removeprefix('i')}"
                expected.append(
                    [name, "forms.dat", str(apart if "_at" in form else pointer), digest(rank, call)]
                )
                apart, pointer = (apart + 32, pointer) if "_at" in form else (apart, pointer + 32)
        expected.append(["MPI_File_write_at_all", "view.dat", f"~{8 + 8 * rank + 2 * 16}", digest(rank, 11)])
        for i, form in enumerate(shared):
            name = f"MPI_File_{form[: form.startswith('i')]}write{form.removeprefix('i')}"
            expected.append([name, "shared.dat", "-1", digest(rank, 12 + i)])
        got = transfers(trace)
        assert got[:-4] == expected
        reads = ["read_ordered", "read_ordered_begin", "read_shared", "iread_shared"]
        assert [row[0] for row in got[-4:]] == [f"MPI_File_{name}" for name in reads]
        assert got[-4][1:] == got[-3][1:] == ["shared.dat", "-1", digest(rank, 13)]
