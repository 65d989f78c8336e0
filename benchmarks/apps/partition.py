"""Times training by a plan: guarantees, one rank against eager torch, utilisation, messages.

    python -m benchmarks.apps.partition model utilisation --json benchmarks/results/partition.json

bytes        bytes between nodes in a step, by recipe, beside those that `explain` counts (root only): each recipe runs
             on a cluster of four network namespaces (docs/how-to/cluster.md) with one rank per node, under `layout`, so
             all messages cross between nodes. The kernel counts the bytes that leave each interface; packet headers and
             the bytes of two readings of the counters are subtracted. The bytes of planned messages (reshards, halos)
             stand beside those of `explain`. Exit code 3 if the kernel's count differs by over 5 % from `explain`
model        each model on one and two ranks along batch: ratio of the time per step under layout to that under none; on
             one rank ratio of none to eager torch; processor time, variants in turn; all-reduces, and bytes that a rank
             sends per step
overlap      (root only) GPT, data and tensor parallel, and U-Net, data parallel, on network namespaces (--nodes) of one
             rank each, by rate of their links and guarantee: seconds of a step by the messages that begin early
             (--overlap), of its computation alone, of its messages alone; the ratio of the step to the larger of these
             two, and to the shortest that the order of messages and work allows if messages need no processor; and of
             layout to none, by the clock, variants in turn. The target is 1.15 for the best level. The namespaces
             share the cores of this machine: on fewer cores than nodes computation and messages take turns, and no
             ratio says what machines do
pipeline     GPT of four layers as a pipeline of as many ranks, by schedule, the variants in turn: ratio of the time of
             a step under layout to that under none, by the clock; the part of the time in which ranks wait for other
             stages, measured, and predicted from model FLOPs and from the seconds of each rank's step without the
             others
ring         GPT with causal attention whose tokens the ranks divide: seconds of a step by the clock, the variants in
             turn, with all keys and values gathered, and block by block with neighbouring tokens on a rank (contiguous)
             or early and late ones (zigzag); contiguous over zigzag, layout over none
utilisation  of each model and of GPT with width 512, by the clock and by processor time, and of eager torch on one
             rank: model FLOPs (miniapps.partition.graphs.flops) / (time x ranks x rate of a core); the rate is that of
             the faster product at 512^3, of this suite or of torch, in the same run; forward and backward, without the
             optimiser

Each case is one launch of `mpirun -n RANKS python -m benchmarks.apps.partition_steps`. A step that something else on
the cores disturbed (`miniapps.system.quantum`) is run again, up to 8 times; `undisturbed` is the share of steps that
in the end were not.
"""

import json
import statistics
import sys

from benchmarks.harness.launching import LIBRARIES, LIMIT_S, mpirun, on_nodes, output_of
from benchmarks.harness.results import parts_parser, run_parts
from benchmarks.harness.turns import ratio
from jobs.cluster import Cluster, cluster
from jobs.cluster.errors import ClusterError
from miniapps.partition.models import model as model_of

