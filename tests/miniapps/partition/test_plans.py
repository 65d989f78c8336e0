"""Plans of the models: messages, places of sums, and the correctness of every step."""

import json
import pickle
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
import torch

from miniapps.partition import models
from miniapps.partition.cuts.axes import axes_of, evenly, text
from miniapps.partition.cuts.mesh import Mesh, require_fits
from miniapps.partition.cuts.steps import Compute, Reduce, Reshard, Window
from miniapps.partition.graphs.graph import Graph, Node, Source, Tensor
from miniapps.partition.planning.plan import plan as planner
from miniapps.partition.planning.recipes import plan_of
from tests.miniapps.partition.graphs import exported, planned
from tests.miniapps.partition.oracle import check, drawn

FEW = {"samples": "6", "batch": "3", "layers": "1", "tokens": "4", "ff": "4"}
SMALL = {
    "mlp": ("dp+tp", {"samples": "6", "batch": "3"}),
    "gpt": ("dp+tp", FEW),
    "bert": ("dp+tp", FEW),
    "unet": ("dp+spatial", {"samples": "3", "batch": "3", "rows": "4", "columns": "3"}),
    "moe": ("expert", {"samples": "4", "batch": "4"}),
}


LARGEST = {"mlp": "dp+tp", "gpt": "dp+tp", "bert": "dp+tp", "unet": "dp+spatial", "moe": "expert"}


def reductions(plan):
    return [step for step in plan.steps if isinstance(step, Reduce)]


def reshards(plan):
    return Counter(step.kind for step in plan.steps if isinstance(step, Reshard))


@pytest.mark.parametrize("name", SMALL)
def test_every_step_on_three_ranks_is_the_unsharded_operation(name):
    """Once per axis that the ranks share, whose blocks are in no order."""
    recipe, sizes = SMALL[name]
    model, deck, graph = exported(name, **sizes)
    plan = plan_of(model, deck, graph, model.RECIPES[recipe])
    torch.set_num_threads(1)
    together = next(iter(model.TOGETHER), ()) if recipe == "expert" else ()
    for shared in {tuple(together) or (axis.name,): None for axis in plan.axes}:
        mesh = Mesh((("ranks", 3),), tuple((axis, "ranks") for axis in shared), shuffle=5)
        require_fits(plan, mesh)
        check(
            plan, graph, drawn(graph), [{a.name: mesh.own(a, rank) for a in plan.axes} for rank in range(3)]
        )


def test_data_parallel_gpt_reduces_twice():
    """How many targets count, then loss and all gradients as one vector."""
    _, plan = planned("gpt", "dp")
    assert [(step.dtype, len(step.operands)) for step in reductions(plan)] == [("int64", 1), ("float32", 38)]
    assert not reshards(plan)


def test_tensor_parallel_gpt_reduces_as_often_as_megatron():
    """Twice per layer and pass; q, k and v's gradients of their input meet first."""
    _, plan = planned("gpt", "tp")
    assert Counter(step.axes for step in reductions(plan)) == {("heads",): 4, ("ff",): 4}
    assert not reshards(plan)


@pytest.mark.parametrize("recipe", ["tp+norms", "dp+tp+norms"])
def test_cut_norms_gather_and_scatter_as_often_as_megatron(recipe):
    """Twice each per layer and pass (arXiv 2205.05198, figure 6); q, k and v's gradients of their input meet first."""
    _, plan = planned("gpt", recipe)
    batch = ("batch",) * (recipe == "dp+tp+norms")
    assert reshards(plan) == {"all-gather": 8}
    between = [step for step in reductions(plan) if step.axes in (("heads",), ("ff",))]
    assert Counter(step.axes for step in between) == {("heads",): 4, ("ff",): 4}
    for step in between:
        assert [axes_of(plan.values[name].cut) for name in step.results] == [(*batch, "norms")]
        assert Mesh((("m", 2),), (("heads", "m"), ("ff", "m"), ("norms", "m"))).scatters(
            step.axes, plan.values[step.operands[0]].cut, plan.values[step.results[0]].cut
        )
    norms = [step for step in plan.steps if isinstance(step, Compute) and "layer_norm" in step.target]
    assert norms and all(axes_of(plan.values[s.results[0]].cut) == (*batch, "norms") for s in norms)
    attention = [step for step in plan.steps if isinstance(step, Compute) and "attention" in step.target]
    assert attention and all(axes_of(plan.values[s.results[0]].cut) == (*batch, "heads") for s in attention)


