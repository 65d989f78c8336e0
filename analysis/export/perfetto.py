"""Writes Trace Event Format (JSON), for ui.perfetto.dev, chrome://tracing and others.

The file has a process per node, a thread per rank, a complete event per region, and a flow through the ranks of each
collective in the order of their arrival. Times are µs with three decimals, so no nanosecond is rounded.
Format: Trace Event Format, Google, 2016 (docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU).
"""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np

from analysis.export.marks import Mark
from analysis.export.output import new_file
from analysis.export.slices import Slice

PACKAGES = ()
OPEN_WITH = "open it in ui.perfetto.dev"
ROWS = 16384  # written at once


def existing(out: Path) -> Path | None:
    """An existing path that `write` would overwrite; None if there is none."""
    return out if out.exists() else None


def bytes_of(out: Path) -> float:
    """Approximate bytes per event in `out`, measured with names of usual length."""
    return 15.0 if out.suffix == ".gz" else 170.0


def write(part: Slice, out: Path, mark: Mark | None = None) -> list[Path]:
    """Writes `part` into the new file `out`, with an instant event at `mark`, a time in `part`. Raises OSError."""
    with new_file(out) as raw:
        # Compression level 1: names and digits repeat so much that slower levels gain little.
        packed = gzip.GzipFile(out.stem, "wb", 1, raw, mtime=0) if out.suffix == ".gz" else nullcontext(raw)
        with packed as file:
            about = {"program": part.title, "run": part.name, "complete": part.complete}
            file.write(f'{{"displayTimeUnit":"ns","otherData":{json.dumps(about)},"traceEvents":[\n'.encode())
            lines = event_lines(part, mark)
            separator = b""
            while block := list(itertools.islice(lines, ROWS)):
                file.write(separator + ",\n".join(block).encode())
                separator = b",\n"
            file.write(b"\n]}\n")
    return [out]


def event_lines(part: Slice, mark: Mark | None) -> Iterator[str]:
    ranks, nodes = list(part.attributes), list(dict.fromkeys(map(part.node, part.attributes)))
    number = {node: 1 + i for i, node in enumerate(nodes)}
    # Numbers from 1: viewers take process 0 and thread 0 for the idle task of Linux.
    process = {rank: number[part.node(rank)] for rank in ranks}
    for i, node in enumerate(nodes):
        yield _metadata("process_name", {"name": f"{part.title}, {node}"}, 1 + i)
        yield _metadata("process_sort_index", {"sort_index": i}, 1 + i)
    prefix = [f'{{"name":{json.dumps(name)},"cat":"{waits}",' for name, waits in part.waits.items()]
    for rank, lane, own in part.pieces():
        thread = 1 + rank + lane * (1 + max(ranks))
        where = f'"pid":{process[rank]},"tid":{thread}'
        name = f"rank {rank}" + (f", overlapping regions {lane}" if lane else "")
        yield _metadata("thread_name", {"name": name}, process[rank], thread)
        yield _metadata("thread_sort_index", {"sort_index": thread}, process[rank], thread)
        columns = [
            own["name"].cat.codes,
            *(own[c] for c in ("start", "end", "step", "repeat", "bytes", "cut", "collective")),
            _flow_phases(rank, own["collective"].to_numpy(), part),
        ]
        for code, start, end, step, repeat, size, cut, flow, phase in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            begin = _us(start)
            yield (
                f'{prefix[code]}"ph":"X","ts":{begin},"dur":{_us(end - start)},{where},'
                f'"args":{{"step":{step},"repeat":{repeat},"bytes":{size}{_CUT if cut else ""}}}}}'
            )
            if phase:
                yield f'{prefix[code]}"ph":"{phase}","id":{flow},"bp":"e","ts":{begin},{where}}}'
    if mark is not None:
        yield (
            f'{{"name":{json.dumps(mark.name)},"cat":"divergence","ph":"i","s":"g","ts":{_us(mark.at)},'
            f'"pid":{process[mark.rank]},"tid":{1 + mark.rank},"args":{json.dumps(mark.args)}}}'
        )


_CUT = ',"cut":true'


def _us(ns: int) -> str:
    """Nanoseconds as microseconds, exactly."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def _metadata(what: str, arguments: dict, process: int, thread: int | None = None) -> str:
    threads = {} if thread is None else {"tid": thread}
    return json.dumps({"name": what, "ph": "M", "pid": process, **threads, "args": arguments})


def _flow_phases(rank: int, collective: np.ndarray, part: Slice) -> np.ndarray:
    """The flow phase of each event: `s` on the rank that reached the collective first, `f` on the last, `t` on others.

    Empty for other events, and if there is only one rank."""
    phases = np.full(len(collective), "", "U1")
    if len(part.attributes) > 1:
        rows = np.flatnonzero(collective >= 0)
        first, last = part.collectives.first[collective[rows]], part.collectives.last[collective[rows]]
        phases[rows] = np.where(first == rank, "s", np.where(last == rank, "f", "t"))
    return phases
