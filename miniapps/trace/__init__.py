"""The trace of a run: one HDF5 file per rank with bits and times side by side (docs/trace.md)."""

from miniapps.trace.reader import RankTrace, rank_files, read
from miniapps.trace.schema import SCHEMA, TraceError, fingerprint
from miniapps.trace.writer import Tracer

__all__ = ["SCHEMA", "RankTrace", "TraceError", "Tracer", "fingerprint", "rank_files", "read"]
