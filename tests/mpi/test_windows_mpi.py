"""`fpna run`: one-sided calls, with known data and known causes."""

import shutil
import subprocess

import numpy as np
import pytest
import xxhash

from analysis.divergence.cause import cause
from miniapps.trace import read_run
from miniapps.trace.records import DISPLACEMENT, FETCHED, ORIGIN, TARGET, WINDOW
from tests.mpi.test_observed_mpi import BOTH, HERE, built, compared, debian, observed, under_debian  # noqa: F401


def accesses(trace):
    """[call, target, place, digest of what it gave, digest of what it got] of each one-sided call and each end of an
    exposure; None: not recorded."""
    names = [trace.names[name].partition(" at ")[0] for name in trace.tables["events"]["name"]]
    found = [[name, None, None, None, None] for name in names]
    table = trace.tables["values"]
    for name, after, value in zip(table["name"], table["after"], table["value"], strict=True):
        for place, prefix in enumerate((TARGET, DISPLACEMENT), start=1):
            if trace.names[name].startswith(prefix):
                found[after - 1][place] = int(value)
    table = trace.tables["fingerprints"]
    for name, after, hi, lo in zip(table["name"], table["after"], table["hi"], table["lo"], strict=True):
        prefix = f"{trace.names[name].partition(':')[0]}:"
        if prefix in (ORIGIN, FETCHED, WINDOW):
            found[after - 1][3 if prefix == ORIGIN else 4] = f"{hi:016x}{lo:016x}"
    return [row for row in found if row[0] not in ("MPI_Barrier", "MPI_Allgather")]


@pytest.mark.parametrize("library", BOTH)
def test_every_one_sided_call_has_its_target_and_the_hashes_of_its_data(library, built, tmp_path):  # noqa: F811
    out = tmp_path / "run"
    printed = observed(3, library, out, [built(library, "windows.c"), tmp_path])
    assert "not recorded" not in printed

    def digest(content):
        return None if content == "-" else xxhash.xxh3_128_hexdigest(bytes.fromhex(content))

    for rank in range(3):
        (trace,) = read_run(out, ranks=[rank])
        lines = [line.split(" ") for line in (tmp_path / f"expected-{rank}").read_text().splitlines()]
        got = accesses(trace)
        assert [name for name, *_ in got] == [name for name, *_ in lines]
        for i, ((name, *rest), found) in enumerate(zip(lines, got, strict=True)):
            if rest == ["failed"]:
                assert found[1] is None, (rank, i, found)
                continue
            target, place, given, back = rest
            where = [None, None] if "Win_" in name else [int(target), int(place)]
            assert found == [name, *where, digest(given), digest(back)], (rank, i)
        steps = trace.tables["events"]["step"]
        assert steps[-1] > 0  # fences are collective


def judged(a, b):
    frames, comparison = compared(a, b)
    return cause(frames, comparison)


@pytest.fixture
def updates(built, tmp_path):  # noqa: F811
    """updates("a", "fence", ORDER="123"): a run of updates.c on 4 ranks; its directory and what was printed."""

    def run(name, how, *options, **env):
        out = tmp_path / name
        printed = observed(4, "mpich", out, [built("mpich", "updates.c"), how], *options, env=env)
        return out, printed

    return run


def test_accumulates_that_race_in_an_epoch_are_named_and_no_rank_is_blamed(updates):
    (a, one), (b, other) = (
        updates(name, "fence", ORDER=order) for name, order in (("a", "123"), ("b", "213"))
    )
    assert one.splitlines()[0] != other.splitlines()[0]  # the totals
    found = judged(a, b)
    assert found.at.name.startswith(f"{WINDOW}MPI_Win_fence at main (updates.c:")
    assert (found.kind, found.rank) == ("message order", 0)
    assert "ranks 1, 2, 3 updated it, and what they gave is equal" in found.why
    assert any("MPI does not order accumulates of several ranks" in why for why in found.why)


