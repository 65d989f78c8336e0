"""What is read of an HDF5 file: objects that were checked first, that lie in the file and are of the expected type.

HDF5 can name data in other files (external storage, external and soft links, virtual datasets), run code of its own
choice (filters from plugins) and claim arrays of any size without a byte of storage. None of our files does any of
that: they hold groups and datasets by hard links, numbers and text, compressed by deflate and shuffle at the most.

The low-level interface of h5py is used because its objects cost a tenth of those of the high-level one; a trace has
thirty datasets. Every function raises Refused, whose message begins with `where`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from miniapps.received.regular import Refused
from miniapps.received.text import printable

MEMBERS = 1000  # of one group
ATTRIBUTES = 200  # of one object
ATTRIBUTE_MOST = 2**20  # bytes of one attribute
TEXTS = 100  # in one attribute: all may be one long text in the file
FREE = 2**31  # bytes of data that any file may hold unpacked, and beside them
FACTOR = 16  # times its own bytes: repeated rows compress a thousandfold, most data not at all


@contextlib.contextmanager
def opened(image: bytes, where: str) -> Iterator[Any]:
    """The root group (h5py.h5g.GroupID) of the HDF5 file whose bytes are `image`.

    Whatever HDF5 cannot read inside the `with` block raises Refused, too.
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


def most_bytes(image: bytes) -> int:
    """How many bytes the arrays of a file may hold together, unpacked: bounds memory, whatever the file claims."""
    return FREE + FACTOR * len(image)


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
                f"{where}: {_shown(name)} is neither a group nor a dataset; it is none of ours: leave it out"
            )
        members.append(name.decode())
    return members


def subgroup(group: Any, name: str, count: int | None, where: str) -> Any:
    """The group `name` in `group`, which has `count` members (None: any number up to MEMBERS)."""
    from h5py import h5g

    _hard(group, name, where)
    inner = h5g.open(group, name.encode())
    _few(inner, MEMBERS if count is None else count, f"{where}: {name}", exactly=count is not None)
    return inner


def array(
    group: Any,
    name: str,
    where: str,
    most: int,
    dtype: Any = None,
    axes: int | None = None,
    rows: int | None = None,
) -> np.ndarray:
    """The dataset `name` in `group`, of at most `most` bytes; of `dtype` and with as many `axes` where given.

    All of it, or its first `rows`: then nothing behind them is read, so that it may be damaged.
    """
    from h5py import h5s

    opened, kind = _plain(group, name, where)
    stored, shape = kind.dtype, opened.shape
    if (dtype is not None and stored != dtype) or (axes is not None and len(shape) != axes):
        raise Refused(
            f"{where}: {name} is {stored} with {len(shape)} axes, not {np.dtype(dtype) if dtype else 'any type'} with "
            f"{axes}; it is none of ours, or damaged: leave it out"
        )
    nbytes = stored.itemsize * math.prod(shape)
    if nbytes > most:
        raise Refused(
            f"{where}: {name} claims {nbytes:,} bytes, and at most {most:,} are read from a file of this size; it is "
            "none of ours, or damaged: leave it out"
        )
    if rows is None or rows >= shape[0]:
        data = np.empty(shape, stored)
        if data.size:
            opened.read(h5s.ALL, h5s.ALL, data)
        return data
    data = np.empty((rows, *shape[1:]), stored)
    if data.size:
        there = opened.get_space()
        there.select_hyperslab((0,) * len(shape), data.shape)
        opened.read(h5s.create_simple(data.shape), there, data)
    return data


def dataset(group: Any, name: str, where: str, opaque: bool = False) -> Any:
    """The dataset `name` in `group` (h5py.h5d.DatasetID): plain numbers that lie in the file, nothing of it read yet.

    `opaque`: also bytes without a type, as h5py writes bfloat16.
    """
    return _plain(group, name, where, opaque)[0]


def _plain(group: Any, name: str, where: str, opaque: bool = False) -> tuple[Any, Any]:
    """The dataset of `dataset`, and its type (h5py.h5t.TypeID)."""
    from h5py import h5d, h5t, h5z

    _hard(group, name, where)
    opened = h5d.open(group, name.encode())
    plan = opened.get_create_plist()
    if plan.get_external_count() or plan.get_layout() == h5d.VIRTUAL:
        raise Refused(f"{where}: the data of {name} are in another file, which is not opened; leave it out")
    for i in range(plan.get_nfilters()):
        if plan.get_filter(i)[0] not in (h5z.FILTER_DEFLATE, h5z.FILTER_SHUFFLE):
            raise Refused(
                f"{where}: {name} needs a filter other than deflate and shuffle, which is not run; leave it out"
            )
    kind = opened.get_type()
    if kind.get_class() not in (h5t.INTEGER, h5t.FLOAT, *((h5t.OPAQUE,) if opaque else ())):
        raise Refused(
            f"{where}: {name} does not hold plain numbers; it is none of ours, or damaged: leave it out"
        )
    return opened, kind


def attributes(group: Any, where: str, heap: bool = True) -> dict[str, Any]:
    """The attributes of an object: text, booleans, numbers, or lists of these.

    `heap`: also text of variable length, which HDF5 keeps in a heap; it can search a forged one without end.
    """
    from h5py import h5a, h5t

    count = h5a.get_num_attrs(group)
    if count > ATTRIBUTES:
        raise Refused(f"{where}: {count:,} attributes, and at most {ATTRIBUTES} are read; leave it out")
    values = {}
    for i in range(count):
        attribute = h5a.open(group, index=i)
        name = attribute.name.decode()
        kind, shape = attribute.get_type(), attribute.shape
        numbers, what = math.prod(shape) if shape is not None else 0, kind.get_class()
        if what not in (h5t.INTEGER, h5t.FLOAT, h5t.STRING, h5t.ENUM):
            raise Refused(
                f"{where}: the attribute {_shown(name)} is of a type that none of ours has; leave it out"
            )
        if not heap and what == h5t.STRING and kind.is_variable_str():
            raise Refused(
                f"{where}: the attribute {_shown(name)} is text of variable length, which is not read; it is none of "
                "ours: leave it out"
            )
        if numbers * kind.get_size() > ATTRIBUTE_MOST or (what == h5t.STRING and numbers > TEXTS):
            raise Refused(f"{where}: the attribute {_shown(name)} has {numbers:,} elements; leave it out")
        value = np.empty(shape, kind.dtype)
        attribute.read(value)
        values[name] = _decoded(value.tolist())
    return values


def _hard(group: Any, name: str, where: str) -> None:
    from h5py import h5l

    if group.links.get_info(name.encode()).type != h5l.TYPE_HARD:
        raise _link(name, where)


def _link(name: str | bytes, where: str) -> Refused:
    return Refused(
        f"{where}: {_shown(name)} is a link to another place, which may be another file, and is not followed; it is "
        "none of ours: leave it out"
    )


def _few(group: Any, count: int, where: str, exactly: bool = False) -> None:
    members = group.get_num_objs()
    if members > count or (exactly and members != count):
        wanted = f"{count}" if exactly else f"at most {count}"
        raise Refused(
            f"{where}: {members:,} members, and {wanted} are expected; it is none of ours: leave it out"
        )


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    return value.decode() if isinstance(value, bytes) else value


def _shown(name: str | bytes) -> str:
    return printable(name.decode(errors="backslashreplace") if isinstance(name, bytes) else name)
