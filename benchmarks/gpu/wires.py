"""Codecs of wires on the device: the bytes and bits of the CPU, and time against copying the elements."""

from statistics import median

import numpy as np

from benchmarks.gpu.timing import against, rounds
from benchmarks.kernels.wires import CODECS
from kernels.wires import cells_of, codec, cuda

ELEMENTS = 1 << 26
FEW = [
    "bfloat16",
    "e4m3:scale=tensor",
    "table:n=8",
    "sign",
]  # one of each kind: a kernel is compiled for each codec


def wire_rows(asked) -> list[dict]:
    """One row per codec and call: normal numbers, float32, cells of 4096."""
    import cupy as xp

    n = 5000 if asked.quick else ELEMENTS
    x, cells = np.random.default_rng(0).standard_normal(n, np.float32), cells_of(n)
    on_device, out, into = xp.asarray(x), xp.empty(n, xp.float32), xp.zeros(n, xp.float32)
    rows = []
    for text in FEW if asked.quick else CODECS:
        planned = cuda.Planned(codec(text), cells)
        data = xp.empty(planned.nbytes, xp.uint8)
        checks = _checks(text, x, cells, planned, on_device, data)
        calls = {
            "copy": lambda: xp.copyto(out, on_device),
            "encode": lambda planned=planned, data=data: planned.encode(on_device, data),
            "decode": lambda planned=planned, data=data: planned.decode(data, out),
            "decode_add": lambda planned=planned, data=data: planned.decode_add(data, into),
        }
        times = rounds(calls, asked)
        rows += [
            {
                "what": f"{text} {n}, {name}",
                "check": checks.get(name, "-"),
                "bits/element": 32.0 if name == "copy" else 8 * planned.nbytes / n,
                "ms": 1e3 * median(times[name]),
                "elements/s": n / median(times[name]),
                "to copy": against(times, name, "copy"),
                "raw": times[name],
            }
            for name in times
            if name != "copy" or not rows
        ]
    return rows


def _checks(text: str, x: np.ndarray, cells, planned, on_device, data) -> dict[str, str]:
    """Compares bytes, decoded elements and sums of x on the device with those of the CPU."""
    import cupy as xp

    one, n = codec(text), len(x)
    expected, decoded, added = np.empty(planned.nbytes, np.uint8), np.empty(n, np.float32), x.copy()
    one.encode(x, cells, expected)
    one.decode(expected, cells, decoded)
    one.decode_add(expected, cells, added)
    out, into = xp.empty(n, xp.float32), xp.asarray(x)
    planned.encode(on_device, data)
    planned.decode(data, out)
    planned.decode_add(data, into)
    pairs = {"encode": (data, expected), "decode": (out, decoded), "decode_add": (into, added)}
    return {
        name: "same bits" if array.get().tobytes() == host.tobytes() else "FAIL bits differ"
        for name, (array, host) in pairs.items()
    }
