"""The step of a run as data for all ranks (`miniapps.untrusted.program`): what each computes and sends, without a run.

The trainer of each rank does one step alone (`alone`), on tables without memory, and every call and message is noted.
Exact sums count as one word of 64 bits each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from math import ceil
from typing import Any, cast

from kernels.guarantees import Level
from miniapps.dlrm import problem
from miniapps.dlrm.alone import AXIS, Alone, Requests
from miniapps.dlrm.watched import Call, Watch
from miniapps.dlrm.works import between, is_of_torch, recorded, tables_recorded
from miniapps.runner.options import RunOptions
from miniapps.untrusted.program import Program, Ranks, Segment, Wait, Work

NAME = "dlrm"
STEP = 2  # the one that is noted: the first one records tables, too
NOTHING = 0, 0, 0, 0
LONG = 100  # characters of a sharding in a title
PRODUCTS = ("mm ", "addmm ", "bmm ")  # whose operations are the model's


def program_of(
    config: Any,
    options: RunOptions,
    size: int,
    title: str,
    recorded: bool = False,
    calls: list[list[Call]] | None = None,
) -> Program:
    """The program of a step of a complete `config` on `size` ranks. `recorded`: with the mean of the fingerprints of
    tables in a run. `calls` gets the calls of each rank for its tables. Raises ChoiceError for a sharding that does not
    fit, UsageError without the ratings."""
    given = problem.given(config)
    numbers: dict[Work, int] = {}
    found: dict[tuple, list[int]] = {}
    requests: Requests | None = None
    for rank in range(size):
        step = Alone(timed_config(config), options, rank, size, given, False, requests)
        requests = step.requests
        watch, memory = noted(step)
        events = [*watch.events, between(own_calls(watch.events), watch.sent)]
        if calls is not None:
            calls.append(watch.tables)
        if recorded:
            events[:0] = fingerprints(step, config)
        found.setdefault((*parts_of(events, numbers), memory), []).append(rank)
        step.close()
    classes = tuple(
        Ranks(tuple(ranks), segments, waits, memory) for (segments, waits, memory), ranks in found.items()
    )
    works = tuple(numbers)
    flops = sum(
        works[number].flops * count * len(each.ranks)
        for each in classes
        for segment in each.segments
        for number, count in segment.calls
        if works[number].key.partition(" ")[2].startswith(PRODUCTS)
    )
    return Program(
        title=title, mesh={AXIS: size}, guarantee=cast(Level, options.policy.level), threads=options.threads,
        model_flops=flops, works=works, classes=classes,
    )  # fmt: skip


def planned(config: Any, options: RunOptions, size: int, calls: list[list[Call]] | None = None) -> Program:
    """The program of a step of a run, with the mean of its fingerprints. `calls` and errors are those of
    `program_of`."""
    title = f"{NAME}, {counted(config.embeddings.sharding)} over {size} rank{'s' * (size > 1)}"
    return program_of(config, options, size, title, True, calls)


def counted(sharding: str) -> str:
    """The value of --sharding; of many tables how many have each sharding."""
    if len(sharding) <= LONG:
        return sharding
    counts = Counter(word.partition(":")[0] for word in sharding.split(","))
    return ", ".join(f"{n} x {name}" for name, n in counts.items())


def timed_config(config: Any) -> Any:
    """The configuration of steps that are timed: they record no tables, count no lookups of later steps, and learn
    with the rate 0, so that no number grows."""
    own = deepcopy(config)
    own.embeddings.fingerprints, own.training.steps, own.training.until = 0, 1, None
    own.training.rate = 0.0
    return own


def noted(step: Alone) -> tuple[Watch, tuple[int, int, int]]:
    """(the watch over a step; bytes of weights, of the optimiser's state, and of what the step computes)."""
    watch = Watch(step)
    step.prepare(STEP)
    with watch.calls(fine=True):
        step.run(STEP)
    trainer = step.trainer
    weights = sum(array.nbytes for array in trainer.weights)
    states = sum(array.nbytes for kept in trainer.optimiser.states.values() for array in kept)
    tables = sum(shard.weights.nbytes for shard in trainer.tables.shards)
    return watch, (weights + tables, states, watch.held)


def own_calls(events: Sequence[Work | Wait]) -> int:
    """How many of the events are no kernels of torch."""
    return sum(isinstance(event, Wait) or not is_of_torch(event) for event in events)


def fingerprints(step: Alone, config: Any) -> list[Work | Wait]:
    """The fingerprints of the tables of one rank, as a mean over the steps of a run."""
    every, steps = config.embeddings.fingerprints, max(config.training.last, 1)
    often = ceil(steps / every) if every else 1
    elements, blocks = tables_recorded(step.trainer)
    return [recorded(elements * often // steps, ceil(blocks * often / steps))] if blocks else []


def parts_of(
    events: Sequence[Work | Wait], numbers: dict[Work, int]
) -> tuple[tuple[Segment, ...], tuple[Wait, ...]]:
    """The segments of a rank's step and the waits between them; `numbers` gets the works that it lacks."""
    segments: list[Counter[int]] = [Counter()]
    waits = []
    for event in events:
        if isinstance(event, Wait):
            waits.append(event)
            segments.append(Counter())
        else:
            segments[-1][numbers.setdefault(event, len(numbers))] += 1
    return tuple(Segment(tuple(calls.items()), NOTHING) for calls in segments), tuple(waits)
