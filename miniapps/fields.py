"""Whole fields on rank 0 and their files: gathered from blocks, written so that a crash leaves no half file.

A file holds global arrays `(ny, nx)`, without a trace of who owned which block, so that any number of ranks
can continue from it.
"""

import os
from pathlib import Path

import h5py
import numpy as np

from miniapps.blocks import Blocks
from miniapps.device import host


def gather(blocks: Blocks, comm, field) -> np.ndarray | None:
    """Global array `(ny, nx)` on rank 0, None elsewhere, of a field `(own blocks, by, bx)`. Collective."""
    field = np.ascontiguousarray(host(field))
    whole = np.empty((blocks.count, *field.shape[1:]), field.dtype) if comm.rank == 0 else None
    counts = np.bincount(blocks.owner, minlength=comm.size) * field[0].size
    comm.Gatherv(field, [whole, counts] if comm.rank == 0 else None)
    if comm.rank:
        return None
    ordered = np.empty_like(whole)
    ordered[np.argsort(blocks.owner, kind="stable")] = whole
    shape = (blocks.rows, blocks.columns, blocks.by, blocks.bx)
    return ordered.reshape(shape).swapaxes(1, 2).reshape(blocks.ny, blocks.nx)


def scatter(blocks: Blocks, comm, array: np.ndarray | None) -> np.ndarray:
    """The inverse of `gather`: float64 `(own blocks, by, bx)` of rank 0's `(ny, nx)`. Collective."""
    mine = blocks.zeros()
    counts = np.bincount(blocks.owner, minlength=comm.size) * mine[0].size
    whole = None
    if comm.rank == 0:
        shape = (blocks.rows, blocks.by, blocks.columns, blocks.bx)
        by_block = array.reshape(shape).swapaxes(1, 2).reshape(blocks.count, blocks.by, blocks.bx)
        whole = np.ascontiguousarray(by_block[np.argsort(blocks.owner, kind="stable")], dtype=np.float64)
    comm.Scatterv([whole, counts] if comm.rank == 0 else None, mine)
    return mine


def save(path: Path, attributes: dict, arrays: dict[str, np.ndarray]) -> None:
    """Write an HDF5 file under a temporary name and rename it: `path` is whole or not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    with h5py.File(partial, "w") as file:
        file.attrs.update(attributes)
        for name, array in arrays.items():
            file.create_dataset(name, data=array)
    os.replace(partial, path)


def load(path: Path) -> tuple[dict, dict[str, np.ndarray]]:
    """(attributes, arrays) of a file that `save` wrote. Raises OSError if it is no HDF5 file."""
    with h5py.File(path, "r") as file:
        return dict(file.attrs), {name: file[name][...] for name in file}
