"""Pipelines without MPI: stages of operations, orders of tasks, bubbles, memory."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from miniapps.partition.capture.export import ExportError, export
from miniapps.partition.capture.shapes import graph_of
from miniapps.partition.commands import main
from miniapps.partition.cuts.axes import AxisError, axes_of, evenly
from miniapps.partition.cuts.mesh import SCHEDULES, Mesh, parse
from miniapps.partition.cuts.steps import BACKWARD, FORWARD, Receive, Send, step_operands, step_results
from miniapps.partition.graphs.repeat import joins, split
from miniapps.partition.planning.pipeline import divided, staged
from miniapps.partition.planning.recipes import chosen, plan_of
from miniapps.partition.planning.schedule import chain, scheduled, simulate, steps_of
from miniapps.partition.pricing.dry import dry_run, dry_step
from miniapps.partition.pricing.events import Arrived, Sent
from miniapps.partition.pricing.pipeline import bubble, pipeline_of
from miniapps.partition.showing.traffic import Counter
from tests.miniapps.partition.graphs import exported

SIZES = {"layers": "4", "samples": "8", "batch": "2", "micro_batches": "4", "tokens": "8", "width": "16"}
LAYERS = 4


def planned(recipe, **sizes):
    """A plan of gpt, of 4 layers and 4 micro-batches."""
    model, deck, graph = exported("gpt", **SIZES | sizes)
    return plan_of(model, deck, graph, list(model.RECIPES[recipe]))


def on(ranks, schedule="1f1b", shuffle=0):
    return Mesh((("stage", ranks),), (("stage", "stage"),), shuffle, schedule)


@pytest.mark.parametrize("count", [2, 3, 4, 7])
@pytest.mark.parametrize("parts", [1, 2, 4, 9])
def test_the_bubble_of_equal_stages_is_that_of_gpipe(count, parts):
    for schedule in ("gpipe", "1f1b"):
        waits = bubble([1.0] * count, [2.0] * count, parts, schedule=schedule)
        assert waits == pytest.approx((count - 1) / (parts + count - 1))


@pytest.mark.parametrize("ranks, each, groups", [(2, 2, 1), (2, 3, 4), (4, 2, 2), (3, 4, 2)])
def test_stages_in_turn_wait_less_by_the_number_of_stages_of_a_rank(ranks, each, groups):
    owners = [stage % ranks for stage in range(ranks * each)]
    waits = bubble([1.0] * len(owners), [2.0] * len(owners), ranks * groups, owners, "circular")
    assert waits == pytest.approx((ranks - 1) / (each * ranks * groups + ranks - 1))


def test_a_slow_stage_makes_the_others_wait():
    assert bubble([1, 1, 3, 1], [2, 2, 6, 2], 8) > bubble([1] * 4, [2] * 4, 8)
    assert bubble([1, 1], [1, 1], 4, [0, 0]) == 0


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("owners", [[0, 1, 2, 3], [0, 0, 1, 1], [0, 1, 0, 1], [1, 0, 2, 0], [2, 2, 0, 1, 1]])
def test_every_task_follows_those_that_it_needs(schedule, owners):
    for parts in (1, 2, 5):
        needs = chain(len(owners), parts)
        times = simulate(needs, owners, lambda job: 1 + job[0], schedule)
        end = {slot.place: slot.end for slot in times}
        assert len(times) == len(needs)
        assert all(end[other] <= slot.start for slot in times for other in needs[slot.place])
        for rank in range(max(owners) + 1):
            mine = sorted((slot.start, slot.end) for slot in times if slot.rank == rank)
            assert all(a[1] <= b[0] for a, b in pairwise(mine))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("ranks, shuffle", [(1, 0), (2, 0), (3, 5), (4, 0)])
def test_each_rank_has_what_it_reads_and_messages_have_two_ends(schedule, ranks, shuffle):
    plan = planned("dp+pp")
    mesh = on(ranks, schedule, shuffle)
    owners = mesh.owners(plan.axis("stage"))
    had = {(s.tensor.name, int(owners[at])) for s in plan.sources for at in plan.stages[s.tensor.name]}
    under_way = set()
    for stage, step in scheduled(plan, mesh):
        rank = int(owners[stage])
        name = step_results(step)[0]
        if isinstance(step, Send):
            assert (name, rank) in had and owners[step.target] != rank
            under_way.add((name, int(owners[step.target])))
        elif isinstance(step, Receive):
            under_way.remove((name, rank))
            had.add((name, rank))
        else:
            assert all((operand, rank) in had for operand in step_operands(step)), step
            had |= {(result, rank) for result in step_results(step)}
    assert not under_way
    assert all((plan.loss, rank) in had for rank in range(ranks))
    of = {s.key: s.tensor.name for s in plan.sources if s.kind == "parameter"}
    for key, gradient in plan.gradients:
        assert (gradient, int(owners[plan.stages[of[key]][0]])) in had
    assert sum(len(steps_of(plan, mesh, rank)) for rank in range(ranks)) == len(scheduled(plan, mesh))


def test_stages_schedules_and_their_ranks_do_not_enter_the_hash():
    assert planned("dp").hash == planned("dp+pp").hash == planned("dp+pp", stage="2").hash
    assert planned("dp").hash != planned("dp", micro_batches="2").hash


def test_a_parameter_and_its_gradient_belong_to_the_stage_of_its_layer():
    plan = planned("pp")
    of = {s.key: s.tensor.name for s in plan.sources if s.kind == "parameter"}
    for key, gradient in plan.gradients:
        first, _, rest = key.partition(".")
        stage = {"blocks": rest.partition(".")[0], "embedding": 0, "position": 0}.get(first, LAYERS - 1)
        assert plan.stages[of[key]] == plan.stages[gradient] == (int(stage),)


def test_between_two_stages_pass_one_activation_and_one_gradient_for_each_micro_batch():
    plan = planned("pp")
    sends = [step for step in plan.steps if isinstance(step, Send) and step.operands[0] != plan.loss]
    between = [(step.source, step.target) for step in sends]
    assert sorted(between) == sorted(
        4 * [(k, k + way) for k in range(4) for way in (1, -1) if 0 <= k + way < 4]
    )
    (shape,) = {plan.values[step.operands[0]].shape for step in sends}
    assert shape == (2, 8, 16)


def test_of_cut_norms_each_rank_sends_its_tokens_to_the_next_stage():
    cut, whole = (
        [
            axes_of(plan.values[step.operands[0]].cut)
            for step in plan.steps
            if isinstance(step, Send) and step.operands[0] != plan.loss
        ]
        for plan in (planned("tp+norms+pp"), planned("tp+pp"))
    )
    assert set(cut) == {("norms",)} and set(whole) == {()}
    assert len(cut) == len(whole)


def test_one_each_frees_activations_early():
    plan = planned("pp", micro_batches="8", samples="32", batch="1", tokens="64")
    most = {
        how: [dry_step(plan, on(4, how), rank, "layout")[1] for rank in range(4)] for how in SCHEDULES[:2]
    }
    assert most["1f1b"][0] < 0.6 * most["gpipe"][0]
    assert most["1f1b"][3] < 0.3 * most["gpipe"][3]
    assert all(one <= all_first for one, all_first in zip(most["1f1b"], most["gpipe"], strict=True))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_bytes_of_messages_are_those_that_explain_counts(schedule):
    plan = planned("dp+tp+pp")
    carriers = {"batch": "data", "heads": "model", "ff": "model", "stage": "stage"}
    mesh = parse("data=2,model=2,stage=2", carriers, 8, schedule=schedule)
    counter = Counter(plan, mesh)
    told = sum(counter.step(s).nbytes for s in plan.steps if isinstance(s, Send) and counter.step(s))
    sent, arrived = [], []
    for rank in range(8):
        for event in dry_run(plan, mesh, rank, "layout"):
            if isinstance(event, Arrived):
                arrived.append((event.source, rank, event.nbytes))
            elif isinstance(event, Sent) and event.node and not event.stays and len(event.group) == 2:
                sent += [(rank, peer, nbytes) for peer, nbytes in event.to]
    assert sorted(sent) == sorted(arrived)
    assert sum(nbytes for *_, nbytes in sent) == told > 0


def test_layers_that_stages_do_not_divide_are_balanced_by_work():
    assert divided([1, 1, 1, 1, 1], 2) == (0, 3, 5)
    assert divided([1, 1, 1, 1, 4], 2) == (0, 4, 5)
    assert divided([5, 1, 1, 1], 3) == (0, 1, 3, 4)
    _, _, graph = exported("gpt", **SIZES | {"layers": "3", "vocabulary": "2048"})
    layers = tuple(f"blocks.{k}" for k in range(3))
    assert staged(graph, layers, 2).starts == (0, 2, 3)  # the logits belong to the last
    assert staged(graph, layers, 3).starts == (0, 1, 2, 3)
    with pytest.raises(AxisError, match="4 stages for 3 layers"):
        staged(graph, layers, 4)


def test_micro_batches_are_added_in_the_tree_of_all_reduces():
    assert list(joins(0, 5)) == [(0, 1, 2), (2, 3, 4), (0, 2, 4), (0, 4, 5)]
    assert split(([1, 2, 3, 4], [5, 6, 7, 8]), 2) == ([1, 2], [5, 6], [3, 4], [7, 8])


def test_counts_of_targets_are_added_once_for_all_micro_batches():
    plan = planned("dp")
    operands = [step.operands for step in plan.steps if type(step).__name__ == "Reduce"]
    assert len(operands) == 2 and len(operands[0]) == 4  # the counts; loss and gradients


def test_the_bubble_of_a_plan_follows_from_its_stages():
    found = pipeline_of(planned("pp"), on(2))
    assert (found.stages, found.ranks, found.micro_batches) == (4, 2, 4)
    assert 0.2 <= found.bubble < 0.3  # equal stages: 1 / 5; the last has the logits, too
    assert pipeline_of(planned("dp"), on(1)) is None
    tasks = set(planned("pp").tasks.values())
    assert {(m, way) for m in range(4) for way in (FORWARD, BACKWARD)} <= tasks


def test_explain_shows_the_pipeline_and_warns_of_few_micro_batches(capsys):
    assert main(["explain", "mlp", "--recipe", "pp", "--mesh", "stage=3", "--quiet"]) == 0
    text = capsys.readouterr().out
    assert "Pipeline: 3 stages on 3 ranks, 1 micro-batch, schedule 1f1b." in text
    assert "choose at least 3 micro-batches" in text and "send" in text


@pytest.mark.parametrize(
    "options, reason",
    [
        (["--mesh", "stage=4"], "at most 2"),
        (["--mesh", "stage=2", "--blocks", "stage=3"], "stage = 3: the model has 2 layers"),
        (["--mesh", "stage=2", "--size", "micro_batches=4"], "does not divide samples = 14"),
        (["--mesh", "data=2", "--map", "batch=data,stage=data", "--axes", "batch,stage"], "carries stage and batch"),
    ],
)  # fmt: skip
def test_impossible_pipelines_are_refused_in_a_sentence(capsys, options, reason):
    assert main(["explain", "gpt", "--recipe", "pp", *options]) == 2
    assert reason in capsys.readouterr().err


def test_models_without_layers_have_no_recipe_of_a_pipeline(capsys):
    assert main(["explain", "unet", "--recipe", "pp", "--mesh", "stage=2"]) == 2
    assert "unknown recipe 'pp'" in capsys.readouterr().err


def test_a_layer_is_a_stage_without_blocks():
    model, deck, _ = exported("gpt", **SIZES)
    assert chosen(model, deck, ["stage"]) == (evenly("stage", 4, 4),)


class Normalised(torch.nn.Module):
    """A network with running means."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3)

    def forward(self, x):
        return self.norm(x).square().mean()


