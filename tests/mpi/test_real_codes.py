"""Codes that people use, as Debian has them, under `fpna run`: results stay, and what is said of their runs is true.

What is expected of each was checked by hand once: repeats of all of them differ in measured times, addresses or names
of windows alone, which is no rounding; on another number of ranks sums of the physics are grouped in another way.
"""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from miniapps.trace import read_run
from tests.mpi.test_observed_mpi import debian, under_debian

pytestmark = pytest.mark.slow
INPUTS = Path(__file__).parent / "codes"
SCALAPACK = "/usr/lib/x86_64-linux-gnu/scalapack/openmpi-tests"


@dataclass(frozen=True)
class Code:
    """A program of Debian's `package`: its command, the files that it reads, a pattern of its result."""

    package: str
    command: tuple[str, ...]
    inputs: tuple[str, ...]
    result: str
    given: str = ""  # on standard input


CODES = {
    "lammps": Code("lammps", ("lmp", "-in", "melt.in", "-log", "none"), ("melt.in",), r"^ +50 .*$"),
    "espresso": Code("quantum-espresso", ("pw.x", "-in", "si.in"), ("si.in",), r"^! +total energy.*$"),
    "nwchem": Code("nwchem", ("nwchem", "h2o.nw"), ("h2o.nw",), r"^ +Total SCF energy.*$"),
    "cp2k": Code("cp2k", ("cp2k.psmp", "-i", "h2.inp"), ("h2.inp",), r"^ ENERGY\| Total.*$"),
    "mumps": Code("mumps-test", ("/usr/lib/mumps/dsimpletest",), (), r"^ *Solution is.*$",
                  "/usr/lib/mumps/input_simpletest_real"),
    "scotch": Code("ptscotch", ("dgord", "grid.grf", "/dev/null", "-vt"), ("grid.grf",), r"^T\tOrder"),
}  # fmt: skip


def made(name, folder):
    """The code `name`, with its input in the new directory `folder`; skips where it is not installed."""
    code = CODES[name]
    if not shutil.which(code.command[0]):
        pytest.skip(f"no {code.command[0]} (apt-get install {code.package})")
    folder.mkdir()
    for file in code.inputs:
        if file == "grid.grf":
            (folder / file).write_text(grid(20))
        else:
            shutil.copy(INPUTS / file, folder)
    return code


def grid(n):
    """A grid of n x n vertices, as Scotch reads graphs."""
    lines = []
    for i in range(n):
        for j in range(n):
            near = [(i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)]
            inside = [str(a * n + b) for a, b in near if 0 <= a < n and 0 <= b < n]
            lines.append("\t".join([str(len(inside)), *inside]))
    arcs = sum(int(line.split("\t")[0]) for line in lines)
    return f"0\n{n * n} {arcs}\n0 000\n" + "\n".join(lines) + "\n"


def answer(command, runs):
    """(exit code, document) of `fpna COMMAND RUNS --json`; an empty document where it is refused with a sentence."""
    done = subprocess.run([sys.executable, "-m", "fpna", command, *map(str, runs), "--json"], capture_output=True,
                          text=True, env=debian(), timeout=300)  # fmt: skip
    assert done.stdout or (done.returncode == 2 and len(done.stderr.splitlines()) == 1), done.stderr
    return done.returncode, json.loads(done.stdout or "{}")


@pytest.mark.parametrize("name", CODES)
def test_results_stay_and_what_is_said_is_true(name, tmp_path):
    code = made(name, tmp_path / "inputs")
    told = {}
    for out, ranks in (("plain", 2), ("a", 2), ("b", 2), ("c", 4)):
        given = Path(code.given).read_bytes() if code.given else None
        words = ["mpirun.openmpi", "--oversubscribe", "-n", str(ranks)]
        if out != "plain":
            words += [sys.executable, "-m", "fpna", "run", "--quiet", "--mpicxx", "/usr/bin/mpicxx.openmpi"]
            words += ["--out", str(tmp_path / out), "--"]
        env = {**debian(), "OMP_NUM_THREADS": "1", "CP2K_DATA_DIR": "/usr/share/cp2k"}
        done = subprocess.run(
            [*words, *code.command],
            input=given,
            capture_output=True,
            cwd=tmp_path / "inputs",
            env=env,
            timeout=400,
        )
        printed = done.stdout.decode(errors="replace")
        assert done.returncode == 0, printed + done.stderr.decode(errors="replace")
        told[out] = re.findall(code.result, printed, re.MULTILINE)
        assert told[out], printed[-3000:]
        if out != "plain":
            traces = list(read_run(tmp_path / out))
            assert len(traces) == ranks and all(trace.complete for trace in traces)
            assert all(len(trace.tables["events"]["start"]) for trace in traces)
    if name != "scotch":  # which prints times
        assert told["plain"] == told["a"] == told["b"]
    ended, said = answer("divergence", (tmp_path / "a", tmp_path / "b"))
    row = said["tables"]["comparisons"][0]
    assert ended in (0, 3)
    if ended == 3:  # times and addresses
        assert row["cause"] != "collective" and row["rounding"] != "rounding", row
    ended, said = answer("divergence", (tmp_path / "a", tmp_path / "c"))
    if name == "lammps":  # a centre of mass, from two and from four parts
        row = said["tables"]["comparisons"][0]
        assert row["cause"] == "contributions or order" and row["rounding"] != "not rounding", row
    for command in ("variability", "show"):
        ended, said = answer(command, (tmp_path / "a", tmp_path / "b", tmp_path / "c"))
        text = json.dumps(said.get("verdict") or {}) + json.dumps(said.get("sentences", []))
        assert "IDENTICAL" not in text.upper(), text


def test_scalapack_solves_as_before(tmp_path):
    if not Path(SCALAPACK).exists():
        pytest.skip("no tests of ScaLAPACK (apt-get install scalapack-mpi-test)")
    (tmp_path / "inputs").mkdir()
    shutil.copy(f"{SCALAPACK}/LU.dat", tmp_path / "inputs")
    printed = under_debian(4, tmp_path / "a", [f"{SCALAPACK}/xdlu"], cwd=tmp_path / "inputs")
    assert re.search(r"^ +\d+ tests completed and passed", printed, re.MULTILINE), printed[-3000:]
    assert re.search(r"^ +0 tests completed and failed", printed, re.MULTILINE), printed[-3000:]
    traces = list(read_run(tmp_path / "a"))
    assert len(traces) == 4 and all(trace.complete for trace in traces)
