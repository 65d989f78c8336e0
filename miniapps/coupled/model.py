"""The time loop: closure, Runge-Kutta stages with a Poisson solve each, and the records of a step."""

from collections.abc import Iterator
from dataclasses import replace
from math import inf, isfinite, pi, sqrt
from typing import Any

import numpy as np
from mpi4py import MPI

from kernels import exact, stencil
from kernels.allreduce.execution.reducer import require_same_bits
from miniapps.checkpoints.rounding import rounded
from miniapps.coupled import flow
from miniapps.coupled.chunks import by_chunks
from miniapps.coupled.closure import EddyViscosity, make_surrogate
from miniapps.coupled.flow import view
from miniapps.coupled.initial import vorticity
from miniapps.coupled.members import Member, Record
from miniapps.coupled.multigrid import v_cycle
from miniapps.coupled.network import parameters
from miniapps.coupled.physics import HALO
from miniapps.coupled.poisson import Steps
from miniapps.coupled.state import State
from miniapps.coupled.twice import compare_closure, compare_rate
from miniapps.errors import RunError
from miniapps.layout import fields, halo
from miniapps.layout.blocks import Blocks
from miniapps.layout.owners import owner_of
from miniapps.linear.dots import GlobalDots
from miniapps.linear.krylov import ChronopoulosGear, solve
from miniapps.runner import duplicates
from miniapps.system.device import host, put
from miniapps.trace.records import INPUT, LEFT
from miniapps.trace.schema import COLLECTIVE, COMPUTE, EXCHANGE, FILE, OTHER

# Shu & Osher's third-order SSP Runge-Kutta in terms of its quadrature: the weight of each stage's rate
QUADRATURE = (1.0 / 6.0, 1.0 / 6.0, 2.0 / 3.0)
DIFFUSION_LIMIT = 0.25  # dt <= limit h^2 / (nu + nu_e): inside the stability region of RK3 (0.31)


