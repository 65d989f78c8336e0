"""A step of training over a mesh: the computation and messages of a plan, and the update of each rank's parts."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import isfinite, nan, prod
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from mpi4py import MPI

from kernels.allreduce.execution.reducer import require_same_bits
from miniapps.learning.course.trainer import Trainer
from miniapps.learning.optimisers import optimiser, rate_at
from miniapps.learning.policies.choosing import candidates
from miniapps.learning.samples import images
from miniapps.learning.samples.images import Labelled
from miniapps.learning.weights import combined, fingerprints
from miniapps.mesh.initial import drawn
from miniapps.mesh.problem import Inputs, deck, load, mesh_of, names, ordering_of
from miniapps.partition import models
from miniapps.partition.capture.export import export
from miniapps.partition.cuts.axes import axes_of
from miniapps.partition.cuts.mesh import require_fits
from miniapps.partition.cuts.steps import Plan, Value
from miniapps.partition.execution import feedback
from miniapps.partition.execution.draws import EVALUATION
from miniapps.partition.execution.learn import Learner
from miniapps.partition.execution.partners import is_first
from miniapps.partition.execution.run import Program
from miniapps.partition.execution.wires import contributed
from miniapps.partition.graphs.flops import core_rate, model_flops
from miniapps.partition.planning.recipes import plan_of
from miniapps.partition.pricing.pipeline import pipeline_of
from miniapps.partition.showing.stages import stages_of
from miniapps.trace.records import INPUT, NODE, STAGES
from miniapps.trace.schema import CORE_RATE, MODEL_FLOPS, UTILISATION, WAIT

if TYPE_CHECKING:
    from miniapps.runner.context import Context

WEIGHTS = "weights."  # prefix of the fingerprints of a parameter, by block
TESTED = 4  # the most batches of an evaluation


class MeshTrainer(Trainer):
    """A model over the mesh of all ranks; each rank holds its parts of parameters, buffers and states. Construction is
    collective."""

    def __init__(self, ctx: Context, regions: Mapping[str, str] | None = None):
        super().__init__(ctx, regions or {})
        config = ctx.config
        self.data = images.share(ctx.comm, load(config) if ctx.rank == 0 else None, Labelled)
        self.inputs = Inputs(config, self.data)
        self.plan, whole, self.flops = ctx.comm.bcast(self._problem() if ctx.rank == 0 else None)
        self.mesh = mesh_of(config, ctx.options, ctx.size)
        require_fits(self.plan, self.mesh)
        self.program = Program(
            ctx.comm,
            self.plan,
            self.mesh,
            ctx.options.policy.level,
            ctx.options.threads,
            config.mesh.shapes,
            watch=None if ctx.watch is None else self._watched,
            timed=self._timed,
            reducers=self._reducer,
            anywhere=ctx.options.processor == "any",
            seed=config.seeds.dropout,
            wire=candidates(config)[0],
            ordering=ordering_of(ctx.options),
        )
        self.learner = Learner(self.program, whole, lambda weights: optimiser(config.training, weights))
        self.optimiser = self.learner.optimiser
        self.test_loss = nan
        self.rate = ctx.comm.allreduce(core_rate(), MPI.MAX)
        self.utilisation: list[float] = []
        self.waited = 0.0  # seconds of this step in which the rank waited for other stages
        self.waits: list[float] = []  # parts of the steps' times
        self.pipeline = pipeline_of(self.plan, self.mesh)
        self.bubble = nan
        if ctx.rank == 0:
            self.tracer.usage(MODEL_FLOPS, 0, self.flops)
            self.tracer.usage(CORE_RATE, 0, self.rate)
            for name, array in self.data.inputs().items():
                self.tracer.array(f"{INPUT}{name}", 0, array)
            self.tracer.fingerprint(f"{INPUT}plan", 0, bytes.fromhex(self.plan.hash)[:16])
            self.tracer.choice(STAGES, -1, stages_of(self.plan, self.mesh).encode(), nan)

    def peek(self, block: int) -> np.ndarray | None:
        """This rank's part of the parameter with number `block`, which faults can strike."""
        every = self.learner.every
        part = self.learner.values[every[block]] if 0 <= block < len(every) else None
        return None if part is None else part.numpy()

    def advance(self, step: int) -> None:
        tracer, training = self.tracer, self.config.training
        begin = tracer.clock()
        self.trace_weights()
        computed, self.waited = time.perf_counter(), 0.0
        self.learner.give(self.inputs.at(step))
        self.learner.steps = step - 1
        self.learner.rate = rate_at(step, training.steps, training.rate, training.optimiser)
        loss = self.learner.compute()
        self._settle(float(loss))
        start = tracer.clock()
        self.learner.update()
        tracer.event(self.name["update"], start)
        self._recorded()
        self._used(time.perf_counter() - computed)
        tracer.event(self.name["step"], begin)

    def evaluate(self, step: int) -> None:
        """The loss of some test samples. Collective; raises RanksDisagree if ranks have different losses."""
        start = self.tracer.clock()
        count = max(1, len(self.data.test_images) // self.config.training.batch)
        self.test_loss = self.mean_loss(map(self.inputs.test, range(min(TESTED, count))))
        require_same_bits(self.ctx.comm, np.array([self.test_loss]), f"step {self.tracer.step}: test loss")
        self.tracer.event(self.name["evaluate"], start)
        if self.ctx.rank == 0:
            self.tracer.value("test_loss", self.test_loss)

    def mean_loss(self, batches: Iterable[tuple[torch.Tensor, ...]]) -> float:
        """The mean loss of batches of inputs, after which the errors of wires are as before. Collective."""
        losses, kept = [], self.program.lost()
        for inputs in batches:
            self.learner.give(inputs)
            losses.append(float(self.program(self.learner.values, EVALUATION)[0]))
        self.program.restore_lost(kept)
        return float(np.mean(losses))

    def trace_weights(self) -> None:
        """Record the weights that enter the current step or, after the last step, the final weights: each block by the
        first rank that has it."""
        start = self.tracer.clock()
        for k in self.learner.learned:
            source = self.plan.sources[k]
            self._fingerprints(f"{WEIGHTS}{source.key}", source.tensor.name, self.learner.values[k])
        self.tracer.event(self.name["record"], start)

    def figures(self) -> dict[str, tuple[float, str]]:
        """The figures that a run reports."""
        found = {"loss": (self.loss, ""), "test_loss": (self.test_loss, "")}
        if self.utilisation:
            found[UTILISATION] = (100 * median(self.utilisation), "%")
        if self.pipeline is not None and self.waits:
            found["bubble"] = (100 * self.bubble, "%")
            found["predicted_bubble"] = (100 * self.pipeline.bubble, "%")
        return found

    def record_outputs(self, step: int) -> None:
        """Find the mean over ranks of the part of a step's time in which they waited for other stages. Collective."""
        if self.pipeline is not None and self.waits:
            self.bubble = self.ctx.comm.allreduce(median(self.waits)) / self.ctx.size

    def fingerprint(self) -> str:
        """The fingerprint of all whole weights. Collective."""
        return combined(fingerprints(self.state()[0]))

    def state(self) -> list[Sequence[np.ndarray]]:
        """The whole weights, and each whole state of the optimiser, in the order of the parameters. Collective."""
        learner = self.learner
        found: list[Sequence[np.ndarray]] = []
        for parts in ([x.numpy() for x in self._parts()], *learner.optimiser.states.values()):
            own = dict(zip(learner.learned, map(torch.from_numpy, parts), strict=True))
            names = {k: self.plan.sources[k].tensor.name for k in learner.every}
            found.append([self.program.whole(names[k], own.get(k)).numpy() for k in learner.every])
        return found

    def restore(self, state: Sequence[Sequence[np.ndarray]]) -> None:
        """Restore what `state` returned, on any mesh."""
        own = [[x.numpy() for x in self._parts()], *self.learner.optimiser.states.values()]
        for arrays, parts in zip(state, own, strict=True):
            whole = dict(zip(self.learner.every, arrays, strict=True))
            for k, part in zip(self.learner.learned, parts, strict=True):
                array = whole[k]
                name = self.plan.sources[k].tensor.name
                part[...] = self.program.part(name, torch.from_numpy(array)).numpy()

    def buffers(self) -> dict[str, np.ndarray]:
        """The whole buffers that a step changes, by key. Collective."""
        names = {s.key: (s.tensor.name, k) for k, s in enumerate(self.plan.sources) if s.kind == "buffer"}
        return {
            key: self.program.whole(name, self.learner.values[k]).numpy()
            for name, k, key in ((*names[key], key) for key, _ in self.plan.updates)
        }

    def restore_buffers(self, arrays: dict[str, np.ndarray]) -> None:
        """Restore what `buffers` returned."""
        for k in self.learner.buffers:
            source = self.plan.sources[k]
            self.learner.values[k] = self.program.part(
                source.tensor.name, torch.from_numpy(arrays[source.key])
            )

    def kept_errors(self) -> feedback.Errors:
        """The errors that wires keep, by the value that is summed, complete on rank 0. Collective."""
        return feedback.gathered(self.program)

    def restore_kept_errors(self, flat: Sequence[np.ndarray] | None) -> None:
        """Restore the errors of contributions, and those of totals, which rank 0 passes one after the other in the
        order of `kept_errors`. Collective."""
        feedback.restore(self.program, None if flat is None else self._by_value(*flat))

    def _by_value(self, rows: np.ndarray, totals: np.ndarray) -> feedback.Errors:
        found, at, of_total = {}, 0, 0
        for name, shape in contributed(self.plan, self.mesh, self.ctx.options.policy.level).items():
            n, one = prod(shape), prod(shape[1:])
            found[name] = (
                rows[at : at + n].reshape(shape),
                totals[of_total : of_total + one].reshape(shape[1:]),
            )
            at, of_total = at + n, of_total + one
        return found

    def free(self) -> None:
        """Free communicators; collective."""
        self.program.free()

    # ---- parts

    def _parts(self) -> list[torch.Tensor]:
        return [self.learner.values[k] for k in self.learner.learned]

    def _problem(self) -> tuple[Plan, dict[tuple[str, str], torch.Tensor], int]:
        """The plan; the whole parameters, buffers and inputs; and the model FLOPs of a step."""
        config, model = self.config, models.model(self.config.model.name)
        sizes, inputs, parts = deck(config), self.inputs.at(1), config.mesh.micro_batches
        network = drawn(model.module, sizes, config.seeds.init)
        whole_inputs = tuple(
            torch.cat(inputs[k :: len(inputs) // parts]) for k in range(len(inputs) // parts)
        )
        graph = export(network, whole_inputs, micro_batches=parts)
        plan = plan_of(
            model, sizes, graph, names(config), config.mesh.fuse, config.mesh.overlap, config.mesh.attention
        )
        whole = {("parameter", key): x.detach().clone() for key, x in network.named_parameters()}
        whole |= {("buffer", key): x.clone() for key, x in network.named_buffers()}
        whole |= {("input", str(k)): x for k, x in enumerate(inputs)}
        return plan, whole, model_flops(graph)

    def _settle(self, loss: float) -> None:
        finite = isfinite(loss) and all(bool(torch.isfinite(x).all()) for x in self.learner.gradients)
        everywhere = self.ctx.comm.allreduce(int(finite)) == self.ctx.size
        self.settle(everywhere, loss, lambda: "the loss or a gradient is not finite")

    # ---- records in the trace

    def _recorded(self) -> None:
        """Record the buffers of the model that its users want to see: one number each, whole on every rank."""
        if self.ctx.rank == 0:
            keys = models.model(self.config.model.name).RECORDED
            for k in self.learner.buffers:
                if (key := self.plan.sources[k].key) in keys:
                    self.tracer.value(key, float(self.learner.values[k]))

    def _used(self, seconds: float) -> None:
        """Record the utilisation of a step that took `seconds` on this rank, without the recording of weights. Since a
        rank waits for the others in every all-reduce, over several steps the time of one rank is that of all."""
        cores = self.ctx.size * self.ctx.options.threads
        self.waits.append(self.waited / seconds)
        self.utilisation.append(self.flops / (seconds * cores * self.rate))
        if self.ctx.rank == 0:
            self.tracer.usage(UTILISATION, self.tracer.step, self.utilisation[-1])

    def _timed(self, region: str, kind: str, function, nbytes: int):
        """`function`, with each call recorded as an event in the trace."""
        tracer, name = self.tracer, self.tracer.name(region, kind)
        clock, event = tracer.clock, tracer.event
        if kind == WAIT:
            function = self._waiting(function)

        def timed(*args: Any, **kwargs: Any):
            start = clock()
            result = function(*args, **kwargs)
            event(name, start, nbytes)
            return result

        return timed

    def _waiting(self, function):
        """`function`, whose seconds count as waiting for other stages."""

        def waiting():
            begin = time.perf_counter()
            result = function()
            self.waited += time.perf_counter() - begin
            return result

        return waiting

    def _reducer(self, comm, reduction, name: str, blocks, summed: bool):
        """The traced all-reduce of a reduction of the plan; it is freed with the repeat."""
        return self.ctx.reducer(
            name,
            reduction.shape,
            reduction.dtype,
            comm=comm,
            blocks=blocks,
            summed=summed,
            by=(reduction.ordering, reduction.accumulation),
            collective=reduction.collective,
            operation=reduction.operation,
            bounds=reduction.bounds,
            wire=reduction.wire,
            tensors=reduction.tensors,
            watched=False,
        )

    def _watched(self, name: str, value) -> None:
        """Record a value of the plan by block, and let faults strike it, unless it is partial."""
        of = self.plan.values[name]
        watch = self.ctx.watch
        if watch is None or isinstance(value, list) or of.partial:
            return
        blocks, arrays = blocks_of(of, self.program, value)
        watch.kernel(name, blocks, arrays, NODE, self._is_first(name))

    def _is_first(self, name: str) -> bool:
        """Whether this rank is the first that holds its part of a value."""
        return is_first(self.plan, self.mesh, self.ctx.rank, name)

    def _fingerprints(self, record: str, name: str, part: torch.Tensor) -> None:
        value = self.plan.values[name]
        if self._is_first(name):
            for block, array in zip(*blocks_of(value, self.program, part), strict=True):
                self.tracer.array(record, block, array)


def blocks_of(value: Value, program: Program, part: torch.Tensor) -> tuple[list[int], list[np.ndarray]]:
    """Numbers and views of this rank's blocks of a value. A block is numbered within the product of the axes of the
    cut, the axis of the first dim outermost; a value that is not cut is block 0."""
    place, axes = program.place, axes_of(value.cut)
    numbers, arrays = [], []
    for positions in product(*(range(len(place.own[axis])) for axis in axes)):
        number, chosen = 0, {}
        for axis, position in zip(axes, positions, strict=True):
            number = number * place.axes[axis].blocks + place.own[axis][position]
            chosen[axis] = (position, position + 1)
        found = place.part(value.cut, chosen)
        block = part
        if found is not None:
            block = part if found.factors is None else part.view(found.factors)
            for dim, begin, length in found.ranges:
                block = block.narrow(dim, begin, length)
        numbers.append(number)
        arrays.append(block.numpy())
    return numbers, arrays
