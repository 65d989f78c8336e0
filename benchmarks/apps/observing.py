"""What an unmodified program pays for being observed (`fpna run`).

    python -m benchmarks.apps.observing                     # both parts
    python -m benchmarks.apps.observing hpl --rounds 9 --json benchmarks/results/observing.json

calls     an all-reduce of one float64, observed minus bare, in microseconds: of one rank by itself, and of two together
hpl       the HPL phase of hpcc on 2 ranks, observed over bare, in turn: Debian's hpcc with its Open MPI
          (apt-get install hpcc libopenmpi-dev), `all messages` with every send and receive recorded
"""

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.harness.launching import mpirun
from benchmarks.harness.results import parts_parser, run_parts
from benchmarks.harness.turns import ratio

HERE = Path(__file__).parent
DEBIAN = ("/usr/bin/mpirun.openmpi", "/usr/bin/mpicxx.openmpi")
DECK = Path("/usr/share/doc/hpcc/examples/_hpccinf.txt")
ORDER = 1000  # of HPL's matrix: about a second on 2 cores
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def calls_rows(options) -> list[dict]:
    """Microseconds that a small call takes longer."""
    launcher = mpirun()
    bin_directory = Path(launcher[0]).parent
    environment = os.environ | {"PATH": f"{bin_directory}{os.pathsep}{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/calls"
        compiler = shutil.which("mpicc", path=environment["PATH"])
        subprocess.run([compiler, "-O2", "-o", program, HERE / "small_calls.c"], check=True, env=environment)
        seconds = {"bare": [], "observed": []}
        for turn in range(options.rounds):
            for how in seconds:
                command = [program] if how == "bare" else [*_observed(Path(folder) / f"run-{turn}"), program]
                out = subprocess.run(
                    [*launcher, "-n", "2", *command],
                    check=True,
                    env=environment,
                    stdout=subprocess.PIPE,
                    text=True,
                ).stdout
                seconds[how].append([float(word) / 1000 for word in out.split()])
    rows = []
    for i, what in enumerate(("one rank", "two ranks")):
        more = [b[i] - a[i] for a, b in zip(seconds["bare"], seconds["observed"], strict=True)]
        figure = f"{statistics.median(more):.2f} us ({min(more):.2f} to {max(more):.2f})"
        rows.append(
            {
                "part": "calls",
                "what": f"all-reduce of {what}, observed - bare",
                "figure": figure,
                "raw": seconds,
            }
        )
    return rows


def hpl_rows(options) -> list[dict]:
    """The time of HPL, observed over bare."""
    if not (shutil.which("hpcc") and all(map(os.path.exists, (*DEBIAN, DECK)))):
        return [{"part": "hpl", "what": "hpcc", "figure": "not installed", "raw": []}]
    ways = {"bare": None, "observed": (), "all messages": ("--point-to-point",)}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(options.rounds):
        for way in list(ways)[:: -1 if turn % 2 else 1]:
            seconds[way].append(_hpl_seconds(ways[way]))
    return [
        {
            "part": "hpl", "what": f"{way} / bare", "raw": seconds[way] + seconds["bare"],
            "figure": ratio(seconds[way], seconds["bare"]),
        }
        for way in list(ways)[1:]
    ]  # fmt: skip


PARTS = {"calls": calls_rows, "hpl": hpl_rows}


def _hpl_seconds(options: tuple[str, ...] | None) -> float:
    """Seconds that HPL says it took, of one launch of hpcc."""
    deck = DECK.read_text().replace("1000         Ns", f"{ORDER}         Ns")
    deck = deck.replace("2            Ps", "1            Ps")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "hpccinf.txt").write_text(deck)
        command = (
            ["hpcc"] if options is None else [*_observed(Path(folder) / "run", DEBIAN[1], *options), "hpcc"]
        )
        environment = os.environ | ROOT | {"PYTHONPATH": str(HERE.parents[1])}
        subprocess.run(
            [DEBIAN[0], "-n", "2", *command], check=True, cwd=folder, env=environment, capture_output=True
        )
        lines = Path(folder, "hpccoutf.txt").read_text()
    result = re.search(r"^W[RC]\S+ +\d+ +\d+ +\d+ +\d+ +([\d.]+) ", lines, re.MULTILINE)
    assert result, lines[-2000:]
    return float(result[1])


def _observed(out: Path, compiler: str = "mpicxx", *options: str) -> list[str]:
    return [sys.executable, "-m", "fpna", "run", "--mpicxx", compiler, "--out", str(out), *options, "--"]


if __name__ == "__main__":
    run_parts("apps.observing", parts_parser("apps.observing", __doc__, PARTS, 7), PARTS, None)