STEPS = (sys.executable, "-m", "benchmarks.apps.partition_steps")
# Sizes of the decks for which kernels, not Python, take most of the time.
DECKS = {
    "mlp": "samples=256,batch=8,features=784,width=512",
    "gpt": "samples=8,batch=4,tokens=64,width=256,feedforward=1024,vocabulary=512",
    "unet": "samples=4,batch=4,height=64,width=64,filters=16",
}
# For the utilisation: 8 heads of 64, and a number of tokens that suits torch's kernels.
WIDE = "samples=8,batch=4,tokens=128,width=512,heads=8,feedforward=2048,vocabulary=512"
# For the pipeline: a block of two samples in each micro-batch.
PIPELINE = "samples=16,micro_batches=8,batch=1,layers=4,tokens=64,width=256,feedforward=1024,vocabulary=512"
# For the ring: long samples, so that attention is much of the work.
RING = (
    "samples=4,batch=1,layers=2,tokens=1024,token_blocks=8,width=128,heads=2,feedforward=512,vocabulary=256"
)
# For the bytes: {recipe: (model, sizes, mesh)}.
GPT = "samples=8,batch=8,tokens=32,width=64,feedforward=256"
STAGED = "samples=8,batch=2,micro_batches=4,layers=4,tokens=32,width=64,feedforward=256"
CASES = {
    "dp": ("gpt", GPT, "data=4"),
    "tp": ("gpt", GPT, "model=4"),
    "dp+tp": ("gpt", GPT, "data=2,model=2"),
    "zero": ("gpt", GPT, "data=4"),
    "sp": ("gpt", GPT, "sequence=4"),
    "dp+sp": ("gpt", GPT, "data=2,sequence=2"),
    "tp+sp": ("gpt", GPT, "model=2,sequence=2"),
    "tp+norms": ("gpt", GPT, "model=4"),
    "dp+tp+norms": ("gpt", GPT, "data=2,model=2"),
    "tp+vocabulary": ("gpt", GPT, "model=4"),
    "dp+tp+vocabulary": ("gpt", GPT, "data=2,model=2"),
    "pp": ("gpt", STAGED, "stage=4"),
    "dp+pp": ("gpt", STAGED, "data=2,stage=2"),
    "tp+pp": ("gpt", STAGED, "model=2,stage=2"),
    "dp+tp+pp": ("gpt", STAGED, "data=1,model=2,stage=2"),
    "tp+norms+pp": ("gpt", STAGED, "model=2,stage=2"),
    "dp+tp+norms+pp": ("gpt", STAGED, "data=1,model=2,stage=2"),
    "spatial": ("unet", "height=48,width=32,filters=8", "rows=2,columns=2"),
    "expert": ("moe", "tokens=64,width=64,hidden=128,capacity=32", "data=4"),
}
NODES = 4  # of the bytes
LINKS = ("100mbit", "1gbit")  # for the overlap
COMPUTING, COMMUNICATING = "computing alone", "communicating alone"
# For the overlap: {what: (model, sizes, carriers, axis of the mesh)}. The second GPT of each recipe works for longer
# than its messages take at 1 Gbit/s.
OVERLAPPED = {
    "gpt, dp": ("gpt", DECKS["gpt"], "batch=data", "data"),
    "gpt, 64 samples, dp": ("gpt", DECKS["gpt"].replace("samples=8", "samples=64"), "batch=data", "data"),
    "gpt, tp": ("gpt", DECKS["gpt"], "heads=model,ff=model", "model"),
    "gpt, width 512, tp": ("gpt", WIDE, "heads=model,ff=model", "model"),
    "unet, dp": ("unet", DECKS["unet"], "batch=data", "data"),
}
LIMIT = 0.05  # of the bytes that `explain` counts
TIMEOUT_S = 400.0
REDUCED = ("all-reduce", "reduce-scatter")


def steps(name: str, ranks: int, options, sizes: str = "") -> dict:
    """The measurements of one launch; `sizes` are those of the deck by default."""
    words = [
        "times",
        name,
        sizes or DECKS[name],
        "batch=data",
        f"data={ranks}",
        str(options.rounds),
        "--quiet",
    ]
    command = [*mpirun(), "-n", str(ranks), *STEPS, *words]
    return json.loads(output_of(command).splitlines()[-1])


def model(options) -> list[dict]:
    """A row per model, ranks and figure."""
    rows = []
    for name in options.models.split(","):
        for ranks in options.ranks:
            found = steps(name, ranks, options)
            seconds = found["seconds"]
            what = f"{name}, {ranks} rank{'s' if ranks > 1 else ''}"

            def row(figure, value, raw=(), what=what):
                rows.append({"what": what, "figure": figure, "value": value, "raw": list(raw)})

            row("layout / none", ratio(seconds["layout"], seconds["none"]), seconds["layout"])
            if "eager" in seconds:
                row("none / eager torch", ratio(seconds["none"], seconds["eager"]), seconds["none"])
            for level in ("none", "layout"):
                median = statistics.median(found["wall"][level])
                row(f"{level}, s per step", median, found["wall"][level])
                row(f"{level}, utilisation", found["flops"] / (median * ranks * max(found["rates"].values())))
            row("undisturbed", min(found["undisturbed"].values()))
            row("all-reduces per step", found["allreduces"])
            row("bytes per step, of a rank", found["nbytes"])
    return rows


