"""The step of a plan as data for all ranks of a mesh (`miniapps.untrusted.program`). No MPI, no run of the model.

Ranks with blocks of equal sizes in equal places of the tree do the same, so the program of one of them is made.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache
from math import prod
from typing import cast

import numpy as np

from kernels.allreduce.schedules.block_tree import roots
from kernels.guarantees import Level, meets
from kernels.wires import PLAIN
from miniapps.partition.cuts.axes import Axis, axes_of
from miniapps.partition.cuts.mesh import Mesh
from miniapps.partition.cuts.steps import SPAN, STAGE, Compute, Plan, Reduce, step_operands
from miniapps.partition.execution.place import Place
from miniapps.partition.execution.wires import encoded
from miniapps.partition.graphs.graph import ITEMSIZE
from miniapps.partition.pricing.events import Arrived, Event, KernelCall, Sent, Summed, Told
from miniapps.partition.pricing.keys import counts_of, recorded_of, update_of, work_of
from miniapps.trace.head import label_of
from miniapps.untrusted.program import Program, Ranks, Segment, Wait, Work

WIDTH = 4  # bytes of a weight
NOTHING = 0, 0, 0, 0
STATES = 2  # arrays of Adam for each weight


def program_of(
    plan: Plan,
    mesh: Mesh,
    level: str,
    title: str,
    flops: int = 0,
    threads: int = 1,
    anywhere: bool = False,
    recorded: bool = False,
    wire: str = PLAIN,
    ordering: str = "",
) -> Program:
    """The program of a step, with the update of the optimiser. `recorded`: and with what a traced run adds. Options as
    for `dry_run`, whose errors it raises."""
    from miniapps.partition.pricing.dry import dry_step

    numbers: dict[Work, int] = {}
    classes = []

    def call(work: Work) -> tuple[int, int]:
        return numbers.setdefault(work, len(numbers)), 1

    for ranks in classes_of(plan, mesh, level):
        events, peak = dry_step(plan, mesh, ranks[0], level, threads, anywhere, wire, ordering)
        segments, waits = parts_of(mesh, ranks[0], events, numbers)
        weights = weights_of(plan, mesh, ranks[0])
        if recorded:
            fingerprint, finite, traced = recorded_of(weights, counts_of(events)[0])
            segments[0] = Segment((call(fingerprint), *segments[0].calls), segments[0].rest)
            segments[-1] = Segment((*segments[-1].calls, call(finite), call(traced)), segments[-1].rest)
            if mesh.size > 1:
                everywhere = tuple(name for name, size in mesh.axes if size > 1)
                waits.append(Wait("all gradients are finite", "reduction", everywhere, "library", 1, 8))
                segments.append(Segment((), NOTHING))
        last = segments[-1]
        segments[-1] = Segment((*last.calls, call(update_of(weights))), last.rest)
        memory = WIDTH * sum(weights), STATES * WIDTH * sum(weights), peak
        classes.append(Ranks(tuple(ranks), tuple(segments), tuple(waits), memory))
    return Program(
        title=title, mesh=dict(mesh.axes), guarantee=cast(Level, level), threads=threads, model_flops=flops,
        works=tuple(numbers), classes=tuple(classes),
    )  # fmt: skip


def classes_of(plan: Plan, mesh: Mesh, level: str) -> list[list[int]]:
    """The ranks of a mesh by what they do under a guarantee, each class ascending."""
    windows = {w.axis for step in plan.steps if isinstance(step, Compute) for w in step.windows}
    # Axes along which every rank has work or messages of its own: stages, and tokens of attention block by block.
    own = {STAGE, *(step.home.axis for step in plan.steps if isinstance(step, Reduce) and step.home)}
    own |= {axis for dim in plan.seen_by.values() for axis in axes_of((dim,))}
    for step in plan.steps:
        if isinstance(step, Compute) and step.kernel == SPAN:
            own.update(axes_of((plan.values[step_operands(step)[0]].cut[step.args[1]],)))
    cut: dict[str, set[int]] = defaultdict(set)  # the sizes of dims that each axis cuts
    for value in plan.values.values():
        for n, name in (factor for dim in value.cut for factor in dim):
            if name is not None:
                cut[name].add(n)
    kinds: dict[str, list[tuple]] = {name: [()] * size for name, size in mesh.axes}
    for axis in plan.axes:
        carrier = mesh.carrier(axis.name)
        if carrier is not None:
            mine = _kinds(
                axis,
                sorted(cut[axis.name]),
                mesh.owners(axis).tolist(),
                mesh.extent(carrier),
                axis.name in windows,
                meets(level, "layout"),
                axis.name in own,
            )
            kinds[carrier] = [(*kind, more) for kind, more in zip(kinds[carrier], mine, strict=True)]
    found: dict[tuple, list[int]] = defaultdict(list)
    for rank in range(mesh.size):
        found[tuple(kinds[name][at] for name, at in mesh.coordinates(rank).items())].append(rank)
    return list(found.values())


def _kinds(
    axis: Axis, cut: Sequence[int], owners: list[int], places: int, windows: bool, trees: bool, apart: bool
) -> list[tuple]:
    """For each of `places` along an axis of the mesh what is equal for ranks that do the same: the sizes of its blocks
    of dims of the sizes `cut`; with `trees` the subtrees of the tree over blocks; with `windows` whether it has the
    first or the last block; nothing is equal if all ranks are `apart`."""
    blocks: list[list[int]] = [[] for _ in range(places)]
    subtrees: list[list[int]] = [[] for _ in range(places)]
    for block, owner in enumerate(owners):
        blocks[owner].append(block)
    for first, stop in roots((0, axis.blocks), owners) if trees else ():
        subtrees[owners[first]].append(stop - first)
    sizes = [np.diff(axis.at(n)) for n in cut]
    edges: list[tuple] = [(at == owners[0], at == owners[-1]) if windows else () for at in range(places)]
    if apart:
        edges = [(at,) for at in range(places)]
    return [
        (tuple(tuple(each[own].tolist()) for each in sizes), tuple(whole), edge)
        for own, whole, edge in zip(blocks, subtrees, edges, strict=True)
    ]


def parts_of(
    mesh: Mesh, rank: int, events: Sequence[Event], numbers: dict[Work, int]
) -> tuple[list[Segment], list[Wait]]:
    """The segments of a rank's step and the waits between them; `numbers` gets the works that it lacks."""
    segments: list[Segment] = []
    waits: list[Wait] = []
    own: list[Event] = []
    before: Counter[str] = Counter()  # waits for each node
    for event in events:
        own.append(event)
        if isinstance(event, Arrived) or (isinstance(event, Sent | Summed | Told) and event.group):
            segments.append(_segment(own, numbers))
            began = isinstance(event, Sent | Summed) and event.part == "finish"  # the last of this node
            waits.append(_wait(mesh, rank, event, before[event.node] - began))
            before[event.node] += not began
            own = []
    return [*segments, _segment(own, numbers)], waits


