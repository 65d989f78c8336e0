"""Binds a plan to a rank of a mesh: a straight line of steps without open choices. No MPI, no torch.

    bound = bind(plan, mesh, rank, by_block=True)

`by_block`: an operation with partial results is called separately for every block (`layout`, `exact`); else once for
all blocks of the rank (`none`, `run`), and a partial value is one array. The cost does not grow with the number of
ranks: only `exchange` considers the blocks of other ranks, when it plans messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import cast

from miniapps.partition.cuts.axes import axes_of
from miniapps.partition.cuts.mesh import Mesh
from miniapps.partition.cuts.steps import (
    SPAN,
    STAGE,
    Compute,
    Plan,
    Receive,
    Reduce,
    Reshard,
    Send,
    Window,
)
from miniapps.partition.execution.bound import (
    Added,
    Bound,
    BoundStep,
    Called,
    Incoming,
    Moved,
    Operation,
    Outgoing,
)
from miniapps.partition.execution.partners import carriers_among
from miniapps.partition.execution.place import Halo, Part, Place, Run, Span, Wanted
from miniapps.partition.graphs.graph import tensors_in
from miniapps.partition.planning.early import gathered
from miniapps.partition.planning.schedule import steps_of
from miniapps.partition.rules.manual import MANUAL, parsed, read_by

POOLED = "partition.pool_max_gradient"
CONVOLUTIONS = {"convolution": "output", "conv_input_gradient": "input", "conv_weight_gradient": "weight"}


def bind(
    plan: Plan,
    mesh: Mesh,
    rank: int,
    by_block: bool,
    merge: bool = True,
    padded: bool = False,
    apart: frozenset[str] = frozenset(),
    watched: bool = False,
) -> Bound:
    """The program of a rank. `merge`: whether partials of blocks may be added by the tree over blocks as soon as they
    exist, but those of the values `apart`. `watched`: every rank has its part of each value, even if it does not
    read it, and no product is computed in parts."""
    place = Place(plan.axes, mesh, rank, padded)
    merged = merged_values(plan, apart) if by_block and merge else frozenset()
    binder = Binder(plan, place, by_block, merged, watched)
    for step in steps_of(plan, mesh, rank):
        if isinstance(step, Compute) and step.kernel == SPAN:
            binder.spread(step)
        elif isinstance(step, Compute):
            binder.compute(step)
        elif isinstance(step, Reshard):
            binder.move(step)
        elif isinstance(step, Reduce):
            binder.add(step)
        else:
            binder.pass_on(step)
    return Bound(plan, place, by_block, tuple(binder.steps), binder.merged)


def merged_values(plan: Plan, apart: frozenset[str] = frozenset()) -> frozenset[str]:
    """The partial values, without those `apart`, that may be kept as sums over subtrees of blocks: before their
    reduction only operations that move elements read them, and moving commutes with adding, bit by bit."""
    merged: set[str] = set()
    readers: dict[str, list[Compute]] = {}
    for step in plan.steps:
        if isinstance(step, Compute):
            for name in set(tensors_in((step.args, step.kwargs))):
                readers.setdefault(name, []).append(step)
    for step in reversed(plan.steps):
        if isinstance(step, Compute):
            for name in step.results:
                value = plan.values[name]
                # One call of a manual region may make partial results of several axes, in parts.
                if not value.partial or value.combine != "sum" or name in apart or step.kernel == MANUAL:
                    continue
                moved = (
                    reader.kernel == "view"
                    and merged.issuperset(reader.results)
                    and value.partial == plan.values[reader.results[0]].partial
                    for reader in readers.get(name, ())
                )
                if all(moved):
                    merged.add(name)
    return frozenset(merged)


class Binder:
    """Collects the bound steps."""

    def __init__(self, plan: Plan, place: Place, by_block: bool, merged: frozenset[str], watched: bool):
        self.plan, self.place, self.by_block, self.merged = plan, place, by_block, merged
        self.watched = watched
        self.steps: list[BoundStep] = []
        self.halos: dict[tuple[str, Wanted], str] = {}
        self.awaited: dict[
            str, int
        ] = {}  # results of products on rows that arrive, and the step that moves these
        sends = (step for step in plan.steps if isinstance(step, Send))
        self.tags = {(*step.operands, step.source, step.target): k for k, step in enumerate(sends)}

    def move(self, step: Reshard) -> None:
        """Bind a change of cuts."""
        wanted = tuple(self.plan.values[name].cut for name in step.results)
        moved = Moved(step.node, step.operands, step.results, wanted, step.early)
        axes = gathered(*(self.plan.values[names[0]].cut for names in (step.operands, step.results)))
        if (
            step.products
            and not self.watched
            and not self.place.padded
            and carriers_among(self.place.mesh, axes)
        ):
            moved = replace(moved, parts=step.parts)
            self.awaited |= dict.fromkeys(step.products, len(self.steps))
        self.steps.append(moved)

    def spread(self, step: Compute) -> None:
        """Bind a range of a dim that all ranks get which read it."""
        _, dim, begin, end = step.args
        wanted: list[Wanted] = []
        for name in step.results:
            cut = self.plan.values[name].cut
            seen_by = None if self.watched else self.plan.seen_by.get(name)
            wanted.append((*cut[:dim], Span(begin, end, seen_by), *cut[dim + 1 :]))
        self.steps.append(Moved(step.node, tuple(tensors_in(step.args)), step.results, tuple(wanted)))

    def add(self, step: Reduce) -> None:
        """Bind a reduction of partial sums."""
        values, place = self.plan.values, self.place
        product = self.taken(step)
        home = None if self.watched else step.home
        if home is not None and not place.mesh.comes_home(step.axes, home.axis):
            home = None
        wanted: list[Wanted | None] = []
        for operand, result in zip(step.operands, step.results, strict=True):
            before, after = values[operand].cut, values[result].cut
            if home is not None:
                wanted.append((*before[: home.dim], home, *before[home.dim + 1 :]))
            else:
                wanted.append(None if before == after else after)
        self.steps.append(
            Added(
                step.node,
                step.operands,
                step.results,
                place.rows(step.axes),
                step.combine,
                step.dtype,
                tuple(place.shape(values[name].cut) for name in step.operands),
                tuple(wanted),
                tuple(name in self.merged for name in step.operands),
                step.early,
                product,
                step.parts,
            )
        )

    def taken(self, step: Reduce) -> Operation | None:
        """The product that a reduction computes in parts, taken from the steps with the views of it; None if it is
        computed at once, since no other rank adds to it, no row is here, or arrays are padded."""
        if (
            not (step.product and not self.watched and carriers_among(self.place.mesh, step.axes))
            or self.place.padded
        ):
            return None
        if not self.place.shape(self.plan.values[step.product[0]].cut)[0]:
            return None
        chain = [
            each for each in self.steps if isinstance(each, Operation) and each.results[0] in step.product
        ]
        self.steps = [each for each in self.steps if not any(each is other for other in chain)]
        return chain[0]

    def pass_on(self, step: Send | Receive) -> None:
        """Bind a message between stages."""
        (name,) = step.operands
        value, owners = self.plan.values[name], self.place.mesh.owners(self.plan.axis(STAGE))
        kind, other = (Outgoing, step.target) if isinstance(step, Send) else (Incoming, step.source)
        tag = self.tags[name, step.source, step.target]
        shape = self.place.shape(value.cut)
        self.steps.append(
            kind(step.node, name, int(owners[other]), tag, shape, value.dtype, self.count(name))
        )

    def compute(self, step: Compute) -> None:
        """Bind an operation, after the halos that it reads."""
        values, place = self.plan.values, self.place
        args, kwargs, operands = numbered(step)
        target = step.target
        conv = CONVOLUTIONS.get(target.split(".")[1])
        first = values[step.results[0]]
        present = step.kernel == "create" or all(place.own[axis] for axis in self.axes(step, operands))
        operands, calls = self.calls(step, operands, conv, present)
        if conv is not None:
            channels = [place.shape(values[name].cut)[1] for name in (*tensors_in(step.args), *step.results)]
            target, args, kwargs = f"conv.{conv}", convolution(conv, args, channels), ()
        if (
            target == "partition.places" and "@halo" in operands[0]
        ):  # which has the places that are read, ascending
            target, args = "partition.stepped", (args[0], args[1], args[3])
        shapes = tuple(place.shape(values[name].cut) for name in step.results)
        counts = tuple(self.count(name) for name in step.results)
        wanted = (first.cut,) if step.kernel in ("create", "random") else ()
        dtypes = tuple(values[name].dtype for name in step.results)
        operation = Operation(
            step.node, target, step.kernel, args, kwargs, operands, step.results, shapes, counts, calls, dtypes,
            wanted, step.fill,
        )  # fmt: skip
        if (at := self.awaited.get(step.results[0])) is None:
            self.steps.append(operation)
        else:
            moved = cast(Moved, self.steps[at])
            self.steps[at] = replace(moved, products=(*moved.products, operation))

    def axes(self, step: Compute, operands: Iterable[str]) -> set[str]:
        """All axes that cut an operation."""
        found = set(step.over)
        for name in (*operands, *step.results):
            found.update(axes_of(self.plan.values[name].cut))
        return found

    def count(self, name: str) -> int | None:
        """The number of arrays of a partial value by blocks; None for other values."""
        value = self.plan.values[name]
        if not value.partial or not self.by_block:
            return None
        rows = self.place.rows(value.partial)
        return len(rows.subtrees) if name in self.merged else len(rows.numbers)

    def calls(
        self, step: Compute, operands: tuple[str, ...], conv: str | None, present: bool
    ) -> tuple[tuple[str, ...], tuple[Called, ...]]:
        """Returns the operands, with halos where needed, and the calls, none unless `present`. All ranks exchange
        halos."""
        values, place = self.plan.values, self.place
        over = step.over if self.by_block else ()
        if step.kernel == MANUAL and (self.by_block or parsed(str(step.args[1])).along):
            over = tuple(axis.name for axis in self.plan.axes if axis.name in self.axes(step, operands))
        if not step.windows and not present:
            return operands, ()
        if not over and not step.windows:
            sides = sides_of(conv, step) or ()
            shape = place.shape(values[step.results[0]].cut)
            n, m = len(operands), len(step.results)
            padding = self.padding(step, [values[name].cut for name in operands], step.over)
            call = Called(
                (None,) * n, (None,) * n, ((None, None),) * m, shape, sides, padding, self.where(step, {})
            )
            return operands, (call,)
        if self.by_block and over and all(name in self.merged for name in operands):
            return operands, self.moves(step, operands)
        by: dict[str, str] = dict.fromkeys(over, "blocks")
        for window in step.windows:
            by.setdefault(window.axis, "runs")
        runs = {axis: place.runs(axis, how) for axis, how in by.items()}
        windows = [w for w in step.windows if not self.together(w.axis, by[w.axis])]
        operands, halos = self.halo(step, operands, windows, by)
        if not present:
            return operands, ()
        return operands, tuple(self.split(step, operands, conv, over, runs, windows, halos))

    def together(self, axis: str, how: str) -> bool:
        """Whether one rank holds all blocks of an axis and processes them in one call, so that windows need no halo.
        The answer is the same on all ranks."""
        known = self.place.axes[axis]
        return not self.place.mesh.owners(known).any() and (how == "runs" or known.blocks == 1)

    def moves(self, step: Compute, operands: tuple[str, ...]) -> tuple[Called, ...]:
        """The calls of an operation that moves elements of sums over subtrees."""
        value = self.plan.values[step.results[0]]
        shape = self.place.shape(value.cut)
        return tuple(
            Called((None,) * len(operands), (k,) * len(operands), ((k, None),), shape)
            for k in range(len(self.place.rows(value.partial).subtrees))
        )

    def halo(
        self, step: Compute, operands: tuple[str, ...], windows: list[Window], by: Mapping[str, str]
    ) -> tuple[tuple[str, ...], dict[int, tuple[Window, Halo]]]:
        """Returns the operands, some of them extended by halos, and the windows and halos by dim, which are those of
        each such operand."""
        halos = {}
        for name in dict.fromkeys(window.operand for window in windows):
            wanted: list = list(self.plan.values[name].cut)
            for window in windows:
                if window.operand == name:
                    halo = Halo(window, self.plan.values[window.of].shape[window.of_dim], by[window.axis])
                    halos[window.dim] = (window, halo)
                    wanted[window.dim] = halo
            key = name, tuple(wanted)
            if key not in self.halos:
                self.halos[key] = f"{name}@halo{len(self.halos)}"
                self.steps.append(Moved(step.node, (name,), (self.halos[key],), (tuple(wanted),)))
            operands = tuple(self.halos[key] if other == name else other for other in operands)
        return operands, halos

    def split(
        self, step, operands, conv, over, runs: dict[str, list[Run]], windows, halos
    ) -> Iterable[Called]:
        """Yields a call for each combination of blocks, or of runs of blocks."""
        place, values = self.place, self.plan.values
        named = {halo: halo.rpartition("@")[0] for halo in set(operands) - values.keys()}
        cuts = [values[named.get(name, name)].cut for name in operands]
        groups = {dim: place.groups(halo) for dim, (_, halo) in halos.items()}
        multiple = len(over) > 0
        for combination in product(*(range(len(found)) for found in runs.values())):
            number = dict(zip(runs, combination, strict=True))
            chosen = {axis: runs[axis][k] for axis, k in number.items()}
            read: dict[int, tuple[int, int, int]] = {}
            lows: dict[int, int] = {}
            for dim, (window, halo) in halos.items():
                sizes = [high - low for low, high in groups[dim]]
                k = number[window.axis]
                read[dim] = sum(sizes), sum(sizes[:k]), sizes[k]
                starts = place.axes[window.axis].at(halo.size)
                own = place.own[window.axis]
                lows[dim] = window.skip(starts[own[chosen[window.axis][0]]], 0)
            parts = tuple(
                place.part(cut, chosen, read if name in named else None)
                for name, cut in zip(operands, cuts, strict=True)
            )
            partials = tuple(
                self.which(values[name].partial, number) if name in values and values[name].partial else None
                for name in operands
            )
            into = []
            for name in step.results:
                partial = values[name].partial
                at = self.which(partial, number) if partial and multiple else None
                into.append((at, place.part(values[name].cut, chosen)))
            shape = into[0][1].shape if into[0][1] is not None else place.shape(values[step.results[0]].cut)
            sides: tuple[int, ...] = ()
            if (before := sides_of(conv, step)) is not None:
                sides = tuple(lows.get(d + 2, side) for d, side in enumerate(before))
            padding = self.padding(step, cuts, [axis for axis in step.over if axis not in runs])
            yield Called(parts, partials, tuple(into), shape, sides, padding, self.where(step, chosen))

    def where(self, step: Compute, chosen: Mapping[str, Run]) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The places along each letter of a manual region in the `chosen` blocks; nothing for other operations."""
        if step.kernel != MANUAL:
            return ()
        found: dict[str, tuple[int, ...]] = {}
        for letters, name in zip(read_by(step.target, step.args), tensors_in(step.args), strict=True):
            for letter, dim in zip(letters, self.plan.values[name].cut, strict=True):
                if letter != "." and letter not in found:
                    found[letter] = tuple(self.place.places(dim, chosen).tolist())
        return tuple(found.items())

    def padding(self, step: Compute, cuts, axes: Iterable[str]) -> tuple[tuple[Part, ...], ...]:
        """The parts of each operand to fill before a call that adds over whole `axes`; nothing without padding."""
        if not self.place.padded or not axes or step.fill is None:
            return ()
        return tuple(self.place.padding(cut, axes) for cut in cuts)

    def which(self, partial: tuple[str, ...], number: Mapping[str, int]) -> int:
        """The position of a partial among the rank's partials."""
        at = 0
        for axis in partial:
            at = at * len(self.place.own[axis]) + number[axis]
        return at


