"""Times what `--processor any` costs: processor time per step on one rank, beside `this` and beside no guarantee.

    python -m benchmarks.apps.any_processor --rounds 7 --json benchmarks/results/any-processor.json

A round runs each case under layout with `any` and with `this`, and under none, where torch computes whole batches, in
turn. A row has the ratios round by round. `load`: of the machine when the case began.
"""

from __future__ import annotations

import os
from functools import partial
from statistics import median

from benchmarks.apps.guarantees import processor_time
from benchmarks.harness.launching import launch
from benchmarks.harness.results import parts_parser, run_parts
from benchmarks.harness.turns import in_turn, ratio

CHOICES = {"any": ("layout", "any"), "this": ("layout", "this"), "none": ("none", "this")}
_IMAGES = ("--evaluate-every", "0", "--data", "digits", "--until")
_GPT = ("--model", "gpt", "--evaluate-every", "0")
# {name: (application, arguments, where the number of steps follows)}
CASES = {
    "coupled, online": ("coupled", ("--steps",), 20),
    "coupled, surrogate": ("coupled", ("--closure", "surrogate", "--steps"), 20),
    "solver, cg with multigrid": (
        "solver",
        ("--preconditioner", "multigrid", "--tolerance", "0", "--until"),
        20,
    ),
    "training, MLP": ("training", _IMAGES, 60),
    "training, CNN": ("training", ("--model", "cnn", *_IMAGES), 40),
    "mesh, gpt of width 64": ("mesh", (*_GPT, "--set", "model.hidden=64", "--steps"), 10),
    "mesh, gpt of width 256": ("mesh", (*_GPT, "--set", "model.hidden=256", "--steps"), 3),
}


def milliseconds(case: str, choice: str) -> float:
    """Milliseconds of processor time per step of a run of CASES on one rank."""
    app, arguments, steps = CASES[case]
    guarantee, processor = CHOICES[choice]
    given = (*arguments, str(steps), "--guarantee", guarantee, "--processor", processor)
    return 1e3 * launch(1, f"miniapps.{app}", given, look=processor_time)["cpu_s"] / steps


def compared(options) -> list[dict]:
    """A row for each case."""
    rows = []
    for case in (case for case in CASES if options.case in case):
        load = os.getloadavg()[0]
        runs = {choice: partial(milliseconds, case, choice) for choice in CHOICES}
        times = in_turn(runs, options.rounds, options.quiet, case)
        row = {"part": "steps", "case": case} | {
            f"any / {other}": ratio(times["any"], times[other]) for other in ("this", "none")
        }
        row |= {f"{choice}, ms": median(found) for choice, found in times.items()}
        rows.append(row | {"load": load, "raw": times})
    return rows


PARTS = {"steps": compared}


def main(argv=None) -> None:
    """Measures the cases."""
    parser = parts_parser("apps.any_processor", __doc__, PARTS, rounds=7)
    parser.add_argument("--case", default="", help="only cases with this text in their name")
    run_parts("any processor", parser, PARTS, argv)


if __name__ == "__main__":
    main()
