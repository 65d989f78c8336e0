"""The codecs made for a GPU give the bytes and the bits of the definition.

They need a device; `test_cuda_on_host.py` runs this file without one.
"""

import numpy as np
import pytest

from kernels.wires import cells_of, codec, cuda
from miniapps.system.environment import no_cuda

from .wire_cases import ALL, SHAPES, decoded, encoded, numbers, same

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(bool(no_cuda()), reason=no_cuda() or "")]
FEW = [
    "float32",
    "bfloat16",
    "e4m3:scale=tensor",
    "fp8",
    "int16",
    "table:n=8",
    "table:n=3,scale=match",
    "table:n=4,cell=tensor",
    "sign",
    "int4:block=256,rotate=on,scale=match",
    "e2m1:rotate=on",
    "e3m0",
]


@pytest.mark.parametrize(
    "text", [t if t in FEW else pytest.param(t, marks=pytest.mark.slow) for t in dict.fromkeys([*ALL, *FEW])]
)
def test_the_bits_are_those_of_the_definition(text):
    import cupy

    for kind, n, shapes in [
        ("normal", 1, None),
        ("normal", 4097, None),
        ("edges", 5000, None),
        ("few", 300, None),
        ("finite bits", sum(int(np.prod(shape)) for shape in SHAPES), SHAPES),
        ("normal", 0, None),
    ]:
        x, cells = numbers(kind, n), cells_of(n, shapes, codec(text).whole)
        planned = cuda.Planned(codec(text), cells)
        data, out, into = (
            cupy.empty(planned.nbytes, cupy.uint8),
            cupy.empty(n, cupy.float32),
            cupy.zeros(n, cupy.float32),
        )
        planned.encode(cupy.asarray(x), data)
        expected = encoded(text, x, cells)
        assert data.get().tobytes() == expected.tobytes()
        planned.decode(data, out)
        assert same(out.get(), decoded(text, expected, cells))
        planned.decode_add(data, into)
        planned.decode_add(data, into)
        with np.errstate(all="ignore"):
            assert same(into.get(), np.float32(0) + out.get() + out.get())


def test_arrays_that_do_not_fit_are_refused():
    import cupy

    planned = cuda.Planned(codec("fp8"), cells_of(100))
    x, data = cupy.zeros(100, cupy.float32), cupy.zeros(100, cupy.uint8)
    for wrong in ((x, x), (data, data), (x[:99], data), (x, data[:99]), (x.get(), data), (x[::2], data)):
        with pytest.raises(ValueError, match="give a contiguous CuPy array"):
            planned.encode(*wrong)
