"""A replay repeats which request a call found complete and which message a probe saw, or says where it ends."""

import shutil
import subprocess

import pytest

from analysis.__main__ import main
from miniapps.programs import completions
from miniapps.programs.rawlog import KINDS
from miniapps.trace import read_run
from tests.mpi.test_observed_mpi import BOTH, HERE, built, debian, observed, under_debian  # noqa: F401

REPLAYED = ("waitany", "waitsome", "testany", "testsome", "test", "iprobe", "probe", "improbe", "named", "tags",
            "persistent", "any", "inter")  # fmt: skip
FAST = ("waitsome", "test", "improbe", "inter")  # the others with `make test-all`
ENDS = "the replay ends at"
TIMES = 5


def seen(ranks, library, out, program, *options, delays, **env):
    """What rank 0 of a racy program printed of the order in which it saw messages, and what `fpna run` said."""
    printed = observed(ranks, library, out, program, *options, env={"DELAYS": str(delays), **env})
    lines = printed.splitlines()
    return next(line for line in lines if line[:1].isdigit()), [line for line in lines if "rank" in line]


def differing(ranks, library, folder, program):
    """The orders of a recorded run `folder`/a and of another run that differs."""
    first, _ = seen(ranks, library, folder / "a", program, delays=1)
    for delays in range(2, 8):
        other, _ = seen(ranks, library, folder / f"b{delays}", program, delays=delays)
        if other != first:
            return first, other
    raise AssertionError(f"six runs of {program} saw the same order, {first}: they are not racy")


@pytest.mark.parametrize(
    ("way", "library", "ranks", "times"),
    [
        *((way, "mpich", 3, 2) for way in FAST),
        *(pytest.param(way, "mpich", 4, TIMES, marks=pytest.mark.slow) for way in REPLAYED),
        *(pytest.param(way, "openmpi", 3, TIMES, marks=pytest.mark.slow) for way in REPLAYED),
    ],
)
def test_every_replay_sees_what_the_recorded_run_saw(way, library, ranks, times, built, tmp_path):  # noqa: F811
    """The number of tests before each success, too, which the program prints."""
    program = [built(library, "racy.c"), way]
    first, _ = differing(ranks, library, tmp_path, program)
    for i in range(times):
        out = tmp_path / f"again{i}"
        again, said = seen(ranks, library, out, program, "--replay", tmp_path / "a", delays=10 + i)
        assert (again, said) == (first, []), i
    for rank in range(ranks):  # a replay records what it replayed
        runs = [
            next(read_run(run, tables=[], ranks=[rank])).attributes["run_id"] for run in (tmp_path / "a", out)
        ]
        a, b = (
            completions.read(run, rank, ranks, run_id)
            for run, run_id in zip((tmp_path / "a", out), runs, strict=True)
        )
        assert a.tobytes() == b.tobytes()


