"""Record the results of a user's program: `with record("runs/mine", comm) as r: ...`.

The trace has the form of an application's trace (docs/reference/trace.md), so all of `analysis` works on it. Arrays
recorded without a block are compared only between runs on the same number of ranks.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kernels.guarantees import LEVELS, known
from miniapps.errors import RunError, UsageError
from miniapps.programs import handles
from miniapps.programs.buffers import numbers
from miniapps.programs.communicator import Communicator
from miniapps.programs.unequal import warn_of_kinds
from miniapps.runner import outcome, together
from miniapps.runner.traced import traced
from miniapps.runner.watch import Watch
from miniapps.system import environment, kinds
from miniapps.system.device import host
from miniapps.system.place import Place, directory
from miniapps.system.scope import HANDLES
from miniapps.system.world import of_torch, require_launch, world
from miniapps.trace import TraceError, Tracer
from miniapps.trace.clocks import Clocks
from miniapps.trace.head import problem_hash
from miniapps.trace.records import ADDED, TOTAL
from miniapps.trace.schema import COMPUTE, CPU_TIME, rank_file

TOGETHER = (
    ". Processes that record one run together must be ranks of one MPI program: start them by mpirun. For MPI, each "
    "process that torch or multiprocessing starts is alone"
)


def record(
    out: str | os.PathLike[str],
    comm: Any = None,
    *,
    name: str | None = None,
    problem: Mapping[str, Any] | None = None,
    method: Mapping[str, Any] | None = None,
    guarantee: str | None = None,
    seed: int = 0,
    reductions: bool = False,
) -> Recording:
    """A recording of this run into the new or empty directory `out`, of all ranks of `comm`. By default of
    MPI's world; under a launcher of torch, of the processes of torch.distributed, whose group the program has made.

    `name` of the program, by default the name of its file. `problem`: the parameters that define the problem, such as
    {"n": 100}; commands compare only runs with the same name and problem. `method`: parameters that may change bits but
    not the problem, such as {"solver": "cg"}. `guarantee` of the bits of this program; by default the guarantee of the
    wrapped communicator, "none" without one. `seed` of the program's random numbers, part of the problem.
    `reductions`: also fingerprint the contributions and totals of the wrapped communicator's reductions, so that
    `fpna divergence` can name the first one that differs.

    Use it as a context manager on all ranks. At its end each rank closes and seals its trace, and rank 0 writes
    result.json; if the program raises, the traces stay, marked incomplete. Raises UsageError on all ranks if the
    directory is not empty or not writable, and TraceError or PlaceError if it fails later.
    """
    if comm is None:
        comm = of_torch()
    if comm is None:
        require_launch("fpna.record")
        comm = world()
    if reductions and not hasattr(comm, "Allreduce"):
        raise UsageError(
            "record: reductions=True records sums of MPI; start the program by mpirun, or leave out reductions"
        )
    level = guarantee or (comm.guarantee if isinstance(comm, Communicator) else "none")
    known("guarantee", level, LEVELS)
    name = name or _own_name()
    return Recording(Path(out), comm, name, dict(problem or {}), dict(method or {}), level, seed, reductions)


class Recording:
    """A recording in progress, from `with record(...) as recording`.

    A record belongs to the step that began last, 0 before the first. `block` is the global number of a part of the
    data; the parts must not depend on the number of ranks.
    """

    def __init__(
        self,
        out: Path,
        comm: Any,
        name: str,
        problem: Mapping[str, Any],
        method: Mapping[str, Any],
        guarantee: str,
        seed: int,
        reductions: bool,
    ):
        self._wrapped = comm if isinstance(comm, Communicator) else None
        self._comm = comm.plain if isinstance(comm, Communicator) else comm
        self._out, self._name, self._guarantee = out, name, guarantee
        self._problem = {"run.seed": seed} | {f"problem.{key}": value for key, value in problem.items()}
        self._method = {f"method.{key}": value for key, value in method.items()} | {
            "run.guarantee": guarantee
        }
        self._seed, self._messages = seed, reductions
        self._reductions: dict[str, dict[str, Any]] = {}
        self._observed: dict[int, Any] = {}
        self._steps: tuple[int, float] | None = None
        self._at_end: list[Callable[[], None]] = []

    @property
    def rank(self) -> int:
        """The number of this rank in the recording."""
        return int(self._comm.rank)

    @property
    def size(self) -> int:
        """The number of ranks of the recording."""
        return int(self._comm.size)

    @property
    def at_step(self) -> int:
        """The current step, 0 before the first."""
        return self._steps[0] if self._steps else 0

    def until_end(self, close: Callable[[], None]) -> None:
        """Call `close` when the recording ends, before its trace closes."""
        self._at_end.append(close)

    def gathered(self, own: Any) -> list[Any]:
        """The values `own` of all ranks, by rank. Collective."""
        return list(self._comm.allgather(own))

    def states(self, option: str, value: Any, records: Sequence[str]) -> None:
        """Write an option into the trace that decides which `records` (`TABLE:NAME` patterns) exist; runs with other
        values may lack them. The same on all ranks."""
        self._attributes["config"]["recording"][option] = value
        self._attributes["options"][f"recording.{option}"] = {"records": list(records)}
        self._tracer.attributes(config=self._attributes["config"], options=self._attributes["options"])

    def describe(self, entry: str, value: Any) -> None:
        """Add an entry to the environment of this rank, which the trace records."""
        self._environment[entry] = value
        self._tracer.attributes(environment=self._environment)

    def __enter__(self) -> Recording:
        comm = self._comm
        self._attributes = comm.bcast(self._prepared() if comm.rank == 0 else None)
        if isinstance(self._attributes, str):
            raise UsageError(self._attributes)
        self._place: Place = together.open_place(comm, self._out)
        self._kinds = kinds.of_ranks(comm, kinds.here(), self._guarantee)
        promised = (
            "" if self._guarantee == "none" else f"guarantee {self._guarantee!r} promises nothing for them"
        )
        warn_of_kinds("fpna.record", self._kinds, comm.rank, promised)
        self._clocks = Clocks(comm)
        self._offset, _ = self._clocks.offset()
        own = self._attributes["environment"] | environment.own(0, "cpu") | kinds.recorded(self._kinds)
        attributes = {"rank": comm.rank, "environment": own, "clock_offset_ns": self._offset}
        file = self._out / rank_file(comm.rank)
        try:
            self._tracer = Tracer(file, self._attributes | attributes, size=comm.size, directory=self._place)
        except TraceError as error:
            raise TraceError(f"{error}{self._together()}") from None
        self._environment = own
        self._watch = Watch(comm, self._tracer, [], set(), recording=True) if self._messages else None
        self._begin = time.perf_counter()
        if self._wrapped is not None:
            self._wrapped.observer = self
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if self._wrapped is not None:
            self._wrapped.observer = None
        for close in self._at_end:
            close()
        if kind is not None:
            with contextlib.suppress(TraceError):  # the program's own error is more important
                self._tracer.close(complete=False)
            self._place.close()
            return
        self._end_step()
        self._conclude()

    def step(self, number: int) -> None:
        """Begin step `number`: later records belong to it. Steps ascend."""
        now = self._end_step()
        self._steps = (int(number), now)
        self._tracer.at(0, int(number))

    def fingerprint(self, name: str, array: Any, block: int | None = None, *, sample: int = 1) -> None:
        """Record a 128-bit hash of `array` as `name`: an array of NumPy, torch, CuPy, jax or pandas of any shape, or a
        number; for a DTensor, the part of this rank. Raises TypeError if `array` has no bit pattern.

        `block`: the number of its block. Without a block it is this rank's part, recorded as `NAME by rank`; such
        records are compared only between runs on the same number of ranks. `sample` above 1: take the sizes of the
        array (docs/reference/trace.md#sizes) of one block of 64 numbers among so many; the hash is of all numbers.
        """
        given = host(numbers(array, f"fingerprint {name!r}"))
        if block is not None:
            self._tracer.array(name, int(block), given, sample)
        else:
            self._tracer.array(f"{name} by rank", self._comm.rank, given, sample)

    def fingerprints(self, name: str, arrays: Any, blocks: Sequence[int], *, sample: int = 1) -> None:
        """Record fingerprints of `arrays[i]` as block `blocks[i]`; fastest for one array with a row for each block.
        `sample` as in `fingerprint`."""
        if hasattr(arrays, "shape"):
            self._tracer.fingerprints(name, blocks, host(numbers(arrays, f"fingerprints {name!r}")), sample)
        else:
            for array, block in zip(arrays, blocks, strict=True):
                self.fingerprint(name, array, block, sample=sample)

    def value(self, name: str, value: float, block: int | None = None) -> None:
        """Record one number: of a `block`; or, without a block, of the whole program, on rank 0 only."""
        if block is not None:
            self._tracer.value(name, float(value), int(block))
        elif self._comm.rank == 0:
            self._tracer.value(name, float(value))

    def decision(self, name: str, outcome: float, margin: float = math.nan, block: int | None = None) -> None:
        """Record a discrete outcome as a number: a class, a number of iterations, 1 for yes and 0 for no; of a `block`,
        or of the whole program, on rank 0 only. `margin`: how far it was from another outcome, at least 0, relative to
        the quantities that were compared; NaN: not known. `python -m analysis decisions` compares them."""
        if block is not None or self._comm.rank == 0:
            self._tracer.decision(name, float(outcome), float(margin), -1 if block is None else int(block))

    @contextlib.contextmanager
    def region(self, name: str, kind: str = COMPUTE, nbytes: int = 0, flops: int = 0) -> Iterator[None]:
        """Record the time of the `with` body. `kind`: compute, collective, exchange, wait, file or other
        (docs/reference/trace.md); `nbytes` moved and `flops` done, 0 if unknown."""
        number = self._tracer.name(name, kind)
        start = self._tracer.clock()
        try:
            yield
        finally:
            self._tracer.event(number, start, nbytes, flops)

    def reducer(self, name: str, planned: Any, comm: Any, blocks: tuple[int, ...] | None) -> Any:
        """A reducer that calls `planned` and records it, for the wrapped communicator."""
        known = self._observed.get(id(planned))
        if known is None or known[0] is not planned:
            decided = "option" if self._wrapped and self._wrapped.policy.by_option else "guarantee"
            reducer = traced(name, planned, self._tracer, self._reductions, decided)
            known = self._observed[id(planned)] = planned, reducer
        return known[1] if self._watch is None else self._watch.reducer(known[1], comm, blocks)

    def _prepared(self) -> dict[str, Any] | str:
        """Creates the directory and returns the attributes that all traces share, or an error message. On rank 0."""
        name, now = self._name, datetime.now(UTC)
        try:
            directory(self._out)
        except UsageError as error:
            return str(error).replace("--out ", "record: ", 1) + self._together()
        except OSError as error:
            return f"record: {self._out}: {error.strerror}; choose another directory"
        settings: dict[str, dict[str, Any]] = {"recording": {"reductions": self._messages, "of_ranks": True}}
        for key, value in (self._problem | self._method).items():
            section, _, option = key.partition(".")
            settings.setdefault(section, {})[option] = value
        stated = {
            "run.guarantee": {"effect": "reduction"},
            "recording.reductions": {"records": [f"fingerprints:{prefix}*" for prefix in (ADDED, TOTAL)]},
            "recording.of_ranks": {"records": ["fingerprints:* by rank"], "of_ranks": True},
        }
        return {
            "app": name,
            "config": settings,
            "problem": problem_hash(name, self._problem),
            "problem_options": self._problem,
            "method": self._method,
            "options": stated,
            "guarantee": self._guarantee,
            "seed": self._seed,
            "repeats": 1,
            "run_id": f"{name}-{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}",
            "allocation_id": environment.allocation_id(),
            "started": now.isoformat(timespec="milliseconds"),
            "environment": environment.shared(),
        }

    def _together(self) -> str:
        """Advice to append to an error if another process may want to record the same run; else empty."""
        return TOGETHER if self._comm.size == 1 and (self._out / rank_file(0)).exists() else ""

    def _end_step(self) -> float:
        """Record CPU time and orders of arrival of the step that ends; returns the CPU time of this process, in s."""
        now = time.process_time()
        if self._steps is not None:
            step, before = self._steps
            self._tracer.usage(CPU_TIME, step, now - before)
        for _, reducer in self._observed.values():
            facts = self._reductions[reducer.name]
            facts["calls"] += reducer.drain_calls()
            self._tracer.order(reducer.name, reducer.drain_orders())
        return now

    def _conclude(self) -> None:
        """Close the traces of all ranks and write result.json; collective."""
        comm, tracer = self._comm, self._tracer
        wall = time.perf_counter() - self._begin
        past = handles.told() if self._wrapped is not None and self._wrapped.guarantee != "none" else ""
        tracer.attributes(environment=self._environment | {"arithmetic": environment.arithmetic()}
                          | ({HANDLES: past} if past else {}))  # fmt: skip
        later, _ = self._clocks.offset()
        result = self._attributes | {
            "status": "done", "exit_code": 0, "run": str(self._out), "size": comm.size, "fom": {}, "checks": [],
            "fingerprints": [], "reductions": self._reductions, "wall_s": wall,
            "kinds": [kind.json() for kind in self._kinds],
        }  # fmt: skip
        lost, seals = together.close_trace(comm, tracer, (later - self._offset) / wall, result)
        gathered = comm.gather(seals)
        self._clocks.free()
        trouble = "" if lost is None else f"record: rank {lost[0]} of {comm.size}: {lost[1]}"
        if comm.rank == 0:
            result["traces"] = {name: seal for own in gathered or () for name, seal in own.items()}
            if lost:
                result |= {"status": "failed", "exit_code": 1, "error": trouble, "failed_rank": lost[0]}
            try:
                outcome.write(self._place, result)
            except OSError as error:
                trouble = trouble or f"record: {self._out}: result.json cannot be written: {error.strerror}"
        self._place.close()
        trouble = comm.bcast(trouble)
        if not hasattr(comm, "Allreduce"):  # ranks of torch, made for this recording
            comm.Free()
        if trouble:
            raise RunError(trouble)


def _own_name() -> str:
    """The name of the program's file."""
    return Path(sys.argv[0] or "program").stem or "program"
