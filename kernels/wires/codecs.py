"""Codecs encode float32 elements in fewer bits and decode them, cell by cell. `reference` defines their bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kernels import _native
from kernels.guarantees import ChoiceError, known
from kernels.wires import reference
from kernels.wires.cells import CELL, Cells, cells_of

LOSSY = {
    "float32": "The elements themselves.",
    "float16": "Cast to 16 bits, 5 of them exponent.",
    "bfloat16": "Cast to 16 bits, 8 of them exponent.",
    "e4m3": "Cast to 8 bits, 4 of them exponent.",
    "e5m2": "Cast to 8 bits, 5 of them exponent.",
    "fp8": "As e5m2, but finite numbers that are too large become the largest finite number.",
    "int16": "Multiples of a power of two, from the largest magnitude of a cell.",
    "int8": "Multiples of a power of two, from the largest magnitude of a cell.",
    "int4": "Multiples of a bfloat16 number, from the largest magnitude of a block.",
    "e2m1": "Cast to 4 bits, 2 of them exponent, with a power of two for each block (MXFP4).",
    "e3m0": "Cast to 4 bits, 3 of them exponent, with a power of two for each block.",
    "table": "Sign, and the nearest of the percentiles of a cell's magnitudes, in n bits together.",
    "sign": "Sign alone: elements become the mean of a cell's positive or negative elements.",
}
SCALES = ("none", "tensor", "match")
TABLE_BITS = range(1, 9)
BLOCKS = {"int4": 128, "e2m1": 32, "e3m0": 32}  # elements of a block, the default
BLOCK_SIZES = (32, 64, 128, 256, 512, 1024)
FLOAT32, UINT8 = np.dtype(np.float32), np.dtype(np.uint8)


@dataclass(frozen=True)
class Codec:
    """A lossy encoding of float32 elements; `codec` makes it.

    `bits` of an element and bytes of the `head`, for a cell that is not plain; `block`: elements of a block with
    another head of `of_block` bytes, 0 without. Elements are float32 (n,), data uint8
    (nbytes(cells),), both contiguous, with any alignment. Methods raise ValueError for others.
    """

    name: str
    parameters: dict[str, str] = field(hash=False)
    text: str
    bits: int
    head: int
    block: int = 0
    of_block: int = 0

    @property
    def whole(self) -> bool:
        """Whether a cell is a whole tensor (`cells_of`)."""
        return "cell" in self.parameters

    def cells(self, n: int, tensors: Sequence[tuple[int, ...]] | None = None) -> Cells:
        """The cells of a vector of n elements with these tensors, as `cells_of`."""
        return cells_of(n, tensors, self.whole)

    def offsets(self, cells: Cells) -> np.ndarray:
        """The offset of each cell's bytes, and the end of the last: int64 (c + 1,)."""
        m = np.diff(cells.starts)
        heads = self.head + (self.of_block * -(-m // self.block) if self.block else 0)
        sizes = np.where(cells.plain, 4 * m, heads + (self.bits * m + 7) // 8)
        return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    def nbytes(self, cells: Cells) -> int:
        """Bytes of all encoded cells."""
        return int(self.offsets(cells)[-1])

    def encode(self, x: np.ndarray, cells: Cells, out: np.ndarray) -> None:
        """Writes the encoded cells of x to `out`."""
        self._require(x, out)
        _native.encode_cells(*self._choice, x, cells.starts, cells.plain, out)

    def decode(self, data: np.ndarray, cells: Cells, out: np.ndarray) -> None:
        """Writes the decoded elements of `data` to `out`."""
        self._require(out, data)
        _native.decode_cells(*self._choice, data, cells.starts, cells.plain, out)

    def decode_add(self, data: np.ndarray, cells: Cells, into: np.ndarray) -> None:
        """Adds the decoded elements of `data` to `into`, each sum rounded to float32."""
        self._require(into, data)
        _native.decode_add_cells(*self._choice, data, cells.starts, cells.plain, into)

    def over(self, x: np.ndarray, cells: Cells) -> np.ndarray:
        """The elements x after encoding and decoding, float32 (n,)."""
        data, decoded = np.empty(self.nbytes(cells), UINT8), np.empty(cells.n, FLOAT32)
        self.encode(np.ascontiguousarray(x), cells, data)
        self.decode(data, cells, decoded)
        return decoded

    @property
    def _choice(self) -> tuple[str, int, str, bool]:
        n = self.block or int(self.parameters.get("n", 0))
        return self.name, n, self.parameters.get("scale", "none"), "rotate" in self.parameters

    def _require(self, elements: np.ndarray, data: np.ndarray) -> None:
        for what, array, dtype in ("elements", elements, FLOAT32), ("data", data, UINT8):
            if array.dtype != dtype or array.ndim != 1 or not array.flags.c_contiguous:
                raise ValueError(
                    f"wire {self.text!r}: {what} of shape {array.shape} and type {array.dtype}: give a contiguous "
                    f"vector of {dtype}"
                )


def codec(text: str) -> Codec:
    """The codec of a name and parameters: `fp8`, `table:n=4`, `e4m3:scale=tensor`.

    `n`, of `table`: bits of an element, 1 to 8. `cell=tensor`, of `table`: one table for each tensor, as published
    (Oyama 2018); its owner has the whole tensor to add up. `block`, of `int4`, `e2m1`, `e3m0`: elements with one head.
    `rotate=on`, of these: multiplies each 32 elements by a Hadamard matrix, which spreads large ones over all, as
    SDP4Bit does for gradients (Jia et al. 2024, arXiv 2410.15526). `scale=tensor` (of casts) divides a cell by a power
    of two, chosen by its largest magnitude, to use the format's range. `scale=match` scales the decoded cell to keep
    its Euclidean length. Raises ChoiceError, which lists the choices, for any other text.
    """
    name, colon, rest = text.partition(":")
    known("wire", name, LOSSY)
    takes = {
        "n": [] if name != "table" else [str(n) for n in TABLE_BITS],
        "cell": [] if name != "table" else [str(CELL), "tensor"],
        "block": [str(n) for n in BLOCK_SIZES] if name in BLOCKS else [],
        "rotate": ["off", "on"] if name in BLOCKS else [],
        "scale": ["none"]
        if name == "float32"
        else [s for s in SCALES if s != "tensor" or name in reference.FORMATS],
    }
    given = {}
    for part in rest.split(",") if colon else ():
        key, _, value = part.partition("=")
        if not takes.get(key):
            listed = " and ".join(k for k, values in takes.items() if values)
            raise ChoiceError(f"wire {text!r}: {part!r} is not a parameter of {name}; it has {listed}")
        if value not in takes[key]:
            raise ChoiceError(f"wire {text!r}: {key}: choose one of {', '.join(takes[key])}, not {value!r}")
        given[key] = value
    if name == "table" and "n" not in given:
        raise ChoiceError(
            f"wire {text!r}: give the bits of an element, {TABLE_BITS[0]} to {TABLE_BITS[-1]}: table:n=4"
        )
    if given.get("cell") == "tensor" and given.get("scale") == "match":
        raise ChoiceError(f"wire {text!r}: scale=match is of cells of {CELL} elements; leave cell=tensor out")
    usual = {"scale": "none", "rotate": "off", "block": str(BLOCKS.get(name)), "cell": str(CELL)}
    shown = {key: given[key] for key in takes if key in given and given[key] != usual.get(key)}
    canonical = name + ("" if not shown else ":" + ",".join(f"{key}={value}" for key, value in shown.items()))
    bits, head = _sizes(name, int(given.get("n", 0)))
    block = int(given.get("block", BLOCKS.get(name, 0)))
    head += 4 if "scale" in shown else 0
    return Codec(name, shown, canonical, bits, head, block, reference.BLOCKED.get(name, 0))


def _sizes(name: str, n: int) -> tuple[int, int]:
    """Bits of an element, and bytes of the head without scale."""
    if name == "float32":
        return 32, 0
    if name in reference.FORMATS:
        return reference.FORMATS[name].bits, 0
    if name in reference.INTEGERS:
        return reference.INTEGERS[name] + 1, 4
    if name in reference.BLOCKED:
        return 4, 0
    return (1, 8) if name == "sign" else (n, 2 << (n - 1))
