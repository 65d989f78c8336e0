"""Finds the fastest of all recipes and meshes by prices alone, and compares with a run of every one of them.

For each model and number of ranks: calibrate with its space, draw sizes, price every recipe and mesh under `none` and
`layout`, then run all, each in LAUNCHES launches. A choice among two or more candidates of one model, size and
guarantee:

| figure | meaning |
|---|---|
| best | the candidate with the lowest price ran fastest, or its launches overlap with those of the fastest |
| regret | its time over that of the fastest, less 1 |
| rank correlation | Kendall's tau between prices and times of all candidates (`scipy.stats.kendalltau`) |

The price of a guarantee is the time under `layout` over that under `none` of one recipe and mesh.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.predict.plans import SPACES
from benchmarks.predict.rounds import LAUNCHES, apart, calibrated, mean_error, prices, start
from kernels.progress import Progress

MODELS = ("gpt", "bert", "mlp", "unet", "moe")
RANKS = (2, 4)
LEVELS = ("none", "layout")
SEED = 11


def ranking(options) -> list[dict]:
    """A row per model and number of ranks, one per number of ranks over all models, and one per recipe, mesh and model
    on the price of the guarantee."""
    names = [name for name in options.model or MODELS if name in MODELS]
    cases = [(ranks, name) for ranks in options.ranks or RANKS for name in names]
    choices: dict[tuple[int, str], list[dict]] = {}
    progress = Progress("predict", quiet=options.quiet)
    with tempfile.TemporaryDirectory() as directory:
        for number, (ranks, name) in enumerate(cases):
            progress.show(number / len(cases), f"{name} on {ranks}")
            choices[ranks, name] = of_model(Path(directory) / f"{name}-{ranks}", name, ranks, options)
    progress.clear()
    between = {case: [one for one in own if one["candidates"] > 1] for case, own in choices.items()}
    rows = [summary(f"{name} on {ranks}", ranks, own) for (ranks, name), own in between.items() if own]
    for size in sorted({ranks for ranks, _ in between}):
        every = [each for (ranks, _), own in between.items() if ranks == size for each in own]
        rows += [summary(f"all on {size}", size, every)] if every else []
    for (ranks, name), own in choices.items():
        rows += guarantees(f"layout / none, {name}", ranks, own)
    return rows


def of_model(scratch: Path, name: str, ranks: int, options) -> list[dict]:
    """Calibrates, prices all candidates of each drawn size, then runs them; returns a choice per size and guarantee."""
    from miniapps.partition import models
    from miniapps.partition.capture.shapes import graph_of
    from miniapps.partition.planning.recipes import deck_of, plan_of
    from miniapps.partition.pricing.candidates import candidates
    from miniapps.partition.pricing.program import program_of
    from miniapps.partition.pricing.space import Drawn, space_of
    from miniapps.untrusted.program import to_json

    scratch.mkdir()
    model = models.model(name)
    sizes = " ".join(word for word in SPACES[name].split()[1:] if "=" in word)
    calibrations = list(calibrated(scratch, f"{name} {sizes} ranks={ranks}", ranks, options))
    rng, space = np.random.default_rng([SEED, ranks]), space_of(f"{name} {sizes} ranks={ranks}")
    texts: dict[tuple[int, str], dict[str, str]] = {}  # of each choice, {plan: recipe and mesh}
    files = []
    for number in range(options.sizes):
        drawn = space.draw(rng)
        deck = deck_of(model, {key: str(n) for key, n in drawn.sizes.items()})
        graph = graph_of(model, deck)
        for one in candidates(model, deck, list(model.RECIPES), ranks)[0]:
            plan = plan_of(model, deck, graph, list(model.RECIPES[one.recipe]))
            for level in LEVELS:
                text = str(Drawn(name, one.recipe, drawn.sizes, dict(one.mesh.axes), level))
                texts.setdefault((number, level), {})[text] = str(one)
                files.append(scratch / f"{len(files)}.json")
                files[-1].write_bytes(to_json(program_of(plan, one.mesh, level, text)))
    found = medians(files, calibrations)
    times = measured([text for own in texts.values() for text in own if text in found], ranks)
    return [choice(level, own, found, times) for (_, level), own in texts.items()]


def medians(files: Sequence[Path], calibrations: Sequence[str]) -> dict[str, float]:
    """{plan: median price, s} of the plans in files that have a price, in wall time."""
    return {row["title"]: row["p50_s"] for row in prices(files, calibrations, "wall")["plans"]}


def measured(texts: Sequence[str], ranks: int) -> dict[str, list[float]]:
    """{plan: median wall seconds of a step in each launch}; a launch runs all plans."""
    launches = [
        json.loads(start(["benchmarks.predict.plan_steps", "--quiet", *texts], ranks).splitlines()[-1])[
            "wall"
        ]
        for _ in range(LAUNCHES)
    ]
    return {text: list(own) for text, own in zip(texts, zip(*launches, strict=True), strict=True)}


def choice(
    level: str, texts: dict[str, str], priced_s: dict[str, float], times: dict[str, list[float]]
) -> dict:
    """One choice among the candidates {plan: recipe and mesh} that have a price: the candidate with the lowest price,
    and the fastest."""
    from scipy.stats import kendalltau

    priced = [text for text in texts if text in priced_s]
    taken = {text: float(np.median(times[text])) for text in priced}
    wanted, fastest = min(priced, key=priced_s.__getitem__), min(priced, key=taken.__getitem__)
    both = [priced_s[text] for text in priced], [taken[text] for text in priced]
    tau = kendalltau(*both).statistic if len(priced) > 1 else np.nan
    return {
        "level": level, "predicted": wanted, "fastest": fastest, "candidates": len(priced),
        "unpriced": len(texts) - len(priced), "best": wanted == fastest,
        "alike": min(times[wanted]) <= max(times[fastest]), "regret": taken[wanted] / taken[fastest] - 1,
        "tau": float(tau), "plans": {
            text: {"mesh": texts[text], "price_s": priced_s[text], "measured_s": times[text]} for text in priced
        },
    }  # fmt: skip


def summary(what: str, ranks: int, choices: Sequence[dict]) -> dict:
    """How often the predicted best was the best or like it, the mean and largest regret, and the mean correlation."""
    times = [each["measured_s"] for one in choices for each in one["plans"].values()]
    floor = mean_error([apart(each) for each in times])
    return {
        "part": "ranking", "what": what, "ranks": ranks,
        "alike": float(np.mean([one["best"] or one["alike"] for one in choices])),
        "regret": float(np.mean([one["regret"] for one in choices])),
        "most_regret": float(max(one["regret"] for one in choices)),
        "tau": float(np.nanmean([one["tau"] for one in choices])),
        "error": off([each for one in choices for each in one["plans"].values()]), "floor": floor,
        "bias": None, "inside": None, "runs": len(times) * LAUNCHES, "best": sum(one["best"] for one in choices),
        "compared": sum(one["candidates"] for one in choices), "unpriced": sum(one["unpriced"] for one in choices),
        "targets": len(choices), "rounds": 1, "busy": 0, "raw": list(choices),
    }  # fmt: skip


def off(plans: Sequence[dict]) -> float:
    """The mean error of the prices of plans."""
    ratios = (np.median(each["measured_s"]) / each["price_s"] for each in plans)
    return mean_error([float(np.expm1(abs(np.log(ratio)))) for ratio in ratios])


def guarantees(what: str, ranks: int, choices: Sequence[dict]) -> list[dict]:
    """A row per recipe and mesh: `bias` is the mean of ln(predicted ratio / measured ratio) of the times under `layout`
    and `none`, above 0 where the guarantee costs less than predicted; `error` is the mean without signs."""
    by: dict[str, list[tuple[float, float]]] = {}
    plans = {text: each for one in choices for text, each in one["plans"].items()}
    for text, plain in plans.items():
        kept = plans.get(text.replace("guarantee=none", "guarantee=layout"))
        if text.endswith("guarantee=none") and kept is not None:
            ratios = (
                kept["price_s"] / plain["price_s"],
                float(np.median(kept["measured_s"]) / np.median(plain["measured_s"])),
            )
            by.setdefault(plain["mesh"], []).append(ratios)
    rows = []
    for mesh, ratios in sorted(by.items()):
        signed = [float(np.log(predicted / run)) for predicted, run in ratios]
        rows.append(
            {"part": "ranking", "what": f"{what}: {mesh}", "ranks": ranks, "alike": None, "regret": None,
             "most_regret": None, "tau": None, "error": mean_error([float(np.expm1(abs(x))) for x in signed]),
             "floor": None, "bias": float(np.mean(signed)), "inside": None, "runs": 2 * len(ratios) * LAUNCHES,
             "best": 0, "compared": 0, "unpriced": 0, "targets": len(ratios), "rounds": 1, "busy": 0,
             "raw": [{"predicted": predicted, "measured": run} for predicted, run in ratios]}
        )  # fmt: skip
    return rows
