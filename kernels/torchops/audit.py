"""The audit of a case: repeats a call under changed conditions, and compares the results.

| change | condition that changes between calls | fixed conditions |
|---|---|---|
| runs | nothing | the number of threads of every pool, 1 to 4 in turn |
| threads | the number of threads of all pools, then of each alone | tried only if runs with each number agree |
| batch | the number of samples in the batch; compares the result of the first sample | one thread |
| position | the position of a sample in the batch | one thread |
| address | the offset of the storage of all inputs from a multiple of 64 bytes | one thread |
| mode | torch's deterministic algorithms | one thread; then runs and threads again |
| process | a fresh process (by the caller) | one thread |
| replaced | torch's calls, inside of `fpna.torch.replaced()`; if runs or threads differ | runs and threads again |

`mode.algorithm` compares single calls by one thread, and so separates a change of algorithm from chance. A condition
under which a call fails is named and left out. A change without any successful call is `not_tried`, with the reason.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from kernels.torchops.calls import Calls, Nothing, deterministic
from kernels.torchops.cases.operation import Prepared
from kernels.torchops.differences import Seen
from kernels.torchops.pools import Pools, aside, unset
from kernels.torchops.results import Result

MOST_NAMES = 20  # listed results that cannot be compared


class Untried(Exception):
    """No condition of a change could be tried; the message says why."""


@dataclass(frozen=True)
class Plan:
    """The extent of an audit. `runs`: calls with each number of `threads`; `batches`: sizes compared with the whole
    batch; `positions`: the most positions; `offsets`: in bytes; `timed`: calls whose median is the time of a mode."""

    runs: int = 12
    threads: tuple[int, ...] = (1, 2, 3, 4)
    batches: tuple[int, ...] = (1, 2, 3, 7, 16, 64)
    positions: int = 16
    offsets: tuple[int, ...] = (0, 4, 8, 16, 32, 48)
    timed: int = 5


def audit(
    case: Prepared,
    direction: str,
    name: str,
    seed: int,
    plan: Plan,
    device: str = "cpu",
    ended: Callable[[float], None] | None = None,
) -> dict[str, Any]:
    """The findings of every change, by its name, and the `digest` of the first call by one thread.

    Leaves out changes that do not apply to the case: a batch where there is none, threads on a GPU. Raises the error of
    the first call without torch's deterministic mode, and Nothing where it has no number to compare."""
    calls = Calls(case, direction, device, name, seed, ended)
    host = device == "cpu"
    with deterministic(False):
        first, pools = _begun(calls)
        answer: dict[str, Any] = {
            "digest": first.digest(),
            "elements": first.elements,
            "skipped": dict(list(first.skipped.items())[:MOST_NAMES]),
        }
        failures: dict[str, str] = dict(case.failures)
        with pools.held(1):
            elsewhere = aside(calls.result)
        answer |= _races(calls, first, plan, host, pools)
        with pools.held(1):
            if calls.samples:
                _tried(answer, failures, "batch", lambda: _batch(calls, plan.batches))
                _tried(answer, failures, "position", lambda: _position(calls, plan.positions))
            if calls.placed():
                _tried(answer, failures, "address", lambda: _addresses(calls, first, plan.offsets))
    answer["mode"] = _mode(calls, first, plan, host, pools)
    if any(answer.get(change, {}).get("distinct", 1) > 1 for change in ("runs", "threads")):
        _tried(answer, failures, "replaced", lambda: _replaced(calls, plan, host, pools))
    answer["pools"] = pools.varied() if host else {}
    answer["elsewhere"] = {"seconds": elsewhere, "packages": unset(), "lacking": pools.lacking}
    return answer | {"not_tried": failures}


def first_digest(case: Prepared, direction: str, name: str, seed: int, device: str = "cpu") -> str:
    """The digest of the first call by one thread, which a fresh process compares."""
    with deterministic(False):
        return _begun(Calls(case, direction, device, name, seed))[0].digest()


def _begun(calls: Calls) -> tuple[Result, Pools]:
    """The first result by one thread, and the pools of threads after all libraries are loaded. Raises Nothing where the
    result has no number."""
    with Pools().held(1):
        calls.result()  # may load libraries, and with them pools
    pools = Pools()
    with pools.held(1):
        first = calls.result()
    if not first.leaves:
        left = "; ".join(f"{name}: {why}" for name, why in list(first.skipped.items())[:MOST_NAMES])
        raise Nothing(f"it returned {left or 'None, or nothing with a number'}")
    if not first.elements:
        raise Nothing("everything that it returned is empty")
    return first, pools


def _tried(
    answer: dict[str, Any], failures: dict[str, str], change: str, probe: Callable[[], dict[str, Any]]
) -> None:
    """Adds the findings of a change to `answer`, or to `failures` the reason why it could not be tried."""
    try:
        answer[change] = probe()
    except Untried as untried:
        failures[change] = str(untried)
    except Exception as error:  # a function may raise any error for other inputs
        failures[change] = _message(error)


