"""Operations along a cut dim that they need whole: each is cut, right, and has the bits of one rank."""

import numpy as np
import pytest
import torch
from torch.nn.functional import conv2d, cross_entropy

from miniapps.partition.capture.export import export
from miniapps.partition.cuts.axes import Axis, axes_of, evenly
from miniapps.partition.cuts.steps import Compute, Reduce, Reshard
from miniapps.partition.planning.plan import plan
from miniapps.partition.planning.smaller import SMALLER
from tests.miniapps.partition.lockstep import compare
from tests.miniapps.partition.oracle import check


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Step(torch.nn.Module):
    """A loss from a function of one parameter and the inputs."""

    def __init__(self, function, *shape: int):
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.w = torch.nn.Parameter(torch.randn(*shape, generator=generator))
        self.function = function

    def forward(self, *inputs):
        return self.function(self.w, *inputs)


def planned(module, inputs, axis: Axis, annotations):
    """(graph, plan, values of the sources)."""
    graph = export(module, inputs)
    found = plan(graph, [axis], annotations)
    parameters = dict(module.named_parameters()) | dict(module.named_buffers())
    values = {}
    for source in graph.sources:
        if source.kind == "constant":
            dtype = np.dtype(source.tensor.dtype)
            values[source.tensor.name] = torch.from_numpy(
                np.frombuffer(source.data, dtype).reshape(source.tensor.shape).copy()
            )
        else:
            given = inputs[int(source.key)] if source.kind == "input" else parameters[source.key].detach()
            values[source.tensor.name] = given
    return graph, found, values


def require(module, inputs, axis: Axis, annotations, whole: tuple[str, ...] = ()):
    """Every step is right and has the bits of one rank, whoever owns the blocks; returns the plan, of which operations
    in `whole` alone may be cut less than their operands."""
    graph, found, values = planned(module, inputs, axis, annotations)
    assert not [why for node, why in found.reasons.items() if not node.startswith(whole or "-")], (
        found.reasons
    )
    owners = [(tuple(range(axis.blocks)),)]
    owners += [tuple(tuple(range(rank, axis.blocks, n)) for rank in range(n)) for n in (2, 3, 4)]
    for each in owners:
        ranks = [{axis.name: own} for own in each]
        check(found, graph, {name: wide(x) for name, x in values.items()}, ranks)
        for shapes in ("exact", "padded"):
            compare(found, ranks, values, shapes=shapes)
    return found


def wide(x: torch.Tensor) -> np.ndarray:
    return (x.double() if x.is_floating_point() else x).numpy()


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def reductions(found) -> list[tuple[str, str]]:
    return [(step.node, step.combine) for step in found.steps if isinstance(step, Reduce)]


def targets(found) -> set[str]:
    return {step.target for step in found.steps if isinstance(step, Compute)}


ROWS = Axis("rows", (0, 3, 4, 8))  # uneven


@pytest.mark.parametrize(
    "function",
    [
        lambda w, x: torch.softmax(w * x, 0).square().sum(),
        lambda w, x: torch.log_softmax(w * x, 0).square().sum(),
        lambda w, x: torch.logsumexp(w * x, 0).sum(),
        lambda w, x: torch.nn.functional.layer_norm((w * x).T, (8,)).square().sum(),
        lambda w, x: (w * x).cumsum(0).square().sum(),
        lambda w, x: torch.roll(w * x, 1, 0).mul(x).sum(),
        lambda w, x: torch.roll(w * x, (-3, 1), (0, 1)).mul(x).sum(),
        lambda w, x: (w * x).flip(0).mul(x).sum(),
        lambda w, x: (w * x).tril(1).square().sum(),
        lambda w, x: (w * x)[1:7].square().sum(),
        lambda w, x: torch.cat([w * x, x + w]).square().sum(),
        lambda w, x: torch.cat([-(w * x)[4:], (w * x)[:4]]).mul(x).sum(),
        lambda w, x: torch.nn.functional.pad(w * x, (0, 1, 2, 3), value=0.5).square().sum(),
        lambda w, x: (w * x).select(0, 5).square().sum() + (w * x).sum(),
        lambda w, x: (w * x).index_select(0, torch.tensor([7, 1, 1])).square().sum(),
        lambda w, x: (w * x)[torch.tensor([-1, 1, 1])].square().sum(),
        lambda w, x: (w * x).gather(0, torch.tensor([[7, 1, 1, 0]])).square().sum(),
    ],
    ids=[
        "softmax", "log_softmax", "logsumexp", "layer_norm", "cumsum", "roll", "roll of two", "flip", "tril", "slice",
        "cat", "halves", "pad", "select", "index_select", "index", "gather",
    ],
)  # fmt: skip
def test_a_cut_dim_stays_cut(function):
    require(Step(function, 8, 4), (normal(8, 4),), ROWS, {"w": ("rows", None), 0: ("rows", None)})


