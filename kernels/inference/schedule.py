"""A static schedule: the order of kernels, the places of buffers in one arena, and the order of every sum.

    schedule = plan(capture(forward, weights, sample))     # kernels.inference.lower, .capture
    print(schedule.describe())
    schedule.cost()                                        # flops and bytes per sample, bytes of weights

Everything is fixed before the first sample: batch size, addresses and the number of threads change nothing later.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kernels import _native

ALIGNED = 16  # floats: buffers begin at multiples of 64 bytes
CODES = {name: k for k, name in enumerate(_native.STATIC["codes"])}
SPACES = {name: k for k, name in enumerate(_native.STATIC["spaces"])}
LEVELS = tuple(_native.STATIC["levels"])  # instruction sets that this processor has, least first
# For the price of a kernel: operations in the time in which a byte is read or written in the caches.
FLOPS_PER_BYTE = 1.0


# Per instruction set: (rows, columns) of outputs that are summed at once in registers, for narrow and for wide layers.
REGISTERS = tuple(((one, lanes), (two, 2 * lanes)) for lanes, one, two in _native.STATIC["registers"])


def rounded(n: int, multiple: int = ALIGNED) -> int:
    """The smallest multiple of `multiple` that is at least n."""
    return -(-n // multiple) * multiple


@dataclass
class Buffer:
    """A matrix of float32 for every sample that is kept: `rows` rows of `columns` elements, `pitch` apart.

    `space`: arena, input, output or constants; `at`: its first element there. `step`: elements from the matrix of one
    sample to that of the next; 0 where all samples use one place in turn. In the arena, the place is reserved from
    kernel number `first` to kernel number `last`.
    """

    name: str
    rows: int
    columns: int
    pitch: int
    space: str = "arena"
    at: int = 0
    step: int = 0
    first: int = 0
    last: int = 0

    @property
    def size(self) -> int:
        """Elements per sample that kernels may read and write."""
        return rounded(self.rows * self.pitch)


@dataclass
class Kernel:
    """One call of a kernel. `together`: one call for all samples of a tile; else one call per sample."""

    code: str
    text: str  # what it computes
    inputs: list[Buffer]
    output: Buffer
    parameters: list[int]
    order: str  # of the additions of each output, or ""
    flops: int = 0  # per sample
    weights: int = 0  # bytes
    nodes: tuple[str, ...] = ()
    group: int = 0
    together: bool = False

    def bytes(self) -> int:
        """Bytes read and written per sample, without weights."""
        return sum(4 * b.rows * b.columns for b in (*self.inputs, self.output) if b.space != "constants")

    def price(self, tile: int) -> float:
        """Predicted time for `tile` samples in units of the time per byte: that of its operations, or of its reads and
        writes, whichever is longer. Weights are read once per call; exp and a division count as one operation."""
        moved = tile * self.bytes() + (1 if self.together else tile) * self.weights
        return max(tile * self.flops / FLOPS_PER_BYTE, moved)


@dataclass
class Schedule:
    """Kernels, packed constants (float32), tables of places (int64), and sizes in elements."""

    kernels: list[Kernel]
    constants: np.ndarray
    tables: np.ndarray
    sample: tuple[int, ...]
    result: tuple[int, ...]
    tile: int  # samples at once
    arena: int = 0
    batched: bool = True
    buffers: list[Buffer] = field(default_factory=list)

    def program(self) -> np.ndarray:
        """The kernels encoded for kernels/native/static.cpp: int64 (kernels, words)."""
        rows = np.zeros((len(self.kernels), _native.STATIC["words"]), np.int64)
        for row, kernel in zip(rows, self.kernels, strict=True):
            first, second = [*kernel.inputs, kernel.output][:2]
            row[:2] = CODES[kernel.code], kernel.group if kernel.together else -kernel.group
            for k, buffer in enumerate((first, second, kernel.output)):
                row[2 + 3 * k : 5 + 3 * k] = SPACES[buffer.space], buffer.at, buffer.step
            row[11 : 11 + len(kernel.parameters)] = kernel.parameters
        return rows

    def cost(self) -> dict[str, int]:
        """Floating-point operations and bytes of a sample, bytes of the weights, and bytes of an arena.

        A lower bound of the time of n samples is the larger of n * flops / peak without fused operations, and
        (n * (bytes in + bytes out) + weights) / bandwidth.
        """
        return {
            "flops": sum(kernel.flops for kernel in self.kernels),
            "bytes": sum(kernel.bytes() for kernel in self.kernels),
            "bytes_in": 4 * int(np.prod(self.sample)),
            "bytes_out": 4 * int(np.prod(self.result)),
            "weights": sum(kernel.weights for kernel in self.kernels),
            "arena": 4 * self.arena,
        }

    def shares(self) -> list[float]:
        """The share of each kernel in the predicted time of a tile."""
        prices = [kernel.price(self.tile) for kernel in self.kernels]
        return [price / (sum(prices) or 1.0) for price in prices]

    def as_json(self) -> dict:
        """The schedule as a JSON document; `miniapps.untrusted.schedule` has its schema. Each buffer has the numbers of
        the kernel that writes it first, the last kernel that reads it, and those between which it is kept."""
        return {
            "sample": list(self.sample),
            "result": list(self.result),
            "batched": self.batched,
            "tile": self.tile,
            "registers": {level: tiles for level, tiles in zip(LEVELS, REGISTERS, strict=True)},
            "cost": self.cost(),
            "price": {"flops_per_byte": FLOPS_PER_BYTE},
            "kernels": [
                {
                    "kernel": kernel.text,
                    "nodes": list(kernel.nodes),
                    "per": "tile" if kernel.together else "sample",
                    "inputs": [_place(b) for b in kernel.inputs],
                    "output": _place(kernel.output),
                    "order": kernel.order,
                    "flops": kernel.flops,
                    "bytes": kernel.bytes(),
                    "weights": kernel.weights,
                    "share": share,
                }
                for kernel, share in zip(self.kernels, self.shares(), strict=True)
            ],
            "buffers": [self._kept(buffer) for buffer in self.buffers],
        }

    def _kept(self, buffer: Buffer) -> dict:
        used = [
            k
            for k, kernel in enumerate(self.kernels)
            if any(other is buffer for other in (*kernel.inputs, kernel.output))
        ]
        return {
            "name": buffer.name,
            "offset": 4 * buffer.at,
            "bytes": 4 * buffer.size,
            "samples": self.tile if buffer.step else 1,
            "written": used[0],
            "read": used[-1],
            "first": buffer.first,
            "last": buffer.last,
        }

    def describe(self) -> str:
        """The schedule as a table; places are byte offsets in the arena of a thread."""
        rows = [
            (
                "kernel",
                "per",
                "from",
                "to",
                "rows x columns",
                "flops",
                "bytes",
                "weights",
                "order of each sum",
            )
        ]
        for kernel in self.kernels:
            rows.append((
                kernel.text,
                "tile" if kernel.together else "sample",
                " ".join(_short(b) for b in kernel.inputs),
                _short(kernel.output),
                f"{kernel.output.rows} x {kernel.output.columns}",
                str(kernel.flops),
                str(kernel.bytes()),
                str(kernel.weights),
                kernel.order or "-",
            ))  # fmt: skip
        widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
        lines = [
            "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows
        ]
        cost = self.cost()
        return "\n".join([
            *lines,
            f"per sample: {cost['flops']} flops, {cost['bytes']} bytes between kernels; weights {cost['weights']} "
            f"bytes; tile of {self.tile} samples in an arena of {cost['arena']} bytes per thread",
            f"outputs summed at once (rows x columns): {'; '.join(_registers())}",
        ])  # fmt: skip


def _registers() -> list[str]:
    return [
        f"{level} {' or '.join(f'{rows} x {columns}' for rows, columns in tiles)}"
        for level, tiles in zip(LEVELS, REGISTERS, strict=True)
    ]


def _short(buffer: Buffer) -> str:
    step = f"+{4 * buffer.step}s" if buffer.step else ""
    return f"{4 * buffer.at}{step}" if buffer.space == "arena" else buffer.space


def _place(buffer: Buffer) -> dict:
    shape = {"rows": buffer.rows, "columns": buffer.columns, "pitch": buffer.pitch}
    return {"space": buffer.space, "offset": 4 * buffer.at, "step": 4 * buffer.step, **shape}


# ---- the arena ----------------------------------------------------------------------------------------------------


def place_buffers(schedule: Schedule) -> None:
    """Places every buffer of the arena at the lowest offset that is free while the buffer is needed.

    Buffers between groups of kernels hold all samples of a tile. Buffers inside a group that works sample by sample
    hold one. Sets `buffers` and `arena`, and `at`, `step`, `first` and `last` of the buffers.
    """
    kernels = schedule.kernels
    uses: dict[int, list[int]] = {}
    buffers: dict[int, Buffer] = {}
    for k, kernel in enumerate(kernels):
        for buffer in (*kernel.inputs, kernel.output):
            if buffer.space == "arena":
                uses.setdefault(id(buffer), []).append(k)
                buffers[id(buffer)] = buffer
    placed: list[tuple[int, int, Buffer, int]] = []  # first and last use, buffer, elements
    for key, of in uses.items():
        first, last, buffer = of[0], of[-1], buffers[key]
        crossing = kernels[first].group != kernels[last].group
        buffer.step = buffer.size if crossing or kernels[first].together else 0
        if crossing:  # other samples pass through the whole group while this one waits
            first = min(k for k, other in enumerate(kernels) if other.group == kernels[first].group)
            last = max(k for k, other in enumerate(kernels) if other.group == kernels[last].group)
        length = buffer.size * (schedule.tile if buffer.step else 1)
        taken = sorted((b.at, b.at + n) for f, t, b, n in placed if f <= last and first <= t)
        at = 0
        for begin, end in taken:
            if at + length <= begin:
                break
            at = max(at, end)
        buffer.at, buffer.first, buffer.last = at, first, last
        placed.append((first, last, buffer, length))
        schedule.arena = max(schedule.arena, at + length)
    schedule.buffers = [buffer for _, _, buffer, _ in placed]