def numbered(step: Compute) -> tuple[tuple, tuple, tuple[str, ...]]:
    """Returns (args, kwargs, operands) with "%0", "%1", ... for the operands, in their order; repeated operands share a
    number."""
    numbers: dict[str, int] = {}

    def walk(argument):
        if isinstance(argument, str) and argument.startswith("%"):
            return f"%{numbers.setdefault(argument[1:], len(numbers))}"
        return tuple(map(walk, argument)) if isinstance(argument, tuple) else argument

    args = walk(step.args)
    kwargs = tuple((key, walk(value)) for key, value in step.kwargs)
    return args, kwargs, tuple(numbers)


def convolution(kind: str, args: tuple, channels: Sequence[int]) -> tuple:
    """Returns (image or gradient, weight or gradient, stride, dilation, groups, transposed) of a convolution or its
    gradients. `channels`: local sizes of dim 1 of its operands and result, from which the local groups follow."""
    if kind == "weight":
        gradient, x, stride, _, dilation, transposed, _, _ = args
        image, centre = (gradient, x) if transposed else (x, gradient)
        return image, centre, stride, dilation, channels[0 if transposed else 1] // max(channels[2], 1), False
    if kind == "output":
        x, weight, _, stride, _, dilation, transposed, _, _ = args
    else:
        x, weight, stride, _, dilation, transposed, _, _ = args
        transposed = not transposed
    return (
        x,
        weight,
        stride,
        dilation,
        channels[2 if transposed else 0] // max(channels[1], 1),
        bool(transposed),
    )


def sides_of(kind: str | None, step: Compute) -> tuple[int, ...] | None:
    """The padding of a convolution or its gradient; zeros for the gradient of pooled images, else None."""
    if kind is None:
        return (0,) * len(step.args[2]) if step.target == POOLED else None
    return step.args[4] if kind == "output" else step.args[3]
