"""A rank's step without data: the calls of the real program, in its order, and the bytes of its messages."""

from collections import Counter

import pytest
import torch

from miniapps.partition import models
from miniapps.partition.cuts.mesh import Mesh, parse
from miniapps.partition.cuts.steps import Reduce, step_results
from miniapps.partition.execution import run
from miniapps.partition.execution.compute import Kernels
from miniapps.partition.execution.learn import Learner
from miniapps.partition.planning.recipes import plan_of
from miniapps.partition.pricing.dry import dry_run, dry_step
from miniapps.partition.pricing.events import Array, KernelCall, Sent, Summed
from miniapps.partition.showing.traffic import Counter as Traffic
from tests.miniapps.partition.graphs import exported

FEW = {"samples": "4", "batch": "4", "layers": "1", "tokens": "8"}
SIZES = {"gpt": FEW, "bert": FEW, "mlp": {"samples": "12", "batch": "4"}}
MESHES = [
    ("gpt", "dp", "data=2"),
    ("gpt", "dp+tp", "data=2,model=2"),
    ("gpt", "zero", "data=4"),
    ("gpt", "tp+sp", "model=2,sequence=2"),
    ("bert", "tp+vocabulary", "model=2"),
    ("unet", "spatial", "rows=2,columns=2"),
    ("moe", "expert", "data=4"),
]


def described(value):
    """The tensors in nested arguments, as the dry run describes them."""
    if isinstance(value, torch.Tensor):
        return [(str(value.dtype).removeprefix("torch."), tuple(value.shape))]
    if isinstance(value, dict):
        value = list(value.values())
    return [one for each in value for one in described(each)] if isinstance(value, tuple | list) else []


def plain(arrays):
    return [(array.dtype, array.shape) for array in arrays]


@pytest.fixture
def seen(monkeypatch):
    """What the kernels of a real program are called with, and return: (target, operands, results)."""
    calls = []

    def watched(target, function):
        def call(*args, **kwargs):
            result = function(*args, **kwargs)
            calls.append((target, described([args, kwargs]), described([result])))
            return result

        return call

    class Watched(Kernels):
        def function(self, target, kernel, kwargs):
            real = super().function(target, kernel, kwargs)
            return real if kernel == "create" else watched(target, real)

        def over_blocks(self, target, lengths, apart):
            return watched(target, super().over_blocks(target, lengths, apart))

    monkeypatch.setattr(run, "Kernels", Watched)
    return calls


@pytest.mark.parametrize("level", ["none", "layout", "exact"])
@pytest.mark.parametrize(
    ("name", "axes"), [*((name, None) for name in models.names()), ("gpt", ("batch", "tokens", "vocabulary"))]
)
def test_the_calls_are_those_of_the_program_in_its_order(name, axes, level, seen):
    model, deck, graph = exported(name, **SIZES.get(name, {}))
    plan = plan_of(model, deck, graph, axes or list(next(iter(model.RECIPES.values()))))
    mesh = Mesh((("ranks", 1),))
    network, inputs = model.module(deck), model.inputs(deck)
    whole = {("parameter", key): x.detach() for key, x in network.named_parameters()}
    whole |= {("buffer", key): x for key, x in network.named_buffers()}
    whole |= {("input", str(k)): x for k, x in enumerate(inputs)}
    program = run.Program(None, plan, mesh, level)
    Learner(program, whole).compute()
    program.free()
    dry = [event for event in dry_run(plan, mesh, 0, level) if isinstance(event, KernelCall)]
    assert len(seen) > 20
    assert [(e.target, plain(e.operands), plain(e.results)) for e in dry] == seen


@pytest.mark.parametrize(("name", "recipe", "mesh"), MESHES)
def test_the_bytes_of_messages_are_those_that_explain_counts(name, recipe, mesh):
    model, deck, graph = exported(name, **SIZES.get(name, {}))
    carried = model.RECIPES[recipe]
    plan = plan_of(model, deck, graph, list(carried))
    over = parse(mesh, carried, 4 if "," in mesh or mesh.endswith("4") else 2)
    counter, sent, summed = Traffic(plan, over), Counter(), Counter()
    for rank in range(over.size):
        for event in dry_run(plan, over, rank, "layout"):
            if isinstance(event, Sent):
                sent[event.node] += sum(nbytes for _, nbytes in event.to)
            elif isinstance(event, Summed) and event.group:
                summed[event.node] += 1
    expected, reductions = Counter(), Counter()
    for step in plan.steps:
        traffic = counter.step(step)
        if traffic is None:
            continue
        if isinstance(step, Reduce):
            reductions[step.node] += over.size
        else:
            expected[step.node] += traffic.nbytes
    assert {node: n for node, n in sent.items() if n} == expected
    assert summed == reductions
    assert step_results(plan.steps[0])


def test_kernels_of_this_suite_are_told_from_those_of_torch():
    model, deck, graph = exported("gpt", **FEW)
    plan = plan_of(model, deck, graph, ["batch"])
    mesh = Mesh((("ranks", 1),))

    def own(level, **options):
        events = dry_run(plan, mesh, 0, level, **options)
        return {event.target.split(".")[1] for event in events if isinstance(event, KernelCall) and event.own}

    attention = {
        name + end for name in ["_scaled_dot_product_flash_attention_for_cpu"] for end in ("", "_backward")
    }
    assert own("none") == own("run") == set()
    assert own("layout") == {"mm", "sum", *attention}
    more = {"native_layer_norm", "native_layer_norm_backward", "gelu", "gelu_backward"}
    assert own("layout", anywhere=True) >= {"mm", "sum", *attention, *more}


def test_constants_too_large_to_keep_are_made_without_numbers():
    model, deck, graph = exported("gpt", samples="8", tokens="512", vocabulary="1024", batch="2", layers="1")
    plan = plan_of(model, deck, graph, ["batch"])
    _, peak = dry_step(plan, Mesh((("ranks", 1),)), 0, "none")
    assert peak > 4 * 8 * 512 * 1024


def test_a_rank_of_a_large_mesh_has_its_share():
    model, deck, graph = exported("mlp", samples="4096", batch="1024", width="64")
    plan = plan_of(model, deck, graph, ["batch"])
    mesh = Mesh((("data", 256),), (("batch", "data"),))
    events = dry_run(plan, mesh, 255, "none")
    first = next(
        event for event in events if isinstance(event, KernelCall) and event.target == "aten.mm.default"
    )
    assert first.operands[0] == Array("float32", (4096 // 256, first.operands[0].shape[1]))
    assert next(event.elements for event in events if isinstance(event, Summed)) == 1
