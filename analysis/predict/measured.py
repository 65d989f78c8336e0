"""What runs took per step, and which run a hash is of."""

from __future__ import annotations

import hashlib
import os

from miniapps.received import open_regular
from miniapps.trace import TraceError
from miniapps.trace.reader import trace_files

PIECE = 2**22  # bytes hashed at once


def hash_of_run(run: str | os.PathLike) -> str:
    """SHA-256, in hex, of the trace files in the directory `run`: name, length and bytes of each, sorted by name.

    Raises TraceError where there are none, Refused and OSError where one cannot be read.
    """
    hasher = hashlib.sha256()
    files = trace_files(run)
    if not files:
        raise TraceError(f"{run}: no rank-*.h5; give the directory of a run")
    for path in files:
        with open_regular(path) as file:
            hasher.update(f"{path.name} {os.fstat(file.fileno()).st_size}\n".encode())
            while piece := file.read(PIECE):
                hasher.update(piece)
    return hasher.hexdigest()
