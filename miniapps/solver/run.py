"""One repeat of the solver mini-app: set up, solve, verify, and the optional study of drawn orders."""

import time

from miniapps.linear import preconditioners
from miniapps.linear.krylov import METHODS
from miniapps.linear.krylov.system import System
from miniapps.runner.outcome import Outcome
from miniapps.solver import drift
from miniapps.solver.checkpoint import load_checkpoint, round_vectors, save_checkpoint
from miniapps.solver.checks import verify, verify_range
from miniapps.solver.output import fingerprint_of, save_solution
from miniapps.solver.problem import build, matrix_of
from miniapps.solver.record import WITH_ORTHOGONALITY, Recorder
from miniapps.trace.records import LEFT
from miniapps.trace.schema import FILE, OTHER


def run(ctx) -> Outcome:
    """Solve the system of the configuration; collective."""
    begin = time.perf_counter()
    workspace = Workspace(ctx)
    system = workspace.system("dots")
    method = workspace.method(system)
    workspace.release()
    recorder = Recorder(ctx, workspace.problem, system, method)
    setup = time.perf_counter() - begin
    before = workspace.work()
    solve, wall = _iterate(ctx, workspace, method, recorder)
    work = [after - start for after, start in zip(workspace.work(), before, strict=True)]
    asked = ctx.config.solve
    part = (
        solve.reason == "limit" and asked.last < asked.max_iterations
    )  # a part of a solve has no final results
    recorder.end(solve, part)
    checks = [] if part else verify(ctx, workspace.problem, system, method, solve, recorder.history)
    x = workspace.problem.asked(method.solution())
    checks += [] if part else verify_range(ctx, workspace.problem, x)
    digest = fingerprint_of(workspace.problem.matrix.rows, ctx.comm, x, ctx.tracer)
    if ctx.config.record.solution:
        save_solution(ctx, workspace.problem, x)
    if ctx.config.drift.samples:
        drift.study(ctx, workspace)
    figures = _figures(ctx, solve, recorder.history, wall, setup, work)
    sentences = scaling(workspace.problem)
    workspace.free()  # collective, so not in a `finally`: a rank that fails is alone
    return Outcome(figures, checks, digest, sentences)


def scaling(problem) -> list[str]:
    """The sentence about a system that was scaled before the solve; empty for others."""
    a, b = problem.shifts
    if not (a or b):
        return []
    return [
        f"solved with the matrix times 2^{a} and the right side times 2^{b}, without rounding: traces hold the scaled "
        "system, and its solution is scaled back"
    ]


class Workspace:
    """The objects of a repeat: the linear system, its preconditioner, and systems and methods on them. Collective."""

    def __init__(self, ctx):
        self.ctx, self.config, self.problem = ctx, ctx.config, build(ctx)
        self.backend = "cupy" if ctx.options.device == "cuda" else "native"
        self._systems, self._reducers = [], {}
        self._matrices = {ctx.config.solve.dtype: self.problem.matrix}
        self._preconditioners = {}

    def system(
        self, name: str, by: tuple[str, str] | None = None, arrival=None, dtype: str | None = None
    ) -> System:
        """A system whose all-reduces are named `name` and the number of sums; systems of one name share them.

        `by`: (ordering, accumulation) instead of the options'. `arrival`: a seed that draws the order in which the
        partial sums of a rank's blocks are added. `dtype`: of the vectors.
        """
        ctx, dtype = self.ctx, dtype or self.config.solve.dtype
        matrix = self._matrix(dtype)

        def reducer(n):
            called = f"{name}{n}"
            if called not in self._reducers:
                self._reducers[called] = ctx.reducer(called, (n,), blocks=matrix.rows.own, by=by)
            return self._reducers[called]

        system = System(
            matrix,
            reducer,
            precondition=self._preconditioner(dtype),
            backend=self.backend,
            threads=ctx.options.threads,
            exact=ctx.options.policy.exact_products and by is None and arrival is None,
            arrival=arrival,
            trace=ctx.tracer,
        )
        self._systems.append(system)
        return system

    def work(self) -> tuple[int, int]:
        """(operations, bytes) of this rank in all systems so far."""
        return sum(s.flops for s in self._systems), sum(s.nbytes for s in self._systems)

    def method(self, system):
        """The method of the configuration on a system."""
        name = self.config.solve.method
        return METHODS[name](system, **self.options_of(name))

    def options_of(self, name: str) -> dict:
        """The arguments of a method from the configuration."""
        tuning = self.config.tuning
        options = {
            "cg-pipelined": dict(replace=tuning.replace),
            "gmres-mgs": dict(restart=tuning.restart),
            "gmres-cgs": dict(restart=tuning.restart),
            "jacobi": dict(omega=tuning.omega),
            "chebyshev": dict(lower=tuning.lower, upper=tuning.upper),
        }.get(name, {})
        if name in WITH_ORTHOGONALITY:
            options["watch"] = self.config.record.orthogonality
        if name == "refinement":
            options = dict(
                system32=self.system("inner", dtype="float32"),
                inner=tuning.inner,
                inner_tolerance=tuning.inner_tolerance,
                inner_limit=tuning.inner_iterations,
                **self.options_of(tuning.inner),
            )
        return options

    def release(self) -> None:
        """Free the data that only the setup needs: two thirds of the memory."""
        self.problem.entries = None
        for matrix in self._matrices.values():
            matrix.release()

    def free(self) -> None:
        """Free matrices and preconditioners. Collective."""
        for each in (*self._preconditioners.values(), *self._matrices.values()):
            if each is not None:
                each.free()

    def _matrix(self, dtype: str):
        if dtype not in self._matrices:
            matrix = self.problem.matrix
            self._matrices[dtype] = matrix_of(self.ctx, matrix.rows, self.problem.entries, dtype)
        return self._matrices[dtype]

    def _preconditioner(self, dtype: str):
        if dtype not in self._preconditioners:
            degree = self.config.tuning.degree
            options = {} if degree is None else {"degree": degree}
            self._preconditioners[dtype] = preconditioners.make(
                self.config.solve.preconditioner,
                self._matrix(dtype),
                box=self.problem.box,
                stencil=self.problem.stencil,
                threads=self.ctx.options.threads,
                backend=self.backend,
                **options,
            )
        return self._preconditioners[dtype]