def pipeline(options) -> list[dict]:
    """A row per number of ranks, schedule and figure."""
    rows = []
    for ranks in options.ranks:
        words = [
            "waits",
            "gpt",
            PIPELINE,
            "batch=data,stage=stage",
            f"stage={ranks}",
            str(options.rounds),
            "--quiet",
        ]
        found = json.loads(output_of([*mpirun(), "-n", str(ranks), *STEPS, *words]).splitlines()[-1])
        for schedule, predicted in found["predicted"].items():
            what = f"gpt, {ranks} rank{'s' if ranks > 1 else ''}, {schedule}"
            layout, none = (found["wall"][f"{level}, {schedule}"] for level in ("layout", "none"))
            rows.append(
                {"what": what, "figure": "layout / none", "value": ratio(layout, none), "raw": layout}
            )
            rows.append({"what": what, "figure": "waits, predicted", "value": predicted})
            for level in ("none", "layout"):
                by_seconds = found["by_seconds"][f"{level}, {schedule}"]
                rows.append({"what": what, "figure": f"{level}, waits by seconds", "value": by_seconds})
                wall, waits, free = (
                    found[kind][f"{level}, {schedule}"] for kind in ("wall", "waits", "undisturbed")
                )
                for figure, values in (("s per step", wall), ("waits", waits)):
                    rows.append(
                        {
                            "what": what,
                            "figure": f"{level}, {figure}",
                            "value": spread(values),
                            "undisturbed": free,
                            "raw": values,
                        }
                    )
    return rows


def ring(options) -> list[dict]:
    """A row per number of ranks, guarantee and figure."""
    rows = []
    for ranks in (each for each in options.ranks if each > 1):
        words = ["ring", "gpt", RING, "tokens=sequence", f"sequence={ranks}", str(options.rounds), "--quiet"]
        found = json.loads(output_of([*mpirun(), "-n", str(ranks), *STEPS, *words]).splitlines()[-1])
        wall, free = found["wall"], min(found["undisturbed"].values())

        def row(how, figure, value, raw=(), ranks=ranks, free=free):
            rows.append({"what": f"gpt, {ranks} ranks, {how}", "figure": figure, "value": value,
                         "undisturbed": free, "raw": list(raw)})  # fmt: skip

        for way, seconds in wall.items():
            level, _, how = way.partition(", ")
            row(how, f"{level}, s per step", spread(seconds), seconds)
            if level == "none":
                row(how, "layout / none", ratio(wall[f"layout, {how}"], seconds))
        for level in ("none", "layout"):
            both = (wall[f"{level}, ring, {how}"] for how in ("contiguous", "zigzag"))
            row("ring", f"{level}, contiguous / zigzag", ratio(*both))
    return rows


