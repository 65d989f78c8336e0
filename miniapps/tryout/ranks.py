"""Sums over ranks: the number of different results, and the ordering of the MPI library's all-reduce.

`python -m miniapps.tryout.ranks`, under a launcher, prints a JSON line for each finding."""

from __future__ import annotations

import json
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.allreduce.instruments.dependence import CALL, COUNT, LENGTH, PLACE, RANK
from miniapps.errors import UsageError
from miniapps.system.environment import mpi_library
from miniapps.system.world import speaks, world

LIMIT_S = 100  # a rank ends after this time, since a launcher may leave ranks behind
NUMBERS = 250_001  # no multiple of 16: np.sum would halve one in the same places as the ranks
WAVES = 1_200  # whole waves in every share, so that the terms of a share cancel and rounding shows in its sum
SIZES = (2, 3, 4)
RANKS = 5  # distinguish more algorithms than 4, and 6 take longer
LENGTHS = (1, 1_000, 100_003)  # libraries change their algorithm in between
CONDITIONS = (CALL, RANK, COUNT, LENGTH, PLACE)  # that the bits may depend on
SEED = 7

Tell = Callable[[dict[str, Any]], None]


def measure(comm: Any, tell: Tell) -> None:
    """Both findings, each given to `tell` on rank 0 as soon as it is known. Collective over `comm`."""
    for finding in (results, library):
        found = finding(comm)
        if comm.rank == 0:
            tell(found)


def results(comm: Any) -> dict[str, Any]:
    """The sums of the same numbers on 2, 3 and 4 ranks, up to the size of `comm`. Collective.

    `library`: each rank adds its share by `np.sum`, and MPI_Allreduce adds these partial sums. `layout`: the same sum
    through `fpna.wrap(comm, "layout")`."""
    from miniapps.programs.communicator import wrap

    numbers = wave()
    plain, layout = np.empty(1), np.empty(1)
    sums = []
    for size in (size for size in SIZES if size <= comm.size):
        part = comm.Split(int(comm.rank >= size), comm.rank)
        if comm.rank < size:
            share = np.array_split(numbers, size)[part.rank]
            part.Allreduce(np.array([share.sum()]), plain)
            wrap(part, "layout").Allreduce(share[:, np.newaxis], layout, axis=0)
            sums.append({"ranks": size, "library": plain[0].hex(), "layout": layout[0].hex()})
        part.Free()
    return {"finding": "ranks", "library": mpi_library(), "numbers": NUMBERS, "sums": sums}


def wave() -> np.ndarray:
    """Samples of a wave, with noise: (NUMBERS,)."""
    phase = 2 * np.pi * WAVES / NUMBERS * np.arange(NUMBERS)
    return 1000 * np.sin(phase) + np.random.default_rng(SEED).standard_normal(NUMBERS)


def library(comm: Any) -> dict[str, Any]:
    """The orderings that give the bits of the library's all-reduce, by length, and the conditions that change its
    bits. Collective."""
    from kernels.allreduce.execution.placement import nodes_of
    from kernels.allreduce.instruments.candidates import candidates
    from kernels.allreduce.instruments.dependence import dependences
    from kernels.allreduce.instruments.libraries import of_mpi
    from kernels.allreduce.instruments.recognition import identify
    from kernels.commands.findings import named

    mpi, nodes = of_mpi(comm), nodes_of(comm)
    names = candidates(comm.size) if comm.rank == 0 else []
    lengths = [identify(mpi, n, "float64", "blocking", names, context={"nodes": nodes}) for n in LENGTHS]
    changed = [each for n in LENGTHS for each in dependences(mpi, n, "float64", of=CONDITIONS)]
    return {
        "finding": "library", "library": mpi_library(), "ranks": comm.size,
        "orderings": [{"ordering": name, "lengths": found} for name, found in named(lengths).items()],
        "alike": max((len(f.orderings) for f in lengths), default=0),
        "follows": {on: any(each.differ for each in changed if each.on == on) for on in {each.on for each in changed}},
    }  # fmt: skip


def _run() -> int:
    signal.alarm(LIMIT_S)
    try:
        comm = world()
    except UsageError as error:
        if speaks():
            loaded = "mpi4py.MPI" in sys.modules  # then the launcher belongs to another library
            _print({"alone": mpi_library()} if loaded else {"problem": str(error)})
        return 1
    if comm.size == 1:
        _print({"alone": mpi_library()})
        return 1
    try:
        measure(comm, _print)
    except BaseException:
        give_up(comm)
        raise
    return 0


def give_up(comm: Any) -> None:
    """End all ranks after an exception on this one; the others would wait for it."""
    traceback.print_exc()
    sys.stderr.flush()
    comm.Abort(1)


def _print(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    sys.exit(_run())
