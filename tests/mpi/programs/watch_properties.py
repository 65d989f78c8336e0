"""On 3 ranks: what a Watch records does not depend on the layout, and its faults do what they say, once."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from mpi4py import MPI

from kernels import allreduce
from miniapps.errors import UsageError
from miniapps.layout import halo
from miniapps.layout.blocks import Blocks
from miniapps.layout.rows import Rows
from miniapps.linear.matrix import Matrix
from miniapps.runner import faults
from miniapps.runner.context import Reducer
from miniapps.runner.watch import Watch
from miniapps.trace import Tracer, fingerprint, read

comm = MPI.COMM_WORLD
wrong = []
scratch = TemporaryDirectory() if comm.rank == 0 else None
scratch_dir = Path(comm.bcast(scratch.name if comm.rank == 0 else None))


def require(fine, what):
    if not fine:
        wrong.append(f"rank {comm.rank}: {what}")


def watch(tracer, *specs):
    return Watch(comm, tracer, [faults.parse(spec, comm.size, 1) for spec in specs], set(), recording=True)


def raised(action):
    """The message of the UsageError that every rank is to raise."""
    try:
        action()
    except UsageError as error:
        return str(error)
    return ""


grid = np.random.default_rng(1).standard_normal((24, 24))


def filled(blocks, pad):
    field = blocks.zeros(pad)
    for k, block in enumerate(blocks.own):
        j, i = blocks.origin(int(block))
        field[k, pad:-pad, pad:-pad] = grid[j : j + blocks.by, i : i + blocks.bx]
    return field


def received(blocks, communicator):
    """{block: fingerprint of what an exchange brought}."""
    exchange, field = halo.plan(blocks, communicator, 3, 2), filled(blocks, 3)
    exchange(field)
    rows = {int(b): fingerprint(row) for b, row in zip(blocks.own, exchange.received(field), strict=True)}
    exchange.free()
    return rows


alone = received(Blocks(24, 24, 6, 6), MPI.COMM_SELF)
for shuffle in (0, 3):
    mine = received(Blocks(24, 24, 6, 6, comm.size, comm.rank, shuffle), comm)
    require(
        all(alone[block] == row for block, row in mine.items()), "what a halo brings depends on the layout"
    )

with Tracer(scratch_dir / f"{comm.rank}.h5", {"rank": comm.rank}, size=comm.size) as tracer:
    # A lost message leaves what was there before, and nothing else.
    blocks = Blocks(24, 24, 6, 6, comm.size, comm.rank)
    exchange, field = halo.plan(blocks, comm, 3, 2), filled(blocks, 3)
    sound = field.copy()
    exchange(sound)
    seen = watch(tracer, "lost-halo@step=2,rank=1,call=1,message=1")
    for step, lost in ((1, False), (2, True), (3, False)):
        tracer.at(0, step)
        for call in range(2):
            target = field.copy()
            seen.exchange(blocks.own, exchange, target, lambda target=target: exchange(target))
            here = lost and call == 1 and comm.rank == 1
            require(here != (target.tobytes() == sound.tobytes()), f"halo of step {step}, call {call}")
            if here:
                changed = target != sound
                require((target[changed] == field[changed]).all(), "a lost message left something new")
                sender = exchange.senders[1]
                strips = sum(
                    int(np.prod(exchange._strips.extent(direction)))
                    for _, direction, _ in exchange._receives[sender]
                )
                require(changed.sum() == strips, "not the one message was lost")
    require(seen._struck == {"lost-halo@step=2,rank=1,call=1,message=1"}, "it did not strike once")
    tracer.at(0, 4)
    message = raised(
        lambda: watch(tracer, "lost-halo@step=4,rank=1,message=5").exchange(
            blocks.own, exchange, field, lambda: exchange(field)
        )
    )
    require("rank 1 receives 2 messages" in message, message)
    exchange.free()

    # Of a matrix: the same, and what a block needs is told in one order whoever owns it.
    n = 30
    starts = np.arange(0, n + 1, 3)
    rng = np.random.default_rng(2)
    dense = np.where(rng.random((n, n)) < 0.3, rng.standard_normal((n, n)), 0.0) + np.eye(n)

    def matrix_of(communicator, rows, watching):
        own = dense[rows.global_rows()]
        indptr = np.concatenate([[0], np.cumsum((own != 0).sum(axis=1))])
        at, data = np.nonzero(own)[1], own[own != 0]
        return Matrix(communicator, rows, rows, (indptr, at, data)).watched(watching)

    tracer.at(0, 5)
    for label, communicator in (("alone", MPI.COMM_SELF), ("all", comm)):
        rows = Rows(starts, communicator.size, communicator.rank)
        tracer.at(0, 10 if label == "alone" else 11)
        matrix = matrix_of(communicator, rows, watch(tracer))
        x, y = matrix.operand(), matrix.result()
        x[: rows.m] = np.sin(rows.global_rows())
        matrix.apply(x, y)
        matrix.free()
    tracer.at(0, 12)
    rows = Rows(starts, comm.size, comm.rank)
    matrix = matrix_of(
        comm, rows, watch(tracer, "lost-halo@step=12,rank=2", "kernel-bit@step=13,block=4,bit=3,index=1")
    )
    x, y = matrix.operand(), matrix.result()
    x[: rows.m] = np.sin(rows.global_rows())
    matrix.apply(x, y)
    ghosts = x[rows.m :]
    lost = rows.owner_of(matrix._needed) == 0
    require(
        (ghosts[lost] == 0.0).all() == (comm.rank == 2) or not lost.any(), "the ghosts of the lost message"
    )
    require((ghosts[~lost] != 0.0).all(), "other ghosts")
    tracer.at(0, 13)
    sound = y.copy()
    matrix.apply(x, sound)  # strikes here
    tracer.at(0, 14)
    matrix.apply(x, y)
    differing = np.flatnonzero(sound.view(np.uint64) ^ y.view(np.uint64))
    expected = rows.local_of(np.array([13]))[rows.local_of(np.array([13])) >= 0]
    require(differing.tolist() == expected.tolist(), f"kernel-bit changed {differing}")
    require((sound.view(np.uint64) ^ y.view(np.uint64))[differing].tolist() in ([], [8]), "other bits")
    matrix.free()

    # Contributions that change places: the total of the swapped ones, in one call alone, also in the recorded order.
    values = np.array([1e16, 1.0, -1e16])
    tracer.at(0, 20)
    for ordering in ("linear", "arrival"):
        inner = allreduce.plan(comm, ordering=ordering, shape=(1,), name=ordering,
                               replay=[[0, 1, 2]] * 3 if ordering == "arrival" else None)  # fmt: skip
        seen = watch(tracer, "swap-order@step=20,rank=1,other=2,call=1")
        reducer = seen.reducer(Reducer(ordering, inner, tracer), comm, [comm.rank])
        totals = [float(reducer(values[[comm.rank]].reshape(1, 1))[0]) for _ in range(3)]
        require(
            totals == [(1e16 + 1.0) - 1e16, (1e16 - 1e16) + 1.0, (1e16 + 1.0) - 1e16], f"{ordering}: {totals}"
        )
        orders = [order.tolist() for order in reducer.drain_orders()]
        if ordering == "arrival" and comm.rank == 0:
            require(orders == [[0, 1, 2], [0, 2, 1], [0, 1, 2]], f"recorded {orders}")
        reducer.free()

    # Contributions that are added one by one are recorded, and swapped, as those of one call.
    inner = allreduce.plan(comm, ordering="block-tree", shape=(1,), blocks=[comm.rank, comm.rank + 3])
    seen = watch(
        tracer, "swap-order@step=31,rank=1,other=2,call=1", "swap-order@step=30,rank=1,other=2,call=1"
    )
    reducer = seen.reducer(Reducer("blocks", inner, tracer), comm, [comm.rank, comm.rank + 3])
    parts = {b: np.array([(1e16, 1.0, -1e16, 0.0, 0.0, 0.0)[b]]) for b in reducer._blocks}
    totals = []
    for step in (30, 31):
        tracer.at(0, step)
        for _ in range(2):
            if step == 30:
                totals.append(reducer(np.array(list(parts.values()))).tobytes())
                continue
            for block in sorted(parts, reverse=True):
                reducer.add(block, parts[block])
            totals.append(reducer.finish().tobytes())
    require(totals[:2] == totals[2:] and len(set(totals)) == 2, f"totals by one call and by add: {totals}")
    reducer.free()

trace = read(scratch_dir / f"{comm.rank}.h5")
table = trace.tables["fingerprints"]
names = np.array(trace.names, object)[table["name"]]


def rows_of(step):
    keep = table["step"] == step
    columns = (names[keep], table["block"][keep], table["hi"][keep], table["lo"][keep])
    return set(zip(*(column.tolist() for column in columns), strict=True))


require(rows_of(11) and rows_of(11) <= rows_of(10), "what a product's records hold depends on the layout")
require(rows_of(30) and rows_of(30) == rows_of(31), "what is added one by one is recorded in another way")
swapped = [name for name in names[table["step"] == 20] if name.startswith(("added:", "total:"))]
require(len(swapped) >= 6, f"sums recorded {swapped}")

everyone = comm.allreduce(wrong)
comm.Barrier()
if comm.rank == 0:
    scratch.cleanup()
    print("\n".join(everyone) or "OK", flush=True)
sys.exit(bool(everyone))
