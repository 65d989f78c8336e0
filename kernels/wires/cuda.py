"""Codecs on a GPU, in CUDA C++ made for the codec (kernels/cuda/wires.cu): the bits of `reference`.

Calls return when the work is queued on the current stream.
"""

from __future__ import annotations

from functools import partial

from kernels.cuda import kernel
from kernels.wires.cells import Cells
from kernels.wires.codecs import Codec
from kernels.wires.reference import FORMATS, INTEGERS

THREADS = 256  # of a block, which has a cell
TYPES = {name: f"Cast<As{name.capitalize()}>" for name in FORMATS}
TYPES |= {name: f"Whole<{bits}>" for name, bits in INTEGERS.items()} | {"sign": "Sign"}


class Planned:
    """A codec for the cells of one vector, what it needs of these being on the device; see `Codec`.

    Elements are CuPy's float32 (n,), data uint8 (nbytes,), both contiguous. Raises ValueError for others.
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
        """Write the cells of x, encoded, to `out`."""
        self._run("encode", x, out, x, *self._cells, out)

    def decode(self, data, out) -> None:
        """Write the elements that `data` stands for to `out`."""
        self._run("decode", out, data, data, *self._cells, out)

    def decode_add(self, data, into) -> None:
        """Add the elements that `data` stands for to `into`, each sum rounded to float32."""
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
    """What makes kernels/cuda/wires.cu the code of a codec; of `float32`, whose cells are plain, any will do."""
    n = codec.parameters.get("n")
    scale = codec.parameters.get("scale", "none").upper()
    return {"CODEC": f"Table<{n}>" if n else TYPES.get(codec.name, "Sign"), "SCALE": scale}
