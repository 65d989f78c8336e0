"""Finds the settings of libraries that change the bits of each application, on this processor.

Every application runs once on one rank without settings, and once with each setting, so differences in records are due
to the setting alone. The JSON also has the choices that the libraries report, which distinguishes a setting without
effect from one that this installation ignores. Libraries read settings when they are loaded, so each setting has a
process.

    python -m benchmarks.apps.settings --json benchmarks/results/settings-2-cores-DATE.json
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.harness.results import add_quiet, machine, save
from miniapps.system.environment import SETTINGS as NAMES
from miniapps.system.environment import THREADS

BASE = "nothing set"
AGAIN = "nothing set, again"
LEAST = "the least of torch, MKL, oneDNN, OpenBLAS and NumPy"
EVERYTHING = "these and GLIBC_TUNABLES"
_LEAST = {
    "ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41",
    "OPENBLAS_CORETYPE": "Prescott", "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL",
}  # fmt: skip
_GLIBC = {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX2,-FMA,-AVX,-FMA4,-AVX2_Usable,-FMA_Usable"}
SETTINGS: dict[str, dict[str, str]] = {
    BASE: {},
    AGAIN: {},
    "ATEN_CPU_CAPABILITY=default": {"ATEN_CPU_CAPABILITY": "default"},
    "ATEN_CPU_CAPABILITY=avx2": {"ATEN_CPU_CAPABILITY": "avx2"},
    "MKL_ENABLE_INSTRUCTIONS=SSE4_2": {"MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
    "MKL_CBWR=COMPATIBLE": {"MKL_CBWR": "COMPATIBLE"},
    "ONEDNN_MAX_CPU_ISA=SSE41": {"ONEDNN_MAX_CPU_ISA": "SSE41"},
    "OPENBLAS_CORETYPE=Haswell": {"OPENBLAS_CORETYPE": "Haswell"},
    "OPENBLAS_CORETYPE=Nehalem": {"OPENBLAS_CORETYPE": "Nehalem"},
    "OPENBLAS_CORETYPE=Prescott": {"OPENBLAS_CORETYPE": "Prescott"},
    "OPENBLAS_NUM_THREADS=2": {"OPENBLAS_NUM_THREADS": "2"},
    "MKL_NUM_THREADS=2": {"MKL_NUM_THREADS": "2"},
    "NPY_DISABLE_CPU_FEATURES=X86_V4 AVX512_ICL": {"NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL"},
    "NPY_DISABLE_CPU_FEATURES=X86_V3 X86_V4 AVX512_ICL": {"NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL"},
    LEAST: _LEAST,
    "GLIBC_TUNABLES=hwcaps -AVX2 -FMA": _GLIBC,
    EVERYTHING: _LEAST | _GLIBC,
}  # fmt: skip

# Decks S, not smaller: sines of the C library have the same bits for a grid of 32 x 32 points, whatever is set.
_FLOW = ["--steps=2", "--guarantee=layout"]
_BOX = ["--guarantee=layout", "--max-iterations=60"]
_DATA = ["--size=1000", "--size=50000", "--arrays=2", "--samples=2", "--guarantee=run", "--variant=all"]
OWN_SUMS = ("lanes", "pairwise", "neumaier", "block-tree", "sptr", "binned", "fixed-point", "exact")
_OWN = [*_DATA[:-1], *(f"--variant={name}@native" for name in OWN_SUMS)]
CASES: dict[str, tuple[str, list[str]]] = {
    "coupled, no closure": ("coupled", [*_FLOW, "--closure=none"]),
    "coupled, physics": ("coupled", [*_FLOW, "--closure=physics"]),
    "coupled, surrogate": ("coupled", [*_FLOW, "--closure=surrogate"]),
    "coupled, online": ("coupled", [*_FLOW, "--closure=online"]),
    "coupled, surrogate, static": ("coupled", [*_FLOW, "--closure=surrogate", "--inference=static"]),
    "coupled, online, static": ("coupled", [*_FLOW, "--closure=online", "--inference=static"]),
    "solver, cg": ("solver", _BOX),
    "solver, cg, multigrid": ("solver", [*_BOX, "--preconditioner=multigrid", "--right-side=random"]),
    "solver, gmres, manufactured": ("solver", [*_BOX, "--method=gmres-mgs", "--right-side=manufactured"]),
    "solver, chebyshev": ("solver", [*_BOX, "--method=chebyshev"]),
    "reductions, own sums": ("reductions", [*_OWN, "--distribution=lognormal"]),
    "reductions, own dot products": ("reductions", [*_OWN, "--operation=dot", "--distribution=normal"]),
    "reductions, own sums, ill-conditioned": ("reductions", [*_OWN, "--distribution=ill-conditioned"]),
    "reductions, sum": ("reductions", [*_DATA, "--distribution=lognormal"]),
    "reductions, dot": ("reductions", [*_DATA, "--operation=dot", "--distribution=normal"]),
    "reductions, float32": ("reductions", [*_DATA, "--set=problem.dtype=float32"]),
}  # fmt: skip


def work(root: Path, cases: list[str]) -> int:
    """Runs every case, one after the other, in the process of one setting; returns the exit code."""
    from mpi4py import MPI

    from miniapps import coupled, reductions, solver
    from miniapps.runner.main import main as start

    apps = {"coupled": coupled.APP, "solver": solver.APP, "reductions": reductions.APP}
    for place, (case, (app, argv)) in enumerate(CASES.items()):
        if case not in cases:
            continue
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            out = f"--out={root / f'case-{place}'}"
            code = start(apps[app], [*argv, out, "--no-progress", "--log-level=error"], MPI.COMM_SELF)
        if code not in (0, 3):
            print(argv, output.getvalue(), file=sys.stderr, flush=True)
            return 1
    return 0


def run(root: Path, settings: list[str], cases: list[str]) -> None:
    """Runs all `cases` under each of the `settings`. Raises RuntimeError if one fails."""
    clean = {
        key: value for key, value in os.environ.items() if not key.startswith((*NAMES, *THREADS, "FPNA_"))
    }
    for place, name in enumerate(SETTINGS):
        if name not in settings:
            continue
        out = root / f"setting-{place}"
        out.mkdir()
        command = [sys.executable, "-m", "benchmarks.apps.settings", "--work", str(out), "--cases", *cases]
        done = subprocess.run(command, capture_output=True, text=True, env=clean | SETTINGS[name])
        if done.returncode:
            raise RuntimeError(f"{name}: ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")


def judge(root: Path, settings: list[str], cases: list[str]) -> list[dict]:
    """A row per setting and case: whether any record has other bits than without settings, the first such record, and
    the different choices of the libraries."""
    from analysis.divergence.compare import compare
    from analysis.load.frames import load
    from analysis.sentences import place as where
    from miniapps.system.scope import apart

    rows = []
    for number, case in enumerate(CASES):
        if case not in cases:
            continue
        paths = {
            name: root / f"setting-{i}" / f"case-{number}"
            for i, name in enumerate(SETTINGS)
            if name in settings
        }
        frames = load(paths.values(), processes=1, keep=False)
        by_path = {Path(run.path): run for run in frames.runs.itertuples()}
        base = by_path[paths[BASE]]
        for name in settings:
            other = by_path[paths[name]]
            if name == BASE:
                continue
            comparison = compare(frames, (base.run, 0), (other.run, 0))
            differences = apart(json.loads(base.environment), json.loads(other.environment), "run")
            first = where(comparison.first) if comparison.differs else ""
            rows.append(
                {
                    "setting": name, "case": case, "compared": comparison.compared, "comparable": comparison.comparable,
                    "equal": comparison.equal, "first": first,
                    "shown": "=" if comparison.equal else first or "not comparable",
                    "chosen": {key: [a, b] for key, a, b in differences if key.startswith("arithmetic.")},
                }
            )  # fmt: skip
    return rows


def table(rows: list[dict]) -> list[str]:
    """Lines of a Markdown table: a row per setting, a column per case."""
    cases = list(dict.fromkeys(row["case"] for row in rows))
    lines = ["| setting | " + " | ".join(cases) + " |", "|---|" + "---|" * len(cases)]
    for name in dict.fromkeys(row["setting"] for row in rows):
        same = {row["case"]: row for row in rows if row["setting"] == name}
        lines.append(f"| `{name}` | " + " | ".join(same[case]["shown"] for case in cases) + " |")
    return lines


def main(argv=None) -> None:
    """Measures, prints the table, writes JSON."""
    parser = argparse.ArgumentParser("python -m benchmarks.apps.settings", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--json", type=Path, help="write all rows to this file")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    add_quiet(parser)
    options = parser.parse_args(argv)
    if options.work:
        sys.exit(work(options.work, options.cases))
    settings = list(dict.fromkeys([BASE, *options.settings]))
    with tempfile.TemporaryDirectory() as scratch:
        run(Path(scratch), settings, options.cases)
        rows = judge(Path(scratch), settings, options.cases)
    print("\n".join(table(rows)))
    if options.json:
        content = {"machine": machine(), "settings": {name: SETTINGS[name] for name in settings},
                   "cases": {name: CASES[name] for name in options.cases}, "rows": rows}  # fmt: skip
        save(content, options.json)


if __name__ == "__main__":
    main()
