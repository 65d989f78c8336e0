"""Attention block by block: right, with the bits of one rank, and with less memory than all keys and values at once."""

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from kernels.guarantees import ChoiceError
from miniapps.partition import models
from miniapps.partition.capture.export import export
from miniapps.partition.capture.shapes import graph_of
from miniapps.partition.cuts.axes import Axis, evenly
from miniapps.partition.cuts.mesh import parse
from miniapps.partition.cuts.steps import SPAN, Compute
from miniapps.partition.execution.bind import bind
from miniapps.partition.execution.bound import Added, Moved
from miniapps.partition.execution.given import constant_of
from miniapps.partition.execution.place import Span
from miniapps.partition.execution.run import Program
from miniapps.partition.planning.annotate import Annotation
from miniapps.partition.planning.plan import plan
from miniapps.partition.planning.recipes import deck_of, plan_of
from miniapps.partition.pricing.dry import dry_step
from miniapps.partition.pricing.program import program_of
from tests.miniapps.partition.lockstep import compare
from tests.miniapps.partition.oracle import check

TOKENS = Axis("tokens", (0, 3, 4, 8))  # uneven
UNIT = 2.0**-24  # of float32


class Attending(torch.nn.Module):
    """Attention of one parameter, whose queries may be another number than its keys."""

    def __init__(self, causal: bool, more: int, scale: float | None, same: bool):
        super().__init__()
        self.causal, self.more, self.scale, self.same = causal, more, scale, same
        self.w = torch.nn.Parameter(torch.randn(3, 4, 4, generator=torch.Generator().manual_seed(2)))

    def forward(self, x):
        keys = x[:, :, : x.shape[2] - self.more] if self.more else x
        q, k, v = x @ self.w[0], keys @ self.w[1], keys @ self.w[2]
        v = k if self.same else v
        found = scaled_dot_product_attention(q, k, v, is_causal=self.causal, scale=self.scale)
        return (found * found).sum()


def planned(causal, more=0, scale=None, axis=TOKENS, same=False):
    """(graph, plan, sources) of a step whose tokens an axis cuts."""
    module = Attending(causal, more, scale, same)
    x = torch.randn(2, 3, 8, 4, generator=torch.Generator().manual_seed(1))
    graph = export(module, (x,))
    found = plan(graph, [axis], {0: Annotation((None, None, axis.name, None))}, ring=True)
    values = {
        source.tensor.name: x if source.kind == "input" else constant_of(source) if source.kind == "constant"
        else module.w.detach()
        for source in graph.sources
    }  # fmt: skip
    return graph, found, values


@pytest.mark.parametrize(("causal", "scale"), [(True, None), (False, None), (True, 0.3), (False, 0.3)])
def test_blocks_of_keys_are_right_and_keep_the_bits_of_one_rank(causal, scale):
    graph, found, values = planned(causal, scale=scale)
    targets = [step.target.split(".")[1] for step in found.steps if isinstance(step, Compute)]
    assert [targets.count(f"attention_step{end}") for end in ("", "_backward")] == [TOKENS.blocks] * 2
    assert targets.count(SPAN) == 2 * TOKENS.blocks and not any("scaled_dot" in name for name in targets)
    for owners in (((0, 1, 2),), ((0, 2), (1,)), ((1,), (2,), (0,))):
        ranks = [{"tokens": own} for own in owners]
        check(
            found,
            graph,
            {n: (x.double() if x.is_floating_point() else x).numpy() for n, x in values.items()},
            ranks,
        )
        for shapes in ("exact", "padded"):
            compare(found, ranks, values, shapes=shapes)


@pytest.mark.parametrize("level", ["none", "layout"])
@pytest.mark.parametrize("name", ["gpt", "bert"])
def test_gradients_are_as_close_to_float64_as_those_of_torch(name, level):
    model = models.model(name)
    sizes = {
        "layers": "1",
        "samples": "2",
        "batch": "1",
        "tokens": "32",
        "width": "16",
        "heads": "2",
        "token_blocks": "8",
    }
    deck = deck_of(model, sizes)
    torch.manual_seed(0)
    module, inputs = model.module(deck), model.inputs(deck)
    carriers = model.RECIPES["sp"]
    found = plan_of(model, deck, export(module, inputs), list(carriers), attention="ring")
    program = Program(None, found, parse("sequence=1", carriers, 1), level)
    known = {("parameter", key): x.detach() for key, x in module.named_parameters()}
    known |= {("input", str(k)): x for k, x in enumerate(inputs)}
    _, gradients, _ = program(program.sources(known))
    module.double()(*inputs).backward()
    true = {key: x.grad for key, x in module.named_parameters()}
    largest = max(float(x.abs().max()) for x in true.values())
    # Each block rounds the result and its weights anew: 8 blocks, each with a sum of 4 products and 5 operations.
    bound = 2 * 8 * 16 * UNIT * largest
    for (key, _), gradient in zip(program.gradients, gradients, strict=True):
        assert float((gradient.double() - true[key]).abs().max()) <= bound, key