def test_rows_that_are_rolled_with_one_row_a_rank_come_from_the_neighbour():
    found = require(
        Step(lambda w, x: torch.roll(w * x, 1, 0).mul(x).sum(), 4, 3), (normal(4, 3),), evenly("rows", 4, 4),
        {"w": ("rows", None), 0: ("rows", None)},
    )  # fmt: skip
    windows = [step.windows for step in found.steps if isinstance(step, Compute) and step.windows]
    assert len(windows) == 2 and all(window.wrap for (window,) in windows)
    assert not [step for step in found.steps if isinstance(step, Reshard)]


def test_softmax_over_blocks_takes_their_maximum_and_their_sum():
    found = require(
        Step(lambda w, x: torch.softmax(w * x, 0).mul(x).sum(), 8, 4), (normal(8, 4),), ROWS,
        {"w": ("rows", None), 0: ("rows", None)},
    )  # fmt: skip
    assert [combine for _, combine in reductions(found)] == ["max", "sum", "sum"]


@pytest.mark.parametrize(
    "function",
    [
        lambda w, x: (w.T @ x).norm(),
        lambda w, x: (w.T @ x).abs().sum(),
        lambda w, x: (w.T @ x).max(),
        lambda w, x: (w.T @ x + 1).square().sum(),
        lambda w, x: ((w.T @ x) * (w.T @ x)).sum(),
    ],
    ids=["norm", "abs", "max", "plus one", "square"],
)
def test_partial_sums_are_added_before_what_is_not_linear(function):
    found = require(Step(function, 8, 4), (normal(8, 3),), ROWS, {"w": ("rows", None), 0: ("rows", None)})
    assert reductions(found)[0][1] == "sum"
    first = next(step for step in found.steps if isinstance(step, Reduce))
    assert first.operands == ("mm",)


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(3, 2, 1), (1, 2, 0), (2, 3, 0)])
def test_strides_read_over_eight_rows(kernel, stride, padding):
    require(
        Step(lambda w, x: conv2d(x, w, stride=stride, padding=padding).square().sum(), 2, 3, kernel, kernel),
        (normal(2, 3, 8, 5),), evenly("rows", 8, 2), {0: (None, None, "rows", None)},
    )  # fmt: skip


@pytest.mark.parametrize("groups", [2, 4])
@pytest.mark.parametrize("cut", ["channels", "rows"])
def test_groups_of_channels_are_cut(groups, cut):
    """With 4 groups each channel has its own window."""
    found = require(
        Step(lambda w, x: conv2d(x, w, padding=1, groups=groups).square().sum(), 8, 4 // groups, 3, 3),
        (normal(2, 4, 8, 5),), evenly(cut, groups, 2) if cut == "channels" else evenly(cut, 8, 3),
        {0: (None, "channels", None, None) if cut == "channels" else (None, None, "rows", None)},
    )  # fmt: skip
    assert "aten.convolution.default" in targets(found)


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: torch.nn.functional.max_pool2d(x, 2),
        lambda x: torch.nn.functional.max_pool2d(x, 3, stride=2, padding=1),
        lambda x: torch.nn.functional.max_pool2d(x, 3, stride=1, dilation=2),
        lambda x: torch.nn.functional.avg_pool2d(x, 2),
        lambda x: torch.nn.functional.avg_pool2d(x, 3, stride=2, padding=1, count_include_pad=False),
        lambda x: torch.nn.functional.adaptive_avg_pool2d(x, 4),
        lambda x: torch.nn.functional.adaptive_avg_pool2d(x, 1),
        lambda x: torch.nn.functional.adaptive_max_pool2d(x, (2, 4)),
    ],
    ids=["max", "max with border", "max apart", "mean", "mean without border", "adaptive mean", "mean of all",
         "adaptive max"],
)  # fmt: skip
def test_places_of_pooled_images_are_cut(pool):
    require(
        Step(lambda w, x: pool(w * x).square().sum(), 1, 3, 1, 1), (normal(2, 3, 8, 8),),
        Axis("rows", (0, 3, 4, 8)) if pool(normal(1, 1, 8, 8)).shape[2] == 8 else evenly("rows", 8, 2),
        {0: (None, None, "rows", None)},
    )  # fmt: skip


