"""The files of data sets: verified by SHA-256, read by rank 0 and shared."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from miniapps.errors import UsageError
from miniapps.untrusted.regular import Refused, read_bytes
from miniapps.untrusted.text import printable

MOST = 2**26  # bytes of a file
SHIPPED = "miniapps/learning/samples/shipped"  # data in this suite
REPAIR = (
    "it comes with this suite: leave --data-dir out, or, if it is still missing, install fpna-miniapps again"
)


@dataclass(frozen=True)
class Source:
    """The files of a data set. `files`: {name: SHA-256}; `inside`: their folder in an unpacked package; `package`: the
    Python package with which `inside` begins, empty for a folder below /; `get`: how to get the files;
    `read(contents by name)`: makes the data."""

    files: dict[str, str]
    inside: str
    package: str
    get: str
    read: Callable[[dict[str, bytes]], Any]  # of most sets to Labelled
    gzipped: bool = True
    instead: str = "--data blobs"  # an alternative without files


def contents(name: str, source: Source, directory: str) -> dict[str, bytes]:
    """The contents of the files of the data set `name`, by file name. Raises UsageError with the missing or damaged
    file, and the commands to get it."""
    folder = _folder(name, source, directory)
    return {file: _verified(folder / file, digest, source) for file, digest in source.files.items()}


def share_arrays(comm, arrays: list[np.ndarray] | None) -> list[np.ndarray]:
    """Rank 0's contiguous arrays on every rank; other ranks pass None. Collective."""
    kinds = comm.bcast(None if arrays is None else [(each.dtype.str, each.shape) for each in arrays])
    shared = [np.empty(shape, dtype) for dtype, shape in kinds] if arrays is None else arrays
    for array in shared:
        comm.Bcast(array)
    return shared


def _folder(name: str, source: Source, directory: str) -> Path:
    """The folder with the first of the files."""
    if directory:
        places = [Path(directory), Path(directory) / source.inside]
    elif source.package:
        spec = importlib.util.find_spec(source.package)
        roots = list(spec.submodule_search_locations or ()) if spec else []
        places = [Path(root).parent / source.inside for root in roots]
    else:
        places = [Path("/") / source.inside]
    first = next(iter(source.files))
    try:
        for place in places:
            if (place / first).exists():
                return place
    except (OSError, ValueError) as error:
        raise UsageError(f"--data-dir {printable(directory)}: cannot be read: {error}") from error
    where = f"--data-dir {printable(directory)}" if directory else f"--data {name}"
    looked = " or ".join(printable(str(place)) for place in places) or f"the package {source.package}"
    raise UsageError(
        f"{where}: no {first} in {looked}; {source.get}; or choose {source.instead}, which needs no files"
    )


def _verified(path: Path, digest: str, source: Source) -> bytes:
    """The contents of `path`, unpacked if gzipped, after checking its SHA-256 against `digest`."""
    where = printable(str(path))
    try:
        content = read_bytes(path, MOST, links=True)
    except Refused as error:
        raise UsageError(f"{error}; {source.get}") from error
    except OSError as error:
        raise UsageError(f"{where}: cannot be read: {error.strerror}; {source.get}") from error
    own = hashlib.sha256(content).hexdigest()
    if own != digest:
        raise UsageError(
            f"{where}: damaged, or another version: its SHA-256 is {own[:16]}..., and {digest[:16]}... is known; "
            f"{source.get}"
        )
    return gzip.decompress(content) if source.gzipped else content  # the hash implies the unpacked size
