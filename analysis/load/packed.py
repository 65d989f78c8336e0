"""Columns one after the other in one file, as they are in memory: small tables are read so at no cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

ALIGNED = 8  # bytes at whose multiples columns begin


def packed(columns: Mapping[str, np.ndarray], dtypes: Mapping[str, str]) -> Iterator[bytes]:
    """The bytes of `columns` in the order of `dtypes`; objects are bytes, all as long as `width` says."""
    for key, dtype in dtypes.items():
        rows = columns[key]
        content = b"".join(rows) if dtype == "object" else rows.astype(dtype, copy=False).tobytes()
        yield content + bytes(-len(content) % ALIGNED)


def width(columns: Mapping[str, np.ndarray], dtypes: Mapping[str, str]) -> int:
    """Bytes of each object in `columns`; 0 where there are none. Raises ValueError where they are not equally long."""
    lengths = {len(row) for key, dtype in dtypes.items() if dtype == "object" for row in columns[key]}
    if len(lengths) > 1:
        raise ValueError(f"rows of {', '.join(map(str, sorted(lengths)))} bytes: they must be equally long")
    return lengths.pop() if lengths else 0


def size(dtypes: Mapping[str, str], rows: int, width: int = 0) -> int:
    """Bytes of so many `rows` of columns of these `dtypes`, objects having `width` bytes each."""
    return sum(_padded(rows * _item(dtype, width)) for dtype in dtypes.values())


def unpacked(
    content: bytes | memoryview, dtypes: Mapping[str, str], rows: int, width: int = 0
) -> dict[str, np.ndarray]:
    """The columns that `packed` wrote, on the memory of `content`; of objects equal ones are shared. Raises ValueError
    where it has another size."""
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
