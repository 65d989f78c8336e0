"""A program of a user, as a type checker reads it: mypy checks it strictly, and nobody runs it."""

from collections.abc import Callable
from typing import Any, assert_type

import numpy as np
import torch
from mpi4py import MPI

import fpna

comm = fpna.wrap(MPI.COMM_WORLD, guarantee="layout", check=True)
assert_type(comm, fpna.Communicator)
assert_type(comm.guarantee, str)
rows, total = np.ones((3, 4)), np.empty(4)
assert_type(comm.Allreduce(rows, total, op=MPI.SUM, axis=0), None)
comm.Reduce(rows, total, MPI.MAX, root=0, blocks=[1, 2, 3])
comm.Reduce_scatter(total, rows, [2, 2], axis=0)
request = comm.Iallreduce(rows, total, blocks=np.arange(3))
request.Wait()
half: MPI.Comm = comm.Split(comm.rank % 2)
assert_type(comm.release(), None)

with fpna.record("runs/mine", comm, problem={"n": 3}, method={"solver": "cg"}, seed=1) as recording:
    assert_type(recording, fpna.Recording)
    recording.step(1)
    recording.fingerprint("density", rows, block=0)
    recording.fingerprints("density", [rows, rows], blocks=[0, 1])
    recording.value("energy", 1.0)
    recording.decision("converged", True, margin=0.5)
    with recording.region("solve", "compute", nbytes=8):
        pass


def added(x: np.ndarray) -> float:
    """A sum whose order is asked for."""
    return float(np.sum(x))


found = fpna.discover(added, 12, np.float32, precision=np.float64, progress=True)
if isinstance(found, fpna.NoOrder):
    assert_type(found.kind, str)
else:
    assert_type(fpna.expression(found), str)
    assert_type(fpna.outline(found), list[str])

runs = fpna.load("runs/", processes=2)
verdict = fpna.verdict(runs)
assert_type(verdict, fpna.Verdict)
assert_type(verdict.badge, str)
difference = fpna.compare(runs, "a", "b:1")
assert_type(difference, fpna.Difference)
assert_type(difference.differs, bool)
frames = [
    fpna.growth(runs, "a", "b"),
    fpna.variability(runs),
    fpna.scaling(runs).speedups,
    fpna.timeline("runs/a"),
]

with fpna.record("runs/model") as of_model:
    assert_type(fpna.manual("n. -> n."), Callable[[Callable[..., Any]], Callable[..., Any]])
    watched = fpna.watch(torch.nn.Linear(3, 2), of_model, every=10, modules=["layers.*", "head"])
    assert_type(watched, fpna.Watched)
    watched.close()
whole = fpna.accumulate(torch.nn.Linear(3, 2), micro=4, seed=1)
assert_type(whole, fpna.Accumulated)
for part in whole.parts(torch.ones(8, 3)):
    part.sum().backward()
hook = fpna.ddp_hook(MPI.COMM_WORLD, ordering="direct", accumulate="exact", wire="fp8")
assert callable(hook)
try:
    scattered = fpna.fsdp_reduce_scatter(torch.nn.Linear(3, 2), wire="fp8")
    assert_type(scattered, fpna.Scattered)
except ValueError as unsharded:
    assert "call fully_shard(model) before" in str(unsharded) or "no process group" in str(unsharded)

try:
    fpna.wrap(MPI.COMM_WORLD, guarantee="exact", accumulation="exact", replay="runs/mine")
except fpna.ChoiceError as error:
    reason: str = str(error)
assert_type(fpna.__version__, str)
wrong: list[Exception | type[Exception]] = [
    fpna.NotATree("no tree"),
    fpna.LayoutWarning,
    fpna.HandleWarning,
    fpna.KindsWarning,
]

# What is wrong is an error: `warn_unused_ignores` tells where one is not seen.
fpna.wrap(MPI.COMM_WORLD, "layout", ordring="ring")  # type: ignore[call-arg]
fpna.record(3)  # type: ignore[arg-type]
comm.Allreduce(rows, total, axis="rows")  # type: ignore[arg-type]
recording.step("one")  # type: ignore[arg-type]
fpna.discover(added, "12")  # type: ignore[arg-type]
fpna.ddp_hook(wires="fp8")  # type: ignore[call-arg]
fpna.compare(runs, ("a", 0), ("b", 0))  # type: ignore[arg-type]
print(fpna.nothing)  # type: ignore[attr-defined]