def _iterate(ctx, workspace, method, recorder):
    """Iterates to the end; returns (Solve, seconds without recording)."""
    solve_options, problem = ctx.config.solve, workspace.problem
    x = problem.matrix.operand()
    begun = load_checkpoint(ctx, problem.matrix.rows, method) if ctx.config.output.restart else None
    steps = method.iterate(problem.b, x, solve_options.tolerance, solve_options.last, begun)
    every, first = ctx.config.output.checkpoint_every, 0 if begun is None else begun[0]
    checkpoint, written = ctx.tracer.name("checkpoint", FILE), -1
    rows, region, clock = problem.matrix.rows, ctx.tracer.name("iteration", OTHER), ctx.tracer.clock

    def peek(block: int):
        *_, vector = method.state().values()
        local = (rows.own == block).nonzero()[0]
        if not len(local):
            return None
        return vector[rows.local_starts[local[0]] : rows.local_starts[local[0] + 1]]

    begin = clock()
    while True:
        start = clock()
        try:
            iteration = next(steps)
        except StopIteration as end:
            if written == ctx.tracer.step:  # the head of this step must cover all of its records
                ctx.end_steps(written + 1)
            return end.value, 1e-9 * (clock() - begin - recorder.history.recording_ns)
        ctx.tracer.event(region, start)
        if ctx.watch is not None:
            for name, vector in method.state().items():
                ctx.watch.record(LEFT + name, rows.own, rows.parts(vector))
        ctx.begin_step(iteration.number, solve_options.max_iterations, peek)
        stopped = iteration.number == solve_options.last < solve_options.max_iterations
        due = (
            every
            and iteration.number % every == 0
            and iteration.number > first
            and (stopped or not iteration.last)
        )
        if due and ctx.config.output.checkpoint_bits:
            round_vectors(rows, method, ctx.config.output.checkpoint_bits)
        recorder(iteration)
        if due:
            start, written = clock(), iteration.number
            save_checkpoint(ctx, iteration.number, rows, method)
            ctx.tracer.event(checkpoint, start)


def _figures(ctx, solve, history, wall: float, setup: float, work) -> dict[str, tuple[float, str]]:
    flops, nbytes = (sum(counts) for counts in zip(*ctx.comm.allgather(work), strict=True))
    return {
        "iterations": (float(solve.iterations), ""),
        "residual": (history.true_residual, "relative"),
        "solve": (wall, "s"),
        "iteration": (wall / max(solve.iterations, 1), "s/iteration"),
        "performance": (1e-9 * flops / wall, "GFLOP/s"),
        "bandwidth": (1e-9 * nbytes / wall, "GB/s"),
        "setup": (setup, "s"),
    }
