"""The audit of all operations of torch: how many cases of each a change alters, and what it costs.

    python -m benchmarks.apps.operations --json benchmarks/results/operations.json

Two ranks audit deck M. A row is an operation and a direction: its cases, and of how many of them each change alters the
bits (`differ/tried`; empty: the change does not apply). `statements` are those of torch's documentation, each with its
verdict. `mode` is the time in torch's deterministic mode over that without, two threads, of the cases that differ
between runs and that the mode repairs. `CPU s` counts both ranks and the processes that audit for them.
"""

import argparse
import resource
import statistics
from pathlib import Path

from analysis.load.frames import load
from analysis.studies.audits.certificates import CHANGES, audits
from analysis.studies.audits.tables import known_of
from benchmarks.harness.launching import launch
from benchmarks.harness.results import add_quiet, machine, report, save

RANKS = 2


def look(run: Path) -> dict:
    """What the certificate of `run` says: `rows`, `statements`, `mode` and the pools of `threads` that were varied."""
    known = audits(load([run]))
    (certificate,) = known.certificates.values()
    rows = []
    for (operation, direction), same in known_of(known).sensitivity.groupby(
        ["operation", "direction"], sort=False
    ):
        by = same.set_index("change")
        cells = {
            change: f"{by['differ'][change]}/{by['cases'][change]}" if change in by.index else ""
            for change in CHANGES
        }
        cases = int(by["cases"].max())
        rows.append({"operation": operation, "direction": direction, "cases": cases, **cells})
    repaired = known.cases[known.cases["mode"] == "helps"]
    ratios = repaired["seconds_in_mode"] / repaired["seconds"]
    return {
        "rows": rows,
        "statements": known.stated.drop(columns="run").to_dict("records"),
        "mode": {
            "median": statistics.median(ratios),
            "min": min(ratios),
            "max": max(ratios),
            "n": len(ratios),
        },
        "threads": sorted({pool for case in certificate.cases if case.audit for pool in case.audit.pools}),
    }


def main(argv=None) -> None:
    """Audit a deck and report."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.apps.operations",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--deck", default="M", help="deck of cases (default %(default)s)")
    parser.add_argument("--json", help="write the figures to this file")
    add_quiet(parser)
    options = parser.parse_args(argv)
    where, before = machine(), resource.getrusage(resource.RUSAGE_CHILDREN)
    seen = launch(RANKS, "miniapps.operations", ["--deck", options.deck], look=look)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    whole = {name: figure["value"] for name, figure in seen["fom"].items()}
    report("operations", seen["rows"], where, None)
    if options.json:
        content = {
            "title": "operations", "machine": where, "figures": whole | {"wall s": seen["launch_s"], "CPU s": cpu},
            "threads": seen["threads"], "mode": seen["mode"], "rows": seen["rows"], "statements": seen["statements"],
        }  # fmt: skip
        save(content, options.json)


if __name__ == "__main__":
    main()
