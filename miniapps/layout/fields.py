"""Whole fields, gathered from blocks on rank 0, and their sealed files; a crash leaves no incomplete file.

A file holds global arrays `(ny, nx)` and does not record the owners of blocks, so that any number of ranks can continue
from it. `miniapps.untrusted` reads these files.
"""

import contextlib
from pathlib import Path

import numpy as np

from miniapps.errors import RunError
from miniapps.layout.blocks import Blocks
from miniapps.layout.messages import tell_gather
from miniapps.system.device import host
from miniapps.untrusted.contents import CHUNK
from miniapps.untrusted.regular import kind_of
from miniapps.untrusted.sealed import write_sealed


def gather(blocks: Blocks, comm, field, tracer=None) -> np.ndarray | None:
    """Global array `(ny, nx)` on rank 0, None elsewhere, of a field `(own blocks, by, bx)`. Collective."""
    field = np.ascontiguousarray(host(field))
    tell_gather(tracer, comm.rank, field.nbytes)
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
    """The inverse of `gather`: float64 `(own blocks, by, bx)` of rank 0's `(ny, nx)`; None elsewhere. Collective."""
    mine = blocks.zeros()
    counts = np.bincount(blocks.owner, minlength=comm.size) * mine[0].size
    whole = None
    if array is not None:
        by_rank = by_block(blocks, array)[np.argsort(blocks.owner, kind="stable")]
        whole = np.ascontiguousarray(by_rank, dtype=np.float64)
    comm.Scatterv(None if whole is None else [whole, counts], mine)
    return mine


def by_block(blocks: Blocks, array: np.ndarray) -> np.ndarray:
    """`(all blocks, by, bx)`, ascending, of a global array `(ny, nx)`."""
    shape = (blocks.rows, blocks.by, blocks.columns, blocks.bx)
    return array.reshape(shape).swapaxes(1, 2).reshape(blocks.count, blocks.by, blocks.bx)


def save(run: Path, name: str, attributes: dict, arrays: dict[str, np.ndarray], packed: bool = False) -> None:
    """Write the sealed HDF5 file `name`, at most one folder deep, into the directory `run`, completely or not at all.

    The folder is created if needed, but `run` itself is not. With `packed`, data are shuffled and deflated. Raises
    RunError with the path of the file.
    """
    path = run / name

    def fill(file) -> None:
        file.attrs.update({key: _fixed(value) for key, value in attributes.items()})
        for each, array in arrays.items():
            file.create_dataset(each, data=array, **(_packing(array) if packed else {}))

    try:
        if path.parent != run:
            with contextlib.suppress(FileExistsError):
                path.parent.mkdir()
            if (kind := kind_of(path.parent)) != "a directory":
                raise RunError(
                    f"{path}: {path.parent.name} is {kind or 'no directory'}, and nothing is written outside the "
                    "directory of the run; keep others out of it while the run goes on"
                )
        write_sealed(path, fill)
    except OSError as error:
        raise RunError(
            f"{path}: cannot be written: {error.strerror or error}; see that the directory of the run is there and "
            "has room"
        ) from error


def _packing(array: np.ndarray) -> dict:
    """Options of HDF5 that pack `array` in chunks of at most CHUNK bytes."""
    if not array.size:
        return {}
    left = max(1, CHUNK // array.itemsize)
    chunks: tuple[int, ...] = ()
    for length in reversed(array.shape):
        chunks = (min(length, left), *chunks)
        left = max(1, left // length)
    return {"chunks": chunks, "shuffle": True, "compression": "gzip", "compression_opts": 4} if chunks else {}


def _fixed(value):
    """Text as text of fixed length, which HDF5 stores in the attribute and not in a heap; other values unchanged."""
    return np.bytes_(value.encode()) if isinstance(value, str) else value
