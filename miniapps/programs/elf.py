"""Find the function at an address of a program or library (ELF, 64 bits), by the sizes of its symbols."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from miniapps.untrusted.regular import Refused, open_regular

MOST = 2**34  # bytes of a file, which is mapped into memory
HEADER = np.dtype(
    [
        ("magic", "S4"), ("class", "u1"), ("data", "u1"), ("rest", "V10"), ("type", "<u2"), ("machine", "<u2"),
        ("version", "<u4"), ("entry", "<u8"), ("segments", "<u8"), ("sections", "<u8"), ("flags", "<u4"),
        ("header_bytes", "<u2"), ("segment_bytes", "<u2"), ("segment_count", "<u2"), ("section_bytes", "<u2"),
        ("section_count", "<u2"), ("names", "<u2"),
    ]
)  # fmt: skip
SECTION = np.dtype(
    [
        ("name", "<u4"), ("type", "<u4"), ("flags", "<u8"), ("address", "<u8"), ("offset", "<u8"), ("bytes", "<u8"),
        ("link", "<u4"), ("info", "<u4"), ("align", "<u8"), ("entry_bytes", "<u8"),
    ]
)  # fmt: skip
SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("bytes", "<u8")]
)
SYMTAB, DYNSYM = 2, 11  # kinds of sections
FUNCTIONS = (2, 10)  # kinds of symbols: functions, and indirect functions, which are chosen at load time
LOCAL = 0
HALF = 2**63  # above all addresses and sizes
NONE = ("", 0)
NAME = 4096  # bytes of the longest name


def functions_at(file: str, addresses: list[int]) -> list[tuple[str, int]]:
    """(symbol, begin) of the function at each address of `file`; ("", 0) if unknown.

    Addresses are those in the file, before loading. A symbol without a size contains no address.
    """
    try:
        with open_regular(Path(file), MOST, links=True) as opened:
            return _functions_at(np.memmap(opened, np.uint8, "r"), addresses)
    except (OSError, Refused, ValueError):
        return [NONE] * len(addresses)


def defines(file: str, name: str) -> bool:
    """Whether a symbol table of `file` has a function with this name, that is in the file itself."""
    wanted = name.encode()
    try:
        with open_regular(Path(file), MOST, links=True) as opened:
            data = np.memmap(opened, np.uint8, "r")
            for symbols, names in _symbols(data):
                begins = int(names["offset"]) + symbols["name"].astype(np.int64)
                begins = begins[begins + len(wanted) < len(data)]
                for i, letter in enumerate(wanted + b"\0"):
                    begins = begins[data[begins + i] == letter]
                if len(begins):
                    return True
    except (OSError, Refused, ValueError):
        pass
    return False


def _symbols(data: np.ndarray) -> Iterator[tuple[np.ndarray, np.void]]:
    """(functions that are in the file, section of their names) of each symbol table. Raises ValueError."""
    head = _array(data, HEADER, 0, 1)[0]
    if (head["magic"], head["class"], head["data"]) != (b"\x7fELF", 2, 1):
        return
    sections = _array(data, SECTION, int(head["sections"]), int(head["section_count"]))
    for kind in (SYMTAB, DYNSYM):
        for section in sections[sections["type"] == kind]:
            if section["link"] >= len(sections):
                continue
            symbols = _array(data, SYMBOL, int(section["offset"]), int(section["bytes"]) // SYMBOL.itemsize)
            held = np.isin(symbols["info"] & 15, FUNCTIONS) & (symbols["section"] != 0)
            held &= (symbols["bytes"] > 0) & (symbols["value"] < HALF) & (symbols["bytes"] < HALF)
            yield symbols[held], sections[section["link"]]


def _functions_at(data: np.ndarray, addresses: list[int]) -> list[tuple[str, int]]:
    found = [NONE] * len(addresses)
    for symbols, names in _symbols(data):
        symbols = np.sort(symbols, order="value")
        ends = np.array(symbols["value"]) + symbols["bytes"]
        furthest = np.maximum.accumulate(ends)
        for i, address in enumerate(addresses):
            if found[i] == NONE:
                last = int(np.searchsorted(symbols["value"], np.uint64(address), "right"))
                first = last
                while first and furthest[first - 1] > address:
                    first -= 1
                found[i] = _name(data, symbols[first:last][ends[first:last] > address], names)
    return found


def _name(data: np.ndarray, symbols: np.ndarray, names: np.void) -> tuple[str, int]:
    """(symbol, begin) of the smallest function among `symbols`; of several, a global one, then the first by name: the
    same in every run."""
    candidates = []
    for symbol in symbols:
        begin = int(names["offset"]) + int(symbol["name"])
        text = data[begin : begin + NAME].tobytes().partition(b"\0")[0].decode(errors="replace")
        candidates.append((int(symbol["bytes"]), symbol["info"] >> 4 == LOCAL, text, int(symbol["value"])))
    return min(candidates, default=(0, False, *NONE))[2:]


def _array(data: np.ndarray, dtype: np.dtype, offset: int, count: int) -> np.ndarray:
    """`count` entries from `offset` on. Raises ValueError if the file ends before."""
    if offset + count * dtype.itemsize > len(data):
        raise ValueError("the file ends before its tables")
    return data[offset : offset + count * dtype.itemsize].view(dtype)