@pytest.mark.parametrize("recipe", ["tp+norms", "dp+tp+norms"])
def test_every_step_with_cut_norms_is_the_unsharded_operation(recipe):
    model, deck, graph = exported("gpt", layers="1")
    plan = plan_of(model, deck, graph, model.RECIPES[recipe])
    torch.set_num_threads(1)
    mesh = Mesh((("ranks", 3),), tuple((axis, "ranks") for axis in ("heads", "ff", "norms")), shuffle=5)
    require_fits(plan, mesh)
    check(plan, graph, drawn(graph), [{a.name: mesh.own(a, rank) for a in plan.axes} for rank in range(3)])


def test_cut_tokens_gather_keys_and_values_once_per_layer_and_scatter_their_gradients():
    _, plan = planned("gpt", "sp")
    layers = 2
    assert reshards(plan) == {"all-gather": layers}
    scattered = [
        step
        for step in reductions(plan)
        if step.operands[0].startswith("_scaled_dot_product") and len(step.operands) == 2
    ]
    assert len(scattered) == layers
    assert all(axes_of(plan.values[name].cut) == ("tokens",) for step in scattered for name in step.results)


def test_a_cut_vocabulary_sends_rows_of_tokens_and_no_logits():
    """Of the embedding and of the gradient of the last norm; for each token the maximum, the sum, the chosen logit and
    the sum of gradients."""
    _, plan = planned("gpt", "tp+vocabulary")
    shapes = [
        [plan.values[name].shape for name in s.operands]
        for s in reductions(plan)
        if s.axes == ("vocabulary",)
    ]
    assert sorted(shapes) == [[(14, 16, 64)]] * 2 + [[(224,)]] + [[(224, 1)]] * 3
    assert not reshards(plan)


def test_experts_get_their_tokens_by_four_exchanges():
    """Tokens to experts and back, forward and backward, as in GShard; experts' gradients stay where experts are."""
    _, plan = planned("moe", "expert")
    assert reshards(plan) == {"all-to-all": 4}
    gradients = dict(plan.gradients)
    assert text(plan.values[gradients["up"]].cut) == "experts:4 x 32 x 64"


def test_every_operation_of_the_models_has_a_rule():
    for name, recipe in LARGEST.items():
        assert not [why for why in planned(name, recipe)[1].reasons.values() if "no rule" in why]


def test_stored_parameters_are_gathered_once_before_all_and_their_gradients_scattered():
    graph, plan = planned("gpt", "zero")
    parameters = [source for source in graph.sources if source.kind == "parameter"]
    first, *_ = plan.steps
    assert isinstance(first, Reshard) and first.kind == "all-gather"
    assert set(first.operands) == {source.tensor.name for source in parameters}
    assert reshards(plan) == {"all-gather": 1}
    loss, gradients = [step for step in reductions(plan) if step.dtype == "float32"]
    assert loss.results == (plan.loss,)
    assert set(gradients.results) == {name for _, name in plan.gradients}
    for operand, result in zip(gradients.operands, gradients.results, strict=True):
        assert not axes_of(plan.values[operand].cut) and axes_of(plan.values[result].cut) == ("stored",)


def test_no_fuse_lets_each_value_travel_alone():
    model, deck, graph = exported("gpt")
    plan = plan_of(model, deck, graph, model.RECIPES["zero"], fuse=False)
    assert reshards(plan) == {"all-gather": len(plan.gradients)}
    assert all(len(step.operands) == 1 for step in reductions(plan))
    assert plan.hash == planned("gpt", "zero")[1].hash


def test_normalisation_over_samples_sums_over_all_ranks_and_divides_by_the_true_count():
    _, plan = planned("unet", "dp+spatial")
    (mean,) = [step for step in plan.steps if isinstance(step, Compute) and step.node == "div"]
    assert mean.args[1] == 4 * 24 * 16 and mean.over == ("batch", "rows", "columns")


def test_one_tree_over_the_blocks_of_all_axes_that_are_summed():
    _, plan = planned("unet", "dp+spatial")
    assert {step.axes for step in reductions(plan)} == {("batch", "rows", "columns")}


def test_a_value_with_two_readers_is_reduced_once():
    _, plan = planned("unet", "dp+spatial")
    assert all(
        count == 1 for count in Counter(o for step in reductions(plan) for o in step.operands).values()
    )


def test_without_fusion_there_is_a_reduction_per_value_and_the_problem_is_the_same():
    model, deck, graph = exported("gpt")
    fused, apart = (plan_of(model, deck, graph, model.RECIPES["dp"], fuse) for fuse in (True, False))
    assert len(reductions(apart)) == 39 and fused.hash == apart.hash


