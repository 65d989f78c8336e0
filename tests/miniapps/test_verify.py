"""Executing parts of a run again: agreement, named differences, unverifiable parts, detection rates."""

import shutil
from itertools import combinations
from math import ceil, comb

import numpy as np
import pytest
from mpi4py import MPI
from scipy.stats import binom

from miniapps.__main__ import main as miniapps
from miniapps.checkpoints.file import read as read_checkpoint
from miniapps.checkpoints.rounding import rounded
from miniapps.coupled import APP as COUPLED
from miniapps.coupled.checkpoint import KIND
from miniapps.runner.main import main
from miniapps.solver import APP as SOLVER
from miniapps.trace import read
from miniapps.trace.heads import checkpoint_file
from miniapps.training import APP as TRAINING
from miniapps.verify import command
from miniapps.verify.draw import chance, drawn
from tests.tampering import altered

TINY = ["--closure", "none", "--guarantee", "layout", "--steps", "6", "--checkpoint-every", "2", "--quiet",
        "--set", "grid.nx=16", "--set", "grid.ny=16", "--set", "grid.bx=8", "--set", "grid.by=8"]  # fmt: skip


def verdict(lines):
    """The line with what was verified."""
    return next(line for line in lines if "VERIFIED" in line)


def launched(out, *options):
    """A tiny run of `coupled` on one rank; its directory."""
    main(COUPLED, [*TINY, "--out", str(out), *options], MPI.COMM_SELF)
    return out


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of 6 steps: four intervals, of which the last holds the final state alone."""
    return launched(tmp_path_factory.mktemp("verify") / "run")


@pytest.fixture
def verify(tmp_path, monkeypatch, capsys):
    """`python -m miniapps verify`: (exit code, lines of standard output, standard error)."""
    monkeypatch.chdir(tmp_path)

    def call(*argv):
        capsys.readouterr()
        code = miniapps(["verify", *map(str, argv)])
        streams = capsys.readouterr()
        return code, streams.out.splitlines(), streams.err

    return call


def test_a_run_agrees_with_itself_interval_by_interval(run, verify, tmp_path):
    code, lines, _ = verify(run, "--fraction", 1)
    assert code == 0
    assert f"VERIFIED: 4 of 4 intervals of {run} agree in every bit" in lines
    assert [line.partition(":")[0] for line in lines if line.startswith("from ")] == [
        "from the start to step 2", "from step 2 to step 4", "from step 4 to step 6", "from step 6 to the end",
    ]  # fmt: skip
    assert not list(tmp_path.glob("runs/*"))


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        (
            "bitflip@step=2,block=3,bit=3,index=9",
            "step 2, vorticity, block 3: other bits (from the start to step 2",
        ),
        ("bitflip@step=3,block=1,bit=0", "step 3, vorticity, block 1: other bits (from step 2 to step 4"),
        ("bitflip@step=6,block=2,bit=5", "step 6, vorticity, block 2: other bits (from step 4 to step 6"),
    ],
)
def test_a_fault_is_named_by_step_and_block_in_its_interval_alone(tmp_path, verify, fault, named):
    run = launched(tmp_path / "run", "--fault", fault)
    code, lines, _ = verify(run, "--fraction", 1)
    wrong = [line for line in lines if line.startswith("NOT VERIFIED")]
    assert code == 3 and len(wrong) == 1
    assert wrong[0].startswith(f"NOT VERIFIED: {named}")


def test_a_fault_inside_a_kernel_is_named_where_it_first_shows(tmp_path, verify):
    run = launched(tmp_path / "run", "--fault", "kernel-bit@step=3,block=2,bit=40,call=0")
    code, lines, _ = verify(run, "--fraction", 1, "--quiet")
    assert code == 3 and len(lines) == 1
    assert lines[0].startswith("NOT VERIFIED: step 3, ")


def test_a_run_that_continues_is_verified_from_where_it_continues(run, tmp_path, verify):
    rest = launched(tmp_path / "rest", "--restart", str(run / checkpoint_file(0, 2)))
    code, lines, _ = verify(rest, "--fraction", 1)
    assert code == 0 and verdict(lines).startswith("VERIFIED: 3 of 3 intervals")


def test_later_repeats_are_verified_too(tmp_path, verify):
    run = launched(tmp_path / "run", "--repeats", "2", "--fault", "bitflip@step=3,block=1,repeat=1")
    code, lines, _ = verify(run, "--fraction", 1)
    wrong = [line for line in lines if line.startswith("NOT VERIFIED")]
    assert code == 3 and len(wrong) == 1 and "step 3, vorticity, block 1" in wrong[0]


def test_what_is_executed_is_kept_where_that_is_asked_for(run, tmp_path, verify):
    assert verify(run, "--out", tmp_path / "kept", "--quiet")[0] == 0
    assert read(tmp_path / "kept" / "0" / "rank-00000.h5").complete
    code, _, errors = verify(run, "--out", tmp_path / "kept")
    assert code == 2 and "not empty, it has" in errors


# ---- other applications, fewer bits

SOLVE = ["--nx", "4", "--ny", "4", "--nz", "4", "--set", "grid.bx=2", "--set", "grid.by=2", "--set", "grid.bz=2",
         "--right-side", "random", "--guarantee", "layout", "--max-iterations", "16", "--quiet"]  # fmt: skip
BLOBS = ["--data", "blobs", "--guarantee", "layout", "--steps", "6", "--evaluate-every", "2", "--quiet"]


@pytest.mark.parametrize(
    "options",
    [
        ["cg"], ["cg", "--preconditioner", "jacobi", "--set", "record.orthogonality=true"],
        ["cg-chronopoulos-gear"], ["cg-chronopoulos-gear", "--preconditioner", "jacobi"],
        ["cg-pipelined"], ["cg-pipelined", "--preconditioner", "jacobi", "--set", "tuning.replace=2"],
        ["bicgstab"], ["jacobi"], ["chebyshev"], ["chebyshev", "--preconditioner", "jacobi"],
        ["cg", "--dtype", "float32", "--checkpoint-bits", "20"],
    ],
)  # fmt: skip
def test_each_method_that_goes_on_gives_the_bits_of_the_straight_solve(tmp_path, verify, options):
    out = tmp_path / "run"
    main(SOLVER, [*SOLVE, "--checkpoint-every", "3", "--out", str(out), "--method", *options], MPI.COMM_SELF)
    code, lines, errors = verify(out, "--fraction", 1)
    assert code == 0, (lines, errors)
    assert sum(line.startswith("from ") for line in lines) >= 2


def test_methods_that_keep_more_are_refused(tmp_path, capsys):
    argv = [*SOLVE, "--checkpoint-every", "3", "--out", str(tmp_path / "run"), "--method", "gmres-mgs"]
    assert main(SOLVER, argv, MPI.COMM_SELF) == 2
    assert (
        "gmres-mgs cannot continue from a checkpoint; choose one of: bicgstab, cg" in capsys.readouterr().err
    )


def test_a_solve_that_stops_before_its_end_has_no_end(tmp_path, verify):
    out = tmp_path / "run"
    argv = [*SOLVE, "--tolerance", "0", "--until", "4", "--checkpoint-every", "2", "--out", str(out)]
    assert main(SOLVER, argv, MPI.COMM_SELF) == 0
    assert "decision:converged" not in read(out / "rank-00000.h5").names
    assert verify(out, "--fraction", 1)[0] == 0


@pytest.mark.parametrize("options", [[], ["--checkpoint-bits", "10", "--optimiser", "adam"]])
def test_a_training_is_verified(tmp_path, verify, options):
    out = tmp_path / "run"
    assert (
        main(TRAINING, [*BLOBS, "--checkpoint-every", "2", "--out", str(out), *options], MPI.COMM_SELF) == 0
    )
    code, lines, errors = verify(out, "--fraction", 1)
    assert code == 0 and verdict(lines).startswith("VERIFIED: 4 of 4"), (lines, errors)


def test_a_fault_in_weights_is_named_by_tensor(tmp_path, verify):
    fault = ["--fault", "bitflip@step=3,block=1,bit=2"]
    main(TRAINING, [*BLOBS, "--checkpoint-every", "2", "--out", str(tmp_path / "run"), *fault], MPI.COMM_SELF)
    code, lines, _ = verify(tmp_path / "run", "--fraction", 1, "--quiet")
    assert code == 3 and lines[0].startswith("NOT VERIFIED: step 3, weights, block 1: other bits")


def test_a_run_goes_on_from_what_its_checkpoints_kept(run, tmp_path, verify):
    short = launched(tmp_path / "short", "--checkpoint-bits", "20")
    whole, kept = (
        read_checkpoint(each / checkpoint_file(0, 2), KIND).arrays["zeta"] for each in (run, short)
    )
    assert (kept == rounded(whole, 20))[8:].all() and (kept != whole).any()
    assert abs(kept.sum()) < 1e-12 * abs(kept).sum()
    assert verify(short, "--fraction", 1)[0] == 0
    assert read(short / "rank-00000.h5").attributes["method"]["output.rounded_every"] == 2


@pytest.mark.parametrize("bits", [1, 12, 23, 51])
def test_rounding_keeps_the_nearest_number_of_so_many_bits(bits):
    random = np.random.default_rng(3)
    x = random.standard_normal(1000) * 2.0 ** random.integers(-1000, 1000, 1000)
    y = rounded(x, bits)
    mantissa, _ = np.frexp(y)
    assert (np.ldexp(mantissa, bits + 1) == np.rint(np.ldexp(mantissa, bits + 1))).all()
    assert (np.abs(y - x) <= np.abs(x) * 2.0 ** -(bits + 1)).all()
    assert (rounded(y, bits) == y).all()


def test_rounding_leaves_what_it_cannot_round():
    whole, most = np.arange(3), np.array([np.finfo(np.float64).max, np.inf, -0.0])
    assert rounded(whole, 1) is whole
    assert rounded(most, 3).tobytes() == most.tobytes()
    assert rounded(np.ones(2, np.float32), 30).dtype == np.float32


# ---- what cannot be verified


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--guarantee", "run"], "--guarantee run does not promise equal bits on other ranks"),
        (["--checkpoint-every", "0"], "it wrote no checkpoints; run it with --checkpoint-every N"),
    ],
)
def test_a_run_that_promises_or_keeps_too_little_is_refused(tmp_path, verify, options, why):
    code, _, errors = verify(launched(tmp_path / "run", *options))
    assert code == 2 and why in errors


@pytest.mark.parametrize(
    ("entry", "value"), [("cpu", "another"), ("packages", {"numpy": "0.1"}), ("sources", "0123456789abcdef")]
)
def test_another_processor_or_library_is_named(run, tmp_path, verify, monkeypatch, entry, value):
    whose = "shared" if entry in ("packages", "sources") else "own"
    before = getattr(command.environment, whose)
    monkeypatch.setattr(command.environment, whose, lambda *given: before(*given) | {entry: value})
    code, _, errors = verify(run)
    assert code == 2 and "ran in another environment" in errors and f"{entry}" in errors


def test_a_checkpoint_that_is_gone_is_named(run, tmp_path, verify):
    copy = shutil.copytree(run, tmp_path / "run")
    (copy / checkpoint_file(0, 6)).unlink()
    code, _, errors = verify(copy)
    assert code == 2 and "repeat-0-step-000006.h5: no such checkpoint" in errors


def test_a_trace_that_was_changed_is_not_executed(run, tmp_path, verify):
    copy = shutil.copytree(run, tmp_path / "run")
    altered(copy / "rank-00000.h5", lambda file: file["values"]["value"].__setitem__(-1, 0.5))
    code, lines, _ = verify(copy)
    assert code == 3 and len(lines) == 1 and "step 7: the head is" in lines[0]


def test_wrong_words_are_refused(run, tmp_path, verify):
    assert verify(run, "--fraction", "0")[0] == 2
    assert verify(run, "--ranks", "0")[0] == 2
    assert verify(tmp_path)[0] == 2
    (tmp_path / "file").touch()
    assert "--out file: File exists; choose a new" in verify(run, "--out", "file")[2]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


# ---- two runs


def test_runs_with_one_head_are_the_same(run, tmp_path, verify):
    code, lines, _ = verify(run, "--against", launched(tmp_path / "other"))
    assert code == 0 and lines == [f"{run} and {tmp_path / 'other'} have the same heads (1 compared)."]


@pytest.mark.parametrize("step", [1, 3, 5, 6])
def test_of_two_runs_the_wrong_one_is_named_after_few_comparisons(run, tmp_path, verify, step):
    other = launched(tmp_path / "other", "--fault", f"bitflip@step={step},block=1,bit=2")
    code, lines, _ = verify(run, "--against", other)
    assert code == 3
    assert "(3 of 4 compared)" in lines[0]
    assert lines[1].startswith(f"{run}: from ") and "records agree" in lines[1]
    assert lines[2].startswith(f"NOT VERIFIED: {other}: step {step}, vorticity, block 1: other bits")


def test_runs_of_two_problems_are_not_compared(run, tmp_path, verify):
    code, _, errors = verify(run, "--against", launched(tmp_path / "other", "--seed", "2"))
    assert code == 2 and "differ in their problem" in errors


# ---- the draw


def test_the_draw_has_first_and_last_one_between_and_the_fraction():
    assert drawn("h", "c", 1, 0.1) == [0] and drawn("h", "c", 2, 0.1) == [0, 1]
    for count in (3, 10, 20, 57):
        for fraction in (0.01, 0.1, 0.3, 1.0):
            numbers = drawn("h", "c", count, fraction)
            assert numbers == sorted(set(numbers)) and {0, count - 1} <= set(numbers) <= set(range(count))
            assert len(numbers) == max(3, ceil(fraction * count))


def test_heads_and_challenge_decide_the_draw():
    draws = {tuple(drawn(head, challenge, 100, 0.1)) for head in "ab" for challenge in "xyz"}
    assert len(draws) == 6 and drawn("a", "x", 100, 0.1) == drawn("a", "x", 100, 0.1)


@pytest.mark.parametrize(("count", "fraction"), [(3, 0.1), (20, 0.1), (40, 0.2), (12, 0.5), (5, 1.0)])
@pytest.mark.parametrize("wrong", [1, 2, 3])
def test_one_who_knows_the_rule_is_met_as_often_as_is_said(count, fraction, wrong):
    """The cheat forges where no interval is always drawn, as far as there is room, and knows no challenge."""
    trials, random = 400, np.random.default_rng(count + wrong)
    inner = range(1, count - 1)
    met = 0
    for trial in range(trials):
        bad = set(random.choice(inner, min(wrong, len(inner)), replace=False).tolist())
        bad |= {0} if wrong > len(inner) else set()
        met += bool(bad & set(drawn(f"head{trial % 7}", str(trial), count, fraction)))
    p = chance(count, len(drawn("head", "", count, fraction)), wrong)
    low, high = binom.interval(0.9999, trials, p)
    assert low <= met <= high and p > 0
    everywhere = 1 - comb(count - wrong, len(drawn("head", "", count, fraction))) / comb(
        count, len(drawn("head", "", count, fraction))
    )
    assert p <= everywhere or wrong > len(inner)  # nobody is told more than holds for the worst place


def test_the_chance_is_hypergeometric_among_those_that_are_not_always_drawn():
    assert chance(10, 3, 1) == pytest.approx(1 / 8)
    assert chance(20, 3, 1) == pytest.approx(1 / 18)
    assert chance(20, 5, 2) == pytest.approx(1 - comb(16, 3) / comb(18, 3))
    assert chance(10, 3, 8) == chance(10, 3, 9) == chance(2, 2, 1) == chance(7, 7, 1) == 1.0


def test_no_place_is_better_for_a_cheat_than_the_one_that_the_chance_is_for():
    for count in range(3, 7):
        for taken in range(3, count + 1):
            draws = [{0, count - 1, *inner} for inner in combinations(range(1, count - 1), taken - 2)]
            for wrong in range(1, count + 1):
                met = [
                    sum(bool(set(bad) & draw) for draw in draws) / len(draws)
                    for bad in combinations(range(count), wrong)
                ]
                assert min(met) == pytest.approx(chance(count, taken, wrong))
