"""Measures whether bugs are distinguished from rounding: python -m benchmarks.causes --programs 100 --seed 1

Draws programs, runs each twice, calls `fpna divergence`, and `fpna cause` if the answer is open.

Writes a row for each program, and the two confusion tables, to benchmarks/results/causes-SEED.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks.causes.drawn import BUG, FORTRAN, PYTHON, RECORDED, ROUNDING, C, Drawn, Side, draw
from benchmarks.harness.launching import mpirun
from benchmarks.harness.results import add_quiet, machine, save, unused

HERE = Path(__file__).parent
FORTRAN_MPI = ("/usr/bin/mpif90", "/usr/bin/mpirun", "/usr/bin/mpicxx")  # Debian's Open MPI
OPEN_MPI = {
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}
TRIES = 4  # until the two runs of a program differ
LIMIT_S = 300


def main() -> int:
    """Draws, runs, judges and counts programs; returns exit code 3 if an answer was wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.causes", description=__doc__.split("\n")[0])
    parser.add_argument("--programs", type=int, default=100, help="programs of each class")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first program")
    parser.add_argument("--always", action="store_true", help="call `fpna cause` for every program")
    parser.add_argument("--kind", help="only programs of this kind")
    parser.add_argument(
        "--what", nargs="+", choices=(BUG, ROUNDING), default=(BUG, ROUNDING), help="only this class"
    )
    parser.add_argument("--language", help="only programs in this language")
    parser.add_argument("--out", type=Path)
    add_quiet(parser)
    options = parser.parse_args()
    os.environ["PATH"] = f"{Path(mpirun()[0]).parent}{os.pathsep}{os.environ['PATH']}"  # its compilers, too
    path = unused(options.out or Path(f"benchmarks/results/causes-{options.seed}.json"))
    rows: list[dict] = []
    tables = {}
    with tempfile.TemporaryDirectory() as scratch:
        binaries = build(Path(scratch))
        for what in options.what:
            for seed in range(options.seed, options.seed + options.programs):
                drawn = draw(seed, what)
                if options.kind not in (None, drawn.kind) or options.language not in (None, drawn.language):
                    continue
                rows.append(asked(drawn, seed, binaries, options.always))
                tables = {after: table(rows, after) for after in ("after_divergence", "after_cause")}
                save({"machine": machine(), "seed": options.seed, "programs": options.programs, "tables": tables,
                      "rows": rows}, path, again=True)  # fmt: skip
                if not options.quiet:
                    shown = ("seed", "kind", "language", "exponent", "after_divergence", "after_cause")
                    print(json.dumps({key: rows[-1][key] for key in shown}), flush=True)
    print(json.dumps(tables, indent=1))
    wrong = sum(counts.get(other, 0) for after in tables.values()
                for what, counts in after.items() for other in (BUG, ROUNDING) if other != what)  # fmt: skip
    return 3 if wrong else 0


def build(scratch: Path) -> dict[str, list[str]]:
    """The command of each language's program, compiled into `scratch`; "contracted": C's with fused multiply-adds."""
    mpicc = str(Path(mpirun()[0]).with_name("mpicc"))
    for name, flags in (
        ("plain", ["-ffp-contract=off"]),
        ("contracted", ["-march=native", "-ffp-contract=fast"]),
    ):
        (scratch / name).mkdir()
        program = str(scratch / name / "program")
        subprocess.run(
            [mpicc, "-O2", "-fopenmp", *flags, str(HERE / "program.c"), "-o", program, "-lm"], check=True
        )
    commands = {
        C: [str(scratch / "plain" / "program")],
        "contracted": [str(scratch / "contracted" / "program")],
    }
    commands |= {
        PYTHON: [sys.executable, str(HERE / "program.py")],
        RECORDED: [sys.executable, str(HERE / "program.py")],
    }
    if Path(FORTRAN_MPI[0]).exists():
        subprocess.run([FORTRAN_MPI[0], "-O2", str(HERE / "program.f90"), "-o", str(scratch / "fortran")], check=True,
                       cwd=scratch)  # fmt: skip
        commands[FORTRAN] = [str(scratch / "fortran")]
    return commands


