"""Times the guarantees of conjugate gradients in the solver mini-app, and counts iterations with multigrid.

    python -m benchmarks.apps.solver                      # all parts
    python -m benchmarks.apps.solver guarantee --rounds 9 --json benchmarks/results/solver.json

guarantee    conjugate gradients on 4 ranks, 27 points, 64^3 points on each (deck M): ratio of the time per iteration
             under run, layout and exact to that under none, round by round; none sends one number per sum and rank
             through the library's all-reduce
multigrid    iterations to 1e-8 of conjugate gradients with multigrid from 32^3 to 128^3 points, both Poisson problems

`python -m benchmarks.kernels.spmv` times the product alone.
"""

from benchmarks.apps.guarantees import guarantee_costs
from benchmarks.harness.launching import launch
from benchmarks.harness.results import parts_parser, row, run_parts

APP = "miniapps.solver"
RANKS = 4
EDGES = (32, 64, 128)
PROBLEMS = ("poisson27", "poisson7")


def guarantee(options) -> list[dict]:
    """Cost of the guarantees relative to none."""
    common = ("--deck", "M", "--set", "record.every=0")

    def seconds(level):
        return launch(RANKS, APP, (*common, "--guarantee", level))["fom"]["iteration"]["value"]

    return guarantee_costs(seconds, options, ", time per iteration")


def multigrid(options) -> list[dict]:
    """Iterations, which do not vary from round to round."""
    rows = []
    for problem in PROBLEMS:
        for edge in EDGES:
            size = [f"--n{axis}={edge}" for axis in "zyx"]
            arguments = (
                "--problem",
                problem,
                "--preconditioner",
                "multigrid",
                "--guarantee",
                "layout",
                *size,
            )
            result = launch(RANKS, APP, (*arguments, "--set", "record.every=0"))
            iterations = int(result["fom"]["iterations"]["value"])
            what = f"{problem}, {edge}^3: iterations to 1e-8"
            rows.append(row("multigrid", what, iterations, [iterations]))
    return rows


PARTS = {"guarantee": guarantee, "multigrid": multigrid}


def main(argv=None) -> None:
    """Measures the requested parts."""
    run_parts("solver", parts_parser("apps.solver", __doc__, PARTS, rounds=7), PARTS, argv)


if __name__ == "__main__":
    main()
