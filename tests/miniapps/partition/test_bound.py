"""Bound steps of random operations, shapes, cuts and owners have the bits of the same steps on one rank."""

import re

import numpy as np
import pytest
import torch

from kernels.allreduce.schedules.block_tree import children
from kernels.guarantees import ChoiceError
from miniapps.partition.cuts.mesh import Mesh
from miniapps.partition.execution.bind import bind
from miniapps.partition.execution.draws import key_of, normal, uniform
from miniapps.partition.execution.pieces import joins
from miniapps.partition.execution.run import Program
from miniapps.partition.execution.totals import tree
from tests.miniapps.partition.cases import FIRST, case
from tests.miniapps.partition.graphs import planned
from tests.miniapps.partition.lockstep import compare
from tests.miniapps.partition.oracle import drawn


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def compared(seed, shapes="exact"):
    graph, plan, ranks = case(seed)
    dtypes = {source.tensor.name: getattr(torch, source.tensor.dtype) for source in graph.sources}
    values = {name: torch.as_tensor(x).to(dtypes[name]) for name, x in drawn(graph, seed).items()}
    return compare(plan, ranks, values, shapes=shapes)


@pytest.mark.parametrize("family", range(len(FIRST)), ids=[function.__name__ for function in FIRST])
def test_parts_of_ranks_have_the_bits_of_one_rank(family):
    seeds = range(family, 12 * len(FIRST), len(FIRST))
    assert sum(compared(seed, ("exact", "padded")[k % 2]) for k, seed in enumerate(seeds)) >= len(seeds)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_ten_thousand_random_cuts_keep_their_bits(part):
    for seed in range(500 * part, 500 * (part + 1)):
        compared(seed, ("exact", "padded")[seed // len(FIRST) % 2])


def test_binding_asks_nothing_of_other_ranks(monkeypatch):
    _, plan = planned("mlp", "dp+tp")
    monkeypatch.setattr(Mesh, "group", None)
    carriers = (("batch", "data"), ("hidden", "model"))
    for data, model in ((1, 1), (7, 8)):
        mesh = Mesh((("data", data), ("model", model)), carriers)
        for by_block in (False, True):
            steps = bind(plan, mesh, mesh.size - 1, by_block).steps
            assert [step.node for step in steps] == [step.node for step in plan.steps]


def test_random_numbers_belong_to_their_elements():
    elements = np.arange(1000)
    key = key_of("dropout_1", 3)
    for draw in (uniform, normal):
        whole = draw(key, elements)
        assert np.array_equal(draw(key, elements[::7]), whole[::7])
        assert not np.isin(draw(key_of("dropout_1", 4), elements), whole).any()
        assert len(set(whole)) == len(whole)
    # Standard errors of a mean of 10^6 numbers: 0.0003 and 0.001; five of them.
    assert abs(uniform(key, np.arange(10**6)).mean() - 0.5) < 0.0015
    assert abs(normal(key, np.arange(10**6)).std() - 1.0) < 0.005


@pytest.mark.parametrize("blocks", range(1, 18))
def test_a_subtree_is_added_as_the_tree_over_blocks_has_it(blocks):
    def text(first, stop):
        if stop - first == 1:
            return f"x{first}"
        return "({} {})".format(*(text(*child) for child in children((first, stop))))

    found = tree(range(blocks), 0, blocks, lambda a, b: f"({a} {b})", lambda k: f"x{k}")
    assert found == text(0, blocks)
    # As many sums as leaves, less one, each as soon as its last block is there.
    assert sum(joins(0, blocks, done) for done in range(1, blocks + 1)) == blocks - 1


def test_partials_are_added_as_soon_as_two_are_there():
    _, plan = planned("unet", "spatial")  # whose blocks are no neighbours along the sums of its operations
    mesh = Mesh((("rows", 1),), (("rows", "rows"),))
    lines = Program(None, plan, mesh, "layout").text.splitlines()
    added = next(re.search(r"add_\((v\d+)\)", line) for line in lines if re.search(r"add_\(v", line))
    (kernel,) = (re.search(r"= (f\d+)\(", line) for line in lines if line.startswith(f"    {added[1]} ="))
    live, most, calls = set(), 0, 0
    for line in lines:
        if f"= {kernel[1]}(" in line:
            calls += 1
            live.add(line.split()[0])
            most = max(most, len(live))
        if re.search(rf"= ({'|'.join(live) or '-'})\.add_\(v", line):
            live.add(line.split()[0])
        if line.startswith("    del"):
            live -= set(line.replace(",", "").split())
    assert calls == 24 and most == 5  # one per level of the tree over the first 16 of 24 blocks


@pytest.mark.parametrize("model", ["mlp", "gpt", "unet"])
def test_one_call_for_all_blocks_has_the_bits_of_a_call_for_each(model, monkeypatch):
    graph, plan = planned(model, "dp")
    dtypes = {source.tensor.name: getattr(torch, source.tensor.dtype) for source in graph.sources}
    values = {name: torch.as_tensor(x).to(dtypes[name]) for name, x in drawn(graph, 0).items()}

    def computed():
        program = Program(None, plan, Mesh((("data", 1),), (("batch", "data"),)), "layout")
        loss, gradients, updates = program([values[s.tensor.name] for s in plan.sources])
        return program.text, [x.clone() for x in (loss, *gradients, *updates)]

    text, together = computed()
    monkeypatch.setattr("miniapps.partition.execution.code.blocks_of", lambda *_: None)
    longer, apart = computed()
    assert len(text.splitlines()) < len(longer.splitlines())
    assert all(torch.isfinite(x).all() and x.abs().max() > 0 for x in together[:1])
    assert [x.numpy().tobytes() for x in together] == [x.numpy().tobytes() for x in apart]


def test_unknown_guarantees_and_shapes_are_refused_with_those_that_there_are():
    _, plan = planned("mlp", "dp")
    mesh = Mesh((("data", 1),), (("batch", "data"),))
    with pytest.raises(ChoiceError, match="none, run, layout, exact"):
        Program(None, plan, mesh, "bitwise")
    with pytest.raises(ChoiceError, match="exact, padded"):
        Program(None, plan, mesh, "layout", shapes="dynamic")