def spread(values) -> dict:
    """The median of `values`, with the least and the most."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "n": len(values)}


def utilisation(options) -> list[dict]:
    """A row per model, number of ranks and variant, by the clock and by processor time; and the rates of a core."""
    rows = []
    cases = [(name, name, DECKS[name]) for name in options.models.split(",")] + [
        ("gpt of width 512", "gpt", WIDE)
    ]
    for case, name, sizes in cases:
        for ranks in options.ranks:
            found = steps(name, ranks, options, sizes)
            rate = max(found["rates"].values())
            where = f"{case}, {ranks} rank{'s' if ranks > 1 else ''}"
            for way, wall in found["wall"].items():
                for clock, seconds in (("clock", wall), ("processor time", found["seconds"][way])):
                    used = [found["flops"] / (one * ranks * rate) for one in seconds]
                    figure = f"utilisation by {clock}"
                    rows.append(
                        {"what": f"{where}, {way}", "figure": figure, "value": spread(used), "raw": used}
                    )
            for variant, own in found["rates"].items():
                rows.append({"what": where, "figure": f"GFLOP/s of a core, {variant}", "value": own / 1e9})
    return rows


def crossing(options) -> list[dict]:
    """A row per recipe: bytes of a step over all ranks."""
    try:
        with cluster(nodes=NODES) as nodes:
            return [crossed(nodes, recipe, options.steps, options.mpi) for recipe in options.recipes]
    except ClusterError as error:
        print(f"python -m benchmarks.apps.partition bytes: {error}", file=sys.stderr)
        sys.exit(2)


def crossed(nodes: Cluster, recipe: str, count: int, mpi: str = "mpich") -> dict:
    """The row of one recipe, over `count` steps."""
    name, sizes, mesh = CASES[recipe]
    carriers = ",".join(f"{axis}={by}" for axis, by in model_of(name).RECIPES[recipe].items())
    words = [*STEPS, "bytes", name, sizes, carriers, mesh, str(count), "--quiet"]
    found = json.loads(on_nodes(nodes, words, NODES, 1, mpi, TIMEOUT_S).splitlines()[-1])
    total, explained = sum(found["crossed"]), found["explained"]
    return {
        "what": f"{recipe}: {name} over {mesh}, {mpi}",
        "figure": "bytes crossed / explained",
        "value": total / explained,
        "met": "yes" if abs(total / explained - 1) <= LIMIT else "no",
        "explained": explained,
        "crossed": round(total),
        "explained, moved": sum(c["bytes"] for c in found["collectives"] if c["kind"] not in REDUCED),
        "planned messages": sum(found["planned"]),
        "raw": found["crossed"],
    }


def overlap(options) -> list[dict]:
    """Rows per link, model, guarantee and figure."""
    rows = []
    for link in options.links:
        try:
            with cluster(nodes=options.nodes, link=link) as nodes:
                for what, (name, sizes, carriers, axis) in OVERLAPPED.items():
                    mesh = f"{axis}={options.nodes}"
                    words = [*STEPS, "early", name, sizes, carriers, mesh, str(options.rounds), "--quiet"]
                    text = on_nodes(nodes, words, options.nodes, 1, options.mpi, LIMIT_S)
                    found = json.loads(text.splitlines()[-1])
                    rows += overlaps(f"{what}, {options.nodes} nodes, {link}", **found)
        except ClusterError as error:
            print(f"python -m benchmarks.apps.partition overlap: {error}", file=sys.stderr)
            sys.exit(2)
    return rows


def overlaps(
    what: str, wall: dict[str, list[float]], undisturbed: dict[str, float], shortest: dict[str, float]
) -> list[dict]:
    """The rows of one launch, whose ways are "GUARANTEE, WAY"."""
    rows = [
        {
            "what": what,
            "figure": f"layout / none, {way.removeprefix('none, ')}",
            "value": ratio(wall[other], seconds),
        }
        for way, seconds in wall.items()
        if way.startswith("none, ") and (other := way.replace("none", "layout", 1)) in wall
    ]
    for level in dict.fromkeys(way.partition(", ")[0] for way in wall):
        ways = {
            way.removeprefix(f"{level}, "): each for way, each in wall.items() if way.startswith(f"{level}, ")
        }
        larger = [max(both) for both in zip(ways[COMPUTING], ways[COMMUNICATING], strict=True)]
        for way, seconds in ways.items():
            rows.append(
                {
                    "what": f"{what}, {level}",
                    "figure": f"{way}, s",
                    "value": spread(seconds),
                    "undisturbed": undisturbed[f"{level}, {way}"],
                    "raw": seconds,
                }
            )
            if way not in (COMPUTING, COMMUNICATING):
                least = [shortest[f"{level}, {way}"]] * len(seconds)
                for than, others in (
                    ("the larger part alone", larger),
                    ("the shortest that its order allows", least),
                ):
                    figure = f"{way} / {than}"
                    rows.append(
                        {"what": f"{what}, {level}", "figure": figure, "value": ratio(seconds, others)}
                    )
                figure = f"{way}, the shortest that its order allows / the larger part alone"
                rows.append({"what": f"{what}, {level}", "figure": figure, "value": ratio(least, larger)})
    return rows


PARTS = {
    "bytes": crossing,
    "model": model,
    "overlap": overlap,
    "pipeline": pipeline,
    "ring": ring,
    "utilisation": utilisation,
}


def main(argv=None) -> int:
    """Measures; returns 0 if all recipes are within the limit, else 3."""
    parser = parts_parser("apps.partition", __doc__, PARTS, rounds=7)
    parser.add_argument("--models", default=",".join(DECKS), help="(default %(default)s)")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2], help="(default %(default)s)")
    parser.add_argument(
        "--recipes",
        nargs="+",
        choices=CASES,
        default=list(CASES),
        help="recipes of the part bytes; default: all",
    )
    parser.add_argument(
        "--links", nargs="+", default=LINKS, help="of the part overlap (default: %(default)s)"
    )
    parser.add_argument("--nodes", type=int, default=NODES, help="of the part overlap (default %(default)s)")
    parser.add_argument("--steps", type=int, default=4, help="steps of the part bytes (default %(default)s)")
    parser.add_argument(
        "--mpi",
        default="mpich",
        choices=LIBRARIES,
        help="MPI library of the parts bytes and overlap (default %(default)s)",
    )
    rows = run_parts("training by a plan", parser, PARTS, argv)
    return 0 if all(row.get("met", "yes") == "yes" for row in rows) else 3


if __name__ == "__main__":
    sys.exit(main())