def test_other_blocks_are_another_problem():
    recipes = [name for name in models.model("mlp").RECIPES if "pp" not in name]
    hashes = {planned("mlp", recipe)[1].hash for recipe in recipes}
    model, deck, graph = exported("mlp", batch="5")
    assert len(hashes | {plan_of(model, deck, graph, model.RECIPES["dp"]).hash}) == 5


def test_planning_needs_neither_torch_nor_mpi_and_every_process_plans_alike(tmp_path):
    _, deck, graph = exported("moe")
    file = tmp_path / "graph"
    file.write_bytes(pickle.dumps((deck, graph)))
    code = (
        "import pickle, sys; from miniapps.partition.planning.recipes import plan_of;"
        "from miniapps.partition.models.moe import MODEL as moe;"
        f"deck, graph = pickle.load(open({str(file)!r}, 'rb'));"
        "print(plan_of(moe, deck, graph, moe.RECIPES['expert']).hash, *{'torch', 'mpi4py'} & set(sys.modules))"
    )
    for seed in "1", "2":  # of Python's hashes of strings, which order sets
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                             env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)})  # fmt: skip
        assert run.stdout.split() == [planned("moe", "expert")[1].hash]


def test_a_plan_is_a_document_of_its_own():
    _, plan = planned("mlp", "dp")
    document = json.loads(json.dumps(plan.as_json()))
    assert {step["step"] for step in document["steps"]} == {"compute", "reduce"}
    assert document["values"][plan.loss] == {
        "shape": [],
        "dtype": "float32",
        "cut": [],
        "partial": [],
        "combine": "sum",
    }


@pytest.mark.parametrize("transposed", [False, True])
def test_windows_read_every_place_that_a_result_depends_on_and_no_other(transposed):
    """By the gradient: which inputs a block of results depends on."""
    for kernel, stride, dilation, padding in [
        (5, 1, 1, 2),
        (3, 2, 1, 1),
        (2, 2, 1, 0),
        (3, 1, 2, 2),
        (4, 3, 1, 0),
    ]:
        x = torch.zeros(1, 1, 12, dtype=torch.float64, requires_grad=True)
        weight = torch.ones(1, 1, kernel, dtype=torch.float64)
        how = [stride], [padding], [dilation], transposed, [0], 1
        y = torch.ops.aten.convolution(x, weight, None, *how)
        window = Window("x", 2, "y", 2, "rows", kernel, stride, dilation, padding, transposed)
        for begin, end in [(0, 1), (1, 3), (2, y.shape[2])]:
            (gradient,) = torch.autograd.grad(y[..., begin:end].sum(), x, retain_graph=True)
            reads = np.flatnonzero(gradient[0, 0].numpy())
            low, high = window.needs(begin, end)
            assert max(low, 0) == reads[0] and min(high, 12) == reads[-1] + 1


def chain(*targets):
    """A graph of operations on one operand, after a product of matrices whose contracted dim is cut."""
    sources = [Source(Tensor(n, (4, 4), "float32"), "input", str(k)) for k, n in enumerate("abc")]
    nodes, before = (
        [Node("mm", "aten.mm.default", ("%a", "%b"), (), (Tensor("mm", (4, 4), "float32"),))],
        "%mm",
    )
    for k, (target, *args) in enumerate(targets):
        given = tuple(before if arg is None else arg for arg in args)
        nodes.append(Node(f"n{k}", target, given, (), (Tensor(f"n{k}", (4, 4), "float32"),)))
        before = f"%n{k}"
    graph = Graph(tuple(sources), tuple(nodes), before[1:], ())
    return planner(graph, [evenly("k", 4, 2)], {0: (None, "k")})


@pytest.mark.parametrize(
    ("operation", "delayed"),
    [
        (("aten.permute.default", None, (1, 0)), True),
        (("aten.mul.Tensor", None, 2.0), True),
        (("aten.add.Tensor", None, None), True),
        (("aten.neg.default", None), True),
        (("aten.add.Tensor", None, 1.0), False),
        (("aten.mul.Tensor", None, None), False),
        (("aten.relu.default", None), False),
        (("aten.add.Tensor", None, "%c"), False),
    ],
)
def test_partial_sums_pass_through_what_is_linear_alone(operation, delayed):
    plan = chain(operation)
    (reduction,) = reductions(plan)
    assert reduction.operands == (("n0",) if delayed else ("mm",))
