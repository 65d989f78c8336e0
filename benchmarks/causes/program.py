"""program.c in Python: `program.py KIND EPS N STEPS FIELDS SEED [OUT]`.

Without OUT, `fpna run` observes it. With OUT it records sums and points of each step to this directory, by a
communicator from `fpna.wrap`.
"""

import contextlib
import os
import sys
import time

import numpy as np
from mpi4py import MPI


def main():
    """Runs the program that the command line describes."""
    kind, eps, n, steps, fields, phase = (
        sys.argv[1],
        float(sys.argv[2]),
        *map(int, sys.argv[3:6]),
        float(sys.argv[6]),
    )
    comm = MPI.COMM_WORLD
    if len(sys.argv) < 8:
        return run(kind, eps, n, steps, fields, phase, comm, None)
    import fpna

    wrapped = fpna.wrap(comm, "none")
    with fpna.record(sys.argv[7], wrapped, problem={"kind": kind}, reductions=True) as recording:
        return run(kind, eps, n, steps, fields, phase, wrapped, recording)


def run(kind, eps, n, steps, fields, phase, comm, recording):
    """Computes all steps; rank 0 prints the first sum of the last step."""
    rank, ranks = comm.rank, comm.size
    first, past = rank * n // ranks, (rank + 1) * n // ranks
    g = np.arange(first, past)
    term = lambda g: np.sin(0.37 * g + phase) + 1.5  # noqa: E731
    u, share = term(g), np.ones(len(g))
    if kind == "local-index":
        u += eps * (term(g - first) - u)
    if kind == "rank-seed":
        u += eps * np.random.default_rng(rank).random(len(g))
    if kind == "float-index":
        held = np.float32(2**26 + first) + np.arange(len(g), dtype=np.float32)
        u += eps * (held.astype(float) - (2**26 + g))
    if kind == "uninitialised":
        u[len(u) // 2] += eps * (os.getpid() * 7919 % 1000) / 1000
    if kind == "integer-division":
        share[g >= ranks * (n // ranks)] -= eps
    if kind == "off-by-one" and rank < ranks - 1:
        share[-1] -= eps
    if kind == "doubled" and rank:
        share[0] += eps
    if kind == "lost" and rank == 1:
        share[0] -= eps
    if kind == "chaos":
        u = 0.2 + 0.2 * u
    strength = np.array([0.1 * (1 + eps * rank) if kind == "wrong-root" else 0.1])
    comm.Bcast(strength, root=ranks - 1 if kind == "wrong-root" else 0)
    weights = [1.0 + 0.5 * np.cos(0.11 * g * (f + 1)) for f in range(fields)]
    large = np.where(g % 2, 1e8, -1e8) if kind == "cancellation" else 0.0
    last = np.zeros(fields)
    order = os.environ.get("ORDER") if kind == "order" else None
    adding = comm.Split(0, rank * int(order) % ranks) if order else comm
    for step in range(steps):
        if recording:
            recording.step(step)
        around = halo(u, comm, eps if kind == "forgotten-halo" and step % 3 == 1 else 0.0)
        u = u + strength[0] * (around[:-2] - 2 * u + around[2:])
        part = np.array([(u * weight * share + large).sum() for weight in weights])
        if kind == "stale-buffer" and ranks > 2 and rank == ranks - 1 and step:
            part += eps * (last - part)
        last, total = part.copy(), np.empty(fields)
        if kind in ("arrival", "wildcard"):
            total[0] = collected(part, comm, eps if kind == "wildcard" else 0.0)
        else:
            adding.Allreduce(part, total)
        mean = total[0] / n
        if recording:
            recording.value("first sum", total[0])
            recording.fingerprint("points", u)
        if kind == "chaos":
            mixed = 0.9 * u + 0.1 * (mean % 1)
            u = 3.9 * mixed * (1 - mixed)
        else:
            u = u * (1 - 1e-3 * mean / (1 + abs(mean)))
    if rank == 0:
        print(repr(float(total[0])))


def halo(u, comm, stale):
    """`u` with the neighbours' nearest points around it; a fraction `stale` of their values is not exchanged."""
    before, behind = comm.rank - 1, comm.rank + 1
    before, behind = (
        max(before, MPI.PROC_NULL) if before >= 0 else MPI.PROC_NULL,
        behind if behind < comm.size else MPI.PROC_NULL,
    )
    left, right = u[:1].copy(), u[-1:].copy()
    comm.Sendrecv(u[-1:].copy(), behind, 1, left, before, 1)
    comm.Sendrecv(u[:1].copy(), before, 2, right, behind, 2)
    return np.concatenate([left + stale * (u[:1] - left), u, right + stale * (u[-1:] - right)])


def collected(part, comm, wrong):
    """The sum of all parts, which rank 0 adds in the order of arrival."""
    everything, got = part[:1].copy(), np.empty(1)
    if comm.rank:
        if order := os.environ.get("ORDER"):
            time.sleep(0.004 + 0.008 * (comm.rank * int(order) % comm.size))
        comm.Send(part[:1].copy(), 0, 3)
    else:
        for i in range(1, comm.size):
            comm.Recv(got, MPI.ANY_SOURCE, 3)
            everything += got + wrong * i * got
    comm.Bcast(everything)
    return everything[0]


# A separate program, never imported.
with contextlib.suppress(BrokenPipeError):
    sys.exit(main())
