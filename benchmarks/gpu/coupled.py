"""Whole runs of `coupled` on one rank, without a launcher, where mpi4py can be imported.

With the physical closure device and CPU must end in the same bits; with the learned one two repeats must.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.gpu.stencil import row
from kernels.guarantees import ChoiceError
from kernels.stencil import backend

RUN_LIMIT_S = 240


def coupled_rows(asked) -> list[dict]:
    """One row per kind of run; a single one that says why where nothing can be run."""
    try:
        import mpi4py  # noqa: F401 - the app needs it, and the C++ kernels

        backend("native")
    except (ImportError, RuntimeError, ChoiceError) as error:
        return [row("coupled", f"not run: {error}")]
    runs = (
        [("S", "layout"), ("S", "exact")] if asked.quick else [("S", "exact"), ("M", "none"), ("M", "layout")]
    )
    rows = [_same_as_cpu(deck, guarantee, 1 if asked.quick else 3) for deck, guarantee in runs]
    return rows + [_repeats(deck, 1 if asked.quick else 3) for deck in (["S"] if asked.quick else ["S", "M"])]


def _same_as_cpu(deck: str, guarantee: str, steps: int) -> dict:
    what = f"coupled {deck} {guarantee}, physics"
    try:
        device, cpu = (run(deck, guarantee, "physics", name, steps) for name in ("cuda", "cpu"))
    except RuntimeError as error:
        return row(what, f"FAIL {error}")
    same = set(device["fingerprints"]) == set(cpu["fingerprints"])
    return row(what, "same bits" if same else "FAIL bits differ", step_seconds(device), step_seconds(cpu))


def _repeats(deck: str, steps: int) -> dict:
    what = f"coupled {deck} layout, online"
    try:
        device, cpu = (run(deck, "layout", "online", name, steps) for name in ("cuda", "cpu"))
    except RuntimeError as error:
        return row(what, f"FAIL {error}")
    same = len(set(device["fingerprints"])) == 1
    check = "repeats agree" if same else "FAIL repeats differ"
    return row(what, check, step_seconds(device), step_seconds(cpu))


def run(deck: str, guarantee: str, closure: str, device: str, steps: int) -> dict:
    """result.json of two repeats on one rank; RuntimeError with the last line of the output if it failed."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "run"
        settings = ["--deck", deck, "--guarantee", guarantee, "--closure", closure, "--device", device]
        command = [
            sys.executable,
            "-m",
            "miniapps.coupled",
            *settings,
            "--steps",
            str(steps),
            "--repeats",
            "2",
        ]
        command += ["--no-progress", "--out", str(out)]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=RUN_LIMIT_S,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"no end after {RUN_LIMIT_S} s on {device}") from error
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            raise RuntimeError(f"ended with {done.returncode} on {device}")
        return json.loads((out / "result.json").read_text())


def step_seconds(result: dict) -> float:
    """Time per step of the last repeat: in the first, kernels are still being compiled."""
    return result["fom"]["steps"]["values"][-1]
