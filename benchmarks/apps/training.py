"""Times the training mini-app: guarantees, overlap on slow links, and fields of a graph gathered ahead.

    python -m benchmarks.apps.training --data-dir DIR --json benchmarks/results/training.json

guarantee   decks S and M on 2 ranks: ratio of the time per step under run, layout and exact to that under none, round
            by round; none is the usual fast method: one network call per rank, the library's all-reduce
overlap     deck M on 2 ranks, one micro-batch each, over emulated links: ratio of the time per step to the larger of
            computing (no emulated links) and communicating (the time that the links add without overlap)
ahead       graphsage on Cora with 25 and 10 sampled neighbours, on one rank, whose second core a thread can use: ratio
            of the time per step with the fields of the next 1, 2 and 4 micro-batches gathered ahead to that without
"""

from benchmarks.apps.guarantees import guarantee_costs
from benchmarks.harness.launching import launch
from benchmarks.harness.results import parts_parser, row, run_parts
from benchmarks.harness.turns import in_turn, ratio

APP = "miniapps.training"
NETWORKS = {"S": "mlp", "M": "cnn"}
DEPTHS = (1, 2, 4)


def seconds_per_step(ranks: int, options, *more) -> float:
    """Seconds per step from the FOM `steps` of one run, which leaves out start-up and evaluation."""
    common = (
        "--data",
        "fashion",
        "--until",
        str(options.steps),
        "--evaluate-every",
        "0",
        "--data-dir",
        options.data_dir,
    )
    return 1.0 / launch(ranks, APP, (*common, *more))["fom"]["steps"]["value"]


def guarantee(options) -> list[dict]:
    """Cost of the guarantees relative to none."""
    return [
        row
        for deck, network in NETWORKS.items()
        for row in guarantee_costs(
            lambda level, deck=deck: seconds_per_step(2, options, "--deck", deck, "--guarantee", level),
            options,
            f", {network}",
        )
    ]


def overlap(options) -> list[dict]:
    """Times with and without overlap, and their ratios to the larger of computing and communicating."""
    common = ("--deck", "M", "--guarantee", "layout", "--set", "training.micro=128", "--set",
              f"training.bucket={options.bucket}")  # fmt: skip
    links = ("--links", options.links)
    ways = {
        "computing": (*common, "--no-overlap"),
        "one after the other": (*common, *links, "--no-overlap"),
        "overlapped": (*common, *links),
    }
    times = in_turn(
        {name: lambda way=way: seconds_per_step(2, options, *way) for name, way in ways.items()},
        options.rounds,
        options.quiet,
    )
    apart = zip(times["computing"], times["one after the other"], strict=True)
    larger = [max(computing, both - computing) for computing, both in apart]
    named = (
        (f"{name}, s", {"figure": sorted(raw)[len(raw) // 2], "raw": raw}) for name, raw in times.items()
    )
    rows = [{"part": "overlap", "what": what} | row for what, row in named]
    for name in ("one after the other", "overlapped"):
        what = f"{name} / max(computing, communicating), {options.links}"
        rows.append(row("overlap", what, ratio(times[name], larger), times[name]))
    return rows


def ahead(options) -> list[dict]:
    """Times per step with fields gathered ahead, over those without."""
    graph = ("--deck", "graphsage", "--guarantee", "layout", "--set", "training.micro=10",
             "--set", "model.neighbours=25", "--set", "model.second_neighbours=10", "--steps", str(options.steps),
             "--evaluate-every", "0")  # fmt: skip
    times = in_turn(
        {
            depth: lambda depth=depth: (
                1.0 / launch(1, APP, (*graph, "--set", f"training.depth={depth}"))["fom"]["steps"]["value"]
            )
            for depth in (0, *DEPTHS)
        },
        options.rounds,
        options.quiet,
    )
    rows = [row("ahead", "none ahead, s", sorted(times[0])[len(times[0]) // 2], times[0])]
    for depth in DEPTHS:
        what = f"{depth} ahead / none"
        rows.append(row("ahead", what, ratio(times[depth], times[0]), times[depth]))
    return rows


PARTS = {"guarantee": guarantee, "overlap": overlap, "ahead": ahead}


def main(argv=None) -> None:
    """Measures the requested parts."""
    parser = parts_parser("apps.training", __doc__, PARTS, rounds=5)
    parser.add_argument("--steps", type=int, default=40, help="steps per run (default %(default)s)")
    parser.add_argument(
        "--data-dir", default="", help="directory of Fashion-MNIST, where it is not installed"
    )
    parser.add_argument("--bucket", type=int, default=2**16, help="bytes of a bucket (default %(default)s)")
    parser.add_argument(
        "--links", default="rate=4e6,latency=50e-6", help="links of the part overlap (default %(default)s)"
    )
    run_parts("training", parser, PARTS, argv)


if __name__ == "__main__":
    main()
