"""The coupled app keeps its guarantees under real MPI, and says what is wrong when something is."""

import json
import re

import h5py
import numpy as np
import pytest

from analysis.divergence.compare import compare
from analysis.load.frames import load
from miniapps.checkpoints.file import read as read_checkpoint
from miniapps.coupled.checkpoint import KIND
from miniapps.trace import read
from tests.launch import either_library, run_mpi, run_python
from tests.mpi.sectioned import layouts
from tests.ranks import on_ranks

SMALL = ["--steps", "6", "--set", "grid.nx=64", "--set", "grid.ny=64", "--no-progress"]


def coupled(n, *options, out, library="mpich"):
    """Run the small problem on n ranks; fails the test unless it ends with 0. Returns (fingerprints, result)."""
    argv = ["-m", "miniapps.coupled", *SMALL, *options, "--out", str(out)]
    run = on_ranks(n, argv, library, timeout=240)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "VERIFICATION: PASS" in run.stdout
    return re.findall(r"FINGERPRINT state=(\w+)", run.stdout), json.loads((out / "result.json").read_text())


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Fingerprint of the small problem on one rank, by guarantee."""
    known = {}

    def of(guarantee):
        if guarantee not in known:
            out = tmp_path_factory.mktemp("reference") / "run"
            known[guarantee] = coupled(1, "--guarantee", guarantee, out=out)[0][0]
        return known[guarantee]

    return of


@layouts(3, slow=(2, 8), others=(), slow_others=(3,))
def test_one_hash_for_any_number_of_ranks(tmp_path, reference, library, size):
    prints, _ = coupled(size, "--guarantee", "layout", out=tmp_path / "run", library=library)
    assert prints == [reference("layout")]


@layouts(3, slow=(2, 8), others=())
def test_one_hash_of_exact_sums_for_any_number_of_ranks(tmp_path, reference, library, size):
    prints, _ = coupled(size, "--guarantee", "exact", out=tmp_path / "run", library=library)
    assert prints == [reference("exact")]


@pytest.mark.parametrize(
    "options",
    [["--shuffle-blocks", "3"], pytest.param(["--threads", "2"], marks=pytest.mark.slow), ["--check-ranks"]],
)
def test_one_hash_for_any_ownership_and_number_of_threads(tmp_path, reference, options):
    prints, _ = coupled(2, "--guarantee", "layout", *options, out=tmp_path / "run")
    assert prints == [reference("layout")]


DIFFERENT = (("linear", "working"), ("recursive-doubling", "working"), ("direct", "compensated"))
FREE_OF_LAYOUT = {
    "block-tree": ["--allreduce", "block-tree"],
    "ring in exact": ["--allreduce", "ring", "--accumulate", "exact"],
    "binomial in exact": ["--allreduce", "binomial", "--accumulate", "exact"],
}


@pytest.mark.parametrize(
    ("means", "most"),
    [("binomial in exact", 4), *(pytest.param(means, 8, marks=pytest.mark.slow) for means in FREE_OF_LAYOUT)],
)
def test_one_hash_by_other_means_than_the_usual(tmp_path, means, most):
    prints = set()
    for ranks, more in (
        (1, []),
        (3, ["--check-ranks"]),
        (4, ["--shuffle-blocks", "3"]),
        (8, ["--check-ranks"]),
    ):
        if ranks <= most:
            options = ["--guarantee", "layout", *FREE_OF_LAYOUT[means], *more]
            prints |= set(coupled(ranks, *options, out=tmp_path / str(ranks))[0])
    assert len(prints) == 1


# points and edge of a block: a grid that is exchanged below the finest; coarsened by 3; not at all, gathered whole
GRIDS = {"three grids": (320, 16), "by 3": (54, 9), "gathered": (35, 5)}


@pytest.mark.parametrize("most", [4, pytest.param(8, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("points", "edge"), GRIDS.values(), ids=GRIDS)
def test_one_hash_whatever_the_grids_of_the_poisson_solves(tmp_path, points, edge, most):
    sets = [f"--set=grid.{name}" for name in (f"nx={points}", f"ny={points}", f"bx={edge}", f"by={edge}")]
    prints = set()
    for ranks, more in ((1, []), (3, ["--shuffle-blocks", "3"]), (most, [])):
        options = [*sets, "--guarantee", "layout", "--closure", "none", "--steps", "2", *more]
        prints |= set(coupled(ranks, *options, out=tmp_path / str(ranks))[0])
    assert len(prints) == 1


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_one_hash_on_64_ranks(tmp_path):
    """On deck S, which has 64 blocks; without the network, since 64 times torch takes most of a minute to start."""
    prints = []
    for n in (1, 64):
        command = [
            "-m",
            "miniapps.coupled",
            "--steps",
            "3",
            "--set",
            "closure.kind=physics",
            "--guarantee",
            "layout",
            "--out",
            str(tmp_path / str(n)),
        ]
        run = on_ranks(n, command, timeout=600)
        assert run.returncode == 0, run.stdout + run.stderr
        prints += re.findall(r"FINGERPRINT state=(\w+)", run.stdout)
    assert len(set(prints)) == 1 and len(prints) == 2


@pytest.mark.parametrize(
    "ordering",
    [
        "linear",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("recursive-doubling", "ring", "direct")),
        "k-nomial:k=3",
    ],
)
def test_run_level_orderings_repeat_on_one_layout(tmp_path, ordering):
    prints, _ = coupled(
        3,
        "--guarantee",
        "run",
        "--allreduce",
        ordering,
        "--repeats",
        "2",
        "--check-ranks",
        out=tmp_path / "run",
    )
    assert len(prints) == 2 and len(set(prints)) == 1


def test_orderings_differ_from_one_another(tmp_path):
    """Else the orderings would not matter here, and every other test of this file would prove nothing."""
    prints = {
        coupled(4, "--guarantee", "none", "--allreduce", name, "--accumulate", held, out=tmp_path / name)[0][
            0
        ]
        for name, held in DIFFERENT
    }
    assert len(prints) == 3


def test_a_flipped_bit_is_found_where_it_struck(tmp_path):
    coupled(2, "--guarantee", "layout", out=tmp_path / "good")
    coupled(3, "--guarantee", "layout", "--fault", "bitflip@step=4,block=9", out=tmp_path / "bad")
    run = run_python(["-m", "analysis", "divergence", str(tmp_path / "good"), str(tmp_path / "bad")])
    assert run.returncode == 3 and "first at step 4, vorticity, block 9" in run.stdout, (
        run.stdout + run.stderr
    )


def test_a_recorded_order_of_arrival_is_replayed_bit_for_bit(tmp_path):
    recorded, _ = coupled(4, "--allreduce", "arrival", "--repeats", "2", out=tmp_path / "recorded")
    replay = ["--replay", str(tmp_path / "recorded"), "--repeats", "2"]
    assert coupled(4, *replay, out=tmp_path / "again")[0] == recorded
    with (
        h5py.File(tmp_path / "recorded" / "rank-00000.h5") as first,
        h5py.File(tmp_path / "again" / "rank-00000.h5") as second,
    ):
        assert len(first["order/ranks"]) > 100
        for table in ("values/value", "fingerprints/hi", "fingerprints/lo"):
            assert first[table][...].tobytes() == second[table][...].tobytes()


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_restarted_run_ends_with_the_bits_of_the_straight_one(tmp_path, reference, ranks):
    layout = ["--guarantee", "layout"]
    straight = tmp_path / "straight"
    coupled(2, *layout, "--checkpoint-every", "3", out=straight)
    checkpoint = straight / "checkpoints" / "repeat-0-step-000003.h5"
    options = ["--restart", str(checkpoint), "--log-all-ranks"]
    prints, _ = coupled(ranks, *layout, *options, out=tmp_path / "restarted")
    assert prints == [reference("layout")]
    log = (tmp_path / "restarted" / "rank-00000.log").read_text()
    assert f"{checkpoint}: complete, and equal to the trace of {straight} (32 fingerprints)" in log
    frames = load([straight, tmp_path / "restarted"])
    assert compare(
        frames, ("straight", 0), ("restarted", 0)
    ).equal  # whatever is counted or learned on the way
    last = read_checkpoint(checkpoint.with_name("repeat-0-step-000006.h5"), KIND)
    assert last.head.fingerprint == reference("layout")


def test_snapshots_hold_the_whole_field(tmp_path):
    coupled(
        3, "--guarantee", "layout", "--shuffle-blocks", "2", "--snapshot-every", "3", out=tmp_path / "run"
    )
    with h5py.File(tmp_path / "run" / "snapshots" / "repeat-0-step-000006.h5") as snapshot:
        zeta, psi, h = snapshot["zeta"][...], snapshot["psi"][...], snapshot.attrs["spacing"]
    laplacian = sum(np.roll(psi, shift, axis) for axis in (0, 1) for shift in (1, -1)) - 4.0 * psi
    assert np.linalg.norm(laplacian / h**2 - zeta) < 1e-7 * np.linalg.norm(zeta)


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_nan_in_the_state_ends_the_run_and_is_named(tmp_path, ranks):
    fault = ["--closure", "none", "--fault", "nan@step=4,block=5", "--out", str(tmp_path / "run")]
    run = run_mpi(ranks, ["-m", "miniapps.coupled", *SMALL, *fault])
    assert run.returncode == 1
    assert re.search(r"step 4: vorticity of block 5 \(rank \d\) is not finite", run.stderr), run.stderr
    trace = read(tmp_path / "run" / "rank-00000.h5")
    assert not trace.attributes["complete"]
    assert trace.tables["fingerprints"]["step"].max() == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "grid.nx=100"], r"grid\.nx = 100 points cannot be cut into blocks of 16"),
        (["--set", "grid.bx=64", "--set", "grid.by=64"], "2 ranks for 1 blocks"),
        (["--set", "grid.bx=2"], r"grid\.bx"),
        (
            ["--guarantee", "layout", "--set", "closure.batch=rank"],
            r"closure\.batch = rank meets guarantee run",
        ),
        (["--guarantee", "layout", "--allreduce", "ring"], "accumulation exact"),
        (["--restart", "/nonexistent.h5"], r"--restart /nonexistent\.h5: it cannot be read"),
        (["--restart", "README.md"], r"--restart README\.md: damaged, or not written by this suite"),
        (["--closure", "magic"], "physics"),
        (["--set", "flow.initial=decaying"], "exact only without forcing"),
        (["--deck", "XL"], "S"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_created(tmp_path, options, message):
    run = on_ranks(2, ["-m", "miniapps.coupled", *SMALL, *options, "--out", str(tmp_path / "run")])
    assert run.returncode == 2, run.stdout + run.stderr
    assert re.search(message, run.stderr), run.stderr
    assert not (tmp_path / "run").exists()


def test_a_checkpoint_of_another_problem_or_a_damaged_one_is_refused_in_one_sentence(tmp_path):
    coupled(1, "--checkpoint-every", "6", out=tmp_path / "first")
    checkpoint = tmp_path / "first" / "checkpoints" / "repeat-0-step-000006.h5"
    damaged = bytearray(checkpoint.read_bytes())
    damaged[-1] ^= 1
    (tmp_path / "damaged.h5").write_bytes(damaged)
    for path, more, reason in (
        (checkpoint, ["--set", "flow.drag=0.5"], "flow.drag = 0.05 there, 0.5 here"),
        (tmp_path / "damaged.h5", [], "its bytes have another hash than its seal states"),
    ):
        options = ["--restart", str(path), *more, "--out", str(tmp_path / "second")]
        run = on_ranks(2, ["-m", "miniapps.coupled", *SMALL, *options])
        assert run.returncode == 2 and reason in run.stderr, run.stderr
        assert [line for line in run.stderr.splitlines() if line.startswith("coupled:")] == [
            run.stderr.splitlines()[0]
        ]
        assert not (tmp_path / "second").exists()


@either_library
def test_one_rank_that_raises_ends_the_job_with_one_message(tmp_path, library):
    fault = ["--closure", "none", "--fault", "raise@step=3,rank=1", "--out", str(tmp_path / "run")]
    run = run_mpi(3, ["-m", "miniapps.coupled", *SMALL, *fault], library)
    assert run.returncode == 1, run.stderr
    assert run.stderr.count("rank 1 of 3, repeat 0, step 3: InjectedFault") == 1, run.stderr
    assert not read(tmp_path / "run" / "rank-00001.h5").complete


@pytest.mark.parametrize(("closure", "message"), [("physics", "has no network"), ("surrogate", "no weights")])
def test_weights_that_do_not_exist_or_have_no_use_are_refused(tmp_path, closure, message):
    coupled(1, "--closure", "physics", "--checkpoint-every", "6", out=tmp_path / "first")
    checkpoint = str(tmp_path / "first" / "checkpoints" / "repeat-0-step-000006.h5")
    options = ["--closure", closure, "--weights", checkpoint, "--out", str(tmp_path / "second")]
    run = on_ranks(1, ["-m", "miniapps.coupled", *SMALL, *options])
    assert run.returncode == 2 and message in run.stderr, run.stderr


def test_weights_of_a_checkpoint_start_another_flow(tmp_path):
    coupled(1, "--checkpoint-every", "6", out=tmp_path / "first")
    checkpoint = str(tmp_path / "first" / "checkpoints" / "repeat-0-step-000006.h5")
    fresh, _ = coupled(2, "--closure", "surrogate", "--seed", "2", out=tmp_path / "fresh")
    trained, _ = coupled(
        2, "--closure", "surrogate", "--seed", "2", "--weights", checkpoint, out=tmp_path / "trained"
    )
    assert fresh != trained
