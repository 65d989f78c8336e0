"""The columns of tables in caches and frames."""

from __future__ import annotations

# {table of one run: {column: dtype}}; `name` is a code into the names of that run.
STORED = {
    "events": {"repeat": "int32", "rank": "int32", "step": "int32", "name": "int32", "count": "int64",
               "total_ns": "int64", "exclusive_ns": "int64", "bytes": "int64", "flops": "int64"},
    "values": {"repeat": "int32", "step": "int32", "name": "int32", "block": "int32", "occurrence": "int32",
               "seq": "int32", "rank": "int32", "after": "int64", "value": "float64"},
    "fingerprints": {"repeat": "int32", "step": "int32", "name": "int32", "block": "int32", "occurrence": "int32",
                     "seq": "int32", "rank": "int32", "after": "int64", "hi": "uint64", "lo": "uint64"},
    "sizes": {"repeat": "int32", "step": "int32", "name": "int32", "block": "int32", "occurrence": "int32",
              "seq": "int32", "rank": "int32", "after": "int64", "dtype": "int32", "count": "int64", "sample": "int32",
              "l1": "float64", "largest": "float64", "p0": "float64", "p1": "float64", "p2": "float64",
              "p3": "float64"},
    "order": {"repeat": "int32", "step": "int32", "name": "int32", "occurrence": "int32", "ranks": "object"},
    "choices": {"repeat": "int32", "step": "int32", "name": "int32", "block": "int32", "choice": "int32",
                "score": "float64"},
    "usage": {"repeat": "int32", "rank": "int32", "step": "int32", "name": "int32", "value": "float64"},
}  # fmt: skip
KEY = ("repeat", "step", "name", "occurrence", "block")  # identifies a row of values or fingerprints
# The hashed columns of tables with trees. Each row of sizes belongs to a fingerprint: their tree only finds rows.
PAYLOAD = {"values": ("value",), "fingerprints": ("hi", "lo"), "sizes": ("l1", "p0")}