class Model:
    """The flows on this rank; `member`: the current one. Construction is collective; call `free()` at the end.

    Members are one more axis of blocks: block b of member m has the number m blocks.count + b in records. Every rank
    has the same blocks of each member, and members are reduced one after the other, so the bits of a member depend on
    no other member.
    """

    def __init__(self, ctx):
        config, options = ctx.config, ctx.options
        self.ctx, self.config, self.comm, self.tracer = ctx, config, ctx.comm, ctx.tracer
        self.watch = ctx.watch
        self.h = 2.0 * pi / config.grid.nx
        self.kernels = stencil.backend("native" if options.device == "cpu" else "cupy")
        self.xp = self.kernels.xp
        self.record = Record()
        kinds = dict(
            step=OTHER,
            poisson=COMPUTE,
            closure=COMPUTE,
            rhs=COMPUTE,
            halo=EXCHANGE,
            checkpoint=FILE,
            record=OTHER,
        )
        kinds |= {"allgather.coarse": COLLECTIVE}
        self.name = {name: self.tracer.name(name, kind) for name, kind in kinds.items()}
        seeds = [ctx.seed + number for number in range(config.flow.ensemble)]
        networks = [make_surrogate(config, options, seed, self.xp) for seed in seeds]
        self.members = [Member(*each) for each in zip(range(len(seeds)), seeds, networks, strict=True)]
        self.member = self.members[0]
        self.duplicates = duplicates.make_duplicates(ctx)
        grid = config.grid
        self._plan(Blocks(grid.ny, grid.nx, grid.by, grid.bx, ctx.size, ctx.rank, options.shuffle_blocks))

    def _plan(self, blocks: Blocks) -> None:
        """Plan for these blocks, and create every member's flow at rest on them. Collective."""
        ctx, config, options = self.ctx, self.config, self.ctx.options
        kernels, xp = self.kernels, self.xp
        self.blocks = blocks
        self._sum: Any = None  # of the vorticity, planned at the first rounding of the state
        self.force = xp.asarray(flow.kolmogorov(blocks, config.flow.wavenumber, config.flow.forcing))
        self.halos: list[halo.Halo] = []
        self.fill_wide = self._exchange(blocks, HALO)
        self.fill = self._exchange(blocks, HALO, 1)
        fill_faces = self._exchange(blocks, HALO, 1, corners=False)

        exactly = options.policy.exact_products

        def dots(name, n):
            return GlobalDots(blocks, kernels, ctx.reducer(name, (n,), blocks=blocks.own), n, exactly)

        fine = v_cycle(blocks, ctx.comm, kernels, self.h, options.threads, self._exchange, self._region)
        steps = Steps(blocks, kernels, fine, fill_faces, HALO, dots("scalars", 3), dots("norm", 1))
        self.solver = ChronopoulosGear(None, steps=steps)
        self.budget = dots("budget", 5)
        # Maxima do not depend on order, so the library may compute them.
        self._maxima = ctx.reducer("dt", (2,), by=("library", "working"), operation="max", watched=False)
        gradients = errors = None
        if config.closure.kind == "online":
            gradients = ctx.reducer(
                "gradients", (parameters(config.closure.channels),), "float32", blocks=blocks.own
            )
            errors = dots("closure_error", 2)
        for member in self.members:
            member.state = State.at_rest(blocks, xp)
            member.closure = EddyViscosity(
                config, blocks, self.h, member.surrogate, gradients, errors, self._require_same, xp
            )

    def redistribute(self, counts: list[int]) -> None:
        """Assign to every rank a contiguous run of `counts[rank]` blocks, with their states. Collective."""
        before, states = self.blocks, [member.state for member in self.members]
        self._free_halos()
        self.ctx.release()
        self._plan(replace(before, owner=owner_of(counts)))
        for member, state in zip(self.members, states, strict=True):
            member.state.last_dt, member.state.time, member.state.step = state.last_dt, state.time, state.step
            for name, pad in (("zeta", HALO), ("psi", HALO), ("slope", 0), ("curvature", 0)):
                whole = fields.gather(before, self.comm, view(getattr(state, name), pad), self.tracer)
                put(view(getattr(member.state, name), pad), fields.scatter(self.blocks, self.comm, whole))

    @property
    def state(self) -> State:
        """The state of the current member."""
        return self.member.state

    @property
    def own(self) -> np.ndarray:
        """The numbers of this member's blocks on this rank in records: int64 (own blocks,)."""
        return self.blocks.own + self.whole.start

    @property
    def whole(self) -> range:
        """The numbers of this member's blocks on all ranks."""
        first = self.member.number * self.blocks.count
        return range(first, first + self.blocks.count)

    def each(self) -> Iterator[Member]:
        """Yields every member, after making it the current one."""
        for member in self.members:
            self.member = member
            yield member

    def start(self) -> None:
        """Set the initial vorticity and its streamfunction."""
        flow_config, first = self.config.flow, self.whole.start
        initial = vorticity(
            flow_config.initial, self.blocks, flow_config.amplitude, flow_config.wavenumber, self.member.seed,
            {number - first: seed + self.member.number for number, seed in self.ctx.other_seeds(self.own).items()},
        )  # fmt: skip
        self.tracer.fingerprints(INPUT + "vorticity", self.own, initial)
        put(view(self.state.zeta, HALO), initial)
        self._solve_streamfunction()

    def measure(self) -> None:
        """Compute energy and enstrophy of the state, once before the first step."""
        self._reduce_budget([])
        self._watch_state()

    def peek(self, block: int):
        """The writable vorticity of an owned block for injected faults, else None."""
        number, block = divmod(block, self.blocks.count)
        k = self.blocks.local(block) if number < len(self.members) else None
        return None if k is None else view(self.members[number].state.zeta, HALO)[k]

    def advance(self, step: int) -> None:
        """Do one time step; record the state before it and the results."""
        tracer, state, clock = self.tracer, self.state, self.tracer.clock
        begin = clock()
        self.trace_state()
        self.fill_wide(state.zeta)
        self.fill_wide(state.psi)
        start = clock()
        if self.duplicates is not None:
            self.duplicates.begin(step, self.blocks.owner)
        eddy = self.member.closure.viscosity(step, state, self._closed)
        self._settle()
        tracer.event(self.name["closure"], start)
        dt = self._time_step(step, eddy)
        powers = self._runge_kutta(dt, eddy)
        member = self.member
        before, scale = member.energy, dt * sqrt(max(member.enstrophy, 0.0)) * member.energy
        if self.duplicates is not None:
            self.duplicates.settle()
        power = self._reduce_budget(powers)
        leak = abs(member.energy - before - dt * power) / scale if scale > 0.0 else 0.0
        self.record.worst_budget = max(self.record.worst_budget, leak)
        state.time, state.last_dt, state.step = state.time + dt, dt, step
        self._trace_step(dt, leak)
        self._watch_state()
        tracer.event(self.name["step"], begin)

    def round_state(self, bits: int) -> None:
        """Round the state and the network to `bits` bits of mantissa. Collective.

        The vorticity of a periodic flow must have mean 0, or its streamfunction does not exist. So the mean of the
        rounding errors is subtracted from block 0, whose numbers keep all bits. The sum is exact, independent of the
        layout.
        """
        state = self.state
        for part in (view(state.zeta, HALO), view(state.psi, HALO), state.slope, state.curvature):
            put(part, rounded(host(part), bits))
        zeta, words = view(state.zeta, HALO), exact.zeros(1)
        exact.add(words, np.ascontiguousarray(host(zeta)).reshape(-1, 1))
        if self._sum is None:
            self._sum = self.ctx.reducer("mean", (1,), by=("direct", "exact"), watched=False)
        mean = float(self._sum.sum_words(words)[0]) / (self.blocks.by * self.blocks.bx)
        if (k := self.blocks.local(0)) is not None:
            zeta[k] -= mean
        if surrogate := self.member.surrogate:
            surrogate.load({name: rounded(x, bits) for name, x in surrogate.state().items()})
        self.measure()

    def free(self) -> None:
        """Free the halo plans and the duplicates. Collective."""
        self._free_halos()
        if self.duplicates is not None:
            self.duplicates.free()

    def _free_halos(self) -> None:
        for planned in self.halos:
            planned.free()

    # ---- parts of a step

    def _time_step(self, step: int, eddy) -> float:
        """dt from global maxima, which do not depend on order; raises RunError for a state that is not finite."""
        psi_x, psi_y = flow.gradient(self.state.psi, HALO, self.h)
        xp, viscosity = self.xp, self.config.flow.viscosity
        largest_eddy = 0.0 if eddy is None else float(xp.max(eddy))
        local = np.array([float(xp.max(xp.abs(psi_x) + xp.abs(psi_y))), viscosity + largest_eddy])
        local[~np.isfinite(local)] = inf
        if not xp.isfinite(view(self.state.zeta, HALO)).all():
            local[0] = inf
        speed, diffusivity = self._maxima(local[np.newaxis]).tolist()
        if not (isfinite(speed) and isfinite(diffusivity)):
            self._refuse_nonfinite(step)
        if self.config.time.dt > 0.0:
            return self.config.time.dt
        advective = self.config.time.cfl * self.h / speed if speed > 0.0 else inf
        diffusive = DIFFUSION_LIMIT * self.h * self.h / diffusivity if diffusivity > 0.0 else inf
        dt = min(advective, diffusive)
        return dt if dt < inf else self.h

    def _runge_kutta(self, dt: float, eddy):
        """Advance the state by dt (Shu & Osher 1988). Returns the three stages' (psi interior, source) pairs.

        Each Poisson solve starts from an extrapolation of third order in dt, from the last step's derivatives and the
        previous stages, to save iterations.
        """
        state = self.state
        zeta, psi = view(state.zeta, HALO), view(state.psi, HALO)
        zeta_old, psi_old = zeta.copy(), psi.copy()
        ratio = dt / state.last_dt if state.last_dt > 0.0 else 0.0
        bend = (ratio * ratio) * state.curvature
        powers: list[tuple[Any, Any]] = []  # (psi, source) of each stage, NumPy's or CuPy's

        zeta += dt * self._rate(eddy, powers)
        psi += ratio * state.slope
        self._solve_streamfunction()
        self._fill_stage()
        psi_one = psi.copy()

        zeta[...] = 0.75 * zeta_old + 0.25 * (zeta + dt * self._rate(eddy, powers))
        psi[...] = 0.5 * (psi_old + psi_one + bend)
        self._solve_streamfunction()
        self._fill_stage()

        zeta[...] = (1.0 / 3.0) * zeta_old + (2.0 / 3.0) * (zeta + dt * self._rate(eddy, powers))
        psi[...] = 2.0 * psi - psi_old
        self._solve_streamfunction()
        state.curvature[...] = psi - psi_one
        state.slope[...] = (psi - psi_old) + state.curvature
        return powers

    def _fill_stage(self) -> None:
        self.fill(self.state.zeta)
        self.fill(self.state.psi)

    def _rate(self, eddy, powers):
        """d(zeta)/dt; appends (psi, source) to `powers`; minus their product is the power fed into the flow."""
        start = self.tracer.clock()
        state, config, h = self.state, self.config.flow, self.h

        def terms(zeta, psi, force, eddy):
            source = flow.source(zeta, HALO, force, config.drag, config.viscosity, eddy, h)
            return source, source - flow.jacobian(psi, zeta, HALO, h)

        source, rate = by_chunks(terms, (state.zeta, state.psi, self.force, eddy), self.xp)
        powers.append((view(state.psi, HALO).copy(), source))
        self._settle()
        self.tracer.event(self.name["rhs"], start)
        if self.watch is not None:
            self.watch.kernel("rhs", self.own, rate, of=self.whole)
        if self.duplicates is not None:
            compare_rate(self, len(powers), terms, eddy, source, rate)
        return rate

    def _closed(self, eddy) -> None:
        """Record and verify the result of the closure, before the network learns."""
        if self.watch is not None:
            self.watch.kernel("closure", self.own, eddy, of=self.whole)
        if self.duplicates is not None:
            compare_closure(self, eddy)

    def _solve_streamfunction(self) -> None:
        start = self.tracer.clock()
        b, options = -view(self.state.zeta, HALO), self.config.poisson
        end = solve(self.solver, b, self.state.psi, options.tolerance, options.max_iterations)
        self.tracer.event(self.name["poisson"], start)
        record = self.record
        record.iterations.append(end.iterations)
        if self.ctx.rank == 0:
            # Without a margin: it would be the first record of every difference, before the state.
            self.tracer.decision("cg_iterations", end.iterations, block=self._whole)
        record.failed_solves += not end.converged
        record.worst_residual = max(record.worst_residual, end.residual if isfinite(end.residual) else inf)

    def _reduce_budget(self, powers) -> float:
        """Compute energy and enstrophy of the state and the power of the stages in one all-reduce; returns the
        power."""
        state, cell = self.state, self.h * self.h
        area = cell * self.blocks.nx * self.blocks.ny
        pairs = [(state.psi, HALO, state.zeta, HALO), (state.zeta, HALO, state.zeta, HALO)]
        pairs += [(psi, 0, source, 0) for psi, source in powers]
        self.budget.partials[...] = 0.0
        for k, pair in enumerate(pairs):
            self.budget.put(k, *pair)
        sums = self.budget.total().tolist()
        self.member.energy, self.member.enstrophy = -0.5 * cell * sums[0], cell * sums[1] / area
        return -cell * sum(weight * s for weight, s in zip(QUADRATURE, sums[2:], strict=True))

    # ---- records

    def trace_state(self) -> None:
        """Record the state before the current step, or the final state after the last step.

        The record precedes the step, so that it shows a flipped bit in its block: one Poisson solve spreads it
        everywhere.
        """
        tracer, state, own = self.tracer, self.state, self.own
        start = tracer.clock()
        zeta, psi = host(view(state.zeta, HALO)), host(view(state.psi, HALO))
        tracer.fingerprints("vorticity", own, zeta)
        tracer.fingerprints("streamfunction", own, psi)
        tracer.values("sample", own, np.ascontiguousarray(zeta[:, 0, 0]))
        if self.ctx.rank == 0:
            self._value("energy", self.member.energy)
            self._value("enstrophy", self.member.enstrophy)
        tracer.event(self.name["record"], start)

    def _watch_state(self) -> None:
        """Record the state at the end of a step, so that changes before the next step are detected."""
        if self.watch is not None:
            for name, field in (("vorticity", self.state.zeta), ("streamfunction", self.state.psi)):
                self.watch.record(LEFT + name, self.own, view(field, HALO))

    def _trace_step(self, dt: float, leak: float) -> None:
        closure_error = self.member.closure.error
        if closure_error is not None:
            self.record.closure_errors.append((self.state.step, closure_error))
        if self.ctx.rank:
            return
        self._value("dt", dt)
        self._value("budget", leak)
        if closure_error is not None:
            self._value("closure_error", closure_error)
            weights = self.member.surrogate.parameters()
            self.tracer.fingerprints("weights", [self._whole], weights[np.newaxis])

    @property
    def _whole(self) -> int:
        """The block number in records about this member as a whole; -1 for a single flow."""
        return self.member.number if len(self.members) > 1 else -1

    def _value(self, name: str, value: float) -> None:
        self.tracer.value(name, value, self._whole)

    def _settle(self) -> None:
        """On a GPU, wait for the work of a region; queued work would count in the next region that waits."""
        if self.xp is not np:
            self.xp.cuda.get_current_stream().synchronize()

    def _exchange(self, blocks, pad: int, width: int | None = None, corners: bool = True):
        """Plan a halo exchange of `width` points (default: all `pad`); returns its recorded call. Collective."""
        planned = halo.plan(blocks, self.comm, pad, width or pad, corners, self.kernels)
        self.halos.append(planned)
        self.tracer.partners("halo", planned.neighbours)
        planned.messages.counted = self.tracer.messages("halo", planned.messages.sent, planned.between)
        fill, watch = self._region("halo", planned.nbytes, planned), self.watch
        if watch is None:
            return fill
        return lambda target: watch.exchange(blocks.own, planned, target, lambda: fill(target))

    def _region(self, name: str, nbytes: int, call):
        """`call` with an event around it."""
        clock, event, number = self.tracer.clock, self.tracer.event, self.name[name]

        def region(*arguments):
            start = clock()
            call(*arguments)
            event(number, start, nbytes)

        return region

    def _require_same(self, array, what: str) -> None:
        require_same_bits(self.comm, array, f"step {self.state.step + 1}: {what}")

    def _refuse_nonfinite(self, step: int):
        """Raise RunError on every rank, with the first block whose vorticity is not finite."""
        finite = np.isfinite(host(view(self.state.zeta, HALO))).all(axis=(1, 2))
        bad = self.blocks.own[~finite]
        first = self.comm.allreduce(int(bad[0]) if len(bad) else self.blocks.count, op=MPI.MIN)
        where = "streamfunction or closure"
        if first < self.blocks.count:
            where = f"vorticity of block {first} (rank {self.blocks.owner[first]})"
        if len(self.members) > 1:
            where = f"member {self.member.number}: {where}"
        raise RunError(
            f"step {step}: {where} is not finite; the trace holds all earlier steps. If no fault was injected, the "
            "step is too long: lower time.cfl, or raise flow.viscosity"
        )
