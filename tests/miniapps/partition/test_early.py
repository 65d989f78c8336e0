"""Reductions of gradients that begin early: what they hold, where they begin and end."""

import pytest

torch = pytest.importorskip("torch")

from miniapps.partition import models  # noqa: E402
from miniapps.partition.cuts.mesh import Mesh  # noqa: E402
from miniapps.partition.cuts.steps import Reduce, step_operands, step_results  # noqa: E402
from miniapps.partition.planning.early import gradient_sums, overlapped  # noqa: E402
from miniapps.partition.pricing.dry import dry_run  # noqa: E402
from miniapps.partition.pricing.events import KernelCall, Summed  # noqa: E402
from miniapps.partition.showing.traffic import Counter  # noqa: E402
from tests.miniapps.partition.graphs import planned  # noqa: E402

RECIPES = [(name, recipe) for name in models.names() for recipe in models.model(name).RECIPES]


@pytest.mark.parametrize("name, recipe", RECIPES)
def test_sums_begin_when_they_can_and_nothing_else_changes(name, recipe):
    before = planned(name, recipe)[1]
    after = overlapped(before, buckets=3, least=1)
    if before.stages:
        assert after is before
        return
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
    assert [step for step in after.steps if not (isinstance(step, Reduce) and step.early)] == kept
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
