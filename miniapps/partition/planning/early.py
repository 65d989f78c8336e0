"""Gradients whose sums begin as soon as their partial sums are complete, and end where a total is needed.

    plan = overlapped(plan)

No MPI, no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from miniapps.partition.cuts.steps import Compute, Plan, Reduce, Step, Value, step_operands, step_results

BUCKETS = 4  # vectors in which the sums of one reduction travel, at most
LEAST = 1 << 14  # elements of a vector but the last: short ones cost latency and save little


def gradient_sums(plan: Plan, dtype: str = "float32") -> frozenset[str]:
    """The partial values of a type whose totals only leave the step, maybe moved: as gradients or as the loss."""
    leaving = {plan.loss, *(name for _, name in plan.gradients)}
    otherwise: set[str] = set()  # values that an operation other than a move reads
    found: set[str] = set()
    for step in reversed(plan.steps):
        results = step_results(step)
        if isinstance(step, Reduce):
            if step.combine == "sum" and step.dtype == dtype:
                pairs = zip(step.operands, results, strict=True)
                found.update(operand for operand, result in pairs if result in leaving - otherwise)
            continue
        moves = not isinstance(step, Compute) or step.kernel == "view"
        kept = moves and all(result in leaving - otherwise for result in results)
        (leaving if kept else otherwise).update(step_operands(step))
    return frozenset(found)


def overlapped(plan: Plan, buckets: int = BUCKETS, least: int = LEAST) -> Plan:
    """The plan whose reductions of gradients alone are divided into at most `buckets` vectors of at least `least`
    elements, in the order in which partial sums are complete; each is `early`. The hash stays. A plan with stages stays
    as it is, because its ranks execute steps in different orders."""
    if plan.stages:
        return plan
    alone = gradient_sums(plan)
    made = {name: at for at, step in enumerate(plan.steps) for name in step_results(step)}
    behind: dict[int, list[Step]] = {}  # early reductions by the step after which they begin
    kept: list[tuple[int, Step]] = []
    for at, step in enumerate(plan.steps):
        if not isinstance(step, Reduce) or not alone.issuperset(step.operands):
            kept.append((at, step))
            continue
        for begin, bucket in divided(step, made, plan.values, buckets, least):
            behind.setdefault(begin, []).append(bucket)
    steps = [one for at, step in kept for one in (step, *behind.get(at, ()))]
    return replace(plan, steps=tuple(steps))


def divided(
    step: Reduce, made: Mapping[str, int], values: Mapping[str, Value], buckets: int, least: int
) -> list[tuple[int, Reduce]]:
    """(the number of the step that completes it, an early reduction) for each vector of a reduction; `made`: the number
    of the step that makes a value."""
    pairs = sorted(zip(step.operands, step.results, strict=True), key=lambda pair: made[pair[0]])
    sizes = [prod(values[operand].shape) for operand, _ in pairs]
    enough = max(least, sum(sizes) / buckets)
    groups: list[list[tuple[str, str]]] = [[]]
    size = 0
    for pair, elements in zip(pairs, sizes, strict=True):
        if size >= enough:
            groups.append([])
            size = 0
        groups[-1].append(pair)
        size += elements
    found = []
    for number, group in enumerate(groups):
        operands, results = zip(*group, strict=True)
        node = f"{step.node}.{number}" if number else step.node  # names in traces, which differ
        bucket = replace(step, node=node, operands=operands, results=results, early=True)
        found.append((made[operands[-1]], bucket))
    return found
