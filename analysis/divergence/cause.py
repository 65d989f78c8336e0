"""Finds the cause of the first difference of two runs, judges whether rounding explains it, and advises the user."""

from __future__ import annotations

import json
from dataclasses import replace

import pandas as pd

from analysis.divergence import rounding
from analysis.divergence.classes import (
    COLLECTIVE,
    ENVIRONMENT,
    FROM_INPUT,
    HALO,
    INSIDE,
    KERNEL,
    MEMORY,
    METHOD,
    ORDER,
    Cause,
)
from analysis.divergence.from_messages import (
    of_block,
    of_computed,
    of_global,
    of_input,
    of_node,
    of_received,
    of_total,
)
from analysis.divergence.from_states import after_a_step
from analysis.divergence.from_watched import of_watched
from analysis.divergence.in_files import of_place, of_read, of_written
from analysis.divergence.in_windows import of_fetched, of_origin, of_window, reconsidered
from analysis.divergence.later import farthest
from analysis.divergence.points import FINAL, Comparison
from analysis.divergence.recorded import common_of
from analysis.divergence.rounding import FEW, NOT_ROUNDING, OPEN, ROUNDING, Judgement
from analysis.divergence.scene import SHOWN, Scene
from analysis.divergence.unlike import choices, environments, methods, unlike
from analysis.load.frames import Frames
from kernels.sizes import sampled
from miniapps.trace.records import (
    ADDED,
    COMPUTED,
    DISPLACEMENT,
    FETCHED,
    GLOBAL,
    INPUT,
    NODE,
    OF_FILE,
    OFFSET,
    ORIGIN,
    READ,
    RECEIVED,
    SENT,
    SOURCE,
    TARGET,
    TOTAL,
    VIEW_OFFSET,
    WATCHED,
    WEIGHTS,
    WINDOW,
    WRITTEN,
)

LONG = 120  # characters of a command that is shown
GROWN = 4 * FEW  # units in the last place from which on a later difference needs an explanation of its own


def cause(frames: Frames, comparison: Comparison) -> Cause | None:
    """The cause of the first difference of `comparison`; None if the runs are equal."""
    at = comparison.first
    if at is None or at.name == FINAL:
        return None
    scene = Scene(frames, comparison, at)
    shown = _grown(scene, _judged(scene, reconsidered(scene, _first_shown(scene))))
    by_method = methods(scene.a, scene.b) + choices(frames, comparison)
    by_environment = environments(scene.a, scene.b)
    if not (by_method or by_environment):
        return replace(shown, next=_next(scene, shown))
    where = shown.name if shown.kind == FROM_INPUT else f"{shown.name}, step {shown.step}"
    return replace(
        shown, kind=METHOD if by_method else ENVIRONMENT, rank=None, why=(*unlike(frames, comparison), *shown.why),
        name=", ".join(key for key, *_ in (by_method or by_environment)[:SHOWN]),
        instead=shown.kind, instead_why=f"it shows first in {where}; repeat both runs alike to see whether it stays",
        next="repeat both runs with one method in one environment, and compare these",
    )  # fmt: skip


def _first_shown(scene: Scene) -> Cause:
    """The cause by the records alone, without methods and environments."""
    at = scene.at
    for prefix, judge in (
        (INPUT, of_input), (COMPUTED, of_computed), (NODE, of_node), (RECEIVED, of_received), (SOURCE, of_received),
        (WRITTEN, of_written), (READ, of_read), (OF_FILE, of_place), (OFFSET, of_place), (VIEW_OFFSET, of_place),
        (ORIGIN, of_origin), (TARGET, of_origin), (DISPLACEMENT, of_origin), (WINDOW, of_window), (FETCHED, of_fetched),
        (TOTAL, of_total), (GLOBAL, of_global), (ADDED, of_block),
        *((prefix, of_watched) for prefix in (*WATCHED, WEIGHTS)),
    ):  # fmt: skip
        if at.name.startswith(prefix):
            return judge(scene, at.name.removeprefix(prefix))
    judged = of_block if scene.with_messages else after_a_step
    return judged(scene, at.name.removeprefix(SENT))


def _judged(scene: Scene, shown: Cause) -> Cause:
    """`shown` with a judgement on rounding, if it has none yet."""
    if shown.rounding.why:
        return shown
    if shown.kind in (MEMORY, HALO) and not shown.instead:
        return replace(shown, rounding=rounding.of_moved(*scene.sizes()))
    judgement = rounding.of_local(*scene.farthest())
    threads = json.loads(scene.b["method"]).get("run.threads")
    if shown.kind == KERNEL and not shown.instead and threads != 1 and judgement.amplification is not None:
        return replace(
            shown, rounding=judgement, instead=INSIDE,
            instead_why="threads or atomic additions may add in another order, which no record shows",
        )  # fmt: skip
    return replace(shown, rounding=judgement)


def _command(run: pd.Series) -> str:
    """The command that `fpna run` started; COMMAND if it is long, `COMMAND {out}` if the program records itself."""
    if "program.sums" not in json.loads(run["options"]):
        return "COMMAND {out}"
    command = str(json.loads(run["environment"]).get("command", ""))
    return command if 0 < len(command) <= LONG else "COMMAND"


def _grown(scene: Scene, shown: Cause) -> Cause:
    """`shown`; its judgement becomes "open" if rounding explains the first difference, but a later one is much larger.

    The first difference may have grown, or there may be a second cause."""
    if shown.rounding.verdict != ROUNDING:
        return shown
    a, b = scene.comparison.a, scene.comparison.b
    later = farthest(scene.frames, a, b, common_of(scene.frames, a, b))
    if later is None or later.amplification <= GROWN:
        return shown
    of = f" ({sampled(later.sample)})" if later.sample > 1 else ""
    why = (
        f"{shown.rounding.why}; but {later.name} of step {later.step} differs by {later.amplification:.2g} units in "
        f"the last place{of}: the difference grew, or there is a second cause"
    )
    return replace(shown, rounding=Judgement(OPEN, later.amplification, why))


def _next(scene: Scene, shown: Cause) -> str:
    """The next thing to do, in one line."""
    if shown.rounding.verdict == OPEN:
        runs = f"{scene.a['path']} {scene.b['path']}"
        return f"an experiment can tell rounding from a bug: fpna cause {runs} -- {_command(scene.a)}"
    if shown.rounding.verdict == NOT_ROUNDING:
        if shown.kind in (MEMORY, HALO):
            return "repeat the run: a bug shows again, a fault of memory or of the network does not"
        return f"look for a bug, or another input, in or before {shown.name} of step {shown.step}"
    if scene.a["size"] != scene.b["size"]:
        return (
            "a difference of this size needs no bug; fpna.wrap with rows makes sums equal "
            "(docs/tutorials/own-programs.md)"
        )
    if shown.kind in (COLLECTIVE, ORDER):
        return "a difference of this size needs no bug; a guarantee fixes the order of sums (--guarantee run)"
    return (
        "a difference of this size needs no bug; one thread, or sums in a fixed order, make such runs equal"
    )
