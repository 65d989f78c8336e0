"""Compares predictions of the time per step with later runs, and with the floor of such errors.

    python -m benchmarks.predict --json benchmarks/results/predict.json

| part | measurement |
|---|---|
| steps | every round: calibrate, run decks on one rank, predict, append to a ledger, run the targets; score all |
| shapes | products and convolutions of shapes without measurements |
| unseen | every round: run gpt and dlrm at batches and widths on one rank, predict others, run them |
| speed | 200 replays of 64 ranks with 1,000 waits per step |
| plans | drawn plans of six models on 1, 2 and 4 ranks, priced from kernels and messages, then run |
| plan-nodes | the same on 4 nodes of namespaces; as root, and only if it is named |
| ranking | the fastest of all recipes and meshes of 2 and 4 ranks by price, and by a run of each |
| shardings | the fastest sharding of DLRM's tables on 2 and 4 ranks by price, and by a run of each |
| growth | planning and pricing of 96 layers on 64 to 4,096 devices, s |
| published | Megatron-LM's published runs, priced from public rates of A100s |
| nodes | 64 ranks on 4 nodes of namespaces from a calibration on 8; as root, and only if it is named |

Before each round all cores spin for 50 ms. A round begins when each gets at least 95 % of a processor, or after
`--patience`; then it counts as busy. The error is exp(mean |ln(measured / median)|) - 1; its floor is the error between
two launches of one target. With a floor above 10 % an error is meaningless, and the verdict is "not testable". Models
are fitted on one rank alone.
"""

from __future__ import annotations

from benchmarks.harness.results import parts_parser, run_parts
from benchmarks.predict.growth import growth
from benchmarks.predict.nodes import nodes
from benchmarks.predict.plans import SPACES, plan_nodes, plans
from benchmarks.predict.published import published
from benchmarks.predict.ranking import ranking
from benchmarks.predict.shapes import shapes
from benchmarks.predict.shardings import shardings
from benchmarks.predict.speed import speed
from benchmarks.predict.steps import FAMILIES, steps
from benchmarks.predict.unseen import unseen

PARTS = {
    "steps": steps,
    "shapes": shapes,
    "unseen": unseen,
    "speed": speed,
    "plans": plans,
    "ranking": ranking,
    "shardings": shardings,
    "growth": growth,
    "published": published,
    "nodes": nodes,
    "plan-nodes": plan_nodes,
}
NAMED = ("nodes", "plan-nodes")  # parts that run only if they are named


def main(argv=None) -> None:
    """Measures the requested parts."""
    parser = parts_parser("predict", __doc__, PARTS, rounds=6)
    parser.add_argument(
        "--budget", type=float, default=8.0, help="seconds of a calibration (default %(default)s)"
    )
    parser.add_argument(
        "--patience", type=float, default=300.0, help="seconds to wait for quiet (default %(default)s)"
    )
    parser.add_argument(
        "--family",
        action="append",
        choices=[family.name for family in FAMILIES],
        help="family of the targets; can be repeated",
    )
    parser.add_argument(
        "--model",
        action="append",
        choices=list(SPACES),
        help="of `plans` and `ranking`; can be repeated (all)",
    )
    parser.add_argument(
        "--ranks",
        action="append",
        type=int,
        help="of `plans` (1, 2, 4), `ranking` and `shardings` (2, 4); can be repeated",
    )
    parser.add_argument(
        "--sizes",
        type=int,
        default=4,
        help="drawn sizes of each model in `ranking`, and of `shardings` (default %(default)s)",
    )
    parser.add_argument("--plans", type=int, default=40, help="drawn plans to price (default %(default)s)")
    parser.add_argument(
        "--programs", type=int, default=32, help="drawn plans to calibrate (default %(default)s)"
    )
    parser.set_defaults(parts=[name for name in PARTS if name not in NAMED])
    run_parts("predict", parser, PARTS, argv)


if __name__ == "__main__":
    main()
