"""Finds failed attempts of a campaign that were repeated with success (their place: docs/how-to/campaigns.md)."""

from __future__ import annotations

import re

from analysis.load.frames import Frames, once

ATTEMPT = re.compile(r"(?P<out>(?:.*/)?)failed/(?P<task>[^/]+)\.[1-9][0-9]*")
SAME = [
    "app",
    "problem",
    "size",
    "guarantee",
    "method",
    "seed",
]  # columns that are equal for a task and its attempts
ENDED = ("failed", "incomplete", "missing ranks")  # kinds of notes on runs that ended early


@once
def repeated(frames: Frames) -> dict[str, str]:
    """{run: the run that succeeded in its place} of all attempts `failed/TASK.N` beside a complete run `TASK`.

    The records of an attempt, if it has any, must be of the same problem and method: the name alone is no proof.
    """
    runs, excluded = frames.runs, frames.excluded
    named = {run: ATTEMPT.fullmatch(run) for run in dict.fromkeys([*runs["run"], *excluded["run"]])}
    tried = {run: place["out"] + place["task"] for run, place in named.items() if place}
    if not tried:
        return {}
    broken = set(excluded[excluded["what"].isin(ENDED)]["run"]) | set(runs[~runs["complete"]]["run"])
    concerned = runs[runs["run"].isin({*tried, *tried.values()})]
    ways = {
        run: set(same[SAME].itertuples(index=False)) for run, same in concerned.groupby("run", sort=False)
    }
    return {
        run: task
        for run, task in tried.items()
        if task in ways and task not in broken and ways.get(run, ways[task]) == ways[task]
    }
