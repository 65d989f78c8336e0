"""Seconds of the library's sums and of their peers, in turn: a plain loop with MPI_Allreduce, ReproBLAS, integers.

    python -m benchmarks.library local --json benchmarks/results/library-2-cores-DATE.json
    python -m benchmarks.library --reproblas DIRECTORY_OF_ITS_SOURCES

`local`: without the message between ranks. `whole`: whole calls, over ranks. `drawn`: how many of 200,000 drawn calls
have other bits than Python's. Ratios are of rounds, each to its peer in the same round. ReproBLAS is compiled
beforehand (`make update && make`); without it its rows are left out.
"""

import json
import shutil
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from benchmarks.harness.launching import mpirun, output_of
from benchmarks.harness.results import parts_parser, run_parts
from benchmarks.harness.turns import ratio
from miniapps.programs.building import mpi_compiler
from miniapps.programs.library import build

SOURCE = Path(__file__).parent / "sums.cpp"
CALLS = Path(__file__).parents[2] / "tests" / "mpi" / "programs" / "library_drawn.py"
DRAWN = {1: 40000, 2: 25000, 3: 15000, 4: 15000, 8: 5000}  # calls by ranks
NAMES = ("run", "layout", "exact", "integer vectors", "ReproBLAS")


def local(options) -> list[dict]:
    """One rank, no message: in the cache and out of it, numbers of like size and over 58 binades."""
    cases = [
        (n, fields, binades)
        for binades in (2, 58)
        for n, fields in ((10**5, 1), (10**7, 1), (10**5, 8), (10**5, 64))
    ]
    return [row for case in cases for row in measured(options, 1, *case, local=True)]


def whole(options) -> list[dict]:
    """Whole calls on 1, 2, 4 and 8 ranks."""
    cases = [(ranks, n, 1, 2) for ranks in (1, 2, 4, 8) for n in (10**3, 10**5)]
    cases += [(2, 10**5, fields, 2) for fields in (8, 64)] + [(2, 10**6, 1, 2), (2, 10**5, 1, 58)]
    return [row for case in cases for row in measured(options, *case, local=False)]


def measured(options, ranks: int, n: int, fields: int, binades: int, local: bool) -> list[dict]:
    """The rows of one case: every sum beside the plain loop and beside ReproBLAS."""
    program = built(options.reproblas)
    words = [n, fields, binades, options.rounds, int(local)]
    printed = output_of([*mpirun(), "-n", str(ranks), str(program), *map(str, words)])
    seconds = defaultdict(list)
    for line in printed.splitlines():
        name, value = line.split("\t")
        seconds[name].append(float(value))
    rows = []
    for name in NAMES:
        if name not in seconds:
            continue
        row = {"ranks": ranks, "numbers": n, "fields": fields, "binades": binades, "sum": name}
        row["plain, us"] = 1e6 * sorted(seconds["plain"])[len(seconds["plain"]) // 2]
        row["of plain"] = ratio(seconds[name], seconds["plain"])
        beside = seconds.get("ReproBLAS")
        row["of ReproBLAS"] = ratio(seconds[name], beside) if beside else "not measured"
        rows.append(row | {"raw": seconds[name]})
    if not options.quiet:
        print(f"{ranks} ranks, {n} numbers, {fields} fields, {binades} binades", file=sys.stderr)
    return rows


def drawn(options) -> list[dict]:
    """10^5 drawn calls for each of two seeds, beside Python: not a time but a proof."""
    return [compared(options, seed, *case) for seed in (1, 2) for case in DRAWN.items()]


def compared(options, seed: int, ranks: int, cases: int) -> dict:
    """The row of some drawn calls."""
    words = [build().prefix / "lib" / "libfpna.so", "--cases", max(cases // options.part, 1), "--seed", seed]
    command = [*mpirun(), "-n", str(ranks), sys.executable, str(CALLS), *map(str, words)]
    found = json.loads(output_of(command))
    if not options.quiet:
        print(
            "\n".join([f"{ranks} ranks, seed {seed}: {found['failed']} failed", *found["failures"]]),
            file=sys.stderr,
        )
    return {key: found[key] for key in ("ranks", "cases", "seed", "failed", "seconds")}


_built: dict[str, Path] = {}


def built(reproblas: str | None) -> Path:
    """The program, compiled with the library, and with ReproBLAS if its directory is given."""
    key = reproblas or ""
    if key not in _built:
        library = build()
        folder = Path(tempfile.mkdtemp(prefix="fpna-benchmark-"))
        command = [
            mpi_compiler(None),
            "-std=c++17",
            "-O3",
            "-march=native",
            "-o",
            str(folder / "sums"),
            str(SOURCE),
        ]
        command += library.cflags
        if reproblas:
            objects = sorted(str(path) for path in Path(reproblas).rglob("libbinned*.a"))
            if not objects:
                raise SystemExit(
                    f"--reproblas {reproblas}: it has no libbinned*.a; compile it: make update && make"
                )
            objects.sort(key=lambda path: "binnedblas" not in path.lower())  # before the library that it uses
            command += ["-DREPROBLAS", f"-I{reproblas}/include", *objects]
        output_of([*command, *library.libs, "-lm"])
        _built[key] = folder / "sums"
    return _built[key]


PARTS = {"local": local, "whole": whole, "drawn": drawn}


def main(argv=None) -> int:
    """Measure, print and write."""
    parser = parts_parser("library", __doc__, PARTS, rounds=9)
    parser.add_argument("--reproblas", metavar="DIR", help="the directory in which ReproBLAS was compiled")
    parser.add_argument(
        "--part", type=int, default=1, help="draw only the N-th part of the calls", metavar="N"
    )
    try:
        run_parts("library", parser, PARTS, argv)
    finally:
        for program in _built.values():
            shutil.rmtree(program.parent, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
