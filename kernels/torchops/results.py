"""Takes the result of a call apart: every number in it by name, and the parts that cannot be compared.

{"y": tensor, "parts": [1.5, None]}      gives result['y'] and result['parts'][0]; None has no number
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any

import ml_dtypes
import numpy as np
import torch

DEEPEST = 32  # levels of nested containers, at most
PLAIN = (bool, int, float, complex, str, bytes, np.generic, np.ndarray, torch.Tensor)
PADDED = {
    80: 10
}  # {bits: significant bytes} of x86's long double; the other bytes of an element are arbitrary
# The arrays that a sparse tensor stores, by layout.
STORED = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}


@dataclass(frozen=True)
class Result:
    """`leaves`: {name: copied array}; `skipped`: {name: why this part is not compared}."""

    leaves: dict[str, np.ndarray]
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def elements(self) -> int:
        """The number of compared numbers."""
        return sum(array.size for array in self.leaves.values())

    def digest(self) -> str:
        """32 hex digits, equal for two results if and only if their names, types, shapes and bits are equal."""
        hashed = hashlib.blake2b(digest_size=16)
        for name, array in sorted(self.leaves.items()):
            hashed.update(f"{name} {array.dtype.name}{array.shape}".encode(errors="backslashreplace"))
            hashed.update(significant(array).tobytes())
        return hashed.hexdigest()

    def row(self, place: int, count: int) -> Result:
        """The sample at `place` of every leaf whose first axis has `count` samples; skips the others. Raises ValueError
        if no leaf has."""
        rows = {n: np.array(x[place]) for n, x in self.leaves.items() if x.ndim and len(x) == count}
        if not rows:
            shapes = ", ".join(f"{n} has shape {x.shape}" for n, x in self.leaves.items())
            raise ValueError(
                f"no result has a first axis of {count} samples: {shapes or 'there is no array'}"
            )
        why = {n: f"its first axis does not count {count} samples" for n in self.leaves if n not in rows}
        return Result(rows, self.skipped | why)


def taken_apart(given: Any, name: str = "result") -> Result:
    """The Result of a call that returned `given`."""
    leaves: dict[str, np.ndarray] = {}
    skipped: dict[str, str] = {}
    for place, leaf in walk(given, name):
        if leaf is None:
            continue
        try:
            leaves |= dict(_arrays(place, leaf))
        except Exception as error:  # a type of another library
            skipped[place] = (
                f"{type(leaf).__name__}: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
            )
    return Result(leaves, skipped)


def walk(given: Any, name: str, within: tuple[int, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yields (name, leaf) for all leaves of nested tuples, lists, mappings and dataclasses. A leaf is None, one of
    PLAIN, an array of another library, or any other object."""
    if id(given) in within or len(within) > DEEPEST:
        yield name, Unknown("it contains itself, or is nested too deep")
        return
    within = (*within, id(given))
    if given is None or isinstance(given, PLAIN):
        yield name, given
    elif isinstance(given, Mapping):
        for key in given:
            yield from walk(given[key], f"{name}[{key!r}]"[:200], within)
    elif isinstance(given, tuple) and hasattr(given, "_fields"):
        for key in given._fields:
            yield from walk(getattr(given, key), f"{name}.{key}", within)
    elif isinstance(given, tuple | list):
        for number, each in enumerate(given):
            yield from walk(each, f"{name}[{number}]", within)
    elif is_dataclass(given) and not isinstance(given, type):
        for each in fields(given):
            yield from walk(getattr(given, each.name, None), f"{name}.{each.name}", within)
    else:
        yield name, given


@dataclass(frozen=True)
class Unknown:
    """Replaces an object that contains itself or is nested too deep."""

    why: str


