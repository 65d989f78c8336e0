"""Trace files that were made to do harm: with h5py, and, where that is asked for, with hashes and a seal that fit."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np

from miniapps.trace.commits import Commit, attributes_digest, parse, table_digest
from miniapps.trace.schema import GROWING, NODE_FORMAT, TABLES
from miniapps.untrusted import sealed
from tests.fuzz import mutate

GROUPS = (*GROWING, "tail", "tracer")
# Beside those that are there.
ATTRIBUTES = (
    "promises",
    "partners",
    "messages",
    "options",
    "regions",
    "reductions",
    "clock_offset_ns",
    "clock_drift",
    "x",
)
NUMBERS = (0, 1, -1, 2, 7, 10**6, 2**31 - 1, -(2**31), 2**62, 2**63 - 1, -(2**63))
VOUCHED_MOST = 2**28  # bytes of a column that are read here to be hashed
MUCH = 3 * 10**7  # elements of a dataset that is all zeros: 240 MB from a few kB


def craft(rng: random.Random, path: Path, outside: Path) -> str:
    """Change the trace `path` as no run of ours would; says how."""
    return _crafted(
        rng, path, outside, CHANGES, rng.choice(("loose", "resealed", "forged", "forged", "forged"))
    )


def craft_any(rng: random.Random, path: Path, outside: Path) -> str:
    """The same for any sealed HDF5 file."""
    return _crafted(rng, path, outside, OF_ANY_FILE, rng.choice(("loose", "resealed", "resealed")))


def _crafted(rng: random.Random, path: Path, outside: Path, changes: tuple[Callable, ...], how: str) -> str:
    done = []
    if how == "resealed" and rng.random() < 0.5:  # HDF5 sees damage that only its own checks can find
        image = path.read_bytes()
        inner = rng.choice(mutate.BYTES)(rng, image[sealed.HEADER :])
        path.write_bytes(image[: sealed.HEADER] + inner)
        done.append("bytes")
    else:
        with h5py.File(path, "r+") as file:
            for _ in range(rng.choice((1, 1, 1, 2, 3))):
                change = rng.choice(changes)
                try:
                    done.append(f"{change.__name__} {change(rng, file, outside) or ''}".strip())
                except (OSError, LookupError, ValueError, TypeError, RuntimeError, AttributeError) as error:
                    done.append(f"{change.__name__} is not possible: {type(error).__name__}")
    if how == "forged":
        done.append(_vouched(path))
    if how != "loose":
        _reseal(rng, path, opened=rng.random() < 0.2)
    return f"{path.name}, {how}: {'; '.join(done)}"


def _vouched(path: Path) -> str:
    """Give the file of a rank a commit that fits its attributes and rows, as far as there is one for them."""
    try:
        with h5py.File(path, "r+") as file:
            if file.attrs.get("format") == NODE_FORMAT:
                return "of a node"
            old = parse(file["committed"][...])
            attributes = {key: _plain(value) for key, value in file.attrs.items()}
            rows, tails, digests = {}, {}, {}
            for table, columns in GROWING.items():
                tails[table] = old.tail_rows[table]
                parts = {}
                for column in columns:
                    if file[table][column].nbytes > VOUCHED_MOST:
                        return "too large to be vouched for"
                    main = file[table][column][...]
                    parts[column] = np.concatenate([main, file["tail"][table][column][: tails[table]]])
                    rows[table] = len(main)
                digests[table] = table_digest(table, parts)
            digest = attributes_digest(attributes)
            whole = {table: rows[table] + tails[table] for table in rows}
            file["committed"][...] = Commit(rows, tails, digests, (digest, digest), whole, old.at).record()
        return "vouched for"
    except (OSError, KeyError, ValueError, TypeError, RuntimeError, AttributeError, MemoryError) as error:
        return f"not vouched for: {type(error).__name__}"


def _reseal(rng: random.Random, path: Path, opened: bool) -> None:
    """A seal that fits the bytes, or the header of a file that is still open."""
    with path.open("r+b") as file:
        file.seek(0, 2)
        if file.tell() < sealed.HEADER:
            return
        if opened:
            file.seek(0)
            file.write(sealed.header())
        else:
            sealed.seal(file)


def _plain(value):
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def _dataset(rng: random.Random, file) -> str:
    """The path of a dataset that traces have."""
    paths: list[str] = []
    file.visititems(lambda name, place: paths.append(name) if isinstance(place, h5py.Dataset) else None)
    return rng.choice(paths)


def attribute(rng, file, outside):
    """One attribute is of another type, size or value."""
    place = file[rng.choice(("/", "/", "/", "tracer", "tail"))]
    key = rng.choice((*ATTRIBUTES, *place.attrs))
    how = rng.randrange(6)
    if how == 0:
        del place.attrs[key]
    elif how == 1:
        place.attrs[key] = rng.choice((np.arange(10), np.zeros((3, 4)), np.array([b"x", b"y"]), np.bool_(True), 1.5,
                                       float("nan"), np.float16(1), np.longdouble(1), 1j, b"\xff\xfe", "x" * 60_000,
                                       np.void(b"abc"), h5py.Empty("f8"), file.ref))  # fmt: skip
    elif how == 2:
        place.attrs[key] = rng.choice(NUMBERS)
    elif how == 3:
        place.attrs[key] = rng.choice(("", "\x1b[31m=1\r\n", "none", "layout", "exact", "[" * 500, "{}", "[]", "null",
                                       "NaN", '{"a": NaN}', '{"a": 1e999}', '"\\ud800"', '{"\\ud800": 1}', "9" * 5000)
                                      )  # fmt: skip
    elif how == 4 and isinstance(place.attrs.get(key), str) and place.attrs[key].startswith("{"):
        place.attrs[key] = json.dumps(mutate.value(rng, json.loads(place.attrs[key])))
    else:
        place.attrs[key] = mutate.lines(rng, str(place.attrs.get(key, "x")))[:60_000].replace("\0", "")
    return key


def many_attributes(rng, file, outside):
    """More attributes than any object of ours has."""
    for i in range(500):
        file.attrs[f"x{i}"] = i


def another_type(rng, file, outside):
    """A dataset holds elements of another type."""
    name = _dataset(rng, file)
    shape = file[name].shape
    del file[name]
    dtype = rng.choice(("<i1", "<i8", "<f4", "<f8", ">i4", ">f8", "<u2", "S10", "V8", "?", "<c16", "<f2",
                        np.dtype([("a", "<i4"), ("b", "<f8")]), h5py.string_dtype(), h5py.vlen_dtype("<i4"),
                        h5py.enum_dtype({"a": 1}), h5py.ref_dtype, np.dtype(("<i4", (3,)))))  # fmt: skip
    file.create_dataset(name, shape=shape, dtype=dtype)
    return f"{name} {dtype}"


def another_shape(rng, file, outside):
    """A dataset has other axes, or none."""
    name = _dataset(rng, file)
    dtype, rows = file[name].dtype, len(file[name])
    del file[name]
    shape = rng.choice(
        ((), (0,), (rows + 1,), (max(0, rows - 1),), (rows, 1), (rows, 2, 2), (0, 5), (1,) * 32)
    )
    file.create_dataset(name, shape=shape, dtype=dtype)
    return f"{name} {shape}"


def huge(rng, file, outside):
    """A dataset claims more than fits anywhere, and has no bytes."""
    name = _dataset(rng, file)
    dtype = file[name].dtype
    more = file[name].shape[1:]
    del file[name]
    rows = rng.choice((10**9, 10**12, 10**15, 2**62))
    file.create_dataset(name, shape=(rows, *more), dtype=dtype, chunks=(1024, *more), compression="gzip")
    return f"{name} {rows}"


def zeros(rng, file, outside):
    """Many zeros, which compress a thousandfold."""
    name = _dataset(rng, file)
    dtype = file[name].dtype
    more = file[name].shape[1:]
    del file[name]
    rows = rng.choice((10**5, 10**6, MUCH)) // max(1, int(np.prod(more)))
    data = np.zeros((rows, *more), dtype)
    file.create_dataset(
        name, data=data, chunks=(min(rows, 2**20), *more), compression="gzip", compression_opts=1
    )
    return f"{name} {rows}"


def long_table(rng, file, outside):
    """All columns of a table are long, and all zeros."""
    table = rng.choice([name for name in TABLES if name != "order"])
    rows = rng.choice((10**5, 10**6))
    for column, dtype in TABLES[table].items():
        del file[table][column]
        file[table].create_dataset(column, data=np.zeros(rows, np.dtype(dtype).newbyteorder("<")), chunks=(2**16,),
                                   compression="gzip", compression_opts=1)  # fmt: skip
    return f"{table} {rows}"


def external_storage(rng, file, outside):
    """The bytes of a dataset are in another file."""
    name = _dataset(rng, file)
    dtype = file[name].dtype
    del file[name]
    target = rng.choice((outside / "rank-00000.h5", "/etc/passwd", "/dev/zero", "/dev/stdin"))
    file.create_dataset(name, shape=(8,), dtype=dtype, external=[(str(target), 0, 8 * dtype.itemsize)])
    return name


def link(rng, file, outside):
    """A dataset or a group is a link: into another file, to nothing, in a circle."""
    name = rng.choice((_dataset(rng, file), rng.choice(GROUPS)))
    del file[name]
    file[name] = rng.choice((h5py.ExternalLink(str(outside / "rank-00000.h5"), name), h5py.SoftLink("/events/start"),
                             h5py.SoftLink(f"/{name}"), h5py.SoftLink("/nowhere"), file["/"]))  # fmt: skip
    return name


def virtual(rng, file, outside):
    """A dataset is made of those of another file."""
    name = _dataset(rng, file)
    dtype = file[name].dtype
    del file[name]
    layout = h5py.VirtualLayout(shape=(8,), dtype=dtype)
    layout[:] = h5py.VirtualSource(str(outside / "rank-00000.h5"), name, shape=(8,))
    file.create_virtual_dataset(name, layout)
    return name


def filtered(rng, file, outside):
    """A dataset needs a filter other than ours, perhaps one that does not exist."""
    name = _dataset(rng, file)
    dtype, shape = file[name].dtype, file[name].shape
    del file[name]
    plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plan.set_chunk(tuple(max(1, n) for n in shape) or (1,))
    code = rng.choice(
        (h5py.h5z.FILTER_FLETCHER32, h5py.h5z.FILTER_LZF, h5py.h5z.FILTER_SCALEOFFSET, 32015, 511)
    )
    if code in (h5py.h5z.FILTER_FLETCHER32,):
        plan.set_fletcher32()
    elif code == h5py.h5z.FILTER_SCALEOFFSET:
        plan.set_scaleoffset(h5py.h5z.SO_INT, 2)
    else:
        plan.set_filter(code, h5py.h5z.FLAG_OPTIONAL)
    space = h5py.h5s.create_simple(shape or (1,))
    h5py.h5d.create(file.id, name.encode(), h5py.h5t.py_create(dtype), space, plan)
    return f"{name} {code}"


def missing(rng, file, outside):
    """A dataset or a group is not there."""
    name = rng.choice((_dataset(rng, file), rng.choice(GROUPS), "committed"))
    del file[name]
    return name


def extra(rng, file, outside):
    """Groups and datasets that no trace has: many, deep, linked twice, or of odd names."""
    how = rng.choice(("many", "deep", "circle", "twice", "name", "type"))
    if how == "many":
        for i in range(3000):
            file.create_group(f"x{i}")
    elif how == "deep":
        file.create_group("/".join("x" * 300))
    elif how == "circle":
        file["events/again"] = file["/"]
    elif how == "twice":
        file["tail/again"] = file[_dataset(rng, file)]
    elif how == "type":
        file["x"] = np.dtype("<i4")
    else:
        file.create_group(rng.choice(("\x1b[31m", "..", "a" * 5000, "\u202e"))).attrs["x"] = 1
    return how


def size(rng, file, outside):
    """The run claims to be of many ranks, or of none."""
    file.attrs["size"] = rng.choice((0, -1, 2, 1000, 10**6, 2**24, 10**9, 2**40))
    if rng.random() < 0.3:
        file.attrs["rank"] = rng.choice((1, 5, 999, 10**9, -1))


def names(rng, file, outside):
    """The table of names is tampered with."""
    place = file["names/text"]
    text = place[...].tobytes()
    if file["tail/names/text"].size and not len(text):
        place = file["tail/names/text"]
        text = place[...].tobytes().rstrip(b"\0")
    lines = rng.choice((
        b"", b"\n" * 1000, b"[]\n", b'"\\ud800"\n' * 9, b'"\xff"\n', b'"a"\n' * 9, b"1\n2\n3\n", b'"' + b"a" * 10**6,
        b"[" * 3000 + b"\n", b'"\\u001b[31m"\n"=1"\n"\\r\\n"\n"\\u202e"\n' * 3, text + text, text[: len(text) // 2],
    ))  # fmt: skip
    data = np.frombuffer(lines, np.uint8)
    del file["names/text"]
    file["names"].create_dataset("text", data=data, maxshape=(None,), chunks=(4096,))
    return ascii(lines[:20])


def numbers(rng, file, outside):
    """Rows hold numbers that no run records."""
    table = rng.choice(list(TABLES))
    column = rng.choice(list(TABLES[table]))
    place = file[table][column]
    if not len(place):
        return "nothing"
    rows = place[...]
    info = np.iinfo(rows.dtype) if rows.dtype.kind in "iu" else None
    count = rng.choice((1, 1, len(rows)))
    for _ in range(count):
        i = rng.randrange(len(rows))
        if info is None:
            rows[i] = rng.choice((float("nan"), float("inf"), -float("inf"), 1e308, 5e-324, -0.0, 1e300))
        else:
            rows[i] = min(info.max, max(info.min, rng.choice((*NUMBERS, 3, 100, 2**40))))
    place[...] = rows
    return f"{table}/{column} x {count}"


def committed(rng, file, outside):
    """The record of what is committed is another."""
    rows = file["committed"][...]
    rows[rng.randrange(len(rows)), rng.randrange(5)] = rng.choice((0, 1, 10**6, 2**31, 2**63, 2**64 - 1))
    file["committed"][...] = rows


def shuffled(rng, file, outside):
    """The rows of a table are in another order."""
    table = rng.choice(list(TABLES))
    order = None
    for column in TABLES[table]:
        rows = file[table][column][...]
        if order is None:
            order = np.array(rng.sample(range(len(rows)), len(rows)), int)
        file[table][column][...] = rows[order]
    return table


def name_lengths(rng, file, outside):
    """Every byte of a string is where HDF5 does not expect one: a zero in the middle, or no end."""
    space = h5py.h5s.create_simple((1,))
    kind = h5py.h5t.C_S1.copy()
    kind.set_size(rng.choice((1, 5, 2**16)))
    if "app" in file.attrs:
        del file.attrs["app"]
    item = h5py.h5a.create(file["/"].id, b"app", kind, space)
    item.write(np.array([struct.pack("5s", b"a\0b\xff\xff")], dtype=f"S{kind.get_size()}"))


OF_ANY_FILE: tuple[Callable, ...] = (
    attribute, attribute, attribute, many_attributes, another_type, another_shape, huge, zeros, external_storage, link,
    virtual, filtered, missing, extra, name_lengths,
)  # fmt: skip
CHANGES = (*OF_ANY_FILE, long_table, size, names, numbers, numbers, numbers, numbers, committed, shuffled)
