"""Reads the runs that recorded the number of different results of each image."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from analysis.groups import cases, problem_names
from analysis.history import named
from analysis.load.frames import Frames
from analysis.runs import ids
from analysis.studies.contract import frame
from kernels.as_json import Column
from miniapps.untrusted.regular import Refused
from miniapps.untrusted.schedule import SCHEDULE, Schedule, read_schedule

RESULTS, REQUEST = "results_per_image", "request"  # a value per image; a region with one event per request
ANSWERS = {
    "family": Column("str"), "case": Column("str"), "guarantee": Column("str"), "run": Column("str"),
    "ranks": Column("int64"), "repeat": Column("int64"),
    "requests": Column("int64", "timed requests"), "images": Column("int64", "different images"),
    "several": Column("int64", "images with several results"), "most": Column("int64", "most results of an image"),
    "seconds": Column("float64", "median time of a request", "s"),
    "slowest": Column("float64", "99 % of the requests take at most this long", "s"),
}  # fmt: skip


@dataclass(frozen=True)
class Answers:
    """Runs with results of images.

    `runs`: a row per repeat, columns ANSWERS, NaN without times. `words`: {case: its description}. `schedules`: {label
    of the first run: schedule}, different ones only; `problems`: a sentence on each unusable schedule.
    """

    runs: pd.DataFrame
    words: dict[str, str]
    schedules: dict[str, Schedule]
    problems: list[str]


def answers(frames: Frames) -> Answers:
    """The results of images in `frames`; empty frames without such runs."""
    asked = [RESULTS in frames.recorded("values", *run) for run in ids(frames.runs)]
    runs = frames.runs[pd.Series(asked, index=frames.runs.index, dtype=bool)]
    names = problem_names(runs)
    runs = cases(runs.assign(family=[names[problem] for problem in runs["problem"]]), "family")
    rows = [_answers(frames, run) for run in runs.to_dict("records")]
    return Answers(
        frame(rows, ANSWERS), dict(zip(runs["case"], runs["words"], strict=True)), *_schedules(runs)
    )


def _schedules(runs: pd.DataFrame) -> tuple[dict[str, Schedule], list[str]]:
    different: dict[str, Schedule] = {}
    problems = []
    for run, path in runs[["run", "path"]].drop_duplicates().itertuples(index=False):
        try:
            schedule = read_schedule(Path(path) / SCHEDULE)
        except FileNotFoundError:
            continue
        except (Refused, OSError) as error:
            problems.append(str(error))
            continue
        if schedule not in different.values():
            different[run] = schedule
    return different, problems


def _answers(frames: Frames, run: dict) -> dict:
    values = frames.of("values", run["run"], run["repeat"])
    results = values["value"][named(values, RESULTS)]
    events = frames.of("events", run["run"], run["repeat"])
    requests = events[(events["name"] == REQUEST).to_numpy()]
    seconds = requests["total_ns"] / requests["count"] / 1e9
    return {
        "family": run["family"], "case": run["case"], "guarantee": run["guarantee"], "ranks": run["size"],
        "run": run["run"], "repeat": run["repeat"], "requests": int(requests["count"].sum()), "images": len(results),
        "several": int((results > 1).sum()), "most": int(results.max()), "seconds": seconds.median(),
        "slowest": seconds.quantile(0.99),
    }  # fmt: skip
