"""Audits all operations of torch: counts the cases of each that a change alters, and the time of the audit.

    python -m benchmarks.apps.operations --json benchmarks/results/operations.json
    python -m benchmarks.apps.operations --axes cpu --json benchmarks/results/operations-cpu.json

Two ranks audit deck M. A row has an operation and a direction, the number of its cases, and for each change the number
of cases whose bits it alters (`differ/tried`; empty: the change does not apply). `statements` are those of torch's
documentation with their verdicts. `mode` is the ratio of the times with and without torch's deterministic mode, with
two threads, for the cases that differ between runs and that the mode repairs. `CPU s` counts both ranks and their audit
processes. With `--axes cpu` a row of `layers` has an operation, a direction, and the number of cases whose bits a
library's code for another processor alters.
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
    """The contents of the certificate of `run`: `rows`, `statements`, `mode` and the varied pools of `threads`."""
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
        "layers": known_of(known).processors.to_dict("records"),
        "threads": sorted({pool for case in certificate.cases if case.audit for pool in case.audit.pools}),
    }


def main(argv=None) -> None:
    """Audits a deck and reports."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.apps.operations",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--deck", default="M", help="deck of cases (default %(default)s)")
    parser.add_argument("--axes", choices=["cpu"], help="a further condition to vary")
    parser.add_argument("--json", help="write the figures to this file")
    add_quiet(parser)
    options = parser.parse_args(argv)
    where, before = machine(), resource.getrusage(resource.RUSAGE_CHILDREN)
    axes = ["--axes", options.axes] if options.axes else []
    seen = launch(RANKS, "miniapps.operations", ["--deck", options.deck, *axes], look=look)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    whole = {name: figure["value"] for name, figure in seen["fom"].items()}
    report("operations", seen["rows"], where, None)
    if options.json:
        content = {
            "title": "operations", "machine": where, "figures": whole | {"wall s": seen["launch_s"], "CPU s": cpu},
            "threads": seen["threads"], "mode": seen["mode"], "rows": seen["rows"], "statements": seen["statements"],
        }  # fmt: skip
        if options.axes:
            content["layers"] = seen["layers"]
        save(content, options.json)


if __name__ == "__main__":
    main()
