"""One file per node: the traces of its ranks, packed when they are complete.

Thousands of files of one run are a burden for parallel file systems, and for whoever copies or reads them. The ranks
write one each all the same, so that whatever ends a run leaves them readable; at a regular end one rank of each node
packs those of its node, table by table, and removes them.
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

FILES = ("rank", "node")  # what one trace file may hold


def pack_node(run: Path, node, rank: int, seals: dict[str, str]) -> tuple[dict[str, str], str]:
    """Pack the closed traces in `run` of the ranks of the communicator `node`, of which this is `rank` of the run.

    Collective over `node`. `seals` is {name: seal} of this rank's file. Returns the seals of the files that are there
    now, a packed one on the rank that packed it, and what went wrong on that rank, else an empty string; then the files
    of the ranks are kept.
    """
    ranks = node.gather(rank)
    trouble, packed = "", {}
    if ranks is not None:
        name = node_file(min(ranks))
        try:
            packed = {name: pack([run / rank_file(each) for each in ranks], run / name)}
        except (OSError, TraceError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            trouble = f"the traces of {len(ranks)} ranks stay in files of their own, they cannot be packed: {reason}"
    return (packed if node.bcast(not trouble) else seals), trouble


def pack(paths: Iterable[Path], out: Path) -> str:
    """Write the traces in `paths` (rank files of one run) into the new file `out`, by rank, and remove them.

    Returns the hash of `out` in hex. Nothing is removed before all is written. Raises TraceError for a trace that
    cannot be read, OSError where `out` cannot be written; then there is no `out`.
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
