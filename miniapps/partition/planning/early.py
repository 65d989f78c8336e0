"""Messages that begin as soon as their operands are complete, and end where a result is needed.

    plan = overlapped(plan, "sums")

| level | begins early |
|---|---|
| `off` | nothing |
| `gradients` | sums of gradients, in several vectors |
| `sums` | also all other sums that a long operation can hide, and gathers of stored parameters, in several vectors |
| `rings` | also the sum of each part of a product, while the next part is computed, and gathers of rows, while
            products of those that are there are computed (Wang et al. 2023, ASPLOS) |

No level changes the hash of the plan: each element is added in the same tree. A product is divided along a dim that it
does not sum, so no chain of its additions changes either. No MPI, no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import TypeVar

from kernels.guarantees import known
from miniapps.partition.cuts.axes import Cut, Dim, axes_of, canonical, size_of, split
from miniapps.partition.cuts.steps import (
    BACKWARD,
    TAIL,
    Compute,
    Plan,
    Reduce,
    Reshard,
    Step,
    Turn,
    Value,
    step_operands,
    step_results,
)

OFF, GRADIENTS, SUMS, RINGS = OVERLAPS = ("off", "gradients", "sums", "rings")
BUCKETS = 4  # vectors in which the sums of one reduction travel, and parts of a product, at most
LEAST = 1 << 14  # elements of a vector or part but the last: short ones cost latency and save little
LONG = ("matmul", "conv")  # kernels that take long enough to hide messages
PRODUCT = "aten.mm.default"
Sent = TypeVar("Sent", Reduce, Reshard)


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


def summed_gradients(plan: Plan) -> list[str]:
    """The `gradient_sums` that become gradients, maybe moved, in the order of the gradients."""
    order: dict[str, int] = {}
    for k, (_, name) in enumerate(plan.gradients):
        order.setdefault(name, k)
    for step in reversed(plan.steps):
        results, operands = step_results(step), step_operands(step)
        pairs = (
            zip(operands, results, strict=True)
            if isinstance(step, Reduce | Reshard)
            else product(operands, results)
        )
        for operand, result in pairs:
            if result in order:
                order[operand] = min(order[result], order.get(operand, order[result]))
    return sorted(gradient_sums(plan) & order.keys(), key=lambda name: (order[name], name))


def overlapped(plan: Plan, level: str = GRADIENTS, buckets: int = BUCKETS, least: int = LEAST) -> Plan:
    """The plan whose messages begin early as `level` says, one of OVERLAPS: in at most `buckets` vectors, or parts of a
    product, of at least `least` elements, in the order in which partial sums are complete. The hash stays. Raises
    ChoiceError for an unknown level."""
    if known("overlap", level, OVERLAPS) == OFF:
        return plan
    plan = gradients_early(added_soon(plan), buckets, least)
    if level in (SUMS, RINGS):
        plan = sums_early(gathers_early(plan, buckets, least))
    return divided_gathers(divided_products(plan, buckets, least), buckets, least) if level == RINGS else plan


def made_by(plan: Plan) -> dict[str, int]:
    """The number of the step that makes each value."""
    return {name: at for at, step in enumerate(plan.steps) for name in step_results(step)}


def placed(plan: Plan, kept: Iterable[tuple[int, Step]], behind: Mapping[int, Sequence[Step]]) -> Plan:
    """The plan with the steps `kept`, by their number, and others `behind` the step of that number."""
    before = behind.get(-1, ())
    return replace(plan, steps=(*before, *(one for at, step in kept for one in (step, *behind.get(at, ())))))


def gradients_early(plan: Plan, buckets: int, least: int) -> Plan:
    """The plan whose reductions of gradients alone are divided, each early."""
    alone, made = gradient_sums(plan), made_by(plan)
    behind: dict[int, list[Step]] = {}  # early reductions by the step after which they begin
    kept: list[tuple[int, Step]] = []
    for at, step in enumerate(plan.steps):
        if not isinstance(step, Reduce) or not alone.issuperset(step.operands):
            kept.append((at, step))
            continue
        for vector in divided(step, made.__getitem__, plan.values, buckets, least):
            behind.setdefault(made[vector.operands[-1]], []).append(vector)
    return placed(plan, kept, behind)


def divided(
    step: Sent, order: Callable[[str], int], values: Mapping[str, Value], buckets: int, least: int
) -> list[Sent]:
    """The vectors of a step, each early, with its operands in ascending `order`."""
    pairs = sorted(zip(step.operands, step.results, strict=True), key=lambda pair: order(pair[0]))
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
        found.append(replace(step, node=node, operands=operands, results=results, early=True))
    return found


def added_soon(plan: Plan) -> Plan:
    """The plan of a pipeline whose partial sums over micro-batches are added as soon as their stage has computed them,
    in the backward pass of the last of these, rather than after all passes."""
    if not plan.stages:
        return plan
    made, tasks = made_by(plan), dict(plan.tasks)
    behind: dict[int, list[Step]] = {}
    kept: list[tuple[int, Step]] = []
    moved: dict[str, int] = {}  # the step behind which each is made now
    for at, step in enumerate(plan.steps):
        turns = [turn_of(plan, tasks, name, made) for name in step_operands(step)]
        if (
            isinstance(step, Compute)
            and tasks[step.node][1] == TAIL
            and all(turn is not None and turn[1] == BACKWARD for turn in turns)
            and all(plan.stages[name] == plan.stages[step.results[0]] for name in step_operands(step))
        ):
            last = max(moved.get(name, made[name]) for name in step_operands(step))
            tasks[step.node] = max(turn for turn in turns if turn is not None)
            behind.setdefault(last, []).append(step)
            moved.update((name, last) for name in step.results)
        else:
            kept.append((at, step))
    return replace(placed(plan, kept, behind), tasks=tasks)


def turn_of(plan: Plan, tasks: Mapping[str, Turn], name: str, made: Mapping[str, int]) -> Turn | None:
    """The micro-batch and pass in which an operation computes a value; None for sources and messages."""
    step = plan.steps[made[name]] if name in made else None
    return tasks[step.node] if isinstance(step, Compute) else None


def sums_early(plan: Plan) -> Plan:
    """The plan whose other reductions begin when their operands are complete, if a long operation follows before their
    results are read. Views of an operand alone are taken along."""
    made, read, count = made_by(plan), first_read(plan), readers(plan)
    long = [at for at, step in enumerate(plan.steps) if isinstance(step, Compute) and step.kernel in LONG]
    behind: dict[int, list[Step]] = {}
    moved: set[int] = set()
    for at, step in enumerate(plan.steps):
        if isinstance(step, Reduce) and not step.early:
            found = [viewed(plan, name, made, count) for name in step.operands]
            begin = max(first for first, _ in found)
            end = min(read.get(name, len(plan.steps)) for name in step.results)
            if any(begin < other < end for other in long):
                views = sorted(number for _, numbers in found for number in numbers if number > begin)
                moved.update((at, *views))
                behind.setdefault(begin, []).extend(plan.steps[number] for number in views)
                behind[begin].append(replace(step, early=True))
    return placed(plan, [(at, step) for at, step in enumerate(plan.steps) if at not in moved], behind)


def viewed(
    plan: Plan, name: str, made: Mapping[str, int], count: Mapping[str, int] | None = None
) -> tuple[int, list[int]]:
    """(number of the step that makes the elements of a value, -1 for a source; numbers of the steps that only move
    them). `count`: of the readers of each value, to take only values of a step that nothing else reads."""
    views: list[int] = []
    while name in made:
        at = made[name]
        step = plan.steps[at]
        operands = step_operands(step)
        alone = count is None or (count[name] == 1 and operands[0] in made)
        moves = isinstance(step, Compute) and step.kernel == "view"
        if not (moves and alone and len(operands) == len(step_results(step)) == 1):
            return at, views
        views.append(at)
        name = operands[0]
    return -1, views


def first_read(plan: Plan) -> dict[str, int]:
    """The number of the first step that reads each value."""
    found: dict[str, int] = {}
    for at, step in enumerate(plan.steps):
        for name in step_operands(step):
            found.setdefault(name, at)
    return found


def gathers_early(plan: Plan, buckets: int, least: int) -> Plan:
    """The plan whose gathers of stored parameters begin with the step, in the order in which they are read."""
    read = first_read(plan)
    stored = {source.tensor.name for source in plan.sources if source.kind == "parameter"}
    behind: dict[int, list[Step]] = {}
    kept: list[tuple[int, Step]] = []
    for at, step in enumerate(plan.steps):
        if isinstance(step, Reshard) and step.kind == "all-gather" and stored.issuperset(step.operands):
            pairs = zip(step.operands, step.results, strict=True)
            order = {operand: read.get(result, len(plan.steps)) for operand, result in pairs}
            vectors = divided(step, order.__getitem__, plan.values, buckets, least)
            behind.setdefault(-1, []).extend(vectors)
        else:
            kept.append((at, step))
    return placed(plan, kept, behind)


def divided_products(plan: Plan, buckets: int, least: int) -> Plan:
    """The plan whose sums of one product each are computed and begun in parts of its rows."""
    steps, alone = list(plan.steps), gradient_sums(plan)
    made, read = made_by(plan), readers(plan)
    for at, step in enumerate(steps):
        if not isinstance(step, Reduce) or step.home or len(step.operands) > 1 or step.operands[0] in alone:
            continue
        chain = product_of(plan, step.operands[0], made, read)
        parts = min(buckets, prod(plan.values[step.operands[0]].shape) // least)
        before, after = (plan.values[name].cut for name in (step.operands[0], step.results[0]))
        if chain and parts > 1 and (before == after or units(before, after)):
            steps[at] = replace(step, early=True, product=chain, parts=parts)
    return replace(plan, steps=tuple(steps))


def divided_gathers(plan: Plan, buckets: int, least: int) -> Plan:
    """The plan whose gathers of rows arrive in parts, each beside products of the rows that came before. Of a gather
    these are the products of its rows, with operands that are there; they follow it at once."""
    if plan.stages:
        return plan
    made, reading = made_by(plan), multiplied(plan)
    instead: dict[int, list[Step]] = {}
    for at, step in enumerate(plan.steps):
        if not isinstance(step, Reshard) or not gathers_rows(plan, step, least):
            continue
        views: set[int] = set()
        products: list[int] = []
        for number in reading.get(step.results[0], ()):
            first, found = viewed(plan, step_operands(plan.steps[number])[1], made)
            if first < at:
                products.append(number)
                views.update(view for view in found if view > at and view not in instead)
        if products:
            names = tuple(name for number in products for name in step_results(plan.steps[number]))
            divided = replace(step, early=True, products=names, parts=buckets - 1)
            instead |= {number: [] for number in (*views, *products)}
            instead[at] = [
                *(plan.steps[k] for k in sorted(views)),
                divided,
                *(plan.steps[k] for k in products),
            ]
    steps = (one for at, step in enumerate(plan.steps) for one in instead.get(at, [step]))
    return replace(plan, steps=tuple(steps))


def gathers_rows(plan: Plan, step: Reshard, least: int) -> bool:
    """Whether a step gathers the rows of one matrix, of at least 2 `least` elements, and nothing else."""
    if step.kind != "all-gather" or step.early or len(step.operands) > 1:
        return False
    before, after = plan.values[step.operands[0]], plan.values[step.results[0]]
    return len(before.cut) == 2 and before.cut[1] == after.cut[1] and prod(before.shape) >= 2 * least


def gathered(before: Cut, after: Cut) -> tuple[str, ...]:
    """The axes that cut a value before it is gathered, and not after."""
    left = axes_of(after)
    return tuple(axis for axis in axes_of(before) if axis not in left)


def multiplied(plan: Plan) -> dict[str, list[int]]:
    """The numbers of the steps that multiply the rows of each value by another one, each element in one chain of
    additions."""
    found: dict[str, list[int]] = {}
    for number, step in enumerate(plan.steps):
        if isinstance(step, Compute) and step.target == PRODUCT and not step.over:
            operands = step_operands(step)
            if len(operands) == 2 and not plan.values[step.results[0]].partial:
                found.setdefault(operands[0], []).append(number)
    return found


def units(before: Cut, after: Cut) -> tuple[Dim, Dim, Dim] | None:
    """(the major factor, the others in the cut `before` and in `after`) of the first dim of a value that a total cuts
    further: each place of the major factor can be added alone, since all ranks that add it get some of each. None if
    there is no such factor."""
    if not after or not after[0] or after[0][0][1] not in (None, *axes_of(before)):
        return None
    first = after[0][0]
    found = split(before[0], [first[0], size_of(before[0]) // first[0]])
    if found is None or found[0] != canonical([first]):
        return None
    return found[0], found[1], after[0][1:]


def readers(plan: Plan) -> dict[str, int]:
    """How many steps read each value."""
    found: dict[str, int] = {}
    for step in plan.steps:
        for name in step_operands(step):
            found[name] = found.get(name, 0) + 1
    return found


def product_of(plan: Plan, name: str, made: Mapping[str, int], read: Mapping[str, int]) -> tuple[str, ...]:
    """The values from the result of a product of matrices to `name`, of which each but the first has the elements of
    the one before it in the same order, and nothing else reads them; () if there is no such product."""
    found = [name]
    while True:
        step = plan.steps[made[found[-1]]] if found[-1] in made else None
        if not isinstance(step, Compute) or read[found[-1]] > 1 or len(step.results) > 1:
            return ()
        operands = step_operands(step)
        if step.target == PRODUCT:
            return tuple(reversed(found)) if rows_apart(plan, step) else ()
        if (
            step.target != "aten.view.default"
            or plan.values[found[-1]].dtype != plan.values[operands[0]].dtype
        ):
            return ()
        found.append(operands[0])


def rows_apart(plan: Plan, step: Compute) -> bool:
    """Whether a product adds over one axis, the major factor of its summed dim, so that its rows can be computed in
    parts."""
    if len(step_operands(step)) < 2 or len(step.over) != 1 or plan.values[step.results[0]].combine != "sum":
        return False
    rows, summed = plan.values[step_operands(step)[0]].cut
    axes = [axis for _, axis in (*summed, *rows)]
    return axes[0] == step.over[0] and axes.count(axes[0]) == 1
