"""Whole runs of an application on one rank, without a launcher, on the device and on the CPU."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from kernels.guarantees import ChoiceError
from kernels.stencil import backend

RUN_LIMIT_S = 240


def lacking() -> str:
    """The reason why no application can run here, or ""."""
    try:
        import mpi4py  # noqa: F401 - the applications need it, and the C++ kernels

        backend("native")
    except (ImportError, RuntimeError, ChoiceError) as error:
        return str(error)
    return ""


def on_both(app: str, arguments: list[str]) -> list[dict]:
    """The result.json of runs on the device and on the CPU; raises RuntimeError as `run` does."""
    return [run(app, name, arguments) for name in ("cuda", "cpu")]


def run(app: str, device: str, arguments: list[str]) -> dict:
    """The result.json of a run with two repeats; the first one still compiles kernels.

    If the run fails, prints its stderr and raises RuntimeError, which says how it ended.
    """
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "run"
        command = [sys.executable, "-m", f"miniapps.{app}", *arguments, "--device", device, "--repeats", "2"]
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


def seconds(result: dict, figure: str) -> float:
    """A figure of merit of the last repeat."""
    return result["fom"][figure]["values"][-1]
