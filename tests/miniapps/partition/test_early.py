"""Reductions of gradients that begin early: what they hold, where they begin and end."""

import pytest

torch = pytest.importorskip("torch")

from miniapps.partition import models  # noqa: E402
from miniapps.partition.cuts.mesh import Mesh  # noqa: E402
from miniapps.partition.cuts.steps import (  # noqa: E402
    BACKWARD,
    TAIL,
    Reduce,
    Reshard,
    step_operands,
    step_results,
)
from miniapps.partition.planning.early import OVERLAPS, gradient_sums, overlapped  # noqa: E402
from miniapps.partition.planning.recipes import plan_of  # noqa: E402
from miniapps.partition.pricing.dry import dry_run  # noqa: E402
from miniapps.partition.pricing.events import KernelCall, Sent, Summed  # noqa: E402
from miniapps.partition.showing.traffic import Counter  # noqa: E402
from tests.miniapps.partition.graphs import exported, planned  # noqa: E402

RECIPES = [(name, recipe) for name in models.names() for recipe in models.model(name).RECIPES]


@pytest.mark.parametrize("name, recipe", RECIPES)
def test_sums_begin_when_they_can_and_nothing_else_changes(name, recipe):
    before = planned(name, recipe)[1]
    after = overlapped(before, buckets=3, least=1)
    assert after.hash == before.hash
    alone = gradient_sums(before)
    made = {source.tensor.name for source in after.sources}
    previous = ()
    for step in after.steps:
        assert made.issuperset(step_operands(step))
        made.update(step_results(step))
        if isinstance(step, Reduce):
            assert step.early == alone.issuperset(step.operands)
        if isinstance(step, Reduce) and step.early:
            assert set(step.operands) & set(previous)  # the step before it completes it
        else:
            previous = step_results(step)
    kept = [
        step for step in before.steps if not (isinstance(step, Reduce) and alone.issuperset(step.operands))
    ]
    others = [step for step in after.steps if not (isinstance(step, Reduce) and step.early)]
    if before.stages:  # sums over micro-batches move
        kept, others = sorted(kept, key=str), sorted(others, key=str)
    assert others == kept
    nodes = [step.node for step in after.steps if isinstance(step, Reduce) and step.early]
    assert len(set(nodes)) == len(nodes)
    whole = sum(isinstance(step, Reduce) and alone.issuperset(step.operands) for step in before.steps)
    assert whole <= len(nodes) <= 3 * whole


def test_short_gradients_travel_as_one_vector():
    found = overlapped(planned("mlp", "dp")[1], least=10**9)
    early = [step for step in found.steps if isinstance(step, Reduce) and step.early]
    assert len(early) == 1 and len(early[0].operands) > 1


def test_bytes_and_calls_stay_and_waits_come_at_the_end():
    before = planned("gpt", "dp")[1]
    after = overlapped(before, least=1)
    mesh = Mesh((("d", 2),), (("batch", "d"),))
    sent = [sum(t.nbytes for s in of.steps if (t := Counter(of, mesh).step(s))) for of in (before, after)]
    assert sent[0] == sent[1] > 0
    for level in ("none", "layout", "exact"):
        events = [dry_run(of, mesh, 0, level) for of in (before, after)]
        calls = [[e for e in each if isinstance(e, KernelCall)] for each in events]
        assert calls[0] == calls[1]
        sums = [[e for e in each if isinstance(e, Summed) and e.part != "start"] for each in events]
        assert sum(e.elements for e in sums[0]) == sum(e.elements for e in sums[1])
        assert len(sums[1]) > len(sums[0])
        # No rank waits for a gradient before the last kernel.
        last = max(k for k, e in enumerate(events[1]) if isinstance(e, KernelCall))
        early = {step.node for step in after.steps if isinstance(step, Reduce) and step.early}
        ends = [k for k, e in enumerate(events[1]) if isinstance(e, Summed) and e.part == "finish"]
        assert len(ends) == len(early) and min(ends) > last


def begun(plan, mesh, level="layout", rank=0):
    """For each message of a rank that begins early: (event, numbers of kernels before its start and its end)."""
    kernels, open_, found = 0, {}, []
    for event in dry_run(plan, mesh, rank, level):
        if isinstance(event, KernelCall):
            kernels += event.target.split(".")[1] in ("mm", "bmm")
        elif isinstance(event, Summed | Sent) and event.part == "start":
            open_[event.node] = kernels
        elif isinstance(event, Summed | Sent) and event.part == "finish":
            found.append((event, open_.pop(event.node), kernels))
    assert not open_
    return found


@pytest.mark.parametrize("name, recipe", RECIPES)
def test_every_level_has_the_hash_and_reads_only_what_exists(name, recipe):
    before = planned(name, recipe)[1]
    assert overlapped(before, "off") is before
    for level in OVERLAPS:
        after = overlapped(before, level, buckets=3, least=1)
        assert after.hash == before.hash
        made = {source.tensor.name for source in after.sources}
        for step in after.steps:
            assert made.issuperset(step_operands(step))
            made.update(step_results(step))