def _message(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _races(calls: Calls, first: Result, plan: Plan, host: bool, pools: Pools) -> dict[str, Any]:
    """The findings of runs and threads in the current mode. Runs are compared for each number of threads separately;
    numbers of threads are compared only if the runs of each number agree."""
    counts = plan.threads if host else (1,)
    worst, each = Seen(first), Seen(first)
    by: dict[str, int] = {}
    failed: dict[str, str] = {}
    trials = 0
    for count in counts:
        same = Seen()
        try:
            with pools.held(count):
                for _ in range(plan.runs):
                    same.add(calls.result())
        except Exception as error:
            failed[str(count)] = _message(error)
        if not same.trials:
            continue
        by[str(count)] = same.distinct
        trials += same.trials
        worst = same if same.distinct > worst.distinct else worst
        each.add(same.first)
    repeats = worst.distinct == 1
    runs = worst.differences(trials if repeats else None).as_dict() | {"by": by, "failed": failed}
    answer = {"runs": runs}
    if host and repeats and len(by) > 1:
        answer["threads"] = each.differences().as_dict()
        if each.distinct > 1 and len(pools.all) > 1:
            answer["threads"]["alone"] = _alone(calls, first, counts, pools)
    return answer


def _alone(calls: Calls, first: Result, counts: Sequence[int], pools: Pools) -> dict[str, int]:
    """{pool: distinct results over its numbers of threads, with the other pools at one thread}."""
    alone: dict[str, int] = {}
    for pool in pools.all:
        seen = Seen(first)
        for count in counts:
            try:
                with pools.held(count, pool.name):
                    seen.add(calls.result())
            except Exception:  # `_races` reports it for all pools together
                continue
        alone[pool.name] = seen.distinct
    return alone


def _batch(calls: Calls, sizes: Sequence[int]) -> dict[str, Any]:
    """Compares the result of the first sample in batches of `sizes` with that in the whole batch."""
    count = calls.samples

    def first_of(size: int) -> Result:
        return calls.result(np.arange(size)).row(0, size)

    return _all(Seen(first_of(count)), {str(n): partial(first_of, n) for n in sizes if n < count})


def _position(calls: Calls, most: int) -> dict[str, Any]:
    """Compares the results of the first sample at up to `most` positions in the whole batch."""
    count = calls.samples

    def at(place: int) -> Result:
        return calls.result(np.roll(np.arange(count), place)).row(place, count)

    places = np.unique(np.linspace(0, count - 1, min(most, count)).astype(int))[1:].tolist()
    return _all(Seen(at(0)), {str(place): partial(at, place) for place in places})


def _addresses(calls: Calls, first: Result, offsets: Sequence[int]) -> dict[str, Any]:
    return _all(Seen(first), {str(offset): partial(calls.result, None, offset) for offset in offsets})


def _all(seen: Seen, probes: dict[str, Callable[[], Result]]) -> dict[str, Any]:
    """The differences over all probes, and the names of failed ones. Raises Untried if every probe fails."""
    failed: dict[str, str] = {}
    for name, probe in probes.items():
        try:
            seen.add(probe())
        except Exception as error:
            failed[name] = _message(error)
    if len(failed) == len(probes):
        raise Untried(next(iter(failed.values()), "there is only one sample"))
    skipped = dict(list(seen.first.skipped.items())[:MOST_NAMES])
    return seen.differences().as_dict() | {"failed": failed, "skipped": skipped}


def _mode(calls: Calls, first: Result, plan: Plan, host: bool, pools: Pools) -> dict[str, Any]:
    """The findings of torch's deterministic mode: its error, or runs and threads under it, whether one thread then has
    other bits (another algorithm), and the times with and without it, by two threads."""
    pair = 2 if host else 1
    without = None
    try:
        with deterministic(False), pools.held(pair):
            without = _seconds(calls, plan.timed)
        with deterministic(True):
            with pools.held(1):
                held = calls.result()
            answer: dict[str, Any] = {"throws": None, **_races(calls, held, plan, host, pools)}
            with pools.held(pair):
                seconds = _seconds(calls, plan.timed)
    except Exception as error:
        if "determinis" not in str(error):
            return {"throws": None, "failed": _message(error), "seconds": [without, None]}
        return {"throws": str(error).split(".")[0], "seconds": [without, None]}
    return answer | {"algorithm": _all(Seen(first), {"": lambda: held}), "seconds": [without, seconds]}


def _replaced(calls: Calls, plan: Plan, host: bool, pools: Pools) -> dict[str, Any]:
    """The findings of runs and threads inside of `fpna.torch.replaced()`, and the `calls` of torch that it replaced.
    Without such calls there are no findings."""
    from kernels.torchops.alternatives.replacing import replaced

    with deterministic(False), replaced() as mode:
        with pools.held(1):
            held = calls.result()
        found = dict(mode.replaced)
        return {"calls": found, **(_races(calls, held, plan, host, pools) if found else {})}


def _seconds(calls: Calls, count: int) -> float:
    """The median time of `count` calls, in seconds."""
    return statistics.median(calls.seconds() for _ in range(count))