def test_accumulates_that_race_under_locks_are_named_where_the_target_uses_its_window(updates):
    (a, one), (b, other) = (
        updates(name, "lock", ORDER=order) for name, order in (("a", "123"), ("b", "213"))
    )
    assert one.splitlines()[0] != other.splitlines()[0]  # the totals
    found = judged(a, b)
    assert found.at.name.startswith("added:MPI_Reduce at main (updates.c:")
    assert (found.kind, found.rank, found.instead) == ("message order", 0, "local kernel")
    assert any("MPI does not order accumulates of several ranks" in why for why in found.why)


def test_a_number_that_the_owner_of_a_window_stores_is_its_own(updates):
    """Also if one rank alone updates the window, whose accumulates MPI orders."""
    for how in ("store", "one"):
        a, b = (updates(f"{how}-{stored}", how, STORED=stored)[0] for stored in ("2", "3"))
        found = judged(a, b)
        if how == "one":  # the accumulate of rank 1 comes before or after the store
            assert found is None or found.kind == "local kernel", found
        else:
            assert (found.kind, found.rank) == ("local kernel", 0), found
            assert "so its owner stored other numbers" in found.why


def test_a_guarantee_says_which_accumulates_it_did_not_reach(updates):
    a, printed = updates("a", "fence", "--guarantee", "exact")
    said = (
        "3 accumulates of floating-point numbers on all ranks kept the library's order: no guarantee reaches"
    )
    assert said in printed
    (trace,) = read_run(a, ranks=[1])
    assert trace.attributes["unseen"] == {}
    assert [(of["why"], of["calls"]) for of in trace.attributes["unreached"]] == [("one-sided", 1)]
    assert trace.attributes["unreached"][0]["call"].startswith("MPI_Accumulate at main (updates.c:")


@pytest.mark.slow
@pytest.mark.parametrize("module", ["mpi", "mpi_f08"])
def test_one_sided_calls_of_fortran_are_recorded_as_those_of_c(module, tmp_path):
    env = debian()
    if not shutil.which("mpif90.openmpi") or not shutil.which("gfortran"):
        pytest.skip("no gfortran")
    text = (HERE / "windows.f90").read_text()
    if module == "mpi_f08":
        types = "  type(MPI_Win) :: window\n  type(MPI_Request) :: request\n"
        text = text.replace("use mpi\n", "use mpi_f08\n").replace("window, ierr, request", "ierr")
        text = text.replace("  double precision", f"{types}  double precision", 1)
    (tmp_path / "windows.f90").write_text(text)
    command = ["mpif90.openmpi", "-g", "-o", tmp_path / "windows", tmp_path / "windows.f90"]
    subprocess.run(command, check=True, env=env, capture_output=True)
    under_debian(3, tmp_path / "run", [tmp_path / "windows"], cwd=tmp_path)

    def digest(*numbers):
        return xxhash.xxh3_128_hexdigest(np.array(numbers, np.float64))

    for rank in range(3):
        (trace,) = read_run(tmp_path / "run", ranks=[rank])
        assert trace.attributes["unseen"] == {}
        right, left, own = (rank + 1) % 3, (rank + 2) % 3, 100 * rank
        x = rank + 0.5, rank + 0.25
        after = (left + 0.5, left + 0.25, own + 2, own + 3, own + 4 + left + 0.5, own + 5 + left + 0.5)
        assert accesses(trace) == [
            ["MPI_Win_fence", None, None, None, digest(*range(own, own + 6))],
            ["MPI_Put", right, 0, digest(*x), None],
            ["MPI_Get", right, 2, None, digest(100 * right + 2, 100 * right + 3)],
            ["MPI_Accumulate", right, 4, digest(x[0]), None],
            ["MPI_Fetch_and_op", right, 5, digest(x[0]), digest(100 * right + 5)],
            ["MPI_Win_fence", None, None, None, digest(*after)],
            ["MPI_Rget", right, 3, None, digest(100 * right + 3)],
        ]
