"""The solution as one array on rank 0: its fingerprint and its file."""

import numpy as np

from miniapps.layout import fields
from miniapps.layout.messages import tell_gather
from miniapps.layout.rows import Rows
from miniapps.system.device import host, put
from miniapps.trace import fingerprint


def gather(rows: Rows, comm, vector, tracer) -> np.ndarray | None:
    """Gathers a distributed vector: (n,) in the order of the rows on rank 0, None elsewhere. Collective."""
    own = np.ascontiguousarray(host(vector[: rows.m]))
    tell_gather(tracer, comm.rank, own.nbytes)
    counts = np.bincount(rows.owner, weights=np.diff(rows.starts), minlength=comm.size).astype(np.int64)
    dealt = np.empty(rows.n, own.dtype) if comm.rank == 0 else None
    comm.Gatherv(own, None if dealt is None else [dealt, counts])
    return None if dealt is None else assemble(rows, dealt)


def scatter(rows: Rows, comm, whole: np.ndarray | None, vector) -> None:
    """The inverse of `gather`: fill this rank's part of `vector` from rank 0's (n,), None elsewhere. Collective."""
    counts = np.bincount(rows.owner, weights=np.diff(rows.starts), minlength=comm.size).astype(np.int64)
    own = np.empty(rows.m, host(vector[:1]).dtype)
    dealt = None
    if whole is not None:
        order = np.argsort(rows.owner, kind="stable").tolist()  # blocks by rank
        pieces = [whole[rows.starts[block] : rows.starts[block + 1]] for block in order]
        dealt = np.concatenate(pieces).astype(own.dtype, copy=False)
    comm.Scatterv(None if dealt is None else [dealt, counts], own)
    put(vector[: rows.m], own)


def assemble(rows: Rows, dealt: np.ndarray) -> np.ndarray:
    """Reorders the concatenated parts of all ranks to the order of the rows, (n,)."""
    whole, lengths = np.empty_like(dealt), np.diff(rows.starts)
    order = np.argsort(rows.owner, kind="stable")  # blocks by rank
    for block, stop in zip(order.tolist(), np.cumsum(lengths[order]).tolist(), strict=True):
        whole[rows.starts[block] : rows.starts[block + 1]] = dealt[stop - lengths[block] : stop]
    return whole


def fingerprint_of(rows: Rows, comm, vector, tracer) -> str:
    """The fingerprint of a whole vector in hex, on rank 0; empty elsewhere. Collective."""
    whole = gather(rows, comm, vector, tracer)
    return "" if whole is None else fingerprint(whole).hex()


def save_solution(ctx, problem, x) -> None:
    """Write RUN/solution-repeat-R.h5: dataset `x`, (nz, ny, nx) for a box, else (rows,). Collective."""
    whole = gather(problem.matrix.rows, ctx.comm, x, ctx.tracer)
    if whole is None:
        return
    if problem.box is not None:
        box = problem.box
        natural = np.empty(box.shape, whole.dtype)
        natural[box.points(np.arange(box.count))] = whole
        whole = natural
    attributes = {"format": "fpna-solution", "app": "solver", "repeat": ctx.repeat}
    fields.save(ctx.directory(), f"solution-repeat-{ctx.repeat}.h5", attributes, {"x": whole})
