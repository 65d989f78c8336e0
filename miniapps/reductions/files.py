"""Arrays from a `.npy` file or an HDF5 dataset: what is in there is checked before anything is read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from miniapps.config import UsageError, closest
from miniapps.reductions.parts import Parts

SHAPES = {1: "(n,) or (arrays, n)", 2: "(2, n) or (arrays, 2, n)"}


def extent(name: str, dtype: np.dtype, vectors: int) -> tuple[int, int]:
    """(number of arrays, their length) in the file; raises UsageError where it is not what it should be."""
    with _open(name) as stored:
        if _type(stored, dtype) != dtype:
            raise UsageError(
                f"--file {name}: holds {stored.dtype}, but problem.dtype is {dtype}: set problem.dtype (float64, "
                "float32, float16 or bfloat16) to what the file holds, or convert the file"
            )
        shape = tuple(stored.shape)
        least = vectors  # dimensions of one array with its vectors
        fits = len(shape) in (least, least + 1) and (vectors == 1 or shape[-2] == 2)
        if not fits or 0 in shape:
            raise UsageError(
                f"--file {name}: has shape {shape}; expected {SHAPES[vectors]}, none of them empty, for "
                f"problem.operation = {'dot' if vectors == 2 else 'sum'}"
            )
        return (shape[0] if len(shape) > least else 1), shape[-1]


def read(name: str, dtype: np.dtype, array: int, parts: Parts, into: list[np.ndarray]) -> None:
    """Read this rank's blocks of array number `array`, one vector after another, into the arrays `into`."""
    with _open(name) as stored:
        for number, vector in enumerate(into):
            where = ((array,) if stored.ndim > len(into) else ()) + ((number,) if len(into) == 2 else ())
            for block, (start, stop) in zip(parts.own.tolist(), parts.cuts, strict=True):
                first = block * parts.block
                with _clear(name):
                    piece = np.asarray(stored[(*where, slice(first, first + stop - start))])
                vector[start:stop] = piece.view(dtype) if piece.dtype.kind == "V" else piece


def _type(stored: Any, dtype: np.dtype) -> np.dtype:
    """The type of what is stored, in native byte order. NumPy writes bfloat16 as two bytes without a name."""
    if stored.dtype == np.dtype("V2") and dtype.name == "bfloat16":
        return dtype
    return stored.dtype if stored.dtype.kind == "V" else stored.dtype.newbyteorder("=")


@contextlib.contextmanager
def _open(name: str) -> Iterator[Any]:
    """The array (mapped, not read) or the dataset; raises UsageError that says what is wrong with the file."""
    path, colon, dataset = name.rpartition(":/")
    if not colon:
        if Path(name).suffix in (".h5", ".hdf5"):
            raise UsageError(f"--file {name}: name the dataset too, as in {name}:/group/dataset")
        with _clear(name):
            stored = np.lib.format.open_memmap(name, mode="r")
        yield stored
        return
    import h5py

    with _clear(name):
        file = h5py.File(path, "r")
    with file:
        with _clear(name):
            stored = file.get(dataset)
        if not isinstance(stored, h5py.Dataset):
            known: list[str] = []
            file.visititems(
                lambda key, item: known.append(f"/{key}") if isinstance(item, h5py.Dataset) else None
            )
            raise UsageError(f"--file {name}: no dataset /{dataset} in {path}{closest('/' + dataset, known)}")
        yield stored


@contextlib.contextmanager
def _clear(name: str) -> Iterator[None]:
    """Errors of reading, told as what is wrong with the file."""
    try:
        yield
    except (OSError, ValueError, EOFError, KeyError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise UsageError(
            f"--file {name}: cannot be read: {reason}; expected a .npy file of numpy.save, or FILE.h5:/DATASET"
        ) from error