def _arrays(name: str, leaf: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Yields (name, array) of a leaf, for a sparse tensor each of its stored arrays. Raises TypeError, or an error of
    another library, for a leaf without numbers."""
    if isinstance(leaf, torch.Tensor):
        yield from _of_tensor(name, leaf)
    elif isinstance(leaf, str | bytes):
        text = leaf.encode("utf-8", "surrogatepass") if isinstance(leaf, str) else leaf
        yield name, np.frombuffer(text, np.uint8).copy()
    elif isinstance(leaf, Enum):
        yield from _arrays(name, leaf.value)
    elif isinstance(leaf, bool):
        yield name, np.array(leaf)
    elif isinstance(leaf, int):
        wide = not -(2**63) <= leaf < 2**63
        yield name, np.frombuffer(str(leaf).encode(), np.uint8).copy() if wide else np.array(leaf, np.int64)
    elif isinstance(leaf, Unknown):
        raise TypeError(leaf.why)
    elif isinstance(leaf, float | complex | np.generic | np.ndarray) or hasattr(type(leaf), "__array__"):
        yield from _of_array(name, np.array(leaf, order="C"))
    else:
        raise TypeError("not an array, number, text or container of them")


def _of_array(name: str, array: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    if array.dtype.hasobject:
        if array.dtype.names or array.ndim == 0:
            raise TypeError(f"an array of {array.dtype}")
        for place, each in np.ndenumerate(array):
            where = name + "".join(f"[{n}]" for n in place)
            yield from (
                pair for inner, leaf in walk(each, where) if leaf is not None for pair in _arrays(inner, leaf)
            )
    elif array.dtype.names:
        for key in array.dtype.names:
            yield from _of_array(f"{name}[{key!r}]", np.array(array[key], order="C"))
    else:
        yield name, array


def _of_tensor(name: str, tensor: torch.Tensor) -> Iterator[tuple[str, np.ndarray]]:
    tensor = tensor.detach()
    if hasattr(tensor, "to_local"):  # a DTensor: the part that this process has
        tensor = tensor.to_local()
    if tensor.layout in STORED:
        for part in STORED[tensor.layout]:
            yield f"{name}.{part.lstrip('_')}", tensor_array(getattr(tensor, part)())
    elif getattr(tensor, "is_nested", False):
        for number, each in enumerate(tensor.unbind()):
            yield f"{name}[{number}]", tensor_array(each)
    elif tensor.is_quantized:
        yield f"{name}.int_repr", tensor_array(tensor.int_repr())
    elif tensor.is_meta:
        raise TypeError("a tensor without numbers, of the device meta")
    else:
        yield name, tensor_array(tensor)


def tensor_array(tensor: torch.Tensor) -> np.ndarray:
    """A copy of a dense tensor as an array of the same shape and type, which may be one of ml_dtypes."""
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if tensor.dtype == torch.complex32:
        tensor = torch.view_as_real(tensor)
    name = str(tensor.dtype).removeprefix("torch.")
    if tensor.dtype == torch.bfloat16 or name.startswith("float8"):
        words = tensor.contiguous().view(torch.uint8 if tensor.dtype.itemsize == 1 else torch.uint16).numpy()
        return words.view(getattr(ml_dtypes, name)).copy()
    return np.array(tensor.numpy(), order="C", copy=True)


def significant(array: np.ndarray) -> np.ndarray:
    """The significant bytes of `array`, without padding: uint8 (elements, bytes of each)."""
    plain: np.ndarray = np.array(array, order="C").reshape(-1)
    if plain.dtype.kind in "SU":
        return plain.view(np.uint8).reshape(plain.size, -1)
    longs = plain.dtype in (np.dtype(np.longdouble), np.dtype(np.clongdouble)) and plain.dtype != np.dtype(
        float
    )
    if longs and plain.dtype.kind == "c":
        plain = plain.view(np.longdouble)
    octets = plain.view(np.uint8).reshape(plain.size, -1) if plain.size else np.empty((0, 1), np.uint8)
    if longs and np.finfo(np.longdouble).nmant == 63:
        octets = octets[:, : PADDED[80]]
    return octets.reshape(array.size, -1) if array.size else octets
