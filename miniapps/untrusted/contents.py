"""Read an HDF5 file of unknown origin: check that objects are in the file and have the expected type, then read them.

HDF5 files can name data in other files (external storage, external and soft links, virtual datasets), run code (filters
from plugins) and claim arrays of any size without a byte of storage. Files of this suite do none of that. They hold
groups and datasets by hard links, numbers and text, compressed by deflate and shuffle at most.

This module uses the low-level interface of h5py: its objects cost a tenth of the high-level ones, and a trace has
thirty datasets. Every function raises Refused, with a message that begins with `where`.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from miniapps.untrusted.regular import Refused
from miniapps.untrusted.text import printable

MEMBERS = 1000  # of one group
ATTRIBUTES = 200  # of one object
ATTRIBUTE_MOST = 2**20  # bytes of all attributes of one object
TEXTS = 8  # in one attribute: the same long text in the file may serve for all
TEXT_FREE = 2**24  # letters in all attributes of one object
CHUNK = 8192  # bytes of a chunk that this suite packs: zeros deflate to a hundredth, with HDF5's record of the chunk
PACKED_FREE = 2**12  # a stored chunk has at most so many bytes, plus twice its unpacked bytes
FREE = 2**22  # bytes of unpacked data that any file may hold
FACTOR = 100  # and in addition so many times its own bytes; no file packed in such chunks exceeds this


class Room:
    """The number of unpacked bytes that all arrays of the file `image` may still take: at first FREE plus FACTOR times
    the size of the file."""

    def __init__(self, image: bytes, most: int | None = None):
        self.most = self.left = FREE + FACTOR * len(image) if most is None else most

    def take(self, nbytes: int, name: str, where: str) -> None:
        """Count an array. Raises Refused if it does not fit."""
        if nbytes > self.left:
            raise Refused(
                f"{where}: {name} claims {nbytes:,} bytes, and all arrays of a file of this size have at most "
                f"{self.most:,}; it is damaged, or not written by this suite: leave it out"
            )
        self.left -= nbytes

    def require(self, nbytes: int, name: str, where: str) -> None:
        """Raise Refused if an array of `nbytes` does not fit, without counting it."""
        self.take(nbytes, name, where)
        self.left += nbytes


@contextlib.contextmanager
def opened(image: bytes, where: str) -> Iterator[Any]:
    """The root group (h5py.h5g.GroupID) of the HDF5 file whose bytes are `image`.

    Errors of HDF5 inside the `with` block raise Refused, too.
    """
    import h5py

    try:
        file = h5py.h5f.open_file_image(image)
        try:
            yield h5py.h5g.open(file, b"/")
        finally:
            file.close()
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError, MemoryError) as error:
        words = printable((str(error).splitlines() or [type(error).__name__])[0])
        raise Refused(
            f"{where}: damaged, it cannot be read ({words}); copy it again from where the run wrote it, "
            "or leave this run out"
        ) from error


def names(group: Any, where: str) -> list[str]:
    """The names of the members of `group`. All are hard links to groups or datasets."""
    from h5py import h5l, h5o

    _few(group, MEMBERS, where)
    members = []
    for name in list(group):
        if group.links.get_info(name).type != h5l.TYPE_HARD:
            raise _link(name, where)
        if h5o.get_info(group, name).type not in (h5o.TYPE_GROUP, h5o.TYPE_DATASET):
            raise Refused(
                f"{where}: {_shown(name)} is neither a group nor a dataset; the file was not written by this suite: "
                "leave it out"
            )
        members.append(name.decode())
    return members


def subgroup(group: Any, name: str, count: int | None, where: str) -> Any:
    """The group `name` in `group`; it must have `count` members (None: any number up to MEMBERS)."""
    from h5py import h5g

    _hard(group, name, where)
    inner = h5g.open(group, name.encode())
    _few(inner, MEMBERS if count is None else count, f"{where}: {name}", exactly=count is not None)
    return inner


def array(
    group: Any,
    name: str,
    where: str,
    room: Room,
    dtype: Any = None,
    axes: int | None = None,
    rows: int | None = None,
) -> np.ndarray:
    """Reads the dataset `name` in `group`; it must have this `dtype` and number of `axes`, if given.

    `room`: counts its bytes. `rows`: reads only its first rows, so the rest may be damaged. Chunks are unpacked here,
    since HDF5 unpacks a chunk to any size, whatever size it states.
    """
    from h5py import h5d

    opened, kind = _plain(group, name, where)
    stored, shape = kind.dtype, opened.shape
    if (dtype is not None and stored != dtype) or (axes is not None and len(shape) != axes):
        raise Refused(
            f"{where}: {name} is {stored} with {len(shape)} axes, not {np.dtype(dtype) if dtype else 'any type'} with "
            f"{axes}; it is damaged, or not written by this suite: leave it out"
        )
    room.require(stored.itemsize * math.prod(shape), name, where)
    if rows is not None and shape and rows < shape[0]:
        shape = (rows, *shape[1:])
    room.take(stored.itemsize * math.prod(shape), name, where)
    plan = opened.get_create_plist()
    data = np.empty(shape, stored)
    if not data.size:
        return data
    if plan.get_layout() == h5d.CHUNKED:
        room.require(stored.itemsize * math.prod(plan.get_chunk()), f"a chunk of {name}", where)
    if plan.get_nfilters():
        return Chunks(opened, stored, f"{where}: {name}").fill(data, (0,) * data.ndim)
    if not opened.get_storage_size():
        raise Refused(f"{where}: {name} has shape {shape}, but no byte of it is stored; leave it out")
    _read(opened, data)
    return data


def _read(opened: Any, data: np.ndarray) -> None:
    from h5py import h5s

    if data.shape == opened.shape:
        opened.read(h5s.ALL, h5s.ALL, data)
        return
    there = opened.get_space()
    there.select_hyperslab((0,) * data.ndim, data.shape)
    opened.read(h5s.create_simple(data.shape), there, data)


class Chunks:
    """The chunks of a packed dataset (h5py.h5d.DatasetID), each unpacked to exactly its number of bytes.

    `dtype`: the stored type of its elements. `sparse`: chunks that were never written hold the fill value; otherwise
    they raise Refused. Keeps the last chunk, so that reading in small pieces is fast.
    """

    def __init__(self, opened: Any, dtype: np.dtype, where: str, sparse: bool = False):
        from h5py import h5z

        self._opened, self._dtype, self._where, self._sparse = opened, dtype, where, sparse
        self._plan = opened.get_create_plist()
        self._shape = self._plan.get_chunk()
        self._nbytes = dtype.itemsize * math.prod(self._shape)
        filters = [self._plan.get_filter(i)[0] for i in range(self._plan.get_nfilters())]
        self._filters = [(i, which == h5z.FILTER_DEFLATE) for i, which in enumerate(filters)][::-1]
        # Deflate lengthens no data much, so a stored chunk that claims more is forged; HDF5 would allocate the claim.
        self._packed = np.empty(2 * self._nbytes + PACKED_FREE, np.uint8)
        self._last: tuple[tuple[int, ...], np.ndarray] | None = None

    def fill(self, data: np.ndarray, first: tuple[int, ...]) -> np.ndarray:
        """Fill `data`, with as many axes as the dataset, with the elements from index `first` on; returns `data`."""
        starts = (
            range(at // step * step, at + n, step)
            for at, n, step in zip(first, data.shape, self._shape, strict=True)
        )
        for begin in itertools.product(*starts):
            here, there = [], []
            for at, n, origin, step in zip(first, data.shape, begin, self._shape, strict=True):
                low, high = max(at, origin), min(at + n, origin + step)
                here.append(slice(low - at, high - at))
                there.append(slice(low - origin, high - origin))
            data[tuple(here)] = self._chunk(begin)[tuple(there)]
        return data

    def _chunk(self, begin: tuple[int, ...]) -> np.ndarray:
        if self._last is None or self._last[0] != begin:
            self._last = None  # frees its memory before the next one takes some
            self._last = begin, self._read(begin)
        return self._last[1]

    def _read(self, begin: tuple[int, ...]) -> np.ndarray:
        if self._sparse and self._opened.get_chunk_info_by_coord(begin).byte_offset is None:
            value = np.zeros(1, self._dtype)
            self._plan.get_fill_value(value)
            return np.broadcast_to(value, self._shape)
        try:
            mask, packed = self._opened.read_direct_chunk(begin, out=self._packed)
        except ValueError:  # it does not fit
            raise Refused(
                f"{self._where}: damaged: a chunk of {self._nbytes:,} bytes takes over {self._packed.size:,} packed; "
                "leave it out"
            ) from None
        for i, deflated in self._filters:
            if mask & 1 << i:
                continue
            if deflated:
                packed = _inflated(packed, self._nbytes, self._where)
            elif len(packed) == self._nbytes:
                packed = np.frombuffer(packed, np.uint8).reshape(self._dtype.itemsize, -1).T.tobytes()
        if len(packed) != self._nbytes:
            raise Refused(
                f"{self._where}: damaged: a chunk does not have {self._nbytes:,} bytes; leave it out"
            )
        return np.frombuffer(packed, self._dtype).reshape(self._shape)


def _inflated(packed: bytes, most: int, where: str) -> bytes:
    stream = zlib.decompressobj()
    try:
        content = stream.decompress(packed, most)
        more = stream.decompress(stream.unconsumed_tail, 1) if not stream.eof else b""
    except zlib.error as error:
        raise Refused(f"{where}: damaged: a chunk cannot be unpacked ({error}); copy it again") from None
    if more or not stream.eof:
        raise Refused(f"{where}: damaged: a chunk unpacks to more or less than it should; leave it out")
    return content


def dataset(group: Any, name: str, where: str, opaque: bool = False) -> Any:
    """Opens the dataset `name` in `group` (h5py.h5d.DatasetID) and checks that it holds plain numbers in this file.

    Reads none of its elements. `opaque`: also accepts bytes without a type, as h5py writes bfloat16.
    """
    return _plain(group, name, where, opaque)[0]


def _plain(group: Any, name: str, where: str, opaque: bool = False) -> tuple[Any, Any]:
    """The dataset of `dataset`, and its type (h5py.h5t.TypeID)."""
    from h5py import h5d, h5t, h5z

    _hard(group, name, where)
    opened = h5d.open(group, name.encode())
    plan = opened.get_create_plist()
    if plan.get_external_count() or plan.get_layout() == h5d.VIRTUAL:
        raise Refused(
            f"{where}: the data of {name} are in another file, and this suite opens none; leave it out"
        )
    for i in range(plan.get_nfilters()):
        if plan.get_filter(i)[0] not in (h5z.FILTER_DEFLATE, h5z.FILTER_SHUFFLE):
            raise Refused(
                f"{where}: {name} needs another filter than deflate and shuffle, and this suite runs none; leave it out"
            )
    kind = opened.get_type()
    if kind.get_class() not in (h5t.INTEGER, h5t.FLOAT, *((h5t.OPAQUE,) if opaque else ())):
        raise Refused(
            f"{where}: {name} does not hold plain numbers; it is damaged, or not written by this suite: leave it out"
        )
    return opened, kind


def attributes(group: Any, where: str, heap: bool = True) -> dict[str, Any]:
    """The attributes of an object: text, booleans, numbers, or lists of these.

    `heap`: also text of variable length. HDF5 keeps it in a heap, and its search in a forged heap may never end.
    """
    from h5py import h5a, h5t

    count = h5a.get_num_attrs(group)
    if count > ATTRIBUTES:
        raise Refused(f"{where}: {count:,} attributes, and at most {ATTRIBUTES} are read; leave it out")
    values, texts, numeric = {}, TEXT_FREE, ATTRIBUTE_MOST
    for i in range(count):
        attribute = h5a.open(group, index=i)
        name = attribute.name.decode()
        kind, shape = attribute.get_type(), attribute.shape
        numbers, what = math.prod(shape) if shape is not None else 0, kind.get_class()
        if what not in (h5t.INTEGER, h5t.FLOAT, h5t.STRING, h5t.ENUM):
            raise Refused(
                f"{where}: the attribute {_shown(name)} has a type that this suite does not write; leave it out"
            )
        if not heap and what == h5t.STRING and kind.is_variable_str():
            raise Refused(
                f"{where}: the attribute {_shown(name)} is text of variable length, which this suite does not write; "
                "leave it out"
            )
        numeric -= numbers * kind.get_size()
        if numeric < 0 or (what == h5t.STRING and numbers > TEXTS):
            raise Refused(f"{where}: the attribute {_shown(name)} has {numbers:,} elements; leave it out")
        value = np.empty(shape, kind.dtype)
        attribute.read(value)
        values[name] = _decoded(value.tolist())
        texts -= _letters(values[name])
        if texts < 0:
            raise Refused(f"{where}: its attributes have more than {TEXT_FREE:,} letters; leave it out")
    return values


def _hard(group: Any, name: str, where: str) -> None:
    from h5py import h5l

    if group.links.get_info(name.encode()).type != h5l.TYPE_HARD:
        raise _link(name, where)


def _link(name: str | bytes, where: str) -> Refused:
    return Refused(
        f"{where}: {_shown(name)} is a link, which may lead to another file; the file was not written by this suite: "
        "leave it out"
    )


def _few(group: Any, count: int, where: str, exactly: bool = False) -> None:
    members = group.get_num_objs()
    if members > count or (exactly and members != count):
        wanted = f"{count}" if exactly else f"at most {count}"
        raise Refused(
            f"{where}: {members:,} members, and {wanted} are expected; the file was not written by this suite: leave "
            "it out"
        )


def _letters(value: Any) -> int:
    return (
        sum(map(_letters, value)) if isinstance(value, list) else len(value) if isinstance(value, str) else 0
    )


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    return value.decode() if isinstance(value, bytes) else value


def _shown(name: str | bytes) -> str:
    return printable(name.decode(errors="backslashreplace") if isinstance(name, bytes) else name)