def test_a_dim_in_parts_of_several_elements_is_sliced_and_rolled():
    """Of 8 rows each block of the axis, whose extent is 4, has two times as many; a view then finds its factor."""

    def step(w, x):
        y = torch.roll(w * x, 3, 0)[2:6] * torch.flip(x, (0,))[:4]
        return (torch.cat([y, y]).view(4, 2, 4) * 2).square().sum()

    found = require(
        Step(step, 8, 4), (normal(8, 4),), evenly("rows", 4, 2), {"w": ("rows", None), 0: ("rows", None)}
    )
    assert not [s for s in found.steps if isinstance(s, Reshard)]


def test_a_dim_with_fewer_elements_than_blocks_is_whole_and_the_reason_says_so():
    step = Step(lambda w, x: (w * x)[1:3].square().sum(), 8, 4)
    _, found, _ = planned(step, (normal(8, 4),), evenly("rows", 8, 4), {0: ("rows", None)})
    assert "not cut by rows: 2 elements are too few for the 4 blocks of rows" in found.reasons.values()


class Tied(torch.nn.Module):
    """A language model whose logits use the weight of its embedding."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(10, 4)
        self.out = torch.nn.Linear(4, 10, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, tokens, targets):
        return cross_entropy(self.out(torch.tanh(self.embedding(tokens))).flatten(0, 1), targets.flatten())


def test_tied_weights_are_cut_by_the_vocabulary_and_have_one_gradient():
    tokens = torch.randint(0, 10, (3, 5), generator=torch.Generator().manual_seed(2))
    found = require(
        Tied(),
        (tokens, tokens.roll(1, 1)),
        Axis("words", (0, 2, 3, 7, 10)),
        {"embedding.weight": ("words", None)},
    )
    ((_, gradient),) = found.gradients
    assert axes_of(found.values[gradient].cut) == ("words",)
    kept = [name for name, value in found.values.items() if 10 in value.shape and not axes_of(value.cut)]
    assert not kept  # neither table, logits nor their gradients are whole on any rank


def test_an_index_outside_a_cut_table_is_refused():
    tokens = torch.tensor([[1, 10]])
    _, found, values = planned(
        Tied(), (tokens % 10, tokens % 10), evenly("words", 10, 2), {"embedding.weight": ("words", None)}
    )
    values["input.0"] = tokens
    with pytest.raises(IndexError, match="10 of a dim of size 10"):
        compare(found, [{"words": (0, 1)}], values)


def test_causal_attention_of_cut_tokens_gathers_keys_and_values_alone():
    def step(w, x):
        q, k, v = ((x @ w[n]).view(2, 8, 2, 4).transpose(1, 2) for n in range(3))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).square().sum()

    attention = "_scaled_dot_product_flash_attention_for_cpu"
    found = require(
        Step(step, 3, 8, 8),
        (normal(2, 8, 8),),
        evenly("tokens", 8, 4),
        {0: (None, "tokens", None)},
        (attention,),
    )
    gathered = [
        name for s in found.steps if isinstance(s, Reshard) and s.kind == "all-gather" for name in s.operands
    ]
    assert len(gathered) == 2


def test_every_operation_in_the_table_is_drawn_by_the_random_cases():
    from tests.miniapps.partition.cases import FIRST, case

    seen = set()
    for seed in range(40 * len(FIRST)):
        graph, _, _ = case(seed)
        seen.update(node.target.split(".")[1] for node in graph.nodes)
    assert {name for name in SMALLER if not name.startswith("_unsafe")} <= seen
