"""Times codecs of wires: encoding, decoding, decoding with addition, against copying the elements.

`copy` moves the float32 elements from one array to another. All calls of a size run in turn, in rotating order, in one
thread. Medians with extremes over the rounds. `least` is the least ns/element, which a busy machine disturbs least.
`error` is the relative error of the decoded elements, for normal numbers; `heavy` that of normal numbers times the
exponentials of other normal numbers, few of which are large.
"""

import argparse
from functools import partial

import numpy as np

from benchmarks.harness.results import add_quiet, machine, report
from benchmarks.harness.turns import in_turn, ratio, timed
from kernels.wires import codec, quality

CODECS = [
    "float32",
    "float16",
    "bfloat16",
    "e4m3",
    "e5m2",
    "fp8",
    "e4m3:scale=tensor",
    "fp8:scale=match",
    "int8",
]
CODECS += [
    "int16",
    "int4",
    "int4:rotate=on",
    "e2m1",
    "e2m1:rotate=on",
    "e3m0",
    "table:n=8",
    "table:n=4",
    "table:n=4,cell=tensor",
    "table:n=2",
    "table:n=1",
    "sign",
]
LEAST = 1e-3  # seconds of a sample, at least


def main(argv=None) -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kernels.wires", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[65_536, 8_388_608], help="elements")
    parser.add_argument("--wires", nargs="+", default=CODECS, help="codecs")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--json", help="write table and raw values to this file")
    add_quiet(parser)
    asked = parser.parse_args(argv)
    rows = [row for n in asked.sizes for row in measured(n, asked)]
    report("codecs of wires", rows, machine(), asked.json)


def measured(n: int, asked: argparse.Namespace) -> list[dict]:
    """Rows of one size."""
    x = np.random.default_rng(0).standard_normal(n).astype(np.float32)
    wide = x * np.exp(np.random.default_rng(1).standard_normal(n)).astype(np.float32)
    into, out = np.zeros(n, np.float32), np.empty(n, np.float32)
    calls, bytes_of = {("copy", "copy"): partial(np.copyto, out, x)}, {"copy": 4.0 * n}
    errors = {"copy": (0.0, 0.0)}
    for text in asked.wires:
        one = codec(text)
        cells = one.cells(n)
        data = np.empty(one.nbytes(cells), np.uint8)
        one.encode(x, cells, data)
        one.decode(data, cells, out)
        bytes_of[text] = float(data.nbytes)
        errors[text] = quality(x, out)[0], quality(wide, one.over(wide, cells))[0]
        calls[text, "encode"] = partial(one.encode, x, cells, data)
        calls[text, "decode"] = partial(one.decode, data, cells, out)
        calls[text, "decode_add"] = partial(one.decode_add, data, cells, into)
    repeats = {key: max(1, round(LEAST / timed(call, 1))) for key, call in calls.items()}
    variants = {key: partial(timed, calls[key], repeats[key]) for key in calls}
    seconds = in_turn(variants, asked.rounds, asked.quiet)
    return [
        {
            "wire": text,
            "call": call,
            "n": n,
            "bits/element": 8 * bytes_of[text] / n,
            "ns/element": float(np.median(of_call)) / n * 1e9,
            "least": min(of_call) / n * 1e9,
            "of copy": ratio(of_call, seconds["copy", "copy"]),
            "error": errors[text][0],
            "heavy": errors[text][1],
            "raw": of_call,
        }
        for (text, call), of_call in seconds.items()
    ]


if __name__ == "__main__":
    main()
