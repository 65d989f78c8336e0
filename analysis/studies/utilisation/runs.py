"""Utilisation of cores in runs over a mesh: model FLOPs over the capacity of the cores in the same time.

Rank 0 records the floating-point operations of a step of the unsharded model, the rate of one core, and the utilisation
of each step by its clock (`miniapps.trace.schema`). All ranks record their processor time. From it follows the
utilisation if each rank had its core to itself: the number for a machine with other processes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.groups import cases, problem_names
from analysis.load.frames import Frames
from analysis.runs import ids
from analysis.studies.contract import frame
from kernels.as_json import Column
from miniapps.trace.records import STAGES
from miniapps.trace.schema import CORE_RATE, CPU_TIME, MODEL_FLOPS, UTILISATION

USED = {
    "family": Column("str", "options that distinguish the problem from others of these runs"),
    "case": Column("str", "method that distinguishes the run from others of the problem"), "guarantee": Column("str"),
    "ranks": Column("int64"), "run": Column("str"), "repeat": Column("int64"), "steps": Column("int64"),
    "flops": Column("float64", "model FLOPs of a step"), "rate": Column("float64", "of one core, FLOP/s"),
    "seconds": Column("float64", "of a step, without recording", "s"),
    "utilisation": Column("float64", "median over all steps but the first, by the clock; a fraction"),
    "least": Column("float64", "over the same steps"), "most": Column("float64", "over the same steps"),
    "of_processor_time": Column("float64", "utilisation by the processor time of all ranks, recording included"),
}  # fmt: skip


@dataclass(frozen=True)
class Used:
    """`runs`: a row per repeat, columns USED: `seconds` of a step, `utilisation` and `of_processor_time` are medians
    over all steps of the repeat but the first, `least` and `most` the range of the utilisation. `words`: {case: its
    description}; `stages`: {family and case: recorded plan (`miniapps.partition.showing.staged`)}, each plan once."""

    runs: pd.DataFrame
    words: dict[str, str]
    stages: dict[str, str]


def used(frames: Frames) -> Used:
    """The utilisation of the runs in `frames` that recorded it; empty frames without such runs."""
    needed = {UTILISATION, MODEL_FLOPS, CORE_RATE}
    some = needed <= set(frames.names)
    known = [some and needed <= set(frames.of("usage", *run)["name"]) for run in ids(frames.runs)]
    runs = frames.runs[np.array(known, bool)]
    names = problem_names(runs)
    runs = cases(runs.assign(family=[names[problem] for problem in runs["problem"]]), "family")
    stages: dict[str, str] = {}
    for run in runs.to_dict("records"):
        plan = _stages(frames, run)
        if plan and plan not in stages.values():
            stages[", ".join(filter(None, [run["family"], run["case"]]))] = plan
    rows = [_row(frames, run) for run in runs.to_dict("records")]
    return Used(frame(rows, USED), dict(zip(runs["case"], runs["words"], strict=True)), stages)


def _row(frames: Frames, run: dict) -> dict[str, object]:
    """The row of USED for one repeat."""
    usage = frames.of("usage", run["run"], run["repeat"])
    steps = usage[(usage["name"] == UTILISATION).to_numpy()].groupby("step")["value"].first()
    later = steps.iloc[1:] if len(steps) > 1 else steps  # the first step plans and allocates
    flops, rate = (float(usage[usage["name"] == name]["value"].iloc[0]) for name in (MODEL_FLOPS, CORE_RATE))
    cpu = usage[(usage["name"] == CPU_TIME).to_numpy()].groupby("step")["value"].sum()
    threads = json.loads(run["config"]).get("run", {}).get("threads")
    cores = run["size"] * (threads if isinstance(threads, int) and threads > 0 else 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        seconds = np.float64(flops) / (later * cores * rate)
        own = np.float64(flops) / (cpu.reindex(later.index) * rate)
    return {
        "family": run["family"], "case": run["case"], "guarantee": run["guarantee"], "ranks": run["size"],
        "run": run["run"], "repeat": run["repeat"], "steps": len(steps), "flops": flops, "rate": rate,
        "seconds": seconds.median(), "utilisation": later.median(), "least": later.min(), "most": later.max(),
        "of_processor_time": own.median(),
    }  # fmt: skip


def _stages(frames: Frames, run: dict) -> str:
    """The recorded plan of a run; empty without one."""
    choices = frames.of("choices", run["run"], run["repeat"])
    staged = choices[(choices["name"] == STAGES).to_numpy()]["choice"]
    return str(staged.iloc[0]) if len(staged) else ""
