"""Writes Chakra execution traces of MLCommons, a file per rank, for simulators of networks such as ASTRA-sim.

The nodes of a rank tile its time from its first event to its last; each depends on the node before. All-reduces in
which all ranks of the slice take part are COMM_COLL_NODE. An all-reduce that overlaps another region is no tile: it
depends on the last tile that ended before it began, and the first tile that begins after its end depends on it. An
exchange is a COMM_SEND_NODE and a COMM_RECV_NODE per partner. Traces do not record how many of the bytes each partner
got, so the bytes are divided evenly. All other time is COMP_NODE, named after the innermost region and cut where that
region changes. Other regions that overlap without nesting are left out, except in the first lane.
Format: mlcommons/chakra, schema/protobuf/et_def.proto; attributes as its feeder reads them (et_feeder_node.cpp).
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import pandas as pd

from analysis.export.matched import Numbers
from analysis.export.output import parts_of, rename
from analysis.export.slices import Slice
from analysis.load.timeline import WITH_PARTNERS

PACKAGES = ("google.protobuf",)
OPEN_WITH = "what comes before .0.et is the workload for ASTRA-sim"
VERSION = "0.0.4"
OUTSIDE = "outside regions"
ALL_REDUCE = 0  # of CollectiveCommType

NODE_TYPES = ("INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE", "COMM_SEND_NODE",
              "COMM_RECV_NODE", "COMM_COLL_NODE")  # fmt: skip
# {message: {field: (number, type)}}; `*` marks a repeated field, `|` a member of the oneof `value`.
MESSAGES = {
    "AttributeProto": {
        "name": (1, "string"), "int32_val": (7, "|int32"), "int64_val": (9, "|int64"), "bool_val": (27, "|bool"),
        "string_val": (29, "|string"),
    },
    "GlobalMetadata": {"version": (1, "string"), "attr": (2, "*AttributeProto")},
    "Node": {
        "id": (1, "uint64"), "name": (2, "string"), "type": (3, "NodeType"), "data_deps": (5, "*uint64"),
        "start_time_micros": (6, "uint64"), "duration_micros": (7, "uint64"), "attr": (10, "*AttributeProto"),
    },
}  # fmt: skip


class Piece(NamedTuple):
    """A stretch of one rank's time: `row` of the slice's events for a communication, -1 for local work."""

    name: str
    start: int
    end: int
    repeat: int
    step: int
    row: int = -1


def existing(out: Path) -> Path | None:
    """An existing path that `write` would overwrite; None if there is none."""
    return next(iter(sorted(out.parent.glob(f"{glob.escape(out.name)}.*.et"))), None)


def bytes_of(out: Path) -> float:
    """Approximate bytes per event in `out`, measured with names of usual length."""
    return 275.0


def write(part: Slice, out: Path) -> list[Path]:
    """Writes `part` into the new files `out`.RANK.et; returns their paths. On failure it removes them; raises OSError.

    The files are in a directory `out`.part until all are complete."""
    exchanges = Exchanges(part)
    written: list[Path] = []
    try:
        with parts_of(out) as place:
            for rank, own in part.ranks():
                with (place / f"{rank}.et").open("xb") as file:
                    _write_rank(part, rank, own, exchanges, file)
            for rank in part.attributes:
                written.append(out.with_name(f"{out.name}.{rank}.et"))
                rename(place / f"{rank}.et", written[-1])
    except BaseException:
        for path in written[:-1]:
            path.unlink(missing_ok=True)
        raise
    return written


def tiles(own: pd.DataFrame, communicates: np.ndarray) -> Iterator[Piece]:
    """Splits the time of one rank, from its first event to its last, into pieces without gaps between them.

    A piece is an event if `communicates` is set for it, else the time in one innermost region. `own`: the events of the
    rank, which must nest, sorted by start."""
    still_open: list[tuple[str, int, int, int]] = []  # name, end, repeat, step
    now, where = int(own["start"].iloc[0]), (0, 0)

    def work(until: int) -> Iterator[Piece]:
        nonlocal now
        if until > now:
            name, _, *place = still_open[-1] if still_open else (OUTSIDE, 0, *where)
            yield Piece(name, now, until, *place)
            now = until

    def close(until: int) -> Iterator[Piece]:
        while still_open and still_open[-1][1] <= until:
            yield from work(still_open[-1][1])
            still_open.pop()

    columns = [own[c].tolist() for c in ("name", "start", "end", "repeat", "step")]
    for row, talks, name, start, end, repeat, step in zip(
        own.index, communicates.tolist(), *columns, strict=True
    ):
        if start < now:
            continue  # inside a communication
        yield from close(start)
        where = repeat, step
        yield from work(start)
        if talks:
            yield Piece(name, start, end, repeat, step, row)
            now = end
        else:
            still_open.append((name, end, repeat, step))
    yield from close(int(own["end"].max()))


def _write_rank(part: Slice, rank: int, own: pd.DataFrame, exchanges: Exchanges, file: BinaryIO) -> None:
    kinds = classes()
    about = [("program", "string_val", part.title), ("rank", "int64_val", rank)]
    _append(file, kinds["GlobalMetadata"](version=VERSION, attr=_attributes(about)))
    if own.empty:
        return
    messages = exchanges.of(rank, own)
    collective, sizes = own["collective"].to_numpy(), own["bytes"].to_numpy()
    nested = own[own["lane"] == 0]
    talks = np.array([collective[row] >= 0 or row in messages for row in nested.index])
    on_cpu = part.attributes[rank].get("method", {}).get("run.device", "cpu") == "cpu"
    before: list[int] = []
    following = 0
    pieces = list(tiles(nested, talks))
    waiting = _beside(own, {piece.row for piece in pieces})  # the next one is last
    open_until: dict[int, int] = {}  # {id: end} of nodes that are no tiles and on which no node depends yet
    for piece in pieces:
        ended = [node for node, end in open_until.items() if end <= piece.start]
        before = [*before, *ended]
        for node in ended:
            del open_until[node]
        while waiting and waiting[-1].start < max(piece.end, piece.start + 1):
            one = waiting.pop()
            _append(file, _node(one, following, before, "COMM_COLL_NODE", _collective(int(sizes[one.row]))))
            open_until[following] = one.end
            following += 1
        if piece.row < 0:
            nodes = [("COMP_NODE", [("is_cpu_op", "bool_val", on_cpu)])]
        elif collective[piece.row] >= 0:
            nodes = [("COMM_COLL_NODE", _collective(int(sizes[piece.row])))]
        else:
            nodes = [(which, _message(*rest)) for which, *rest in messages[piece.row]]
        for which, attributes in nodes:
            _append(file, _node(piece, following, before, which, attributes))
            following += 1
        before = list(range(following - len(nodes), following))
    for one in reversed(waiting):  # these begin after the last tile
        _append(file, _node(one, following, before, "COMM_COLL_NODE", _collective(int(sizes[one.row]))))
        following += 1


def _beside(own: pd.DataFrame, tiled: set[int]) -> list[Piece]:
    """The collectives of a rank that are no tiles, since they overlap other regions; by descending start."""
    beside = own[(own["collective"] >= 0) & ~own.index.isin(tiled)]
    beside = beside.sort_values("start", ascending=False, kind="stable")
    columns = [beside[c].tolist() for c in ("name", "start", "end", "repeat", "step")]
    return [Piece(*values) for values in zip(*columns, beside.index, strict=True)]


def _node(piece: Piece, number: int, before: list[int], which: str, attributes: list[tuple]):
    return classes()["Node"](
        id=number, name=piece.name, type=NODE_TYPES.index(which), data_deps=before,
        start_time_micros=piece.start // 1000,
        # The difference of truncated times, so that the durations add up to the truncated end.
        duration_micros=piece.end // 1000 - piece.start // 1000,
        attr=_attributes([
            *attributes, ("start_ns", "int64_val", piece.start),
            ("duration_ns", "int64_val", piece.end - piece.start),
            ("repeat", "int64_val", piece.repeat), ("step", "int64_val", piece.step),
        ]),
    )  # fmt: skip


def _collective(size: int) -> list[tuple]:
    # Simulators do not treat CPU nodes as communication, so `is_cpu_op` is false.
    return [
        ("is_cpu_op", "bool_val", False), ("comm_type", "int64_val", ALL_REDUCE), ("comm_size", "int64_val", size),
    ]  # fmt: skip


def _message(source: int, target: int, tag: int, size: int) -> list[tuple]:
    return [
        ("is_cpu_op", "bool_val", False), ("comm_size", "int64_val", size), ("comm_src", "int32_val", source),
        ("comm_dst", "int32_val", target), ("comm_tag", "int32_val", tag),
    ]  # fmt: skip


class Exchanges:
    """The exchanges that every rank of `part` recorded. Ranks with equal records share them in memory."""

    def __init__(self, part: Slice):
        self._part, self._numbers = part, Numbers()
        self._known: dict[
            int, tuple[np.ndarray, np.ndarray]
        ] = {}  # of a rank: (calls, ascending; bytes of each)
        shared: dict[bytes, np.ndarray] = {}
        for rank, own in part.ranks("matched"):
            rows = own[_exchange(own)]
            calls = self._numbers.of(rows, grow=True)
            order = np.argsort(calls)
            calls, sizes = (
                shared.setdefault(column.tobytes(), column)
                for column in (calls[order], rows["bytes"].to_numpy()[order])
            )
            self._known[rank] = calls, sizes

    def of(self, rank: int, own: pd.DataFrame) -> dict[int, list[tuple]]:
        """{row of an exchange in `own`: [(COMM_SEND_NODE or COMM_RECV_NODE, source, target, tag, bytes)]}.

        `own` are the events of `rank`. The list has both nodes for each partner that is in the slice and recorded the
        same exchange."""
        rows = own[_exchange(own)]
        calls = self._numbers.of(rows, grow=False)
        messages: dict[int, list[tuple]] = {}
        for name in rows["name"].unique():
            here = np.flatnonzero(rows["name"] == name)
            sent = rows["bytes"].to_numpy()[here]
            for partner in self._partners(rank, name):
                if partner not in self._known:
                    continue
                theirs, sizes = self._known[partner]
                at = np.minimum(np.searchsorted(theirs, calls[here]), len(theirs) - 1)
                both = theirs[at] == calls[here] if len(theirs) else np.zeros(len(here), bool)
                columns = rows.index[here[both]], calls[here[both]], sent[both], sizes[at[both]]
                for row, call, size, other in zip(*(column.tolist() for column in columns), strict=True):
                    messages.setdefault(row, []).extend([
                        ("COMM_SEND_NODE", rank, partner, call % 2**31, self._share(name, rank, partner, size)),
                        ("COMM_RECV_NODE", partner, rank, call % 2**31, self._share(name, partner, rank, other)),
                    ])  # fmt: skip
        return messages

    def _partners(self, rank: int, name: str) -> list[int]:
        return self._part.attributes[rank].get("partners", {}).get(name, [])

    def _share(self, name: str, source: int, target: int, size: int) -> int:
        """The bytes that `source` sent to `target` if it divided `size` bytes evenly among its partners."""
        each = sorted(self._partners(source, name))
        return size // len(each) + (each.index(target) < size % len(each)) if target in each else 0


def _exchange(own: pd.DataFrame) -> pd.Series:
    return own["kind"].isin(WITH_PARTNERS) & ~own["cut"] & (own["lane"] == 0)


def _attributes(named: list[tuple]) -> list:
    make = classes()["AttributeProto"]
    return [make(name=name, **{which: value}) for name, which, value in named]


def _append(file: BinaryIO, message) -> None:
    """Writes the length of `message` as a varint, then `message`."""
    data = message.SerializeToString()
    size = len(data)
    while size > 127:
        file.write(bytes([size & 127 | 128]))
        size >>= 7
    file.write(bytes([size]) + data)


@cache
def classes() -> dict[str, Callable]:
    """{name of a message: its class} of MESSAGES, the needed part of et_def.proto."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package="ChakraProtoMsg", syntax="proto3")
    node_type = file.enum_type.add(name="NodeType")
    for number, name in enumerate(NODE_TYPES):
        node_type.value.add(name=name, number=number)
    for message, fields in MESSAGES.items():
        described = file.message_type.add(name=message)
        for name, (number, kind_) in fields.items():
            repeated, plain = kind_.startswith("*"), kind_.lstrip("*|")
            own = described.field.add(
                name=name, number=number, label=field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
            )
            if plain[0].isupper():
                own.type = field.TYPE_ENUM if plain == "NodeType" else field.TYPE_MESSAGE
                own.type_name = f".ChakraProtoMsg.{plain}"
            else:
                own.type = getattr(field, f"TYPE_{plain.upper()}")
            if kind_.startswith("|"):
                if not described.oneof_decl:
                    described.oneof_decl.add(name="value")
                own.oneof_index = 0
    # A separate pool: in the default pool these would clash with an installed chakra package.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ChakraProtoMsg.{name}"))
        for name in MESSAGES
    }
