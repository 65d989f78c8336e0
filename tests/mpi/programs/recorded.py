"""A program of a user's that records itself: python recorded.py RUN [GUARANTEE [FAULT]]."""

import contextlib
import sys
import warnings

import numpy as np
import torch
from mpi4py import MPI

import fpna

BLOCKS, STEPS = 12, 5
out, level, fault = [*sys.argv[1:], "layout", ""][:3] if len(sys.argv) < 4 else sys.argv[1:4]
world = MPI.COMM_WORLD
comm = fpna.wrap(world, level)
blocks = range(comm.rank * BLOCKS // comm.size, (comm.rank + 1) * BLOCKS // comm.size)
rows = np.array([np.random.default_rng(block).standard_normal(1000) for block in blocks]).reshape(-1, 1000)
total, later = np.empty(1), np.empty(1)

recording = fpna.record(
    out, comm, name="mine", problem={"blocks": BLOCKS}, method={"level": level}, reductions=True
)
with contextlib.suppress(ZeroDivisionError) if fault == "raise" else contextlib.nullcontext(), recording as r:
    comm.bcast(None)
    for step in range(1, STEPS + 1):
        r.step(step)
        with r.region("work", flops=rows.size):
            rows = np.sin(rows) * 1.1
        if fault == "bit" and step == 3 and 7 in blocks:
            rows[7 - blocks.start, 11] = np.nextafter(rows[7 - blocks.start, 11], 2)
        if fault == "raise" and step == 4:
            1 / 0  # noqa: B018
        sums = rows.sum(axis=1, keepdims=True)
        if level == "none":  # as it is usually written
            comm.Allreduce(sums.sum(axis=0), total)
        else:
            comm.Allreduce(sums, total, axis=0, blocks=list(blocks))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", fpna.LayoutWarning)
            request = comm.Iallreduce(np.full(1, float(step)), later, MPI.MAX)
        rows -= total / rows.shape[1] / BLOCKS
        r.fingerprints("rows", rows, blocks)
        r.fingerprint("own", torch.from_numpy(rows))
        for block, row in zip(blocks, rows, strict=True):
            r.value("mean", row.mean(), block)
        r.value("total", total[0])
        request.Wait()
comm.release()
