"""The audit of a case: the same call under other conditions, and what came of it.

| change | what is changed between calls | what else is held |
|---|---|---|
| runs | nothing | the number of threads, 1 to 4 in turn |
| threads | the number of threads, 1 to 4 | where runs with each of them agree |
| batch | how many samples are in the batch: the result of the first one is compared | one thread |
| position | where in the batch a sample is | one thread |
| address | bytes that all inputs lie beyond a multiple of 64 | one thread |
| mode | torch's deterministic algorithms are asked for | one thread; then runs and threads again |
| process | a fresh process (by the one who calls) | one thread |

A change of algorithm, as by mode, is told apart from chance: `mode.algorithm` compares single calls by one thread.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.torchops.calls import Calls, Result, deterministic, digest, threads
from kernels.torchops.cases.operations import Prepared
from kernels.torchops.differences import Seen


@dataclass(frozen=True)
class Plan:
    """How much is tried. `runs`: calls with each number of `threads`; `batches`: sizes that are compared with the whole
    batch; `positions`: at most so many; `offsets`: bytes; `timed`: calls whose median is the time of a mode."""

    runs: int = 12
    threads: tuple[int, ...] = (1, 2, 3, 4)
    batches: tuple[int, ...] = (1, 2, 3, 7, 16, 64)
    positions: int = 16
    offsets: tuple[int, ...] = (0, 4, 8, 16, 32, 48)
    timed: int = 5


def audit(
    case: Prepared, direction: str, name: str, seed: int, plan: Plan, device: str = "cpu"
) -> dict[str, Any]:
    """What every change came to, by its name, and `digest`, that of the first call by one thread. A change that does
    not belong to the case is left out: a batch where there is none, threads on a GPU. Raises what torch raises without
    its deterministic mode."""
    calls = Calls(case, direction, device, name, seed)
    with deterministic(False), threads(1):
        first = calls.result()
        answer: dict[str, Any] = {"digest": digest(first), "elements": int(sum(x.size for x in first))}
        host = device == "cpu"
        answer |= _races(calls, first, plan, host)
        if calls.samples:
            answer["batch"] = _batch(calls, plan.batches).differences().as_dict()
            answer["position"] = _position(calls, plan.positions).differences().as_dict()
        if host:
            answer["address"] = _all(
                first, (lambda o=o: calls.result(offset=o) for o in plan.offsets)
            ).as_dict()
    answer["mode"] = _mode(calls, first, plan, host)
    return answer


def first_digest(case: Prepared, direction: str, name: str, seed: int, device: str = "cpu") -> str:
    """The digest of the first call by one thread: what a fresh process compares."""
    with deterministic(False), threads(1):
        return digest(Calls(case, direction, device, name, seed).result())


def _races(calls: Calls, first: Result, plan: Plan, host: bool) -> dict[str, Any]:
    """Runs and threads, as the mode is now. Runs are compared at one number of threads each; the number itself is a
    change only where every number repeats its own bits."""
    worst, each = Seen(first), Seen(first)
    by: dict[str, int] = {}
    for count in plan.threads if host else (1,):
        same = Seen()
        with threads(count):
            for _ in range(plan.runs):
                same.add(calls.result())
        by[str(count)] = same.distinct
        worst = same if same.distinct > worst.distinct else worst
        each.add(same.first)
    repeats = worst.distinct == 1
    runs = worst.differences(plan.runs * len(by) if repeats else None).as_dict() | {"by": by}
    return {"runs": runs} | ({"threads": each.differences().as_dict()} if host and repeats else {})


def _batch(calls: Calls, sizes: Sequence[int]) -> Seen:
    """The result of the first sample in batches of `sizes`, and in the whole."""
    seen = Seen(_row(calls.result(np.arange(calls.samples)), 0))
    for size in sizes:
        if size < calls.samples:
            seen.add(_row(calls.result(np.arange(size)), 0))
    return seen


def _position(calls: Calls, most: int) -> Seen:
    """The result of the first sample wherever it is in the whole batch."""
    count = calls.samples
    seen = Seen(_row(calls.result(np.arange(count)), 0))
    for place in np.unique(np.linspace(0, count - 1, min(most, count)).astype(int))[1:]:
        seen.add(_row(calls.result(np.roll(np.arange(count), place)), place))
    return seen


def _row(result: Result, place: int) -> Result:
    return tuple(np.ascontiguousarray(x[place]) for x in result)


def _all(first: Result, calls):
    seen = Seen(first)
    for call in calls:
        seen.add(call())
    return seen.differences()


def _mode(calls: Calls, first: Result, plan: Plan, host: bool) -> dict[str, Any]:
    """What torch's deterministic mode does: throws, or runs and threads under it, whether one thread then has other
    bits (another algorithm), and the times of both, by two threads."""
    pair = 2 if host else 1
    with deterministic(False), threads(pair):
        without = _seconds(calls, plan.timed)
    try:
        with deterministic(True), threads(1):
            held = calls.result()
            answer: dict[str, Any] = {"throws": None, **_races(calls, held, plan, host)}
            with threads(pair):
                seconds = _seconds(calls, plan.timed)
    except RuntimeError as error:
        if "determinis" not in str(error):
            raise
        return {"throws": str(error).split(".")[0], "seconds": [without, None]}
    return answer | {"algorithm": _all(first, [lambda: held]).as_dict(), "seconds": [without, seconds]}


def _seconds(calls: Calls, count: int) -> float:
    """The median time of so many calls."""
    return statistics.median(calls.seconds() for _ in range(count))
