"""Read and write the order in which the calls of a rank found requests and messages: `completions-RRRRR.bin` of a run.

The file has a line of JSON (`format`, `run_id`, `rank`, `size`, `rows`), the rows of `FOUND`, and the XXH3 hash
(128 bits) of all that. `fpna run` writes it beside the trace, and `fpna run --replay` gives its rows to the preloaded
library, which has the same layout (preload/completions.hpp).
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import numpy as np
import xxhash

from miniapps.programs.rawlog import FIRST_COMPLETION, KINDS, LAST_COMPLETION, OTHER_THREAD, RawLog
from miniapps.untrusted import records
from miniapps.untrusted.regular import Refused, read_bytes
from miniapps.untrusted.text import printable

FORMAT = "fpna-completions-2"
# kind: the call, of KINDS; done: the number of requests that it found, each in a row of its own, 0 if none was active;
# place, tag: of a request its place in the array of the call, of a message its source and tag; failed: the calls that
# found nothing since the last one that found something; number: of a request by its posting, 0 if unknown, of a
# message how many of its source were seen; received, posted: receives from any source, and requests, posted before;
# path: hash of the calls that found nothing, and of this one.
FOUND = np.dtype(
    [
        ("kind", "<i4"), ("done", "<i4"), ("place", "<i4"), ("tag", "<i4"), ("failed", "<i8"), ("number", "<i8"),
        ("received", "<i8"), ("posted", "<i8"), ("path", "<u8"),
    ]
)  # fmt: skip
PROBES = (KINDS.index("MPI_Iprobe"), KINDS.index("MPI_Improbe"))
MOST = 2**32  # bytes of a file, which is read into memory
DIGEST = 16


class Head(msgspec.Struct):
    """The first line of a file."""

    format: str
    run_id: str
    rank: int
    size: int
    rows: int


class OfThreads(Exception):
    """Several threads of the recorded run made such calls, which have no order."""


def file_of(run: Path, rank: int) -> Path:
    """The file of this rank."""
    return run / f"completions-{rank:05d}.bin"


def found(log: RawLog) -> np.ndarray:
    """The completions of a raw log, (n,) of FOUND; `kind` is -1 where a call of another thread may have found some."""
    rows = np.zeros(len(log.completions), FOUND)
    given = log.completions
    for field, of in (("kind", "kind"), ("done", "comm_size"), ("place", "peer"), ("tag", "tag"), ("failed", "count"),
                      ("number", "bytes")):  # fmt: skip
        rows[field] = given[of]
    inner = np.frombuffer(given["in"].tobytes(), "<u8").reshape(-1, 2)
    rows["path"], rows["received"] = inner[:, 0], inner[:, 1].astype(np.int64)
    rows["posted"] = np.frombuffer(given["out"].tobytes(), "<i8").reshape(-1, 2)[:, 0]
    rows["kind"][given["flags"] & OTHER_THREAD != 0] = -1
    return rows


def write(log: RawLog, out: Path) -> None:
    """Write the completions of a raw log into the directory of its run. Raises OSError, and Refused if another file is
    in the way."""
    path, rows = file_of(out, log.rank), found(log)
    head = Head(FORMAT, log.run_id, log.rank, log.size, len(rows))
    content = json.dumps(msgspec.to_builtins(head)).encode() + b"\n" + rows.tobytes()
    content += xxhash.xxh3_128_digest(content)
    if os.path.lexists(path):
        if read_bytes(path, MOST) == content:
            return
        raise Refused(f"{printable(str(path))}: is in the way, and differs; move it away")
    draft = path.with_suffix(".draft")
    draft.unlink(missing_ok=True)  # from a killed process
    with open(draft, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)


def read(run: Path, rank: int, size: int, run_id: str) -> np.ndarray:
    """The completions of this rank of a run, (n,) of FOUND.

    Raises FileNotFoundError, OfThreads, and Refused for a file that is damaged or belongs to another run.
    """
    path = file_of(run, rank)
    shown, content = printable(str(path)), read_bytes(path, MOST)
    line, _, rest = content[:-DIGEST].partition(b"\n")
    if len(content) < DIGEST or xxhash.xxh3_128_digest(content[:-DIGEST]) != content[-DIGEST:]:
        raise Refused(f"{shown}: damaged; copy it again")
    head = records.decode(line, Head, shown)
    if (head.format, head.rank, head.size, head.run_id) != (FORMAT, rank, size, run_id):
        raise Refused(
            f"{shown}: it belongs to rank {head.rank} of the run {printable(head.run_id)}; copy the whole run again"
        )
    if len(rest) != head.rows * FOUND.itemsize:
        raise Refused(f"{shown}: {len(rest):,} bytes of {head.rows:,} rows; copy it again")
    rows = np.frombuffer(rest, FOUND)
    if (rows["kind"] == -1).any():
        raise OfThreads
    known = (rows["kind"] >= FIRST_COMPLETION) & (rows["kind"] <= LAST_COMPLETION) | np.isin(
        rows["kind"], PROBES
    )
    if not known.all() or (rows["done"] < 0).any() or (rows["failed"] < 0).any():
        raise Refused(f"{shown}: it has impossible calls; record the run again")
    return rows