def asked(drawn: Drawn, seed: int, binaries: dict[str, list[str]], always: bool) -> dict:
    """The row of one program: the answers for its two runs."""
    row = {"seed": seed, "kind": drawn.kind, "what": drawn.what, "language": drawn.language, "exponent": drawn.exponent,
           "arguments": drawn.arguments, "ranks": [drawn.a.ranks, drawn.b.ranks]}  # fmt: skip
    if drawn.language not in binaries:
        return row | {
            "after_divergence": "not run",
            "after_cause": "not run",
            "why": "no Fortran compiler with MPI",
        }
    with tempfile.TemporaryDirectory() as scratch:
        for attempt in range(TRIES):
            a, b = (Path(scratch) / f"{side}{attempt}" for side in "ab")
            run(drawn, drawn.a, a, binaries)
            run(drawn, drawn.b, b, binaries)
            code, said = document(["divergence", str(a), str(b), "--json"])
            if code != 0:
                break
        else:
            return row | {"after_divergence": "equal", "after_cause": "equal"}
        judged = verdict_of(said) if code == 3 else f"code {code}"
        row |= {"after_divergence": judged, "after_cause": judged, "divergence": summary(said)}
        if judged == "open" or always:
            begin = time.perf_counter()
            code, said = document(["cause", str(a), str(b), "--json", "--quiet", *launcher(drawn), "--",
                                   *command(drawn, binaries, False)], drawn.a.environment)  # fmt: skip
            names = {"rounding": ROUNDING, "not rounding": BUG, "open": "open"}
            row |= {"after_cause": names.get(said.get("verdict", ""), f"code {code}"), "cause": said,
                    "cause_s": time.perf_counter() - begin}  # fmt: skip
    return row


def verdict_of(said: dict) -> str:
    """The verdict of `fpna divergence --json`: "bug" if rounding does not explain the difference."""
    names = {"rounding": ROUNDING, "not rounding": BUG, "open": "open"}
    return names.get(first_comparison(said).get("rounding") or "", "unknown")


def summary(said: dict) -> dict:
    """The part of the answer of `fpna divergence` that a row keeps."""
    return {
        "row": first_comparison(said),
        "facts": said.get("tables", {}).get("facts"),
        "error": said.get("error"),
    }


def first_comparison(said: dict) -> dict:
    """The row of the first comparison in the answer of `fpna divergence`."""
    return (said.get("tables", {}).get("comparisons") or [{}])[0]


def command(drawn: Drawn, binaries: dict[str, list[str]], contracted: bool) -> list[str]:
    """The command line of the program; a program that records itself writes to {out}."""
    words = [*binaries["contracted" if contracted else drawn.language], *drawn.arguments]
    return [*words, "{out}"] if drawn.language == RECORDED else words


def launcher(drawn: Drawn) -> list[str]:
    """The options by which `fpna cause` starts ranks with this program's MPI."""
    mpi = f"{FORTRAN_MPI[1]} --oversubscribe" if drawn.language == FORTRAN else mpirun()[0]
    more = ["--mpicxx", FORTRAN_MPI[2]] if drawn.language == FORTRAN else []
    return ["--launcher", f"{mpi} -n {{ranks}}", *more]


def run(drawn: Drawn, side: Side, out: Path, binaries: dict[str, list[str]]) -> None:
    """Runs a program once, into `out`. Raises RuntimeError if it fails."""
    words = command(drawn, binaries, side.contracted)
    if drawn.language == RECORDED:
        words = [word.replace("{out}", str(out)) for word in words]
    else:
        more = ["--mpicxx", FORTRAN_MPI[2]] if drawn.language == FORTRAN else []
        words = [sys.executable, "-m", "fpna", "run", "--quiet", "--out", str(out), *more, "--", *words]
    start = [FORTRAN_MPI[1], "--oversubscribe"] if drawn.language == FORTRAN else mpirun()
    done = subprocess.run(
        [*start, "-n", str(side.ranks), *words], capture_output=True, text=True, timeout=LIMIT_S,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | OPEN_MPI | side.environment,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")


def document(words: list[str], environment: dict[str, str] | None = None) -> tuple[int, dict]:
    """(exit code, the JSON that `fpna WORDS` prints)."""
    done = subprocess.run(
        [sys.executable, "-m", "fpna", *words], capture_output=True, text=True, timeout=40 * LIMIT_S,
        env=os.environ | OPEN_MPI | (environment or {}),
    )  # fmt: skip
    here = f"{HERE.parents[1]}{os.sep}"
    try:
        return done.returncode, json.loads(done.stdout.replace(sys.executable, "python").replace(here, ""))
    except ValueError:
        return done.returncode, {"error": done.stderr[-2000:]}


def table(rows: list[dict], after: str) -> dict[str, dict[str, int]]:
    """{class: {answer: number of programs}}."""
    return {
        what: dict(Counter(row[after] for row in rows if row["what"] == what)) for what in (BUG, ROUNDING)
    }


if __name__ == "__main__":
    sys.exit(main())