def test_a_rank_holds_a_block_of_keys_and_values_beside_its_own():
    model = models.model("gpt")
    sizes = dict.fromkeys(("layers", "samples", "batch", "heads"), "1") | dict.fromkeys(
        ("width", "feedforward"), "64"
    )
    sizes |= {"tokens": "512", "vocabulary": "8", "token_blocks": "16"}
    deck, carriers = deck_of(model, sizes), model.RECIPES["sp"]
    graph = graph_of(model, deck)
    peaks, plans = {}, {}
    for attention in ("gathered", "ring"):
        plans[attention] = plan_of(model, deck, graph, list(carriers), attention=attention)
        _, peaks[attention] = dry_step(plans[attention], parse("sequence=8", carriers, 8), 0, "none")
    whole = 512 * 64 * 4  # bytes of the keys of all tokens
    assert peaks["gathered"] - peaks["ring"] > whole
    assert plans["gathered"].hash != plans["ring"].hash


def test_early_ranks_get_no_blocks_that_causal_attention_leaves_out_and_owners_alone_get_gradients():
    _, found, _ = planned(True, axis=evenly("tokens", 8, 4))
    mesh = parse("sequence=4", {"tokens": "sequence"}, 4)
    for rank in range(4):
        bound = bind(found, mesh, rank, by_block=True)
        moved = [
            step for step in bound.steps if isinstance(step, Moved) and isinstance(step.wanted[0][2], Span)
        ]
        sizes = [len(bound.place.indices(step.wanted[0][2], 8)) for step in moved]
        assert sizes == [2 if block <= rank else 0 for block in range(4)] * 2
        added = [step for step in bound.steps if isinstance(step, Added) and step.wanted[0] is not None]
        assert [len(bound.place.indices(step.wanted[0][2], 2)) for step in added] == [
            2 if block == rank else 0 for block in range(4)
        ]


def test_a_price_counts_the_queries_that_see_a_block_and_the_messages_of_each_rank():
    _, found, _ = planned(True, axis=evenly("tokens", 8, 4))
    mesh = parse("sequence=4", {"tokens": "sequence"}, 4)
    program = program_of(found, mesh, "none", "a ring")
    assert [each.ranks for each in program.classes] == [(0,), (1,), (2,), (3,)]
    for of in program.classes:
        (rank,) = of.ranks
        calls = {program.works[number]: often for s in of.segments for number, often in s.calls}
        steps = {work: n for work, n in calls.items() if "attention_step torch" in work.key}
        # (samples and heads, queries, keys, width): of the own block, and of those before it
        assert {(w.key.split(" by ")[0].split()[-1], w.dims) for w in steps if w.flops} == (
            {("behind", (6, 2, 2, 4)), ("first", (6, 2, 2, 4)), ("inside", (6, 2, 2, 4))}
            if rank > 1
            else {("first", (6, 2, 2, 4)), ("inside", (6, 2, 2, 4))}
            if rank
            else {("first", (6, 2, 2, 4))}
        )
        blocks = [wait for wait in of.waits if wait.kind == "exchange"]
        n = 2 * 3 * 2 * 4 * 4  # bytes of the keys of a block
        expected = [2 * n * (3 - k if k == rank else k < rank) for k in range(4)] * 2
        assert [wait.nbytes for wait in blocks] == expected
        partners = [(3 - k if k == rank else int(k < rank)) for k in range(4)] * 2
        assert [len(wait.offsets) for wait in blocks] == partners


@pytest.mark.parametrize("ranks", [2, 4])
def test_with_owners_in_zigzag_all_ranks_have_equal_work_in_causal_attention(ranks):
    _, found, _ = planned(True, axis=evenly("tokens", 8, 8))
    shares = {}
    for owners in ("tokens=contiguous", "tokens=zigzag"):
        mesh = parse(f"sequence={ranks}", {"tokens": "sequence"}, ranks, owners=owners)
        program = program_of(found, mesh, "none", owners)
        shares[owners] = [
            sum(program.works[number].flops * often
                for s in of.segments for number, often in s.calls if "attention_step" in program.works[number].key)
            for of in program.classes for _ in of.ranks
        ]  # fmt: skip
    even, uneven = shares["tokens=zigzag"], shares["tokens=contiguous"]
    assert sum(even) == sum(uneven) and len(set(even)) == 1
    assert max(uneven) / min(uneven) == (26 / 10 if ranks == 2 else 15 / 3)  # blocks of keys that queries see


def test_keys_that_are_the_values_too():
    _, found, values = planned(False, same=True)
    compare(found, [{"tokens": (0, 2)}, {"tokens": (1,)}], values)


def test_a_ring_without_cut_keys_is_refused():
    model = models.model("gpt")
    for sizes, recipe in (({}, "dp"), ({"dropout": "0.1"}, "sp"), ({"token_blocks": "1"}, "sp")):
        deck = deck_of(model, {"layers": "1", "samples": "2", "batch": "2"} | sizes)
        with pytest.raises(ChoiceError, match="no axis cuts the keys"):
            plan_of(model, deck, graph_of(model, deck), list(model.RECIPES[recipe]), attention="ring")


def test_queries_and_keys_of_other_numbers_are_cut_each_by_its_own_blocks():
    graph, found, values = planned(False, more=4, axis=evenly("tokens", 4, 4))
    assert any(isinstance(step, Compute) and step.kernel == SPAN for step in found.steps)
    ranks = [{"tokens": (0, 3)}, {"tokens": (1, 2)}]
    check(
        found,
        graph,
        {n: np.asarray(x.double() if x.is_floating_point() else x) for n, x in values.items()},
        ranks,
    )
    compare(found, ranks, values)
