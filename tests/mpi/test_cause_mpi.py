"""`fpna cause`: bugs and rounding told apart by launches of real programs (benchmarks/causes has many more)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.harness.launching import mpirun
from fpna.command import main
from tests.launch import ROOT, environment, run_mpi, run_python

PROGRAMS = ROOT / "benchmarks" / "causes"
SIZE = ("1001", "8", "2", "0.3")  # points, steps, sums, phase


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The program in C, compiled for MPICH."""
    compiler = Path(mpirun()[0]).with_name("mpicc")
    built = tmp_path_factory.mktemp("causes") / "program"
    command = [compiler, "-O2", "-fopenmp", PROGRAMS / "program.c", "-o", built, "-lm"]
    if not compiler.exists() or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("no mpicc of MPICH that can build it")
    return [str(built)]


def observed(ranks, out, words):
    run = run_mpi(ranks, ["-m", "fpna", "run", "--quiet", "--out", str(out), "--", *words], env=own_path())
    assert run.returncode == 0, run.stderr
    return out


def own_path():
    return {"PATH": f"{Path(mpirun()[0]).parent}:{environment({})['PATH']}"}


def cause(a, b, words, *options):
    """(exit code, the document) of `fpna cause A B`."""
    launches = ["--launches", "4", "--launcher", f"{mpirun()[0]} -n {{ranks}}", "--json", "--quiet", *options]
    run = run_python(
        ["-m", "fpna", "cause", str(a), str(b), *launches, "--", *words], env=own_path(), timeout=300
    )
    assert run.stdout, run.stderr
    return run.returncode, json.loads(run.stdout)


@pytest.mark.parametrize(
    ("kind", "eps", "code", "verdict"),
    [
        ("doubled", "1e-6", 3, "not rounding"),
        pytest.param("local-index", "1e-9", 3, "not rounding", marks=pytest.mark.slow),
        pytest.param(
            "doubled", "1e-11", 3, "not rounding", marks=pytest.mark.slow
        ),  # rounding upward reaches as far
        pytest.param("grouping", "0", 0, "rounding", marks=pytest.mark.slow),
        pytest.param("chaos", "0", 0, "rounding", marks=pytest.mark.slow),
    ],
)
def test_a_program_on_two_rank_counts(tmp_path, program, kind, eps, code, verdict):
    words = [*program, kind, eps, *SIZE]
    a, b = observed(2, tmp_path / "a", words), observed(4, tmp_path / "b", words)
    ended, said = cause(a, b, words)
    assert (ended, said["verdict"]) == (code, verdict), said
    assert said["ranks"] == 2 and said["compared"] > 0
    farther = said["farthest"]["ratio"] > 8 or said["stays"]["ratio"] > said["stays"]["rare"]
    assert (
        farther
        if code
        else said["farthest"]["ratio"] <= 3 and said["stays"]["ratio"] <= said["stays"]["likely"]
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "eps", "verdict"), [("wrong-root", "1e-8", "not rounding"), ("cancellation", "0", "rounding")]
)
def test_a_program_that_records_itself(tmp_path, kind, eps, verdict):
    words = [sys.executable, str(PROGRAMS / "program.py"), kind, eps, *SIZE]
    for ranks, name in ((2, "a"), (4, "b")):
        assert run_mpi(ranks, [*words[1:], str(tmp_path / name)]).returncode == 0
    ended, said = cause(tmp_path / "a", tmp_path / "b", [*words, "{out}"])
    assert said["verdict"] == verdict and ended == (3 if verdict == "not rounding" else 0)


@pytest.mark.slow
def test_what_every_rank_computes_for_itself_stays_the_same_on_all(tmp_path):
    """The learned closure of `coupled` is trained on every rank: it ends where ranks' weights differ."""
    words = ["-m", "miniapps.coupled", "--quiet", "--steps", "6", "--out"]
    for ranks, name in ((2, "a"), (4, "b")):
        run = run_mpi(ranks, [*words, str(tmp_path / name)])
        assert run.returncode == 0, run.stderr
    ended, said = cause(tmp_path / "a", tmp_path / "b", [sys.executable, *words, "{out}"])
    assert ended == 0 and said["verdict"] == "rounding", said


@pytest.mark.slow
def test_two_builds_of_a_program_are_compared(tmp_path):
    """With and without fused multiply-adds: calls have other addresses, results other bits."""
    words = []
    for name, flags in (
        ("fused", ("-march=native", "-ffp-contract=fast")),
        ("plain", ("-ffp-contract=off",)),
    ):
        (tmp_path / name).mkdir()
        words.append([str(tmp_path / name / "program"), "contraction", "0", *SIZE])
        source = [PROGRAMS / "program.c", "-o", words[-1][0], "-lm"]
        compiler = Path(mpirun()[0]).with_name("mpicc")
        if not compiler.exists() or subprocess.run([compiler, "-O2", "-fopenmp", *flags, *source]).returncode:
            pytest.skip("no mpicc of MPICH that can build it")
    a, b = observed(3, tmp_path / "a", words[0]), observed(3, tmp_path / "b", words[1])
    run = run_python(["-m", "fpna", "divergence", str(a), str(b)])
    if "another build" not in run.stderr:
        pytest.skip("a processor without fused multiply-adds: both builds are one")
    assert run.returncode in (0, 3), run.stderr
    assert cause(a, b, words[0])[1]["verdict"] in ("rounding", "open")  # open: where no bits differ


@pytest.mark.slow
def test_messages_come_in_the_order_of_the_first_run(tmp_path, program):
    """A sum in the order of arrival: rounding, and launches that repeat the order are told so."""
    words = [*program, "arrival", "0", *SIZE]
    runs = []
    for order in "13":
        ranks = ["-m", "fpna", "run", "--quiet", "--out", str(tmp_path / order), "--", *words]
        assert run_mpi(4, ranks, env={**own_path(), "ORDER": order}).returncode == 0
        runs.append(tmp_path / order)
    _, said = cause(*runs, words)
    assert said["replay"] and said["verdict"] != "not rounding", said


def test_mistakes_are_sentences(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def said(*words):
        assert main(["cause", *words]) == 2
        text = capfd.readouterr().err
        first, *output = text.splitlines()
        assert " ended with " in first or not output
        return text

    words = [sys.executable, str(PROGRAMS / "program.py"), "grouping", "0", "203", "2", "1", "0.3"]
    for name in "ab":
        assert run_mpi(1, [*words[1:], str(tmp_path / name)]).returncode == 0
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    assert "no program after --; give the command that made A" in said(a, b)
    assert "{out}" in said(a, b, "--", *words)
    assert "--launches 1: choose" in said(a, b, "--launches", "1", "--", *words, "{out}")
    assert "no launcher 'nowhere'" in said(a, b, "--launcher", "nowhere", "--", *words, "{out}")
    assert "ended with" in said(a, b, "--launcher", f"{mpirun()[0]} -n {{ranks}}", "--", "false", "{out}")
    assert said(a, str(tmp_path / "absent"), "--", *words, "{out}")
