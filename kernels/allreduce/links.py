"""Links between ranks or nodes: rates between every two, rates of the ports of nodes, and the file with both.

The commands `links` and `pack` write the file; `pack` adds the packing of spanning trees for its links. Its hash and
schema are checked before anything in it is used.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from kernels.allreduce.packing import MOST_VERTICES, Packing, Vertex
from kernels.guarantees import ChoiceError

FORMAT, SCHEMA = "fpna-links", 1
MAKER = "links --write"  # the command that writes files of links
MOST_BYTES = 2**23  # of a file
DEEPEST = 16  # brackets within brackets
FASTEST = 1e15  # bytes per second

Rate = Annotated[float, Meta(ge=0, le=FASTEST)]
Seconds = Annotated[float, Meta(ge=0, le=1e6)]
Row = Annotated[tuple[Rate, ...], Meta(max_length=MOST_VERTICES)]
SecondsRow = Annotated[tuple[Seconds, ...], Meta(max_length=MOST_VERTICES)]


@dataclass(frozen=True)
class Port:
    """A limit: at most `rate` bytes per second between `vertices` and all others, in either direction."""

    vertices: Annotated[tuple[Vertex, ...], Meta(min_length=1, max_length=MOST_VERTICES)]
    rate: Annotated[float, Meta(gt=0, le=FASTEST)]


@dataclass(frozen=True)
class Links:
    """`rates[u][v]`: bytes per second from vertex u to v, 0 without a link. `latencies[u][v]`: seconds from u to v, or
    empty. `ports`. `of`: whether a vertex is a rank or a node. `hosts`: the host name of each vertex, if known.

    Raises ChoiceError if these do not fit each other, or if links leave a vertex unconnected.
    """

    rates: Annotated[tuple[Row, ...], Meta(min_length=1, max_length=MOST_VERTICES)]
    ports: Annotated[tuple[Port, ...], Meta(max_length=MOST_VERTICES)] = ()
    latencies: Annotated[tuple[SecondsRow, ...], Meta(max_length=MOST_VERTICES)] = ()
    hosts: Annotated[tuple[Annotated[str, Meta(max_length=255)], ...], Meta(max_length=MOST_VERTICES)] = ()
    of: Literal["ranks", "nodes"] = "ranks"

    def __post_init__(self):
        count = len(self.rates)
        for name, rows in (("rates", self.rates), ("latencies", self.latencies)):
            if rows and (len(rows) != count or {len(row) for row in rows} != {count}):
                raise ChoiceError(f"{name} are no table of {count} x {count} numbers, a row for each vertex")
        if self.hosts and len(self.hosts) != count:
            raise ChoiceError(f"{len(self.hosts)} hosts for {count} vertices")
        outside = [v for port in self.ports for v in port.vertices if v >= count]
        if outside:
            raise ChoiceError(f"a port names vertex {outside[0]}: vertices are 0 to {count - 1}")
        reached, todo = {0}, [0]
        while todo:
            u = todo.pop()
            new = [v for v in range(count) if v not in reached and self.capacity(u, v) > 0]
            reached.update(new)
            todo += new
        if len(reached) < count:
            apart = next(v for v in range(count) if v not in reached)
            raise ChoiceError(f"no links join vertex {apart} to vertex 0")

    @property
    def vertices(self) -> int:
        """The number of vertices."""
        return len(self.rates)

    def capacity(self, u: int, v: int) -> float:
        """Bytes per second of the slower direction: an all-reduce sends a sum one way and the total the other."""
        return 0.0 if u == v else min(self.rates[u][v], self.rates[v][u])


@dataclass(frozen=True)
class Linked:
    """The content of a file: links, their packing, the `rate` that this carries in bytes of the vector per second, and
    `bound`, the most that any packing could. Before links are packed: None and zeros."""

    links: Links
    packing: Packing | None = None
    rate: Rate = 0.0
    bound: Rate = 0.0

    def __post_init__(self):
        if self.packing is not None and self.packing.vertices != self.links.vertices:
            raise ChoiceError(
                f"its trees have {self.packing.vertices} vertices, its links {self.links.vertices}"
            )
        for tree in self.packing.trees if self.packing else ():
            if missing := [edge for edge in tree.edges if not self.links.capacity(*edge)]:
                raise ChoiceError(f"a tree has the edge {missing[0]}, where there is no link")


def write(file: str, linked: Linked) -> None:
    """Writes the file whole, or not at all. Raises ChoiceError if that fails."""
    content = {"format": FORMAT, "schema": SCHEMA} | msgspec.to_builtins(linked)
    items = (content | {"digest": digest_of(content)}).items()
    text = "{\n" + ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in items) + "\n}\n"
    draft = Path(f"{file}.partial-{os.getpid()}")
    try:
        draft.write_text(text)
        draft.replace(file)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise ChoiceError(f"{file}: cannot be written: {error.strerror}") from None


def require_writable(file: str) -> None:
    """Raises ChoiceError if `write` would fail."""
    path = Path(file)
    if path.is_dir() or not os.access(path.parent, os.W_OK | os.X_OK):
        raise ChoiceError(f"{file}: cannot be written: name a file in a directory that you may write to")


def read(file: str) -> Linked:
    """The content of a file of `links` or `pack`. Raises ChoiceError, naming the file, if it is another or changed."""
    content = read_json(file)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise _refused(file, "is no file of links")
    if content.get("schema") != SCHEMA:
        raise _refused(file, f"has schema {str(content.get('schema'))[:20]}; this version reads {SCHEMA}")
    digest = content.pop("digest", None)
    if digest != digest_of(content):
        raise _refused(file, "is damaged or was changed: its content does not match its hash")
    del content["format"], content["schema"]
    return _conform(file, content, Linked)


def read_plain(file: str) -> Links:
    """The links of a file as for `read`, or of one written by hand: an object with `rates` and maybe other fields of
    `Links`. Raises ChoiceError."""
    content = read_json(file)
    if isinstance(content, dict) and "format" in content:
        return read(file).links
    return _conform(file, content, Links)


def read_packing(
    file: str, size: int, nodes: Sequence[Hashable] | None = None, hosts: Sequence[str] | None = None
) -> Packing:
    """The packing of a file for `size` ranks; `nodes`: the node of every rank, `hosts`: its host, where known.

    A vertex is a rank if the file is of ranks, or if there are as many vertices as ranks and neither `nodes` nor
    `hosts`. Else it is a node, found by its host or, if the file names none, in the order of first ranks; without
    `nodes`, ranks are assigned to vertices evenly. Raises ChoiceError for a file that is damaged, has no packing, or is
    of other ranks or nodes.
    """
    linked = read(file)
    if linked.packing is None:
        raise ChoiceError(
            f"{file}: its links are not packed yet: `python -m kernels.allreduce pack {file} --write {file}`"
        )
    try:
        return Packing(linked.packing.trees, places(linked.links, size, nodes, hosts))
    except ChoiceError as error:
        raise ChoiceError(
            f"{file}: {error}; measure the links of these ranks by the command `links`"
        ) from None


def digest_of(content: Any) -> str:
    """The hash of JSON without white space, 32 hexadecimal digits."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=16).hexdigest()


