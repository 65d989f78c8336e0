"""The calls of one rank as a trace: what reductions took and gave, what messages carried, when, and from where."""

from __future__ import annotations

import secrets
import shlex
import subprocess
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from miniapps.programs.rawlog import KINDS, WILDCARD, RawLog, Site
from miniapps.runner import config
from miniapps.system import environment
from miniapps.trace.records import ADDED, RECEIVED, SENT, TOTAL
from miniapps.trace.schema import COLLECTIVE, EXCHANGE, SCHEMA, rank_file
from miniapps.trace.storage import Storage

REDUCTIONS = ("MPI_Allreduce", "MPI_Reduce", "MPI_Reduce_scatter", "MPI_Reduce_scatter_block", "MPI_Scan", "MPI_Exscan")
SAME = ("MPI_Allreduce", "MPI_Reduce")  # whose total is one
MESSAGES = ("MPI_Send", "MPI_Recv")
ADDRESSES_S = 60  # for addr2line


def write(log: RawLog, out: Path, command: list[str]) -> None:
    """Write the trace OUT/rank-RRRRR.h5 of a raw log."""
    labels = places(log.sites)
    names: dict[str, int] = {}

    def number(name: str) -> int:
        return names.setdefault(name, len(names))

    rows = log.records
    calls = [_label(log, labels, row) for row in rows]
    events = {
        "start": rows["begin"],
        "end": np.where(rows["end"], rows["end"], rows["begin"]),
        "name": np.array([number(call) for call in calls], np.int32),
        "repeat": np.zeros(len(rows), np.int32),
        "step": np.minimum(rows["epoch"], 2**31 - 1).astype(np.int32),
        "bytes": rows["bytes"],
        "flops": np.zeros(len(rows), np.int64),
    }
    fingerprints: dict[str, list] = defaultdict(list)
    values: dict[str, list] = defaultdict(list)
    for after, (row, call) in enumerate(zip(rows, calls, strict=True)):
        for name, block, digest in _records(log, row, call):
            _add(fingerprints, row, after, number(name), block)
            hi, lo = np.frombuffer(digest.tobytes(), ">u8")
            fingerprints["hi"].append(int(hi))
            fingerprints["lo"].append(int(lo))
        if row["flags"] & WILDCARD:
            _add(values, row, after, number(f"source of {call}"), log.rank)
            values["value"].append(float(row["peer"]))
    storage = Storage(out / rank_file(log.rank), _attributes(log, command, calls, rows), log.size)
    tables = {"events": events}
    for table, columns in (("fingerprints", fingerprints), ("values", values)):
        if columns:
            tables[table] = {
                name: np.array(column, np.uint64 if name in ("hi", "lo") else None) for name, column in columns.items()
            }
    storage.append(tables, list(names))
    storage.write_tails()
    storage.finish(bool(log.ended), {"events": len(rows), "ns_per_event": 0.0, "flush_ns": 0, "dropped": 0})


def places(sites: dict[int, Site]) -> dict[int, str]:
    """Where calls stand, in words: `solve (cg.c:57)` where the file has line numbers, else `libfoo.so+0x1a2b`."""
    by_file: dict[str, list[tuple[int, Site]]] = defaultdict(list)
    for address, site in sites.items():
        by_file[site.file].append((address, site))
    words = {}
    for file, own in by_file.items():
        found = _lines(file, [site.offset - 1 for _, site in own])  # a return address is behind its call
        for (address, site), line in zip(own, found, strict=True):
            words[address] = line or f"{site.symbol or Path(site.file).name}+{site.offset:#x}"
    return words


def _lines(file: str, offsets: list[int]) -> list[str]:
    """`function (file.c:12)` of each offset, empty where it is not known."""
    try:
        done = subprocess.run(
            ["addr2line", "-f", "-C", "-e", file, *map(hex, offsets)],
            capture_output=True, text=True, timeout=ADDRESSES_S,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return [""] * len(offsets)
    lines = done.stdout.splitlines()
    if done.returncode or len(lines) != 2 * len(offsets):
        return [""] * len(offsets)
    texts = []
    for function, place in zip(lines[::2], lines[1::2], strict=True):
        name, _, line = place.partition(" ")[0].rpartition(":")
        known = "?" not in (function[:1], name[:1], line[:1])
        texts.append(f"{function} ({Path(name).name}:{line})" if known else "")
    return texts


def _label(log: RawLog, labels: dict[int, str], row) -> str:
    return f"{KINDS[row['kind']]} at {labels.get(int(row['site']), hex(int(row['site'])))}"


def _records(log: RawLog, row, call: str):
    """(name, block, digest) of what a call took and gave, as far as this rank is the one to record it."""
    kind, whole = KINDS[row["kind"]], int(row["comm_size"]) == log.size
    empty = bytes(16)
    given, got = row["in"], row["out"]
    if kind in REDUCTIONS:
        if given.tobytes() != empty:
            yield f"{ADDED}{call} by rank {log.rank} of {log.size}", -1, given
        if got.tobytes() != empty and kind in SAME:
            if log.rank == 0 or kind == "MPI_Reduce" or not whole:
                yield f"{TOTAL}{call}", -1 if whole else log.rank, got
        elif got.tobytes() != empty:
            yield f"{TOTAL}{call}", log.rank, got
        return
    if given.tobytes() != empty:
        yield f"{SENT}{call}", log.rank, given
    if got.tobytes() != empty:
        yield f"{RECEIVED}{call}", log.rank, got


def _add(columns: dict[str, list], row, after: int, name: int, block: int) -> None:
    columns["repeat"].append(0)
    columns["step"].append(int(min(row["epoch"], 2**31 - 1)))
    columns["name"].append(name)
    columns["block"].append(block)
    columns["after"].append(after + 1)


def _attributes(log: RawLog, command: list[str], calls: list[str], rows) -> dict[str, Any]:
    now, app = datetime.now(UTC), Path(command[0]).name
    problem = {"program.arguments": shlex.join(command[1:])}
    own = environment.own(0, "cpu") | {"mpi": log.library}
    regions = {call: EXCHANGE if call.startswith(MESSAGES) else COLLECTIVE for call in dict.fromkeys(calls)}
    reductions: dict[str, dict[str, Any]] = {}
    for call, row in zip(calls, rows, strict=True):
        if KINDS[row["kind"]] in REDUCTIONS:
            facts = reductions.setdefault(call, {
                "ordering": "library", "region": call, "operation": log.operations.get(int(row["op"]), ""),
                "dtype": log.types.get(int(row["type"]), ""), "shape": [int(row["count"])], "guarantee": "none",
                "ranks": int(row["comm_size"]), "decided": "guarantee", "calls": 0,
            })  # fmt: skip
            facts["calls"] += 1
    return {
        "schema": SCHEMA,
        "app": app,
        "rank": log.rank,
        "config": {"program": {"arguments": problem["program.arguments"]}},
        "problem": config.problem_hash(app, problem),
        "problem_options": problem,
        "method": {},
        "options": {},
        "guarantee": "none",
        "seed": 0,
        "repeats": 1,
        "run_id": f"{app}-{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}",
        "allocation_id": environment.allocation_id(),
        "started": now.isoformat(timespec="milliseconds"),
        "environment": own,
        "clock_offset_ns": float(log.offset),
        "clock_drift": 0.0,
        "regions": regions,
        "reductions": reductions,
    }
