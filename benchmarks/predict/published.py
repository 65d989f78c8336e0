"""Prices the published runs of Megatron-LM from public rates, and prints predicted beside published.

Published: arXiv 2205.05198, tables 3 and 5, which Megatron-LM's README repeats: GPT with a vocabulary of 51,200 and
2,048 tokens on A100s, with sequence parallelism and selective recomputation of attention. The plan here is `tp` (heads
and inner widths over the devices of a node) of a micro-batch. Assumed:

- a layer takes the difference of the prices of 6 and 5 layers, with dropout 0.1, so attention is written out as it was
  then: products, softmax and dropout of the scores, each a kernel; the recomputed part is added;
- embedding, logits and loss are cut like the layers: a node's devices share what the plan here leaves whole;
- stages of a pipeline are equal but for the last, which has the ends; a step of m micro-batches on p stages, each in v
  parts, takes m + (p - 1) / v micro-batches of the slowest stage (GPipe; Narayanan et al. 2104.04473 for v);
- messages between stages, the optimiser's and the data's are not counted, and nothing overlaps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, prod
from pathlib import Path

import numpy as np

from analysis.predict.costs.machines import Machine, read_machine
from analysis.predict.plans.price import Priced, Prices, kernels_of
from analysis.predict.plans.steps import often
from miniapps.partition import models
from miniapps.partition.capture.shapes import graph_of
from miniapps.partition.cuts.mesh import parse
from miniapps.partition.graphs.flops import model_flops
from miniapps.partition.planning.recipes import deck_of, plan_of
from miniapps.partition.pricing.program import program_of

MACHINE = Path(__file__).parents[1] / "machines" / "a100.toml"
TOKENS, VOCABULARY, TENSOR = 2048, 51200, 8
DROPOUT = 0.1
UPDATE = "Adam"  # kernels of the optimiser
AGAIN = ("_softmax", "native_dropout", "where", "eq", "all", "mul")  # of attention, in the forward pass
FEW, MORE = 5, 6  # layers that are priced


@dataclass(frozen=True)
class Published:
    """A run: `seconds` of an iteration, model FLOPs utilisation `mfu`; `parts` of each stage (interleaved schedule)."""

    name: str
    heads: int
    width: int
    layers: int
    stages: int
    batch: int
    micro: int
    parts: int
    seconds: float
    mfu: float

    @property
    def devices(self) -> int:
        """Their number."""
        return TENSOR * self.stages


RUNS = (
    Published("22B", 64, 6144, 48, 1, 4, 4, 1, 1.10, 0.415),
    Published("175B", 96, 12288, 96, 8, 64, 1, 3, 13.75, 0.514),
    Published("530B", 128, 20480, 105, 35, 280, 1, 3, 37.83, 0.560),
    Published("1T", 160, 25600, 128, 64, 512, 1, 1, 71.49, 0.563),
)


def published(options) -> list[dict]:
    """A row per published run."""
    machine = read_machine(MACHINE)
    assert (
        machine.device is not None
    )  # 5 layers of the largest model are more than a stage has, and a device holds
    machine = replace(machine, device=replace(machine.device, capacity=inf))
    return [row(run, machine) for run in RUNS]


def row(run: Published, machine: Machine) -> dict:
    """Predicted and published seconds of an iteration, and utilisations."""
    assert machine.device is not None
    few, many = (micro_batch(run, layers, machine) for layers in (FEW, MORE))
    layer, again = many[0] - few[0], many[3] - few[3]
    ends = (few[0] - FEW * layer) / TENSOR
    stage = run.layers / run.stages * (layer + again) + ends
    micros = run.batch // run.micro
    bubble = (run.stages - 1) / run.parts
    seconds = (micros + bubble) * stage
    flops = micros * (few[1] + (run.layers - FEW) * (many[1] - few[1]))
    mfu = flops / seconds / run.devices / machine.device.product
    return {
        "part": "published",
        "what": f"{run.name} on {run.devices} A100s, {run.stages} stages",
        "error": float(np.expm1(abs(np.log(seconds / run.seconds)))),
        "floor": None, "bias": float(np.log(run.seconds / seconds)), "inside": None, "runs": 1, "best": 0,
        "compared": 0, "targets": 1, "rounds": 1, "busy": 0,
        "predicted_s": seconds, "published_s": run.seconds, "mfu": mfu, "published_mfu": run.mfu,
        "flops_published": run.mfu * run.seconds * run.devices * machine.device.product, "flops": flops,
        "bubble": bubble / (micros + bubble), "messages": (many[2] - few[2]) / layer,
        "raw": [seconds],
    }  # fmt: skip


def micro_batch(run: Published, layers: int, machine: Machine) -> tuple[float, int, float, float]:
    """(seconds of one micro-batch on one stage of `layers` layers without the optimiser; operations of the model on one
    device; seconds of its messages, and of the kernels of attention that are recomputed)."""
    model = models.model("gpt")
    sizes = {"layers": layers, "width": run.width, "heads": run.heads, "feedforward": 4 * run.width, "tokens": TOKENS,
             "samples": run.micro, "batch": run.micro, "ff": TENSOR, "vocabulary": VOCABULARY,
             "dropout": DROPOUT}  # fmt: skip
    deck = deck_of(model, {name: str(n) for name, n in sizes.items()})
    graph, carriers = graph_of(model, deck), model.RECIPES["tp"]
    plan = plan_of(model, deck, graph, list(carriers))
    mesh = parse(f"model={TENSOR}", carriers, TENSOR)
    priced = Prices([], machine).of(program_of(plan, mesh, "none", run.name, model_flops(graph)))
    scores = run.micro * run.heads // TENSOR * TOKENS**2
    return step_of(priced), model_flops(graph), float(priced.communication.mean()), recomputed(priced, scores)


def recomputed(priced: Priced, scores: int) -> float:
    """Seconds of the kernels on so many `scores` that the backward pass runs again: those of the forward pass, a third
    of the batched products."""
    calls = zip(priced.program.works, often(priced.program).tolist(), priced.each.tolist(), strict=True)
    return sum(
        n * each / (3 if name == "bmm" else 1)
        for work, n, each in calls
        for name in [work.key.split(" ")[1]]
        if name == "bmm" or (name in AGAIN and scores in (work.dims[0], prod(work.dims)))
    )


def step_of(priced: Priced) -> float:
    """Seconds of a step without the update of the weights."""
    update = sum(seconds for name, _, _, seconds, _ in kernels_of(priced) if name.startswith(UPDATE))
    return float(np.median(priced.samples)) - update