def places(
    links: Links, size: int, nodes: Sequence[Hashable] | None = None, hosts: Sequence[str] | None = None
) -> tuple[int, ...]:
    """The vertex of each of `size` ranks, as in `read_packing`. Raises ChoiceError for links of others."""
    count = links.vertices
    if links.of == "ranks" or (nodes is None and hosts is None and count == size):
        if count != size:
            raise ChoiceError(f"it has the links of {count} ranks, and there are {size}")
        if links.hosts and hosts is not None and tuple(hosts) != links.hosts:
            raise ChoiceError(_elsewhere(links, hosts))
        return tuple(range(size))
    if links.hosts and hosts is not None:
        if set(hosts) != set(links.hosts):
            raise ChoiceError(_elsewhere(links, hosts))
        return tuple(map(links.hosts.index, hosts))
    if nodes is None:
        nodes = [rank * count // size for rank in range(size)]
    labels = list(dict.fromkeys(nodes))
    if len(labels) != count:
        raise ChoiceError(f"it has the links of {count} nodes, and the ranks are on {len(labels)}")
    return tuple(map(labels.index, nodes))


def _elsewhere(links: Links, hosts: Sequence[str]) -> str:
    def listed(names: Sequence[str]) -> str:
        names = list(dict.fromkeys(names))
        return ", ".join(names[:8]) + (f", ... ({len(names)})" if len(names) > 8 else "")

    return f"it has the links of {links.of} on {listed(links.hosts)}, and this job runs on {listed(hosts)}"


def read_json(file: str, maker: str = MAKER) -> Any:
    """The content of a regular file of JSON that is neither too large nor too deep. `maker`: the command that writes
    such files, for messages. Raises ChoiceError."""
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a fifo would wait for ever
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ChoiceError(f"{file}: cannot be read: {reason}; `{maker}` makes such a file") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _refused(file, "is no regular file", maker)
    with open(handle, "rb") as opened:
        text = opened.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise _refused(file, f"has more than {MOST_BYTES:,} bytes", maker)
    deepest = depth = 0
    for bracket in re.findall(rb"[\[\]{}]", text):  # brackets in strings count too, which errs high
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    if deepest > DEEPEST:
        raise _refused(file, f"has brackets more than {DEEPEST} deep", maker)
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, ValueError) as error:
        raise _refused(file, f"is no JSON ({error})", maker) from None


def _conform(file: str, content: Any, kind: type) -> Any:
    try:
        return msgspec.convert(content, kind)
    except (msgspec.MsgspecError, ValueError) as error:
        raise _refused(file, f"is not sound ({error})") from None


def _refused(file: str, what: str, maker: str = MAKER) -> ChoiceError:
    return ChoiceError(f"{file}: {what}; copy it again, or make it anew by `{maker}`")
