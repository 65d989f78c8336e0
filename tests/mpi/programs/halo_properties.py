"""On every rank: the halo holds exactly the periodic neighbourhood, for contiguous and shuffled ownership."""

import sys

import numpy as np
from mpi4py import MPI

from miniapps.layout import fields, halo
from miniapps.layout.blocks import Blocks

comm = MPI.COMM_WORLD
wrong = []


def periodic(grid, blocks, k, width):
    j, i = blocks.origin(int(blocks.own[k]))
    rows = np.arange(j - width, j + blocks.by + width) % blocks.ny
    columns = np.arange(i - width, i + blocks.bx + width) % blocks.nx
    return grid[np.ix_(rows, columns)]


for ny, nx, by, bx in ((32, 48, 8, 6), (16, 32, 16, 4), (40, 8, 5, 8)):
    grid = np.random.default_rng(1).standard_normal((ny, nx))
    for shuffle in (0, 3):
        blocks = Blocks(ny, nx, by, bx, comm.size, comm.rank, shuffle)
        for pad, width, corners in ((4, 4, True), (4, 1, True), (1, 1, False), (3, 2, False)):
            field, expected = blocks.zeros(pad), blocks.zeros(pad)
            for k in range(len(blocks.own)):
                field[k, pad:-pad, pad:-pad] = periodic(grid, blocks, k, 0)
                inner = slice(pad - width, pad + by + width), slice(pad - width, pad + bx + width)
                expected[k][inner] = periodic(grid, blocks, k, width)
            if not corners:
                for rows in (slice(0, pad), slice(pad + by, None)):
                    for columns in (slice(0, pad), slice(pad + bx, None)):
                        expected[:, rows, columns] = 0.0
            exchange = halo.plan(blocks, comm, pad, width, corners)
            for _ in range(2):  # persistent requests: a second exchange must do the same
                exchange(field)
            exchange.free()
            if field.tobytes() != expected.tobytes():
                wrong.append(
                    f"halo {ny}x{nx} blocks {by}x{bx} shuffle {shuffle} pad {pad} width {width} {corners}"
                )
            if len(exchange.neighbours) > comm.size - 1:
                wrong.append("more than one message per pair of ranks and direction")
        whole = fields.gather(
            blocks,
            comm,
            blocks_field := np.stack([periodic(grid, blocks, k, 0) for k in range(len(blocks.own))]),
        )
        if comm.rank == 0 and whole.tobytes() != grid.tobytes():
            wrong.append("gather")
        if fields.scatter(blocks, comm, whole).tobytes() != blocks_field.tobytes():
            wrong.append("scatter")

everyone = comm.allreduce(wrong)
if comm.rank == 0:
    print("\n".join(everyone) or "OK", flush=True)
sys.exit(bool(everyone))
