"""Predictions of the time per step against runs that come after them, and against their floor.

    python -m benchmarks.predict --json benchmarks/results/predict.json

| part | what |
|---|---|
| steps | every round: calibrate, run decks on one rank, predict, append to a ledger, run the targets; score them all |
| shapes | products and convolutions of shapes that were not measured |
| unseen | every round: run gpt and dlrm at batches and widths on one rank, predict others, run them |
| speed | 200 replays of 64 ranks with 1,000 waits per step |
| nodes | 64 ranks on 4 nodes of namespaces from a calibration on 8; as root, and only where it is named |

Before each round all cores spin for 50 ms; a round begins when they got 95 % of them, or after `--patience`, and is
then marked as busy. The error is exp(mean |ln(measured / median)|) - 1; its floor is what two launches of one target
have. Without a floor of 10 % or less an error means nothing, and the verdict is "not testable". Models are fitted on
one rank alone.
"""

from __future__ import annotations

from benchmarks.harness.results import parts_parser, run_parts
from benchmarks.predict.nodes import nodes
from benchmarks.predict.shapes import shapes
from benchmarks.predict.speed import speed
from benchmarks.predict.steps import FAMILIES, steps
from benchmarks.predict.unseen import unseen

PARTS = {"steps": steps, "shapes": shapes, "unseen": unseen, "speed": speed, "nodes": nodes}
NAMED = ("nodes",)  # run where they are named alone


def main(argv=None) -> None:
    """Measure the parts asked for."""
    parser = parts_parser("predict", __doc__, PARTS, rounds=6)
    parser.add_argument(
        "--budget", type=float, default=8.0, help="seconds of a calibration (default %(default)s)"
    )
    parser.add_argument(
        "--patience", type=float, default=300.0, help="seconds to wait for quiet (default %(default)s)"
    )
    parser.add_argument(
        "--family", action="append", choices=[family.name for family in FAMILIES], help="of the targets"
    )
    parser.set_defaults(parts=[name for name in PARTS if name not in NAMED])
    run_parts("predict", parser, PARTS, argv)


if __name__ == "__main__":
    main()