def _segment(events: Sequence[Event], numbers: dict[Work, int]) -> Segment:
    calls = Counter(
        numbers.setdefault(work_of(event), len(numbers))
        for event in events
        if isinstance(event, KernelCall | Sent)
    )
    return Segment(tuple(calls.items()), counts_of(events))


@cache
def _along(mesh: Mesh, group: tuple[int, ...]) -> tuple[str, ...]:
    """The axes of the mesh along which the ranks of a group differ."""
    places = [mesh.coordinates(rank) for rank in group]
    return tuple(name for name, _ in mesh.axes if len({place[name] for place in places}) > 1)


def _wait(mesh: Mesh, rank: int, event: Sent | Summed | Arrived | Told, number: int) -> Wait:
    """The wait of an event, the `number`-th for its node; its name is that of the other ranks, and occurs once."""
    if isinstance(event, Arrived):
        steps = (_steps(mesh, rank, event.source),)
        return Wait(f"message {event.tag} of stages", "receive", (STAGE,), nbytes=event.nbytes, offsets=steps)
    name = f"{event.node}{f' ({number + 1})' if number else ''}"
    if isinstance(event, Summed):
        held, many = event.accumulation or "working", max(event.blocks, 1)
        label = label_of({"ordering": event.ordering, "accumulation": held, "wire": event.wire})
        return Wait(
            f"sum before {name}", "reduction", _along(mesh, event.group), label, event.elements,
            ITEMSIZE[event.dtype], many, event.scatters, encoded(event.wire, event.elements, many),
            part=event.part,
        )  # fmt: skip
    offsets = tuple(_steps(mesh, rank, peer) for peer, _ in event.to)
    nbytes = sum(n for _, n in event.to)
    if isinstance(event, Told):
        along = f" along {event.letter}" * bool(event.letter)
        return Wait(
            f"{event.what}{along} of {name}",
            "exchange",
            _along(mesh, event.group),
            nbytes=nbytes,
            offsets=offsets,
        )
    # The larger of both directions, with all ranks that send or receive.
    nbytes = max(nbytes, sum(n for _, n in event.came))
    offsets = tuple(_steps(mesh, rank, peer) for peer in dict(event.to + event.came))
    if event.tag >= 0:
        return Wait(f"message {event.tag} of stages", "send", (STAGE,), nbytes=nbytes, offsets=offsets)
    return Wait(
        f"exchange before {name}",
        "exchange",
        _along(mesh, event.group),
        nbytes=nbytes,
        offsets=offsets,
        part=event.part,
    )


def _steps(mesh: Mesh, rank: int, other: int) -> tuple[int, ...]:
    """How far another rank is along each axis of the mesh."""
    mine, theirs = mesh.coordinates(rank), mesh.coordinates(other)
    return tuple(theirs[name] - mine[name] for name, _ in mesh.axes)


def weights_of(plan: Plan, mesh: Mesh, rank: int) -> list[int]:
    """The number of elements of this rank's part of each learned parameter."""
    place, learned = Place(plan.axes, mesh, rank), {key for key, _ in plan.gradients}
    names = [s.tensor.name for s in plan.sources if s.kind == "parameter" and s.key in learned]
    return [prod(place.shape(plan.values[name].cut)) for name in names]
