"""Seconds of works and messages on devices that are not here, from a machine file: rates, memory, links.

A call takes its launch, and the longer of its operations at the rate of products and of its bytes at the rate of
memory (roofline: Williams et al. 2009). A product is divided into tiles, if the machine file says how: the last tiles
of a row, and the last ones of a call, leave processors without work (NVIDIA, Matrix Multiplication Background User's
Guide: tile and wave quantization). An all-reduce inside a node takes the faster of a ring and a tree; over several
nodes it is a reduce-scatter inside, an all-reduce between, a gather inside. A lossy wire has fewer bytes, and four
calls that encode and decode: of the contributions, and of the total.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2, prod

import numpy as np

from analysis.predict.costs.machines import Device, Link, Tiles
from analysis.predict.plans.kernels import KERNEL
from miniapps.untrusted.program import Wait, Work

FLOAT = 4  # bytes of a number in a program
CODED = 4  # calls that encode and decode
PRODUCTS = ("mm", "addmm", "bmm")


@dataclass(frozen=True)
class DeviceTimes:
    """Seconds of the works of a program on one device, with the interface of `WorkTimes`."""

    device: Device
    rest_error: float = 0.0  # unknown

    def seconds(self, works: Sequence[Work]) -> tuple[np.ndarray, np.ndarray, list[str]]:
        """((n,) seconds of a call of each work, no known errors, what was not measured: nothing was)."""
        device = self.device
        flops = np.array([work.flops * divided(work, device.tiles) for work in works], float)
        flops /= device.product * device.achieved
        nbytes = np.array([work.nbytes for work in works], float) * device.width / FLOAT / device.memory
        moved = np.array([work.nbytes > 0 or work.flops > 0 for work in works])
        seconds = np.where(moved, device.launch + np.maximum(flops, nbytes), 0.0)
        return seconds, np.zeros((len(works), 2)), ["all kernels, from a machine file"]

    def rest(self, counts: np.ndarray) -> np.ndarray:
        """(n,) seconds between the calls of segments with `counts` (n, 4): copies read and write their bytes."""
        counts = np.asarray(counts, float)
        copied = 2.0 * counts[:, 3] * self.device.width / FLOAT / self.device.memory
        return counts[:, 2] * self.device.launch + copied


@dataclass(frozen=True)
class DeviceMessages:
    """Seconds of messages between devices inside a node, and `between` nodes."""

    device: Device
    between: Link
    extrapolated: tuple[str, ...] = ("all messages, from a machine file",)

    def cost(self, wait: Wait, size: int, near: int) -> tuple[float, float]:
        """(seconds of a wait among `size` ranks, of which `near` are on one node; of encoding and decoding)."""
        device = self.device
        if wait.kind != "reduction":
            link = device.inside if near == size else self.between
            return link.seconds(len(wait.offsets), wait.nbytes * device.width / FLOAT), 0.0
        nbytes, local = wait.elements * wait.itemsize * device.width / FLOAT, 0.0
        if wait.nbytes:  # encoded: contributions are read, their decoded parts, and the total
            local = CODED * device.launch + (wait.contributions + 2) * nbytes / device.memory
            nbytes = float(wait.nbytes)
        inside = allreduce(device.inside, near, nbytes) if near > 1 else 0.0
        between = allreduce(self.between, ceil(size / near), nbytes / near) if near < size else 0.0
        return (inside + between) * (0.5 if wait.scatters else 1.0), local

    def beside(self, wait: Wait, size: int) -> float:
        """All of it: links of devices move messages by themselves."""
        return 1.0


def divided(work: Work, tiles: Tiles | None) -> float:
    """The time of a product in tiles over that of its operations on all processors; 1 for other works."""
    if tiles is None or work.key.removeprefix(KERNEL).split(" ")[0] not in PRODUCTS or len(work.dims) < 3:
        return 1.0
    *batch, rows, _, columns = work.dims
    most = tiles.processors * tiles.rows * tiles.columns
    each = ((tiles.rows, tiles.columns), (tiles.columns, tiles.rows))
    waves = min(ceil(prod(batch) * ceil(rows / a) * ceil(columns / b) / tiles.processors) for a, b in each)
    return waves * most / (prod(batch) * rows * columns)


def device_memory(device: Device, weights: float, states: float, step: float) -> float:
    """Bytes of a rank on a device, of the `memory` of a program: weights in both widths (Micikevicius et al. 2018), the
    states of the optimiser, and what a step holds in the width of the device."""
    narrow = device.width / FLOAT
    return weights * (1.0 + narrow) + states + step * narrow


def allreduce(link: Link, size: int, nbytes: float) -> float:
    """Seconds of an all-reduce of `nbytes` among `size` ranks: the faster of a ring and a tree."""
    ring = 2 * (size - 1) * (link.latency + nbytes / size / link.bandwidth)
    return min(ring, 2 * ceil(log2(size)) * (link.latency + nbytes / link.bandwidth))
