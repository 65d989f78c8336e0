"""Every collective in every form. argv[1]/expected-RANK.json gets the hashes of what a rank gave and got, in order."""

import json
import sys
from pathlib import Path

import numpy as np
import xxhash
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
expected = []
vector = MPI.DOUBLE.Create_vector(3, 1, 2).Commit()  # every second of five numbers


def digest(*arrays):
    return (
        xxhash.xxh3_128_hexdigest(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays))
        if arrays
        else None
    )


def call(name, given, got, run):
    """Runs one call; `got` are views of what it fills."""
    before = digest(*given)
    request = run()
    if isinstance(request, MPI.Prequest):
        request.Start()
    if isinstance(request, MPI.Request):
        request.Wait()
    if isinstance(request, MPI.Prequest):
        request.Free()
    expected.append([name, before, digest(*got)])


def own(n=4):
    return np.random.default_rng([rank, len(expected)]).standard_normal(n)


counts = [r + 1 for r in range(size)]
starts = [sum(counts[:r]) + r for r in range(size)]  # a gap behind each


def every_collective(form):
    """`form`: "" for calls that block, "I" for those that do not, "init" for persistent ones."""

    def method(name):
        return getattr(comm, {"": name, "I": f"I{name.lower()}", "init": f"{name}_init"}[form])

    def label(name):
        return {"": f"MPI_{name}", "I": f"MPI_I{name.lower()}", "init": f"MPI_{name}_init"}[form]

    x, y = own(), np.zeros(4)
    call(label("Allreduce"), [x], [y], lambda: method("Allreduce")(x, y, MPI.MAX))
    z = own()
    call(label("Allreduce"), [z], [z], lambda: method("Allreduce")(MPI.IN_PLACE, z))
    x, y = own(), np.zeros(4)
    call(
        label("Reduce"),
        [x],
        [y] if rank == size - 1 else [],
        lambda: method("Reduce")(x, y, MPI.SUM, size - 1),
    )
    x, y = own(sum(counts)), np.zeros(counts[rank])
    call(label("Reduce_scatter"), [x], [y], lambda: method("Reduce_scatter")(x, y, counts))
    x, y = own(2 * size), np.zeros(2)
    call(label("Reduce_scatter_block"), [x], [y], lambda: method("Reduce_scatter_block")(x, y))
    x, y = own(), np.zeros(4)
    call(label("Scan"), [x], [y], lambda: method("Scan")(x, y))
    x, y = own(), np.zeros(4)
    call(label("Exscan"), [x], [y] if rank else [], lambda: method("Exscan")(x, y))
    x = own() if rank == 0 else np.zeros(4)
    call(label("Bcast"), [x] if rank == 0 else [], [x], lambda: method("Bcast")(x, 0))
    wide = own(5) if rank == 0 else np.zeros(5)
    call(
        label("Bcast"),
        [wide[::2]] if rank == 0 else [],
        [wide[::2]],
        lambda: method("Bcast")([wide, 1, vector], 0),
    )
    x, y = own(), np.zeros(4 * size)
    call(label("Allgather"), [x], [y], lambda: method("Allgather")(x, y))
    y = np.zeros(4 * size)
    y[4 * rank : 4 * rank + 4] = own()
    call(label("Allgather"), [y[4 * rank : 4 * rank + 4]], [y], lambda: method("Allgather")(MPI.IN_PLACE, y))
    x, y = own(counts[rank]), np.zeros(starts[-1] + counts[-1])
    parts = [y[s : s + c] for s, c in zip(starts, counts, strict=True)]
    call(label("Allgatherv"), [x], parts, lambda: method("Allgatherv")(x, [y, counts, starts, MPI.DOUBLE]))
    x, y = own(2 * size), np.zeros(2 * size)
    call(label("Alltoall"), [x], [y], lambda: method("Alltoall")(x, y))
    x, y = own(size * 3), np.zeros(size * 3)
    places = [3 * r for r in range(size)]
    pieces = [[a[p : p + 2] for p in places] for a in (x, y)]
    call(
        label("Alltoallv"),
        *pieces,
        lambda: method("Alltoallv")([x, [2] * size, places, MPI.DOUBLE], [y, [2] * size, places, MPI.DOUBLE]),
    )
    x, y = own(), np.zeros(4 * size)
    call(
        label("Gather"),
        [x],
        [y] if rank == 0 else [],
        lambda: method("Gather")(x, y if rank == 0 else None, 0),
    )
    x, y = own(counts[rank]), np.zeros(starts[-1] + counts[-1])
    parts = [y[s : s + c] for s, c in zip(starts, counts, strict=True)]
    call(
        label("Gatherv"),
        [x],
        parts if rank == 0 else [],
        lambda: method("Gatherv")(x, [y, counts, starts, MPI.DOUBLE] if rank == 0 else None, 0),
    )
    x, y = own(4 * size), np.zeros(4)
    call(
        label("Scatter"),
        [x] if rank == 0 else [],
        [y],
        lambda: method("Scatter")(x if rank == 0 else None, y, 0),
    )
    x, y = own(starts[-1] + counts[-1]), np.zeros(counts[rank])
    parts = [x[s : s + c] for s, c in zip(starts, counts, strict=True)]
    call(
        label("Scatterv"),
        parts if rank == 0 else [],
        [y],
        lambda: method("Scatterv")([x, counts, starts, MPI.DOUBLE] if rank == 0 else None, y, 0),
    )
    call(label("Barrier"), [], [], lambda: method("Barrier")())


for form in ("", "I", "init") if MPI.VERSION >= 4 else ("", "I"):
    every_collective(form)
Path(sys.argv[1], f"expected-{rank}.json").write_text(json.dumps(expected))
