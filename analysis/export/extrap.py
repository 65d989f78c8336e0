"""Writes JSON Lines for Extra-P, which models how regions scale: a line per measurement.

Each line has `params` (p, the number of ranks, and the numeric options in which the problems differ), `callpath`
(regions joined by ->), `metric` and `value`: the mean over ranks of one repeat of one run. Repeats, and further runs
with the same parameters, are repetitions. Extra-P needs every callpath at every point: if a region was never entered,
its time, visits and bytes are 0.
Format: Extra-P, docs/file-formats.md, JSON Lines.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.export.output import new_file
from analysis.export.slices import Slice, parents

PACKAGES = ()
OPEN_WITH = "for extrap --json FILE"
METRICS = ("time", "exclusive time", "visits", "bytes")
FEWEST = 5  # values of a parameter that Extra-P needs for a model


class NotOneExperiment(Exception):
    """The runs differ in more than numbers; the message names the difference."""


@dataclass(frozen=True)
class Measured:
    """The measurements of one run: a row per repeat and callpath with METRICS, and the options that define the run."""

    name: str
    size: int
    app: str
    problem: str
    options: dict[str, Any]
    method: dict[str, Any]
    table: pd.DataFrame


def existing(out: Path) -> Path | None:
    """An existing path that `write` would overwrite; None if there is none."""
    return out if out.exists() else None


def write(parts: Iterable[Slice], out: Path) -> list[dict[str, float]]:
    """Writes `parts`, a slice per run, into the new file `out`; returns the parameters of each run.

    One slice is in memory at a time. Raises NotOneExperiment if there is no run, or if runs are of several applications
    or methods or differ in options that are no numbers, and OSError.
    """
    runs = [measured(part) for part in parts]
    if not runs:
        raise NotOneExperiment("no run reached its end, so no times are whole; repeat the runs")
    points = parameters(runs)
    paths = list(dict.fromkeys(path for run in runs for path in run.table["callpath"]))
    with new_file(out) as file:
        for run, point in zip(runs, points, strict=True):
            head = f'{{"params":{json.dumps(point)},"callpath":'
            for _, own in run.table.groupby("repeat"):
                values = own.set_index("callpath")[list(METRICS)].reindex(paths, fill_value=0.0)
                for path, row in zip(paths, values.to_numpy().tolist(), strict=True):
                    for metric, value in zip(METRICS, row, strict=True):
                        line = f'{head}{json.dumps(path)},"metric":{json.dumps(metric)},"value":{value!r}}}\n'
                        file.write(line.encode())
    return points


def measured(part: Slice) -> Measured:
    """The measurements of a slice: seconds, visits and bytes of each callpath, means over its ranks."""
    first = next(iter(part.attributes.values()))
    config = first.get("config", {})
    options = {
        f"{section}.{key}": value
        for section, own in config.items()
        if section != "run" and isinstance(own, dict)
        for key, value in own.items()
    }
    return Measured(
        str(part.path),
        first["size"],
        first.get("app", ""),
        first.get("problem", ""),
        options,
        first.get("method", {}),
        _table(part),
    )


def parameters(runs: list[Measured]) -> list[dict[str, float]]:
    """The parameters of each run: p, and if there are several problems the options that differ.

    Raises NotOneExperiment if such an option is no number, or if applications or methods differ."""
    first = runs[0]
    for run in runs[1:]:
        if run.app != first.app:
            raise NotOneExperiment(
                f"{first.name} is a run of {first.app}, {run.name} of {run.app}; give runs of one"
            )
        if telling := _differing([first.method, run.method]):
            differences = ", ".join(
                f"{key} {first.method.get(key)} / {run.method.get(key)}" for key in telling
            )
            raise NotOneExperiment(
                f"{first.name} and {run.name} differ in method: {differences}; give runs of one method"
            )
    telling = _differing([run.options for run in runs]) if len({run.problem for run in runs}) > 1 else []
    for key in telling:
        values = {json.dumps(run.options.get(key)): run.options.get(key) for run in runs}
        if not all(
            isinstance(value, int | float) and not isinstance(value, bool) for value in values.values()
        ):
            raise NotOneExperiment(
                f"the runs differ in {key}, which is no number: {', '.join(values)}; give runs that differ in ranks "
                "and numbers alone"
            )
    short = [key.partition(".")[2] for key in telling]
    names = [
        name if short.count(name) == 1 and name != "p" else key
        for name, key in zip(short, telling, strict=True)
    ]
    return [
        {"p": run.size, **{name: run.options[key] for name, key in zip(names, telling, strict=True)}}
        for run in runs
    ]


def notes(points: list[dict[str, float]]) -> list[str]:
    """A sentence for each parameter with too few values for Extra-P."""
    values = {name: sorted({point[name] for point in points}) for name in points[0]}
    return [
        f"Extra-P wants {FEWEST} values of each parameter for a model; of {name} there are {len(known)}: "
        f"{', '.join(map(str, known))}"
        for name, known in values.items()
        if len(known) < FEWEST
    ]


def _differing(sets: list[dict[str, Any]]) -> list[str]:
    keys = dict.fromkeys(key for own in sets for key in own)
    return [key for key in keys if len({json.dumps(own.get(key), sort_keys=True) for own in sets}) > 1]


def _table(part: Slice) -> pd.DataFrame:
    paths: dict[tuple[int, int], int] = {}  # (path around it, name): path
    texts: dict[int, str] = {-1: ""}
    # Extra-P would split a name at the arrow that joins names.
    names = [name.replace("->", "→") for name in part.kinds]
    pieces = []
    for _, _, own in part.pieces():
        around = parents(own["depth"].to_numpy())
        length = (own["end"] - own["start"]).to_numpy()
        inner = np.zeros(len(own), np.int64)
        np.add.at(inner, around[around >= 0], length[around >= 0])
        path: list[int] = []
        for code, outer in zip(own["name"].cat.codes.tolist(), around.tolist(), strict=True):
            key = (path[outer] if outer >= 0 else -1, code)
            if key not in paths:
                paths[key] = len(paths)
                texts[paths[key]] = f"{texts[key[0]]}->{names[code]}" if outer >= 0 else names[code]
            path.append(paths[key])
        columns = {"repeat": own["repeat"], "path": path, "time": length, "exclusive time": length - inner}
        events = pd.DataFrame({**columns, "visits": 1, "bytes": own["bytes"]})
        pieces.append(events.groupby(["repeat", "path"]).sum())
    table = pd.concat(pieces).groupby(["repeat", "path"]).sum() / len(part.attributes)
    table[["time", "exclusive time"]] /= 1e9
    table = table.reset_index()
    return table.assign(callpath=table["path"].map(texts)).drop(columns="path")
