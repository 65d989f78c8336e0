"""Judges differences of one-sided calls of a program under `fpna run`: memory of windows, and data that calls fetch.

MPI orders the accesses of one rank to one place by accumulates, and no accesses of several ranks in one epoch. No call
tells the target who accesses its window, so their order is in no record: it is the cause if several ranks update the
window of a rank, and all that they gave is equal.
"""

from __future__ import annotations

import re
from dataclasses import replace

from analysis.divergence.classes import KERNEL, MEMORY, ORDER, UNDECIDED, Cause
from analysis.divergence.rounding import OPEN, Judgement
from analysis.divergence.scene import Scene, which_ranks
from miniapps.trace.records import FETCHED, ORIGIN, TARGET, WINDOW

UPDATES = re.compile(
    r"MPI_R?(put|accumulate|get_accumulate|fetch_and_op|compare_and_swap) at ", re.IGNORECASE
)
SUMS = re.compile(r"MPI_R?(accumulate|get_accumulate|fetch_and_op) at ", re.IGNORECASE)
ON = re.compile(r" on (?P<window>\S.*)$")
WHY = (
    "MPI does not order accumulates of several ranks to one window: floating-point numbers are added in the order in "
    "which they arrive; no record at the target shows this order, and no replay repeats it"
)
PUTS = "MPI does not order accesses of several ranks to one window, and no record at the target shows their order"
SIZES = Judgement(OPEN, None, "the type of the numbers in a window is not known, so their sizes are not")


def _window(call: str) -> str:
    """The name of the window in the name of a call."""
    found = ON.search(call)
    return found["window"] if found else ""


def _updates(scene: Scene, target: int, window: str = "") -> tuple[list[int], bool]:
    """(the ranks that updated the window of `target` in the second run up to this step, whether by accumulates).

    `window`: its name; without one, any window whose memory was not recorded since, as an exposure ended."""
    run, step, table = scene.comparison.b, scene.at.steps[1], "values"
    names = [name for name in scene.frames.recorded(table, *run) if name.startswith(TARGET)]
    ranks: set[int] = set()
    sums = False
    for name in names:
        call = name.removeprefix(TARGET)
        if not UPDATES.match(call) or (window and _window(call) != window):
            continue
        rows = scene.frames.of(table, *run)
        rows = rows[(rows["name"] == name) & (rows["step"] <= step) & (rows["value"] == target)]
        if not window and len(rows):
            rows = rows[rows["step"] > _last_seen(scene, target, _window(call))]
        ranks |= set(rows["block"].tolist())
        sums |= bool(len(rows)) and bool(SUMS.match(call))
    return sorted(ranks), sums


def _last_seen(scene: Scene, target: int, window: str) -> int:
    """The last step up to this one in which the memory of `target` in a window was recorded; -1 for none."""
    run = scene.comparison.b
    rows = scene.frames.of("fingerprints", *run)
    names = rows["name"].astype(str)
    ends = names.str.startswith(WINDOW) & names.str.endswith(f" on {window}")
    steps = rows["step"][ends & (rows["block"] == target) & (rows["step"] <= scene.at.steps[1])]
    return max(steps.tolist(), default=-1)


def _by_arrival(ranks: list[int], sums: bool) -> tuple[str, ...]:
    listed = ", ".join(map(str, ranks))
    return (f"ranks {listed} updated it, and what they gave is equal", WHY if sums else PUTS)


def of_origin(scene: Scene, name: str) -> Cause:
    """Data that a rank gave to a one-sided call, its target or its place there differ."""
    what = "data" if scene.at.name.startswith(ORIGIN) else "places"
    why = [f"{which_ranks(scene)} gave other {what}", "all that was recorded before it is equal"]
    return Cause(KERNEL, scene.at, name, scene.rank, scene.event(name), tuple(why))


def of_window(scene: Scene, name: str) -> Cause:
    """The memory of a window differs as an exposure of it ends."""
    why = [f"the window of {which_ranks(scene)} differs as its exposure ends"]
    ranks, sums = _updates(scene, scene.rank, _window(name))
    event = scene.event(name)
    if len(ranks) < 2:
        by = (
            f"rank {ranks[0]} alone updated it, in an order that MPI keeps"
            if ranks
            else "no rank updated it by a call"
        )
        why += [by, "so its owner stored other numbers"]
        return Cause(KERNEL, scene.at, name, scene.rank, event, tuple(why), rounding=SIZES)
    return Cause(
        ORDER, scene.at, name, scene.rank, event, (*why, *_by_arrival(ranks, sums)), KERNEL,
        "stores of a rank into its own window are not recorded", SIZES,
    )  # fmt: skip


def of_fetched(scene: Scene, name: str) -> Cause:
    """Data that a rank fetched differ."""
    why = [f"{which_ranks(scene)} fetched other data"]
    rows = scene.frames.segment("values", *scene.comparison.b, f"{TARGET}{name}", scene.at.steps[1])
    rows = rows[(rows["occurrence"] == scene.at.occurrence) & (rows["block"] == scene.at.block)]
    target = int(rows["value"].iloc[0]) if len(rows) else scene.rank
    ranks, sums = _updates(scene, target, _window(name))
    why.append(f"from the window of rank {target}")
    if UPDATES.match(name) and scene.rank in ranks and len(ranks) == 1:
        ranks = []
    if not ranks:
        why.append("no other rank updated it by a call, so its owner stored other numbers")
        return Cause(KERNEL, scene.at, name, target, scene.event(name), tuple(why))
    return Cause(
        ORDER, scene.at, name, scene.rank, scene.event(name), (*why, *_by_arrival(ranks, sums)), KERNEL,
        "stores of a rank into its own window are not recorded",
    )  # fmt: skip


def reconsidered(scene: Scene, shown: Cause) -> Cause:
    """`shown`, unless it blames the computation of a rank whose window several ranks updated, with no record of its
    memory since: then the order of these updates comes first."""
    if (
        shown.kind not in (KERNEL, MEMORY, UNDECIDED)
        or shown.rank is None
        or scene.at.name.startswith((FETCHED, WINDOW))
    ):
        return shown
    ranks, sums = _updates(scene, shown.rank)
    if len(ranks) < 2:
        return shown
    listed = ", ".join(map(str, ranks))
    why = (*shown.why, f"ranks {listed} updated a window of rank {shown.rank} before", WHY if sums else PUTS)
    return replace(
        shown, kind=ORDER, why=why, instead=shown.kind, instead_why="if its window is not what it used"
    )
