"""Bytes of messages are counted for all ranks at once, and equal a count rank by rank."""

import time

import numpy as np
import pytest

from kernels.allreduce import Reduction
from kernels.allreduce.cost import cost
from kernels.allreduce.schedules.block_tree import elements_sent
from miniapps.partition import models
from miniapps.partition.cuts.mesh import Mesh, parse
from miniapps.partition.cuts.steps import SPAN, Compute, Reduce
from miniapps.partition.planning.recipes import plan_of
from miniapps.partition.showing.explain import explain
from miniapps.partition.showing.traffic import Counter
from tests.miniapps.partition.each_rank import EachRank
from tests.miniapps.partition.graphs import exported, planned

MESHES = [
    ("mlp", "dp+tp", "data=3,model=2"),
    ("mlp", "zero", "data=3"),
    ("mlp", "tp+pp", "model=2,stage=2"),
    ("gpt", "zero", "data=3"),
    ("gpt", "dp+tp+vocabulary", "data=3,model=2"),
    ("gpt", "tp+sp", "model=2,sequence=3"),
    ("gpt", "dp+pp", "data=3,stage=2"),
    ("unet", "dp+spatial", "data=2,rows=3,columns=2"),
    ("moe", "expert", "data=3"),
]


@pytest.mark.parametrize("shuffle", [0, 5])
@pytest.mark.parametrize(("name", "recipe", "text"), MESHES)
def test_bytes_are_those_that_the_ranks_send_one_by_one(name, recipe, text, shuffle):
    plan = planned(name, recipe)[1]
    carriers = models.model(name).RECIPES[recipe]
    size = np.prod([int(part.partition("=")[2]) for part in text.split(",")])
    mesh = parse(text, carriers, size, shuffle)
    counter, each = Counter(plan, mesh), EachRank(plan, mesh)
    found = [counter.step(step) for step in plan.steps]
    assert [0 if t is None else t.nbytes for t in found] == [each.nbytes(step) for step in plan.steps]
    assert sum(t.nbytes for t in found if t) > 0


@pytest.mark.parametrize("shuffle", [0, 3])
@pytest.mark.parametrize("name", ["gpt", "bert"])
def test_keys_that_pass_in_blocks_and_their_gradients_are_counted(name, shuffle):
    model, deck, graph = exported(name, layers="1", token_blocks="4")
    carriers = model.RECIPES["dp+sp"]
    plan = plan_of(model, deck, graph, list(carriers), attention="ring")
    mesh = parse("data=2,sequence=3", carriers, 6, shuffle)
    counter, each = Counter(plan, mesh), EachRank(plan, mesh)
    found = [counter.step(step) for step in plan.steps]
    assert [0 if t is None else t.nbytes for t in found] == [each.nbytes(step) for step in plan.steps]
    homes = [
        t.kind for t, step in zip(found, plan.steps, strict=True) if isinstance(step, Reduce) and step.home
    ]
    assert homes == ["reduce-scatter"] * 4
    early, late = ([t.nbytes for t in found if t and t.kind == "all-gather"][at] for at in (0, -1))
    assert (
        late < early if name == "gpt" else late == early
    )  # only gpt is causal; the last block is seen by one rank


def test_bytes_of_a_causal_ring_are_those_of_the_page():
    """4 ranks of a block with n bytes of keys and as much of values each: blocks go to 3, 2, 1 and 0 ranks, forward and
    backward, and gradients go from every rank to the owner."""
    model, deck, graph = exported("gpt", layers="1", samples="1", batch="1", token_blocks="4", tokens="512")
    carriers = model.RECIPES["sp"]
    plan = plan_of(model, deck, graph, list(carriers), attention="ring")
    counter = Counter(plan, parse("sequence=4", carriers, 4))
    n = 512 // 4 * deck.width * 4
    spans = [counter.step(step) for step in plan.steps if isinstance(step, Compute) and step.kernel == SPAN]
    assert sum(t.nbytes for t in spans if t) == 2 * (3 + 2 + 1) * 2 * n
    sums = [counter.step(step) for step in plan.steps if isinstance(step, Reduce) and step.home]
    assert [t.nbytes for t in sums] == [3 * 2 * n] * 4


def test_elements_of_a_block_tree_are_those_of_its_messages():
    draw = np.random.default_rng(3)
    for _ in range(300):
        size = int(draw.integers(2, 9))
        owners = draw.permutation([*range(size), *draw.integers(0, size, draw.integers(0, 9))])
        owners = tuple(sorted(owners) if draw.integers(2) else owners)
        n = int(draw.choice([1, 5, 1000, 100_000]))
        ends = np.sort(draw.integers(0, n + 1, size - 1)).tolist()
        for bounds in (None, (0, *ends, n)):
            collective = "allreduce" if bounds is None else "reduce-scatter"
            asked = Reduction("block-tree", (n,), np.dtype("float32"), collective=collective, bounds=bounds)
            counted = cost(asked.schedule(size, owners=owners), n, 1).bytes
            assert elements_sent(owners, size, n, asked.is_short(size), bounds) == counted


def test_four_thousand_ranks_take_no_longer_than_some():
    sizes = {"layers": "2", "samples": "512", "batch": "512", "ff": "8", "heads": "8"}
    model, deck, graph = exported("gpt", **sizes)
    carriers = model.RECIPES["dp+tp"]
    plan = plan_of(model, deck, graph, list(carriers))
    taken, found = {}, {}
    for data, of in ((16, 8), (512, 8)):
        begin = time.process_time()
        mesh = Mesh((("data", data), ("model", of)), tuple(carriers.items()))
        found[data] = explain(plan, mesh, graph)
        taken[data] = time.process_time() - begin
    assert found[512]["ranks"] == 4096
    assert taken[512] < 5 * taken[16] + 2
    # The vector of all gradients goes out in parts and comes back in parts, to and from all other ranks; the number of
    # targets that count, 8 bytes, is exchanged in pairs.
    gradients = set()
    for data, pairs in ((16, 4), (512, 9)):
        (row,) = (each for each in found[data]["collectives"] if each["axes"] == ["batch"])
        gradients.add((row["bytes"] - 8 * data * pairs * 8) / (2 * (data - 1)))
    assert len(gradients) == 1
