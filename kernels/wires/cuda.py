"""Codecs on a GPU, in CUDA C++ compiled for each codec (kernels/cuda/wires.cu), with the bits of `reference`.

Calls return when their work is queued on the current stream.
"""

from __future__ import annotations

from functools import partial

from kernels.cuda import kernel
from kernels.wires.cells import Cells
from kernels.wires.codecs import Codec
from kernels.wires.reference import BLOCKED, FORMATS, INTEGERS

THREADS = 256  # of a block; a block takes a cell
TYPES = {name: f"Cast<As{name.capitalize()}>" for name in FORMATS}
TYPES |= {name: f"Whole<{bits}>" for name, bits in INTEGERS.items()} | {"sign": "Sign"}


class Planned:
    """A codec with the cells of one vector on the device; see `Codec`.

    Elements are float32 (n,), data uint8 (nbytes,), both contiguous arrays of CuPy. Raises ValueError for others.
    """

    def __init__(self, codec: Codec, cells: Cells):
        import cupy

        offsets = codec.offsets(cells)
        self.codec, self.n, self.nbytes, self._count = codec, cells.n, int(offsets[-1]), len(cells)
        plain = cells.plain | (codec.name == "float32")
        self._cells = tuple(cupy.asarray(a) for a in (cells.starts, plain.view("u1"), offsets))
        self._kernel = partial(kernel, "wires", **macros(codec))
        self._array = cupy.ndarray

    def encode(self, x, out) -> None:
        """Writes the encoded cells of x to `out`."""
        self._run("encode", x, out, x, *self._cells, out)

    def decode(self, data, out) -> None:
        """Writes the decoded elements of `data` to `out`."""
        self._run("decode", out, data, data, *self._cells, out)

    def decode_add(self, data, into) -> None:
        """Adds the decoded elements of `data` to `into`, each sum rounded to float32."""
        self._run("decode_add", into, data, data, *self._cells, into)

    def _run(self, function: str, elements, data, *arguments) -> None:
        wanted = ("elements", elements, "float32", self.n), ("data", data, "uint8", self.nbytes)
        for what, array, dtype, size in wanted:
            fits = isinstance(array, self._array) and array.dtype == dtype and array.shape == (size,)
            if not fits or not array.flags.c_contiguous:
                raise ValueError(
                    f"wire {self.codec.text!r}: {what}: give a contiguous CuPy array ({size},) of {dtype}"
                )
        if self._count:
            self._kernel(function)((self._count,), (THREADS,), arguments)


def macros(codec: Codec) -> dict[str, str]:
    """The macros that specialise kernels/cuda/wires.cu for a codec; any do for `float32`, whose cells are plain."""
    scale = codec.parameters.get("scale", "none").upper()
    of_codec = TYPES.get(codec.name, "Sign")
    if codec.name == "table":
        of_codec = f"Table<{codec.parameters['n']}>"
    if codec.name in BLOCKED:
        rotates = str("rotate" in codec.parameters).lower()
        of_codec = f"Four<As{codec.name.capitalize()}, {codec.block}, {rotates}>"
    return {"CODEC": of_codec, "SCALE": scale}
