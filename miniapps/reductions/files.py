"""Arrays from a `.npy` file or an HDF5 dataset, whose type, shape and storage are checked before any element is
read."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kernels import npy
from miniapps.errors import UsageError
from miniapps.reductions.parts import Parts
from miniapps.runner.config import closest
from miniapps.untrusted import contents
from miniapps.untrusted.regular import Refused, open_regular

MOST = 2**42  # bytes of a file, of which a rank reads only its own blocks
CHUNK = (
    2**26
)  # bytes of a chunk of an HDF5 dataset (unpacked as a whole), beyond the bytes that its file occupies on disk
LISTED = 1000  # objects of an HDF5 file that are searched for the name of a dataset
SHAPES = {1: "(n,) or (arrays, n)", 2: "(2, n) or (arrays, 2, n)"}


def extent(name: str, dtype: np.dtype, vectors: int) -> tuple[int, int]:
    """(number of arrays, their length) in the file; raises UsageError if type or shape is not as expected."""
    with _open(name) as stored:
        if _type(stored, dtype) != dtype:
            raise UsageError(
                f"--file {name}: holds {stored.dtype}, but problem.dtype is {dtype}: set problem.dtype (float64, "
                "float32, float16 or bfloat16) to what the file holds, or convert the file"
            )
        shape = tuple(stored.shape or ())  # HDF5 has datasets without a shape
        least = vectors  # dimensions of one array with its vectors
        fits = len(shape) in (least, least + 1) and (vectors == 1 or shape[-2] == 2)
        if not fits or 0 in shape:
            raise UsageError(
                f"--file {name}: has shape {shape}; expected {SHAPES[vectors]}, none of them empty, for "
                f"problem.operation = {'dot' if vectors == 2 else 'sum'}"
            )
        return (shape[0] if len(shape) > least else 1), shape[-1]


def read(name: str, dtype: np.dtype, array: int, parts: Parts, into: list[np.ndarray]) -> None:
    """Read this rank's blocks of array number `array` into `into`, one vector after another."""
    with _open(name) as stored:
        elements = _elements(name, stored)
        for number, vector in enumerate(into):
            where = ((array,) if stored.ndim > len(into) else ()) + ((number,) if len(into) == 2 else ())
            for block, (start, stop) in zip(parts.own.tolist(), parts.cuts, strict=True):
                first = block * parts.block
                with _clear(name):
                    piece = elements((*where, first), stop - start)
                vector[start:stop] = piece.view(dtype) if piece.dtype.kind == "V" else piece


def _elements(name: str, stored: Any) -> Callable[[tuple[int, ...], int], np.ndarray]:
    """A function of an index and a count, which returns `count` elements from the index on, along the last axis."""
    if isinstance(stored, np.ndarray) or not stored.id.get_create_plist().get_nfilters():
        return lambda first, count: np.asarray(stored[(*first[:-1], slice(first[-1], first[-1] + count))])
    chunks = contents.Chunks(stored.id, stored.dtype, f"--file {name}", sparse=True)

    def unpacked(first: tuple[int, ...], count: int) -> np.ndarray:
        piece = np.empty((1,) * (stored.ndim - 1) + (count,), stored.dtype)
        return chunks.fill(piece, first).reshape(count)

    return unpacked


def _type(stored: Any, dtype: np.dtype) -> np.dtype:
    """The element type of `stored`, in native byte order. NumPy stores bfloat16 as two bytes without a type name."""
    if stored.dtype == np.dtype("V2") and dtype.name == "bfloat16":
        return dtype
    return stored.dtype if stored.dtype.kind == "V" else stored.dtype.newbyteorder("=")


@contextlib.contextmanager
def _open(name: str) -> Iterator[Any]:
    """The array (mapped, not read) or the dataset; raises UsageError with the reason if the file is unusable."""
    path, colon, dataset = name.rpartition(":/")
    if not colon:
        if Path(name).suffix in (".h5", ".hdf5"):
            raise UsageError(f"--file {name}: name the dataset too, as in {name}:/group/dataset")
        path = name
    with contextlib.ExitStack() as stack:
        with _clear(name):
            file = stack.enter_context(open_regular(path, MOST, links=True))
            if not colon:
                stored = npy.mapped(file)
            else:
                import h5py

                # Opens the file that was checked, even if another now has its path.
                on_disk = 512 * os.fstat(file.fileno()).st_blocks
                stored = _dataset(name, stack.enter_context(h5py.File(file, "r")), dataset, CHUNK + on_disk)
        yield stored


def _dataset(name: str, file: Any, path: str, most: int) -> Any:
    """The dataset at `path` of an open HDF5 file. It must be reached by hard links, lie in the file itself, and have
    chunks of at most `most` bytes."""
    import h5py
    from h5py import h5g, h5l, h5o, h5t

    where, parts = f"--file {name}", [part for part in path.split("/") if part]
    group = h5g.open(file.id, b"/")
    for k, part in enumerate(parts):
        last = k == len(parts) - 1
        link = part.encode()
        if not group.links.exists(link):
            break
        # Other links are never followed, not even to find their target; `contents` refuses them.
        hard = group.links.get_info(link).type == h5l.TYPE_HARD
        if hard and h5o.get_info(group, link).type != (h5o.TYPE_DATASET if last else h5o.TYPE_GROUP):
            break
        if not last:
            group = contents.subgroup(group, part, None, where)
            continue
        dataset = h5py.Dataset(contents.dataset(group, part, where, opaque=True))
        width = dataset.dtype.itemsize  # fails here if NumPy has no such type
        if dataset.chunks and math.prod(dataset.chunks) * width > most:
            raise UsageError(
                f"{where}: has chunks of shape {dataset.chunks}, and a chunk is read as a whole; store it in "
                f"chunks of at most {CHUNK} bytes"
            )
        kind = dataset.id.get_type()
        if kind.get_class() != h5t.OPAQUE and not kind.equal(h5t.py_create(dataset.dtype)):
            raise UsageError(
                f"{where}: NumPy has no type with the bits of its elements; store them as float64, float32 or float16"
            )
        return dataset
    raise UsageError(
        f"{where}: no dataset /{path} in {name.removesuffix(f':/{path}')}{closest('/' + path, _datasets(file))}"
    )


def _datasets(file: Any) -> list[str]:
    """Paths of the datasets among the first objects of a file."""
    import h5py

    seen: list[str] = []
    names: list[str] = []

    def visit(key: str, item: Any) -> bool | None:
        seen.append(key)
        if isinstance(item, h5py.Dataset):
            names.append(f"/{key}")
        return True if len(seen) == LISTED else None  # other than None ends the visit

    file.visititems(visit)
    return names


@contextlib.contextmanager
def _clear(name: str) -> Iterator[None]:
    """Turns errors of reading into UsageError with the reason."""
    try:
        yield
    except Refused as error:
        raise UsageError(
            str(error) if str(error).startswith("--file") else f"--file {name}: {error}"
        ) from error
    except (OSError, ValueError, EOFError, KeyError, TypeError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise UsageError(
            f"--file {name}: cannot be read: {reason}; expected a .npy file of numpy.save, or FILE.h5:/DATASET"
        ) from error
