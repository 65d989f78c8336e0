"""Costs of work on cores and memory of other speeds than the calibrated ones.

The time of a segment's bytes at the calibrated memory bandwidth scales with memory, the rest with the cores.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from analysis.errors import Unreachable
from analysis.predict.costs.machines import Machine
from analysis.predict.costs.segments import SegmentCost
from analysis.predict.reading.calibration import Calibration
from analysis.predict.reading.skeleton import Key, Skeleton, label


def at_speeds(
    costs: Mapping[Key, SegmentCost], run: Skeleton, calibration: Calibration | None, machine: Machine
) -> tuple[dict[Key, SegmentCost], list[str], str]:
    """(`costs` on the cores and the memory of `machine`, extrapolations, a remark). Raises as `require_memory`."""
    require_memory(calibration, machine)
    extrapolated = []
    if machine.speed is not None:
        extrapolated.append(f"cores of {machine.speed:g} times the speed")
    here = math.nan if calibration is None else calibration.memory
    bound, silent, waiting = memory_bound(run, here)
    if machine.memory is not None:
        nothing = "" if waiting > 0 else ", which changes nothing: no region states its bytes"
        extrapolated.append(f"memory of {machine.memory:g} bytes/s of a core{nothing}")
    if math.isnan(here):
        remark = "memory was not measured: all work scales with the speed of the cores"
    else:
        remark = (
            f"{waiting:.0%} of the work time in {label(run)} scales with memory, the rest with the speed of the cores; "
            f"{silent:.0%} is in regions that record no bytes"
        )
    speed, memory = machine.speed or 1.0, here if machine.memory is None else machine.memory
    moved = {}
    for key, cost in costs.items():
        part = bound.get(key, 0.0)
        # Both parts of a key keep their share of its time: bytes and operations shrink alike with the work.
        moved[key] = cost.faster(1.0 / ((part * here / memory if part else 0.0) + (1.0 - part) / speed))
    return moved, extrapolated, f"{remark}; messages scale with latency and bandwidth"


def require_memory(calibration: Calibration | None, machine: Machine) -> None:
    """Raises Unreachable if `machine` has another memory bandwidth and the calibration measured none."""
    if machine.memory is None or (calibration is not None and calibration.memory > 0):
        return
    where = "there is no calibration" if calibration is None else f"{calibration.path} did not measure it"
    raise Unreachable(
        f"memory = {machine.memory:g}: it replaces the calibrated memory bandwidth, and {where}; calibrate it "
        "(python -m miniapps.calibrate --out cal, without --what or with memory in it), and give --calibration cal"
    )


def memory_bound(run: Skeleton, bandwidth: float) -> tuple[dict[Key, float], float, float]:
    """(share of each key's time that its bytes take at `bandwidth` bytes/s, at most 1; share of all work time in keys
    without recorded bytes; share of all work time that scales with memory). The shares of memory are 0 for a
    `bandwidth` of NaN."""
    by = run.segments.groupby("key", sort=False)[["ns", "bytes"]].sum()
    ns = by["ns"].to_numpy(float)
    needed = np.nan_to_num(1e9 * by["bytes"].to_numpy(float) / bandwidth)
    part = np.divide(np.minimum(needed, ns), ns, out=np.zeros_like(ns), where=ns > 0)
    whole = max(float(ns.sum()), 1e-300)
    silent = float(ns[by["bytes"].to_numpy() <= 0].sum()) / whole
    return dict(zip(by.index.tolist(), part.tolist(), strict=True)), silent, float((part * ns).sum()) / whole
