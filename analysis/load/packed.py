"""Stores the columns of small tables one after the other in a file, as in memory: reading needs no decoding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

ALIGNED = 8  # bytes at whose multiples columns begin


def packed(columns: Mapping[str, np.ndarray], dtypes: Mapping[str, str]) -> Iterator[bytes]:
    """The bytes of `columns` in the order of `dtypes`, padded to ALIGNED; objects are bytes, each of length `width`."""
    for key, dtype in dtypes.items():
        rows = columns[key]
        content = b"".join(rows) if dtype == "object" else rows.astype(dtype, copy=False).tobytes()
        yield content + bytes(-len(content) % ALIGNED)


def width(columns: Mapping[str, np.ndarray], dtypes: Mapping[str, str]) -> int:
    """The length of each object in `columns` in bytes; 0 without objects. Raises ValueError if lengths differ."""
    lengths = {len(row) for key, dtype in dtypes.items() if dtype == "object" for row in columns[key]}
    if len(lengths) > 1:
        raise ValueError(f"rows of {', '.join(map(str, sorted(lengths)))} bytes: they must be equally long")
    return lengths.pop() if lengths else 0


def size(dtypes: Mapping[str, str], rows: int, width: int = 0) -> int:
    """The bytes of `rows` rows of columns of these `dtypes`, with `width` bytes per object."""
    return sum(_padded(rows * _item(dtype, width)) for dtype in dtypes.values())


def unpacked(
    content: bytes | memoryview, dtypes: Mapping[str, str], rows: int, width: int = 0
) -> dict[str, np.ndarray]:
    """The columns that `packed` wrote, as views of `content`; equal objects are shared.

    Raises ValueError if `content` has another size."""
    if len(content) != size(dtypes, rows, width):
        raise ValueError(f"{len(content)} bytes are not {rows} rows")
    columns, begin = {}, 0
    for key, dtype in dtypes.items():
        nbytes = rows * _item(dtype, width)
        if dtype == "object":
            known: dict[bytes, bytes] = {}
            column = np.empty(rows, object)
            for i in range(rows):
                row = bytes(content[begin + i * width : begin + (i + 1) * width])
                column[i] = known.setdefault(row, row)
            columns[key] = column
        else:
            columns[key] = np.frombuffer(content, dtype, rows, begin)
        begin += _padded(nbytes)
    return columns


def _item(dtype: str, width: int) -> int:
    return width if dtype == "object" else np.dtype(dtype).itemsize


def _padded(nbytes: int) -> int:
    return nbytes + -nbytes % ALIGNED
