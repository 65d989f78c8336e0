"""The trace of a run: one HDF5 file per rank or node with bits and times (docs/reference/trace.md)."""

from miniapps.trace.reader import (
    RankTrace,
    how_to_recover,
    rank_files,
    raw_logs,
    read,
    read_all,
    read_image,
    read_run,
    trace_files,
)
from miniapps.trace.schema import SCHEMA, TraceError, fingerprint
from miniapps.trace.writer import Tracer

__all__ = [
    "SCHEMA",
    "RankTrace",
    "TraceError",
    "Tracer",
    "fingerprint",
    "how_to_recover",
    "rank_files",
    "raw_logs",
    "read",
    "read_all",
    "read_image",
    "read_run",
    "trace_files",
]
