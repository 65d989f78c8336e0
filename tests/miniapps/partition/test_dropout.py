"""Dropout of a planned step: one mask on every mesh, none in an evaluation, torch's gradient for the same mask."""

import pytest

torch = pytest.importorskip("torch")

from kernels.guarantees import ChoiceError  # noqa: E402
from miniapps.partition.capture.export import export  # noqa: E402
from miniapps.partition.cuts.axes import evenly  # noqa: E402
from miniapps.partition.cuts.mesh import Mesh  # noqa: E402
from miniapps.partition.execution.draws import EVALUATION  # noqa: E402
from miniapps.partition.execution.run import Program  # noqa: E402
from miniapps.partition.planning.plan import plan  # noqa: E402
from miniapps.partition.planning.recipes import deck_of  # noqa: E402
from tests.miniapps.partition.graphs import exported  # noqa: E402
from tests.miniapps.partition.lockstep import compare  # noqa: E402

P = 0.3


class Dropping(torch.nn.Module):
    """A layer of weight 1, dropout, a loss that shows what was kept."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(50))
        self.drop = torch.nn.Dropout(P)

    def forward(self, x):
        return self.drop(x * self.weight).sum()


def program(seed=0):
    """(program, sources) of a step on one rank; inputs are 1, 60 samples of 50."""
    torch.manual_seed(0)
    module, x = Dropping(), torch.ones(60, 50)
    found = plan(export(module, (x,)), [evenly("batch", 60, 6)], {0: ("batch", None)})
    made = Program(None, found, Mesh((("data", 1),)), "layout", seed=seed)
    return made, made.sources({("parameter", "weight"): module.weight.detach(), ("input", "0"): x})


def kept(step, seed=0):
    """How many of 60 samples each of the 50 elements kept in a step, by the gradient of the weights."""
    made, values = program(seed)
    loss, (gradient,), _ = made(values, step)
    assert loss.item() == pytest.approx(gradient.sum().item(), rel=1e-6)
    return (gradient * (1 - P)).round().int().tolist()


def test_elements_are_kept_with_the_probability_and_the_rest_is_scaled():
    counts = kept(1)
    deviation = (60 * 50 * P * (1 - P)) ** 0.5
    assert abs(sum(counts) - 60 * 50 * (1 - P)) < 5 * deviation


def test_the_mask_follows_step_and_seed_alone():
    assert kept(1) == kept(1) != kept(2)
    assert kept(1, seed=7) != kept(1)


def test_an_evaluation_drops_nothing():
    made, values = program()
    assert made(values, EVALUATION)[0].item() == 60 * 50


@pytest.mark.parametrize("name", ["gpt", "bert"])
def test_attention_with_dropout_has_one_mask_on_any_ranks(name):
    """Each value of 4 ranks against those of one, bit by bit: samples in 7 blocks, 4 heads, exact and padded shapes."""
    from miniapps.partition.planning.recipes import plan_of

    model, deck, graph = exported(name, dropout="0.2", layers="1")
    drawn = [node for node in graph.nodes if node.target == "aten.native_dropout.default"]
    assert len(drawn) == 4  # after the embedding, of scores, after both parts
    found = plan_of(model, deck, graph, ("batch", "heads", "ff"))
    torch.manual_seed(0)
    module, inputs = model.module(deck), model.inputs(deck)
    values = {f"parameter.{key}": p.detach() for key, p in module.named_parameters()}
    values |= {f"input.{k}": x for k, x in enumerate(inputs)}
    values |= {
        s.tensor.name: torch.frombuffer(bytearray(s.data), dtype=getattr(torch, s.tensor.dtype)).reshape(
            s.tensor.shape
        )
        for s in found.sources
        if s.kind == "constant"
    }
    ranks = [
        {"batch": batch, "heads": heads, "ff": tuple(range(8))}
        for batch in ((0, 3), (1, 2, 4, 5, 6))
        for heads in ((0, 2), (1, 3))
    ]
    for shapes in ("exact", "padded"):
        assert compare(found, ranks, values, shapes=shapes) > 200


def test_without_dropout_the_graph_is_as_before():
    assert not [node for node in exported("gpt")[2].nodes if "dropout" in node.target]


@pytest.mark.parametrize("text", ["1", "-0.1", "nan", "2"])
def test_only_probabilities_are_possible(text):
    from miniapps.partition import models

    with pytest.raises(ChoiceError, match="give a probability"):
        deck_of(models.model("gpt"), {"dropout": text})
