"""Times unmodified programs under observation (`fpna run`).

    python -m benchmarks.apps.observing                     # all parts
    python -m benchmarks.apps.observing hpl --rounds 9 --json benchmarks/results/observing.json

calls     microseconds, observed minus bare, all messages recorded: an all-reduce of one float64 on one rank and on two,
          and a round trip of one float64
finding   the same, of calls that look for requests and messages: a test and a probe without success, and each of four
          calls: a receive and a send are posted, and two waits for any find them
hpl       the HPL phase of hpcc on 2 ranks, ratio of observed to bare, in turn: Debian's hpcc with its Open MPI
          (apt-get install hpcc libopenmpi-dev)
messages  the same, with a record of every send and receive

--than TREE also measures the recorder of another checkout, in turn with this one.
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
from benchmarks.harness.results import parts_parser, row, run_parts
from benchmarks.harness.turns import ratio

HERE = Path(__file__).parent
DEBIAN = ("/usr/bin/mpirun.openmpi", "/usr/bin/mpicxx.openmpi")
DECK = Path("/usr/share/doc/hpcc/examples/_hpccinf.txt")
ORDER = 7000  # of HPL's matrix: some 20 seconds on 2 cores, so that launches differ by little
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def calls_rows(options) -> list[dict]:
    """The additional microseconds of small calls."""
    whats = ("all-reduce of one rank", "all-reduce of two ranks", "there and back")
    return _small(options, "calls", HERE / "small_calls.c", whats, "--point-to-point")


def finding_rows(options) -> list[dict]:
    """The additional microseconds of calls that look for requests and messages."""
    whats = (
        "a test without success",
        "a probe without success",
        "a call that posts a request or waits for any",
    )
    return _small(options, "finding", HERE / "found_calls.c", whats)


def _small(options, part: str, source: Path, whats: tuple[str, ...], *how_observed: str) -> list[dict]:
    """The additional microseconds of the calls of a program that prints nanoseconds, in the order of `whats`."""
    launcher = mpirun()
    path = {"PATH": f"{Path(launcher[0]).parent}{os.pathsep}{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/calls"
        compiler = shutil.which("mpicc", path=path["PATH"])
        subprocess.run([compiler, "-O2", "-o", program, source], check=True, env=os.environ | path)
        trees = _trees(options)
        seconds: dict[str, list[list[float]]] = {"bare": [], **{f"observed{tree}": [] for tree in trees}}
        for turn in range(options.rounds + 1):  # the first one builds
            for how in list(seconds)[:: -1 if turn % 2 else 1]:
                tree = trees.get(how.removeprefix("observed"))
                out = Path(folder) / f"run-{turn}{how}"
                command = [program] if tree is None else [*_observed(out, "mpicxx", *how_observed), program]
                printed = subprocess.run(
                    [*launcher, "-n", "2", *command], check=True, stdout=subprocess.PIPE, text=True, cwd=folder,
                    env=os.environ | path | ({"PYTHONPATH": str(tree)} if tree else {}),
                ).stdout  # fmt: skip
                if turn:
                    seconds[how].append([float(word) / 1000 for word in printed.split()])
    rows = []
    differences = [(f"observed{tree}", "bare") for tree in trees]
    differences += [("observed", f"observed{tree}") for tree in trees if tree]
    for i, what in enumerate(whats):
        for one, other in differences:
            more = [b[i] - a[i] for a, b in zip(seconds[other], seconds[one], strict=True)]
            figure = f"{statistics.median(more):.2f} us ({min(more):.2f} to {max(more):.2f})"
            rows.append(row(part, f"{what}, {one} - {other}", figure, seconds))
    return rows


def hpl_rows(options) -> list[dict]:
    """The time of HPL, observed over bare."""
    return _hpl(options, "observed")


def messages_rows(options) -> list[dict]:
    """The time of HPL with a record of all messages, over bare."""
    return _hpl(options, "all messages", "--point-to-point")


def _hpl(options, how: str, *how_observed: str) -> list[dict]:
    if not (shutil.which("hpcc") and all(map(os.path.exists, (*DEBIAN, DECK)))):
        return [row("hpl", "hpcc", "not installed")]
    trees = _trees(options)
    ways: dict[str, tuple[Path, tuple[str, ...]] | None] = {"bare": None}
    for tree, place in trees.items():
        ways[f"{how}{tree}"] = place, how_observed
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(options.rounds + 1):  # the first one builds
        for way in list(ways)[:: -1 if turn % 2 else 1]:
            took = _hpl_seconds(ways[way])
            if turn:
                seconds[way].append(took)
    pairs = [(way, "bare") for way in list(ways)[1:]]
    pairs += [(how, f"{how}{tree}") for tree in trees if tree]
    return [
        {
            "part": "hpl", "what": f"{one} / {other}", "raw": seconds[one] + seconds[other],
            "figure": ratio(seconds[one], seconds[other]),
        }
        for one, other in pairs
    ]  # fmt: skip


def _trees(options) -> dict[str, Path]:
    """The checkouts whose recorders are measured, by their suffix in row names."""
    here = {"": HERE.parents[1]}
    return here | ({f" by {options.than.name}": options.than.resolve()} if options.than else {})


PARTS = {"calls": calls_rows, "finding": finding_rows, "hpl": hpl_rows, "messages": messages_rows}


def _hpl_seconds(way: tuple[Path, tuple[str, ...]] | None) -> float:
    """The seconds that HPL reports for one launch of hpcc, observed by a checkout with options, or bare."""
    deck = DECK.read_text().replace("1000         Ns", f"{ORDER}         Ns")
    deck = deck.replace("2            Ps", "1            Ps")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "hpccinf.txt").write_text(deck)
        command = ["hpcc"] if way is None else [*_observed(Path(folder) / "run", DEBIAN[1], *way[1]), "hpcc"]
        environment = os.environ | ROOT | ({"PYTHONPATH": str(way[0])} if way else {})
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
    command_line = parts_parser("apps.observing", __doc__, PARTS, 7)
    command_line.add_argument(
        "--than", type=Path, metavar="TREE", help="another checkout, built, to compare with"
    )
    run_parts("apps.observing", command_line, PARTS, None)
