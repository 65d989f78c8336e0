"""Makes the plan of all ranks (`cuts.steps`) from a graph and annotations. No MPI, no torch, no mesh."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from miniapps.partition.cuts.axes import Axis, Cut, axes_of, merge, whole
from miniapps.partition.cuts.steps import (
    SHAPE,
    STAGE,
    Compute,
    Plan,
    Receive,
    Reduce,
    Reshard,
    Send,
    Step,
    Value,
    Window,
    step_operands,
    step_results,
)
from miniapps.partition.graphs.graph import Graph, reading
from miniapps.partition.graphs.simplify import operation
from miniapps.partition.planning.annotate import Annotated, Given, fitted
from miniapps.partition.planning.decide import Decision, decide, placed
from miniapps.partition.planning.homes import homes
from miniapps.partition.planning.partials import Partial, place
from miniapps.partition.planning.pipeline import Pipelined, pipelined
from miniapps.partition.planning.propagate import propagate, ruled
from miniapps.partition.planning.smaller import written
from miniapps.partition.rules.project import Assignment, Axes, cut_of, take

SIZED = {"view": 1, "expand": 1, "full": 0}  # position of the argument with the shape of the result


def plan(
    graph: Graph,
    axes: Sequence[Axis],
    annotations: Given,
    together: Iterable[Sequence[str]] = (),
    fuse: bool = True,
    layers: Sequence[str] = (),
    ring: bool = False,
) -> Plan:
    """The plan of a step; `together`: groups of axes that never cut the same value, so that one mesh axis may carry
    a group.

    `fuse`: send partial sums over equal axes as one vector, as soon as one of them is needed. `layers`: the modules
    over which an axis `stage` runs. `ring`: attention of cut
    keys and values in blocks. Raises AnnotationError.
    """
    known = Axes(axes, together)
    annotated = fitted(graph, known, annotations)
    while True:
        nodes = ruled(graph)
        wishes = propagate(graph, nodes, known, annotated)
        smaller = written(graph, nodes, wishes, known, ring)
        if smaller is None:
            break
        graph = smaller
    computed = {s.tensor.name: wishes[s.tensor.name] for s in graph.sources}
    sources = computed | {a.name: a.cut for a in annotated if a.stored}
    decisions = decide(nodes, computed, wishes, known, priorities(annotated, known), graph.outputs())
    partial, reduced = place(decisions, graph.outputs(), known)
    found = Pipelined({}, {}, {})
    for axis in axes:
        if axis.name == STAGE:
            found = pipelined(graph, axis, layers)
    steps = Emitter(graph, sources, decisions, partial, reduced, known, fuse, found)
    return steps.plan(tuple(axes), tuple(tuple(group) for group in together))


def priorities(annotated: Iterable[Annotated], axes: Axes) -> dict[str, int]:
    """The lowest user priority of the annotations with each axis."""
    first: dict[str, int] = {}
    for a in annotated:
        for axis in axes_of(a.cut):
            first[axis] = min(a.priority, first.get(axis, a.priority))
    return {name: first.get(name, 0) for name in axes.by_name}


class Emitter:
    """Emits steps in order: reductions and reshards before the operations that need them."""

    def __init__(
        self,
        graph: Graph,
        sources: dict[str, Cut],
        decisions: Sequence[Decision],
        partial: dict[str, Partial],
        reduced: set[str],
        axes: Axes,
        fuse: bool,
        pipeline: Pipelined,
    ):
        self.pipeline = pipeline
        self.at = dict(pipeline.stages)  # the stages of each value, of none without an axis `stage`
        self.sent: dict[str, set[int]] = {}  # the stages to which a value was sent
        self.graph, self.decisions, self.axes, self.fuse = graph, decisions, axes, fuse
        self.partial, self.reduced = partial, reduced
        self.views: dict[str, Decision] = {}  # operations that only move elements, by result
        self.steps: list[Step] = []
        self.values: dict[str, Value] = {
            s.tensor.name: Value(s.tensor.shape, s.tensor.dtype, sources[s.tensor.name])
            for s in graph.sources
        }
        self.totals: dict[str, str] = {}  # the reduced value of each partial one
        self.recut: dict[tuple[str, Cut], str] = {}
        # Partial values to reduce, grouped by the vectors in which they can be sent.
        self.pending: dict[tuple, list[str]] = {}
        self.leaves: dict[str, Cut] = self._held(sources) | self._scattered()
        self.homes = homes(decisions, reduced - set(graph.outputs()), axes)
        self.maker = {tensor.name: node.name for node in graph.nodes for tensor in node.results}

    def _held(self, sources: dict[str, Cut]) -> dict[str, Cut]:
        """The cuts in which gradients and updates are held, for those without other readers."""
        by_key = {
            s.key: sources[s.tensor.name] for s in self.graph.sources if s.kind in ("parameter", "buffer")
        }
        read = self.graph.readers()
        leaving = (*self.graph.gradients, *self.graph.updates)
        return {name: by_key[key] for key, name in leaving if name not in read}

    def _scattered(self) -> dict[str, Cut]:
        """The cut in which all readers need a total, for totals over axes that are in this cut, or share a carrier with
        one that is."""
        needs: dict[str, set[Cut]] = {}
        for decision in self.decisions:
            for tensor, cut in zip(decision.ruled.read, decision.needs, strict=True):
                needs.setdefault(tensor.name, set()).add(cut)
        alone = {name: next(iter(cuts)) for name, cuts in needs.items() if len(cuts) == 1}

        def slots(names: Iterable[str]) -> set[str]:
            return {self.axes.slots[name] for name in names}

        outputs = set(self.graph.outputs())
        return {
            name: alone[name]
            for name in self.reduced
            if name in alone
            and name not in outputs
            and slots(self.partial[name][0]) <= slots(axes_of(alone[name]))
        }

    def plan(self, axes: tuple[Axis, ...], together: tuple[tuple[str, ...], ...]) -> Plan:
        """Emit all steps; returns the plan."""
        self.gather_stored()
        for decision in self.decisions:
            self.compute(decision)
        blocks = next((axis.blocks for axis in axes if axis.name == STAGE), 0)
        by_key = {(s.kind, s.key): self.values[s.tensor.name].cut for s in self.graph.sources}
        tensors = self.graph.tensors()
        loss = self.cut_as(self.graph.loss, whole(tensors[self.graph.loss].shape), "loss")
        self.bring(loss, tuple(range(blocks)), "loss")
        gradients = tuple(
            (key, self.cut_as(name, by_key["parameter", key], f"gradient of {key}"))
            for key, name in self.graph.gradients
        )
        updates = tuple(
            (key, self.cut_as(name, by_key["buffer", key], f"update of {key}"))
            for key, name in self.graph.updates
        )
        homes = {(s.kind, s.key): self.at.get(s.tensor.name, ()) for s in self.graph.sources}
        for key, name in gradients:
            self.bring(name, homes["parameter", key], f"gradient of {key}")
        for key, name in updates:
            self.bring(name, homes["buffer", key], f"update of {key}")
        reasons = {d.ruled.node.name: d.reason for d in self.decisions if d.reason}
        leaving = (loss, *(name for _, name in (*gradients, *updates)))
        steps = needed(self.steps, leaving)
        kept = {name for step in steps for name in step_results(step)} | {
            s.tensor.name for s in self.graph.sources
        }
        values = {name: value for name, value in self.values.items() if name in kept}
        stages = {name: at for name, at in self.at.items() if name in kept} if blocks else {}
        return Plan(
            axes, self.graph.sources, values, steps, loss, gradients, updates, together, reasons, stages,
            self.pipeline.tasks,
        )  # fmt: skip

    def gather_stored(self) -> None:
        """Reshard parameters whose stored cut differs from the one for computing, before all operations."""
        held = {source.tensor.name for source in self.graph.sources if source.kind == "parameter"}
        for decision in self.decisions:
            for tensor, cut in zip(decision.ruled.read, decision.needs, strict=True):
                if tensor.name in held and self.values[tensor.name].cut != cut:
                    self.cut_as(tensor.name, cut, decision.ruled.node.name)
        if self.fuse:
            gathers = [step for step in self.steps if isinstance(step, Reshard)]
            self.steps = list(joined(gathers, self.values, self.at))

    def compute(self, decision: Decision) -> None:
        """Emit an operation, after the reductions and reshards that it needs."""
        ruled, node = decision.ruled, decision.ruled.node
        at = self.pipeline.nodes.get(node.name, ())
        names: list[str] = []
        inherited: tuple[str, ...] = ()
        before = len(self.steps)
        for tensor, cut in zip(ruled.read, decision.needs, strict=True):
            if tensor.name in self.partial and tensor.name not in self.reduced:
                inherited = self.partial[tensor.name][0]
                names.append(tensor.name)
            else:
                names.append(self.cut_as(tensor.name, cut, node.name))
            self.bring(names[-1], at, node.name)
        moves = [step for step in self.steps[before:] if isinstance(step, Reshard)]
        if self.fuse and len(moves) == len(self.steps) - before:
            self.steps[before:] = joined(moves, self.values, self.at)
        over: tuple[str, ...] = ()
        for tensor, cut in zip(ruled.made, decision.gives, strict=True):
            axes, combine = self.partial.get(tensor.name, ((), "sum"))
            self.values[tensor.name] = Value(tensor.shape, tensor.dtype, cut, axes, combine)
            over = axes if len(axes) > len(over) else over
        self.step(decision, names, tuple(tensor.name for tensor in ruled.made), over, inherited)
        if ruled.rule.kernel == "view" and len(ruled.read) == len(ruled.made) == 1 and not over:
            self.views[ruled.made[0].name] = decision
        for tensor in ruled.made:
            if tensor.name in self.reduced:
                self.pending.setdefault(self.kind_of_sum(tensor.name), []).append(tensor.name)

    def step(
        self,
        decision: Decision,
        names: Sequence[str],
        results: tuple[str, ...],
        over: tuple[str, ...] = (),
        inherited: tuple[str, ...] = (),
    ) -> None:
        """Append the step of an operation on the values `names` in place of its operands."""
        node, rule = decision.ruled.node, decision.ruled.rule
        each = iter(names)
        args, kwargs = reading(node.args, each), tuple((k, reading(v, each)) for k, v in node.kwargs)
        sized = SIZED.get(operation(node.target))
        if sized is not None:
            args = (*args[:sized], SHAPE, *args[sized + 1 :])
        self.steps.append(
            Compute(
                node.name,
                node.target,
                args,
                kwargs,
                results,
                rule.kernel,
                over,
                tuple(self.windows(decision, names, results)),
                rule.fill if set(over) - set(inherited) else None,
                node.where,
            )
        )

    def windows(self, decision: Decision, names: Sequence[str], results: Sequence[str]) -> Iterable[Window]:
        """The windows of cut dims."""
        rule = decision.ruled.rule
        for reach in rule.reaches:
            dim = decision.assignment.get(reach.label)
            pointwise = reach.kernel == reach.stride == 1 and reach.padding == 0 and rule.kernel == "conv"
            if dim is None or pointwise:
                continue
            of_labels = (rule.results if reach.of_result else rule.operands)[reach.of]
            axis = dim[0][1]
            assert axis is not None
            yield Window(
                names[reach.operand],
                rule.operands[reach.operand].index((reach.label,)),
                (results if reach.of_result else names)[reach.of],
                of_labels.index((reach.label,)),
                axis,
                reach.kernel,
                reach.stride,
                reach.dilation,
                reach.padding,
                reach.transposed,
                reach.wrap,
            )

    def cut_as(self, name: str, cut: Cut, node: str) -> str:
        """The name of the value `name`, reduced and in this cut; emits the missing steps, for `node`."""
        if name in self.partial:
            if name not in self.totals:
                self.reduce(name, node)
            name = self.totals[name]
        old = self.values[name]
        if old.cut == cut:
            return name
        if (name, cut) not in self.recut and not self.moved(name, cut, node):
            new = f"{name}@{sum(known == name for known, _ in self.recut) + 1}"
            self.values[new] = Value(old.shape, old.dtype, cut)
            self.at[new] = self.at.get(name, ())
            self.steps.append(Reshard(node, (name,), (new,), kind(old.cut, cut)))
            self.recut[name, cut] = new
        return self.recut[name, cut]

    def moved(self, name: str, cut: Cut, node: str) -> bool:
        """Whether the value is a view of a value that exists in the needed cut; if so, emits the view of that value,
        without messages."""
        decision = self.views.get(name)
        if decision is None:
            return False
        rule, (source,), (result,) = decision.ruled.rule, decision.ruled.read, decision.ruled.made
        assignment: Assignment = {}
        take(rule, rule.results[0], cut, assignment, self.axes)
        if cut_of(rule.results[0], result.shape, assignment, rule.sizes, self.axes) != cut:
            return False
        before = cut_of(rule.operands[0], source.shape, assignment, rule.sizes, self.axes)
        if source.name in self.partial:
            return False
        if (source.name, before) not in self.recut and not self.moved(source.name, before, node):
            return False
        new = f"{name}@{sum(known == name for known, _ in self.recut) + 1}"
        self.values[new] = Value(result.shape, result.dtype, cut)
        self.at[new] = self.at.get(self.recut[source.name, before], ())
        self.step(decision, [self.recut[source.name, before]], (new,))
        self.recut[name, cut] = new
        return True

    def bring(self, name: str, stages: Sequence[int], node: str) -> None:
        """Send a value to those of the `stages` that have not got it, for `node`."""
        at = self.at.get(name, ())
        had = self.sent.setdefault(name, set(at))
        for stage in stages:
            if stage not in had:
                source = min(at, key=lambda other: (abs(other - stage), other))
                about = node, (name,), (name,), source, stage
                self.steps += [Send(*about), Receive(*about)]
                had.add(stage)

    def kind_of_sum(self, name: str) -> tuple:
        """The properties that partial values in one vector share: axes, combination, dtype, whether each rank needs
        only a part of the total, their stages, their task, and their home."""
        value = self.values[name]
        parts = finer(value.cut, self.leaves.get(name)) != value.cut
        about = value.dtype, parts, self.at.get(name, ()), self.task(name), self.homes.get(name)
        return *self.partial[name], *about

    def task(self, name: str):
        """The task of the operation that computed a value; the same for all without an axis `stage`."""
        return self.pipeline.tasks.get(self.maker[name]) if self.pipeline.tasks else None

    def reduce(self, name: str, node: str) -> None:
        """Emit the reduction of a partial value, fused with all waiting values of its kind."""
        kind = self.kind_of_sum(name)
        axes, combine, dtype = kind[:3]
        waiting = self.pending[kind]
        operands = tuple(waiting) if self.fuse else (name,)
        self.pending[kind] = [other for other in waiting if other not in operands]
        for operand in operands:
            value, total = self.values[operand], f"{operand}@{combine}"
            cut = finer(value.cut, self.leaves.get(operand))
            self.values[total] = Value(value.shape, value.dtype, cut)
            self.at[total] = self.at.get(operand, ())
            self.totals[operand] = total
        results = tuple(self.totals[operand] for operand in operands)
        self.steps.append(Reduce(node, operands, results, axes, combine, dtype, home=self.homes.get(name)))


def needed(steps: Sequence[Step], leaving: Iterable[str]) -> tuple[Step, ...]:
    """The steps without unread views, which were replaced by views in another cut."""
    wanted, kept = set(leaving), []
    for step in reversed(steps):
        if not isinstance(step, Compute) or wanted.intersection(step.results):
            kept.append(step)
            wanted.update(step_operands(step))
    return tuple(reversed(kept))


def joined(
    steps: Iterable[Reshard], values: Mapping[str, Value], at: Mapping[str, tuple[int, ...]]
) -> Iterable[Reshard]:
    """Joins reshards of one kind whose values share dtype, axes and stages (`at`)."""
    alike: dict[tuple, list[Reshard]] = {}
    for step in steps:
        value = values[step.operands[0]]
        stages = at.get(step.operands[0], ())
        alike.setdefault((step.kind, frozenset(axes_of(value.cut)), value.dtype, stages), []).append(step)
    for (kind, *_), several in alike.items():
        operands = tuple(name for step in several for name in step.operands)
        results = tuple(name for step in several for name in step.results)
        yield Reshard(several[0].node, operands, results, kind)


def finer(cut: Cut, wanted: Cut | None) -> Cut:
    """`wanted` if it refines `cut`, so that a reduction can leave each rank only its part; else `cut`."""
    if wanted is None or not set(axes_of(cut)) <= set(axes_of(wanted)):
        return cut
    return wanted if all(merge(a, b) == b for a, b in zip(cut, wanted, strict=True)) else cut


def kind(old: Cut, new: Cut) -> str:
    """The kind of a reshard: slice, all-gather, all-to-all (an axis, or the cut, moves to another dim) or permute
    (another axis in the same place)."""
    before = {(d, *factor) for d, dim in enumerate(old) for factor in placed(dim)}
    after = {(d, *factor) for d, dim in enumerate(new) for factor in placed(dim)}
    if before <= after:
        return "slice"
    if after <= before:
        return "all-gather"
    lost, gained = before - after, after - before
    return "permute" if {f[:2] for f in lost} == {f[:2] for f in gained} else "all-to-all"
