"""Packs the complete traces of a node's ranks into one file.

Thousands of files per run burden parallel file systems, copies and readers. Each rank still writes its own file, so
that any end of a run leaves readable traces. After a regular end one rank of each node packs the files of its node,
table by table, and removes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from miniapps.trace.reader import read
from miniapps.trace.schema import NAMED, NODE_FORMAT, SCHEMA, TABLES, TraceError, node_file, rank_file
from miniapps.untrusted.contents import CHUNK
from miniapps.untrusted.sealed import write_sealed

FILES = ("rank", "node")  # one trace file per rank or per node


def pack_node(run: Path, node, rank: int, seals: dict[str, str]) -> tuple[dict[str, str], str]:
    """Packs the closed traces in `run` of all ranks of the communicator `node`. Collective over `node`.

    `rank`: this rank of the run; `seals`: {name: seal} of its file. Returns the seals of the files after packing (that
    of the packed file on the rank that packed), and an error on that rank, empty without one. After an error the files
    of the ranks stay.
    """
    ranks = node.gather(rank)
    trouble, packed = "", {}
    if ranks is not None:
        name = node_file(min(ranks))
        try:
            packed = {name: pack([run / rank_file(each) for each in ranks], run / name)}
        except (OSError, TraceError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            trouble = (
                f"the traces of {len(ranks)} ranks cannot be packed and stay in separate files: {reason}"
            )
    return (packed if node.bcast(not trouble) else seals), trouble


def pack(paths: Iterable[Path], out: Path) -> str:
    """Writes the traces in `paths` (rank files of one run) into the new file `out`, by rank, then removes `paths`.

    Returns the seal of `out` in hex. Raises TraceError for an unreadable trace and OSError if `out` cannot be written;
    then `out` does not exist and `paths` stay.
    """
    paths = list(paths)
    traces = sorted((read(path) for path in paths), key=lambda trace: trace.attributes["rank"])
    names = list(dict.fromkeys(name for trace in traces for name in trace.names))
    codes = {name: code for code, name in enumerate(names)}

    def fill(file) -> None:
        size = traces[0].attributes["size"]
        file.attrs.update(format=NODE_FORMAT, schema=SCHEMA, size=size, complete=True)
        for name, content in (("attributes", [trace.attributes for trace in traces]), ("names", names)):
            _write(file, name, np.frombuffer(json.dumps(content).encode(), np.uint8))
        for table, columns in TABLES.items():
            lengths = [len(trace.tables[table]["name"]) for trace in traces]
            _write(file, f"rows/{table}", np.cumsum([0, *lengths]))
            for column in columns:
                pieces = [trace.tables[table][column] for trace in traces]
                if column in NAMED:
                    local = [np.array([codes[name] for name in t.names], np.int32) for t in traces]
                    pieces = [own[rows] for own, rows in zip(local, pieces, strict=True)]
                _write(file, f"{table}/{column}", np.concatenate(pieces))

    digest = write_sealed(out, fill)
    for path in paths:
        path.unlink()
    return digest


def _write(file, name: str, rows: np.ndarray) -> None:
    little = rows.astype(rows.dtype.newbyteorder("<"), copy=False)
    if not len(rows):
        file.create_dataset(name, data=little)
        return
    chunk = (min(len(rows), max(1, CHUNK // max(1, rows[0].nbytes))), *rows.shape[1:])
    file.create_dataset(name, data=little, chunks=chunk, shuffle=True, compression="gzip", compression_opts=1)