def test_sums_of_tensor_parallelism_pass_beside_the_products_that_follow():
    plan = planned("gpt", "tp")[1]
    mesh = Mesh((("m", 2),), (("heads", "m"), ("ff", "m")))
    assert begun(overlapped(plan, "gradients", least=1), mesh) == []
    found = begun(overlapped(plan, "sums", least=1), mesh)
    assert found and all(first < last for _, first, last in found)


def test_a_product_is_added_part_by_part_while_the_next_part_is_computed():
    plan = planned("gpt", "tp")[1]
    mesh = Mesh((("m", 2),), (("heads", "m"), ("ff", "m")))
    whole = [e for e in dry_run(plan, mesh, 0, "layout") if isinstance(e, Summed)]
    for level in ("none", "layout", "exact"):
        found = begun(overlapped(plan, "rings", buckets=4, least=1), mesh, level)
        parts = [event for event, *_ in found if ", part " in event.node]
        assert len(parts) > 4 and len(parts) % 4 == 0
        assert sum(event.elements for event in parts) == sum(
            e.elements for e in whole if any(p.node.startswith(f"{e.node}, part ") for p in parts)
        )


def test_parts_of_a_product_are_as_many_as_it_has_elements_for():
    plan = planned("gpt", "tp")[1]
    products = [s for s in overlapped(plan, "rings", least=5000).steps if isinstance(s, Reduce) and s.product]
    assert products and {s.parts for s in products} == {224 * 64 // 5000}
    assert not any(isinstance(s, Reduce) and s.product for s in overlapped(plan, "rings", least=10**6).steps)


NORMS = Mesh((("m", 4),), (("heads", "m"), ("ff", "m"), ("norms", "m")))
WIDER = Mesh((("d", 2), ("m", 4)), (("batch", "d"), ("heads", "m"), ("ff", "m"), ("norms", "m")))


@pytest.mark.parametrize("recipe, mesh", [("tp+norms", NORMS), ("dp+tp+norms", WIDER)])
def test_rows_are_multiplied_while_others_arrive(recipe, mesh):
    plan = planned("gpt", recipe)[1]
    after = overlapped(plan, "rings", buckets=3, least=1)
    gathers = [step for step in after.steps if isinstance(step, Reshard) and step.products]
    assert len(gathers) == sum(isinstance(step, Reshard) and step.kind == "all-gather" for step in plan.steps)
    for rank, level in ((0, "layout"), (3, "none")):
        found = [each for each in begun(after, mesh, level, rank) if isinstance(each[0], Sent)]
        assert len(found) == 2 * len(gathers)  # three other ranks, in two parts
        assert all(first < last for _, first, last in found)  # own rows are multiplied before any arrive
        for (_, _, one), (_, _, other) in zip(found[::2], found[1::2], strict=True):
            assert one < other
        whole = [e for e in dry_run(plan, mesh, rank, level) if isinstance(e, Sent) and e.to]
        assert sum(dict(e.to)[peer] for e, *_ in found for peer in dict(e.to)) == sum(
            nbytes for e in whole for _, nbytes in e.to
        )


def test_products_whose_totals_are_cut_are_added_in_parts_of_what_is_not():
    plan = planned("gpt", "tp+norms")[1]
    whole = {e.node: e for e in dry_run(plan, NORMS, 1, "layout") if isinstance(e, Summed) and e.scatters}
    found = begun(overlapped(plan, "rings", buckets=4, least=1), NORMS, rank=1)
    parts = [e for e, *_ in found if isinstance(e, Summed) and e.scatters and ", part " in e.node]
    nodes = {event.node.partition(", part ")[0] for event in parts}
    assert nodes and len(parts) == 4 * len(nodes)
    assert sum(event.elements for event in parts) == sum(whole[node].elements for node in nodes)


def test_stored_parameters_are_gathered_while_the_first_layers_compute():
    plan = planned("gpt", "zero")[1]
    after = overlapped(plan, "sums", buckets=3, least=1)
    gathers = [step for step in after.steps if isinstance(step, Reshard) and step.early]
    assert 1 < len(gathers) <= 3 and after.steps[: len(gathers)] == tuple(gathers)
    mesh = Mesh((("d", 2),), (("batch", "d"), ("stored", "d")))
    found = [each for each in begun(after, mesh) if isinstance(each[0], Sent)]
    assert len(found) == len(gathers)
    assert {first for _, first, _ in found} == {0} and max(last for *_, last in found) > 0


def test_gradients_of_a_stage_begin_in_its_last_backward_pass():
    model, deck, graph = exported("gpt", samples="8", batch="4", micro_batches="2")
    before = plan_of(model, deck, graph, model.RECIPES["dp+pp"])
    after = overlapped(before, least=1)
    adds = [node for node, turn in before.tasks.items() if turn[1] == TAIL and after.tasks[node] != turn]
    assert adds and {after.tasks[node] for node in adds} == {(1, BACKWARD)}
    mesh = Mesh((("d", 2), ("s", 2)), (("batch", "d"), ("stage", "s")))
    for rank in range(4):
        found = begun(after, mesh, rank=rank)
        assert sum(first < last for _, first, last in found) > 1