def test_a_replay_of_a_replay_and_the_analysis_find_the_same(built, tmp_path, capsys):  # noqa: F811
    program = [built("mpich", "racy.c"), "any"]
    first, _ = seen(3, "mpich", tmp_path / "a", program, delays=1)
    for before, name, delays in (("a", "b", 2), ("b", "c", 3)):
        assert seen(3, "mpich", tmp_path / name, program, "--replay", tmp_path / before, delays=delays) == (
            first,
            [],
        )
    assert main(["divergence", str(tmp_path / "a"), str(tmp_path / "c")]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("library", BOTH)
def test_a_path_that_follows_a_clock_leaves_the_record_at_a_named_call_and_ends(library, built, tmp_path):  # noqa: F811
    program = [built(library, "racy.c"), "clock"]
    first, _ = seen(3, library, tmp_path / "a", program, delays=1)
    for delays in (2, 3):
        again, said = seen(
            3, library, tmp_path / f"b{delays}", program, "--replay", tmp_path / "a", delays=delays
        )
        assert sorted(map(int, again.split())) == sorted(map(int, first.split()))  # every message once
        assert len(said) == 1 and f"rank 0: {ENDS} its call " in said[0], said
        assert "took another path, as when a clock decides; from here on this rank runs free" in said[0]


@pytest.mark.parametrize("library", BOTH)
@pytest.mark.parametrize("way", ["any", "iprobe", "probe", pytest.param("improbe", marks=pytest.mark.slow)])
def test_a_message_that_does_not_come_is_awaited_for_a_time_and_then_let_go(way, library, built, tmp_path):  # noqa: F811
    """Rank 2 is silent in the second run, and rank 1 sends in its place: without a replay, the program ends."""
    program, options = [built(library, "racy.c"), way], ("--replay", tmp_path / "a", "--patience", "0.5")
    first, _ = seen(3, library, tmp_path / "a", program, delays=1)
    again, said = seen(3, library, tmp_path / "b", program, *options, delays=2, SILENT="2")
    assert (
        len(said) == 1
        and f"rank 0: {ENDS} " in said[0]
        and "it did not come in 0.5 s (--patience)" in said[0]
    ), said
    sent = {str(100 + k) for k in range(6)} | {str(1000 + k) for k in range(6)}
    assert sent <= set(again.split())  # each message in one request, also in those that awaited rank 2
    common = first.split()[
        : first.split().index(next(w for w in first.split() if w.startswith("2") and len(w) == 3))
    ]
    assert again.split()[: len(common)] == common


def test_calls_of_several_threads_are_refused_with_a_sentence(built, tmp_path):  # noqa: F811
    program = built("mpich", "looked_for.c")
    observed(2, "mpich", tmp_path / "one", [program, 1, 5])
    observed(2, "mpich", tmp_path / "two", [program, 2, 5])
    said = observed(2, "mpich", tmp_path / "again", [program, 2, 5], "--replay", tmp_path / "two")
    for rank in range(2):
        assert f"not replayed: several threads of rank {rank} looked for requests or messages" in said
    assert ENDS not in said
    options = ("--replay", tmp_path / "one", "--same-but", "2")
    said = observed(2, "mpich", tmp_path / "more", [program, 2, 5], *options)
    assert f"{ENDS} a call of another thread" in said
    assert ENDS not in observed(2, "mpich", tmp_path / "good", [program, 1, 5], "--replay", tmp_path / "one")


def test_a_file_of_completions_is_whole_or_refused_on_all_ranks(built, tmp_path):  # noqa: F811
    program = [built("mpich", "racy.c"), "waitany"]
    for name in ("a", "b"):
        seen(2, "mpich", tmp_path / name, program, delays=1)
    file = completions.file_of(tmp_path / "a", 1)
    whole, options = file.read_bytes(), ("--replay", tmp_path / "a")
    for what, content in (
        ("damaged", whole[:-20] + bytes([whole[-20] ^ 1]) + whole[-19:]),
        ("belongs to rank 1 of the run", completions.file_of(tmp_path / "b", 1).read_bytes()),
    ):
        file.write_bytes(content)
        assert what in observed(
            2, "mpich", tmp_path / what.split()[0], program, *options, code=2, env={"DELAYS": "1"}
        )
    file.unlink()
    said = observed(2, "mpich", tmp_path / "without", program, *options, env={"DELAYS": "1"})
    assert f"rank 1: the order in which requests complete is not replayed: there is no {file}" in said
    assert ENDS not in said
    refused = observed(2, "mpich", tmp_path / "no", program, "--patience", "2", code=2)
    assert refused.count("--patience is for a replay; give --replay RUN, too") == 1


def test_completions_name_requests_and_messages(built, tmp_path):  # noqa: F811
    """Each request by its posting, and each message by its source, its tag and its number."""
    ranks, each = 3, 6
    for way in ("waitany", "iprobe"):
        order, _ = seen(ranks, "mpich", tmp_path / way, [built("mpich", "racy.c"), way], delays=1)
        (trace,) = read_run(tmp_path / way, tables=[], ranks=[0])
        rows = completions.read(tmp_path / way, 0, ranks, trace.attributes["run_id"])
        assert KINDS[rows["kind"][-1]] == "MPI_Finalize"
        found, senders = rows[:-1], [int(value) // 100 for value in order.split()[: (ranks - 1) * each]]
        count = dict.fromkeys(range(1, ranks), 0)
        if way == "waitany":  # the next receive of a rank is posted when its last one has ended
            posted, last = {rank: rank for rank in range(1, ranks)}, ranks - 1
            for row, sender in zip(found, senders, strict=True):
                assert (row["place"], row["number"], row["posted"]) == (sender - 1, posted[sender], last)
                count[sender] += 1
                if count[sender] < each:
                    posted[sender] = last = last + 1
        else:  # a receive from any source may take another message than the probe saw
            assert (found["place"] == senders).mean() > 0.5
            for row in found:
                count[int(row["place"])] += 1
                assert row["number"] == count[int(row["place"])] and row["tag"] in (5, 6)


@pytest.mark.slow
@pytest.mark.parametrize("module", ["mpi", "mpi_f08"])
def test_a_fortran_program_is_replayed(module, tmp_path, monkeypatch):
    env = debian()
    if not shutil.which("mpif90.openmpi") or not shutil.which("gfortran"):
        pytest.skip("no gfortran")
    text = (HERE / "racy.f90").read_text()
    if module == "mpi_f08":
        text = text.replace("use mpi\n", "use mpi_f08\n").replace("requests(most), ", "")
        text = text.replace("status(MPI_STATUS_SIZE), ", "").replace(
            "status(MPI_SOURCE)", "status%MPI_SOURCE"
        )
        text = text.replace(
            "  logical :: flag\n",
            "  logical :: flag\n  type(MPI_Request) :: requests(most)\n  type(MPI_Status) :: status\n",
        )
    (tmp_path / "racy.f90").write_text(text)
    command = ["mpif90.openmpi", "-g", "-o", tmp_path / "racy", tmp_path / "racy.f90"]
    subprocess.run(command, check=True, env=env, capture_output=True)

    def order(name, delays, *options):
        monkeypatch.setenv("DELAYS", str(delays))
        return under_debian(3, tmp_path / name, [tmp_path / "racy"], "--quiet", *options)

    first = order("a", 1)
    assert any(order(f"b{delays}", delays) != first for delays in range(2, 8))
    for i in range(TIMES):
        assert order(f"again{i}", 10 + i, "--replay", tmp_path / "a") == first
