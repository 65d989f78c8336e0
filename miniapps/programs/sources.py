"""The sources of messages from any source, taken from a recorded run for one that repeats them."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from miniapps.errors import UsageError
from miniapps.trace import read_run
from miniapps.trace.records import SOURCE


@contextlib.contextmanager
def write_sources(run: Path, rank: int, size: int) -> Iterator[str]:
    """The path of a file for preload/receives.hpp, there until the block ends. Raises UsageError and TraceError."""
    with tempfile.NamedTemporaryFile(prefix="fpna-sources-") as file:
        file.write(np.array([rank, size, *recorded_sources(run, rank, size)], np.int32).tobytes())
        file.flush()
        yield file.name


def recorded_sources(run: Path, rank: int, size: int) -> list[int]:
    """Sources in the order in which `rank` of `run` posted its receives from any source."""
    for trace in read_run(run, tables=[], ranks=[0]):
        if (recorded := trace.attributes["size"]) != size:
            raise UsageError(
                f"--replay {run}: recorded on {recorded} ranks, and these are {size}; start {recorded}"
            )
    traces = list(read_run(run, tables=["events", "values"], ranks=[rank]))
    if not traces:
        raise UsageError(
            f"--replay {run}: no trace of rank {rank} in it; copy the whole run, or record it again"
        )
    (trace,) = traces
    names = [name.startswith(SOURCE) for name in trace.names]
    values = trace.tables["values"]
    taken = np.array(names, bool)[values["name"]] if len(names) else np.zeros(0, bool)
    posted = trace.tables["events"]["start"][values["after"][taken] - 1]
    return [int(source) for source in values["value"][taken][np.argsort(posted, kind="stable")]]
