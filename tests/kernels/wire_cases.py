"""Helpers of the tests of codecs: texts of codecs, numbers of many kinds, encoding by the C++ code."""

from functools import cache

import numpy as np

from kernels import wires
from kernels.wires import SMALL, Cells, cells_of, codec, reference

PLAIN_NAMES = [name for name in wires.LOSSY if name != "table"]
TABLES = [f"table:n={n}" for n in range(1, 9)]
SCALED = [f"{name}:scale=tensor" for name in reference.FORMATS]
MATCHED = [f"{name}:scale=match" for name in PLAIN_NAMES if name != "float32"]
MATCHED += ["table:n=1,scale=match", "table:n=4,scale=match"]
BLOCKED = [f"{name}:rotate=on" for name in reference.BLOCKED]
BLOCKED += ["int4:block=32", "int4:block=256,rotate=on,scale=match", "e2m1:block=1024"]
WHOLE = [f"{table},cell=tensor" for table in TABLES]
ALL = [*PLAIN_NAMES, *TABLES, *SCALED, *MATCHED, *BLOCKED, *WHOLE]
SHAPES = [(50, 100), (100,), (3, 5), (), (1, SMALL), (0, 3), (64, 64, 2)]
# Zeros, infinities, and what lies at ends of ranges and between two codes.
EDGES = np.array(
    [
        0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1, -1, 57344, 57345, 61439, 61440, 65504, 65519, 65520, 65536, 448,
        464, 464.00003, 480, 3.4028235e38, -3.4028235e38, 1e-45, -1e-45, 1.1754944e-38, 2**-17, 3 * 2**-18, 2**-16,
        3 * 2**-17, 2**-25, 2**-10, 3 * 2**-10, 1.0625, 1.125, 1.1875, 1.375, -1.375, 1.00390625, 1.01171875,
    ],
    np.float32,
)  # fmt: skip


def encoded(text: str, x: np.ndarray, cells: Cells | None = None) -> np.ndarray:
    """The bytes of x."""
    cells = cells or cells_of(len(x))
    out = np.full(codec(text).nbytes(cells), 0xA5, np.uint8)
    codec(text).encode(x, cells, out)
    return out


def decoded(text: str, data: np.ndarray, cells: Cells) -> np.ndarray:
    """The elements that bytes stand for."""
    out = np.full(cells.n, 7, np.float32)
    codec(text).decode(data, cells, out)
    return out


def there_and_back(text: str, x: np.ndarray) -> np.ndarray:
    """What x becomes on the wire."""
    return decoded(text, encoded(text, x), cells_of(len(x)))


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether bits are equal, all NaN being equal."""
    return ((a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))).all()


KINDS = ["normal", "bits", "finite bits", "subnormal", "sparse", "wide", "few", "edges"]


@cache
def numbers(kind: str, n: int) -> np.ndarray:
    """float32 (n,), not to be changed."""
    rng = np.random.default_rng(n)
    if kind == "bits":
        x = rng.integers(0, 2**32, n, dtype=np.uint32).view(np.float32)
    elif kind == "finite bits":
        x = numbers("bits", n).copy()
        x[~np.isfinite(x)] = -0.0
    elif kind == "subnormal":
        x = rng.integers(-(2**20), 2**20, n).astype(np.float32) * np.float32(2**-149)
    elif kind == "sparse":
        x = np.where(rng.random(n) < 0.9, 0, rng.standard_normal(n)).astype(np.float32)
    elif kind == "wide":
        x = (rng.standard_normal(n) * np.exp(rng.uniform(-20, 20, n))).astype(np.float32)
    elif kind == "few":
        x = rng.choice(np.array([-2, -0.5, 0, 0.25, 0.25, 3], np.float32), n)
    elif kind == "edges":
        x = rng.choice(EDGES, n)
    else:
        x = rng.standard_normal(n).astype(np.float32)
    x.flags.writeable = False
    return x