def test_steps_that_micro_batches_would_change_are_refused():
    with pytest.raises(ExportError, match=r"changes buffers .*running_mean"):
        export(Normalised(), (torch.ones(4, 3),), micro_batches=2)
    layer = torch.nn.Linear(3, 1)
    with pytest.raises(ExportError, match="input 0 has 4 samples, which cannot be divided into 3 equal"):
        export(layer, (torch.ones(4, 3),), lambda m, x: m(x).mean(), micro_batches=3)


def test_dropout_draws_other_numbers_for_each_micro_batch():
    step = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5))
    graph = export(step, (torch.ones(4, 3),), lambda m, x: m(x).mean(), micro_batches=2)
    drawn = [node.name for node in graph.nodes if node.target == "aten.native_dropout.default"]
    assert drawn == ["native_dropout#0", "native_dropout#1"]  # the key of a random number has the node


def test_a_graph_of_repeated_layers_is_a_pipeline_too():
    model, deck, _ = exported("gpt", **SIZES | {"layers": "4"})
    deck = replace(deck, layers=8)
    plan = plan_of(model, deck, graph_of(model, deck), ["stage"])
    assert plan.axis("stage").blocks == 8
    parameters = {s.key: plan.stages[s.tensor.name] for s in plan.sources if s.kind == "parameter"}
    assert all(parameters[f"blocks.{k}.up.weight"] == (k,) for k in range(8))


def test_explain_draws_and_lists_the_calls_of_a_rank(capsys, tmp_path):
    picture = tmp_path / "plan.svg"
    words = ["explain", "mlp", "--recipe", "dp+pp", "--mesh", "data=2,stage=3", "--size", "micro_batches=2"]
    more = ["--picture", str(picture), "--calls", "5", "--json", "--schedule", "gpipe"]
    assert main([*words, *more]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "<svg" in picture.read_text()
    assert found["pipeline"]["schedule"] == "gpipe" and found["pipeline"]["micro_batches"] == 2
    products = [row["calls"] for row in found["calls"] if row["kernel"] == "aten.mm.default"]
    assert (
        sum(products) == 6
    )  # of the last layer, for two micro-batches: forward, gradients of input and weight
