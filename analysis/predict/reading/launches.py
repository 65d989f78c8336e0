"""Several launches of a calibration as one.

From launch to launch a program is some per cent faster or slower for as long as it runs, although nothing else uses
its cores: memory lies elsewhere (Kalibera and Jones, "Rigorous benchmarking in reasonable time", 2013). One launch
does not show by how much. So each time is the median over launches, and their spread is that of prices.

The clocks of processors change from minute to minute, on shared machines for all alike. So the times of each launch are
brought to one clock first, by the fixed number of cycles that it timed (`chain` in `miniapps.system.quantum`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import isnan, nan, sqrt
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.predict.reading.calibration import Calibration, elsewhere, read_calibration
from miniapps.trace import TraceError
from miniapps.untrusted.program import Program

TIMED = (
    "seconds",
    "nbytes",
    "spread",
)  # columns of cases that a launch measured; the others say what it measured


def read_calibrations(paths: Iterable[str | Path]) -> list[Calibration]:
    """The calibrations in directories, one for each number of ranks: those of one number are its launches. Raises
    TraceError as `read_calibration`, and for launches on different machines or by different versions."""
    launches: dict[int, list[Calibration]] = {}
    for path in dict.fromkeys(str(path) for path in paths):
        calibration = read_calibration(path)
        launches.setdefault(calibration.size, []).append(calibration)
    return [pooled(own) for own in launches.values()]


def pooled(launches: Sequence[Calibration]) -> Calibration:
    """One calibration of `launches` with one number of ranks. Raises TraceError for different machines or versions."""
    first = launches[0]
    if len(launches) == 1:
        return first
    for other in launches[1:]:
        if wrong := elsewhere(first, other.environment):
            raise TraceError(
                f"{first.path} and {other.path}: calibrations on {first.size} ranks count as launches of one; these "
                f"differ in {'; '.join(wrong)}; give those of one machine and version"
            )
    chain = float(np.median([each.chain for each in launches]))
    launches = [at_clock(each, chain) for each in launches]
    steps, step_spread = _steps(launches)
    return replace(
        first,
        path=", ".join(each.path for each in launches),
        cases=_cases([each.cases for each in launches]),
        noise=np.concatenate([each.noise for each in launches]),
        delays=np.concatenate([each.delays for each in launches]),
        spinning=float(np.mean([each.spinning for each in launches])),
        reductions={name: own for each in launches for name, own in each.reductions.items()},
        hashes=tuple(name for each in launches for name in each.hashes),
        undisturbed=float(np.mean([each.undisturbed for each in launches])),
        steps=steps,
        step_spread=step_spread,
        chain=chain,
        leaves=float(np.median([each.leaves for each in launches])),
    )


def at_clock(calibration: Calibration, chain: float) -> Calibration:
    """The calibration with its times as on a processor whose clock takes `chain` seconds for a chain; as it is, if one
    of them is not known."""
    ratio = chain / calibration.chain
    if isnan(ratio):
        return calibration
    return replace(
        calibration,
        cases=calibration.cases.assign(seconds=ratio * calibration.cases["seconds"]),
        delays=ratio * calibration.delays,
        steps=tuple((program, ratio * seconds) for program, seconds in calibration.steps),
        chain=chain,
    )


def _cases(launches: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """A row per case: medians over the launches that have it, and the spread between them; of a single one, its own."""
    every = pd.concat(launches, ignore_index=True)
    keys = [name for name in every if name not in TIMED and ":" not in name]
    counts = {
        name: "first" for name in every if ":" in name
    }  # on other rank counts; the same in all launches
    by = every.assign(log=np.log(every["seconds"])).groupby(keys, dropna=False, sort=False)
    found = by.agg({"seconds": "median", "nbytes": "median", "spread": "mean", "log": "std", **counts})
    found["spread"] = found["log"].fillna(found["spread"])
    return found.drop(columns="log").reset_index()


def _steps(launches: Sequence[Calibration]) -> tuple[tuple[tuple[Program, float], ...], float]:
    """(`steps`, `step_spread`) of all launches."""
    programs: dict[str, Program] = {}
    seconds: dict[str, list[float]] = {}
    for program, taken in (step for each in launches for step in each.steps):
        programs[program.title] = program
        seconds.setdefault(program.title, []).append(taken)
    several = [np.log(taken) for taken in seconds.values() if len(taken) > 1]
    squares = sum(float(((logs - logs.mean()) ** 2).sum()) for logs in several)
    if several:
        spread = sqrt(squares / sum(len(logs) - 1 for logs in several))
    else:
        spread = max((each.step_spread for each in launches if not isnan(each.step_spread)), default=nan)
    return tuple((programs[title], float(np.median(taken))) for title, taken in seconds.items()), spread
