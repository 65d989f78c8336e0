"""The fastest sharding of the tables, before any run: prices of one plan for each sharding, an exact search over the
tables, and prices of the best assignments as whole plans.

    found = compare(config, options, size=2, calibrations=["cal"])
    found.best                                      # the value of --sharding

In the first plans all tables have one sharding. The prices of their works give the seconds of each table under each
sharding on each rank (`costs`); these give the assignments with the lowest sums (`assignments`). The best of these and
the first plans are then priced whole, with the machine's noise.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec.structs import replace

from miniapps.dlrm import problem
from miniapps.dlrm.assignments import Assignments, search
from miniapps.dlrm.costs import costs_of
from miniapps.dlrm.program import NOTHING, counted, planned
from miniapps.dlrm.watched import Call
from miniapps.dlrm.works import BETWEEN, between
from miniapps.embeddings.sharding import Sharding
from miniapps.embeddings.tables import MESSAGES
from miniapps.errors import UsageError
from miniapps.partition.pricing.keys import PREFIX
from miniapps.partition.showing.price import priced
from miniapps.runner.options import RunOptions
from miniapps.untrusted.program import Program, Ranks, Segment, to_json

EMPTY, FULL = "messages without bytes", "messages with bytes"  # titles of two programs


@dataclass(frozen=True)
class Compared:
    """The result of a comparison. `price`: the document of `fpna price` on the whole plans; `shardings`: {title of a
    plan there: value of --sharding}; `left`: (sharding, why it is in no assignment); `found`: the search over `count`
    assignments, whose seconds are those of tables alone; `seconds` of all."""

    price: dict[str, Any]
    shardings: dict[str, str]
    left: list[tuple[str, str]]
    found: Assignments
    count: int
    seconds: float

    @property
    def best(self) -> str:
        """The sharding of the plan that is predicted to be the fastest."""
        return self.shardings[self.price["tables"]["plans"][0]["title"]]

    def sentence(self) -> str:
        """How many assignments there are, what the search says of them, and how many plans were priced."""
        first = self.found.best[0][0]
        if self.found.exact:
            exact = "the search over sums of tables is exact"
        else:
            exact = f"the search stopped, and another sum of tables may be {1 - self.found.least / first:.1%} lower"
        return (
            f"{self.count:,} assignments of shardings to tables, {self.found.looked:,} looked at: {exact}. "
            f"{len(self.shardings)} plans priced, in {self.seconds:.1f} s."
        )


def compare(
    config: Any, options: RunOptions, size: int, calibrations: Sequence[str], machine: str | None = None,
    clock: str = "wall",
) -> Compared:  # fmt: skip
    """Compares all shardings that keep the guarantee, for a complete `config` on `size` ranks. The other arguments are
    options of `fpna price`. Raises UsageError without prices, or without the ratings."""
    begin = time.perf_counter()
    calls: dict[str, list[list[Call]]] = {name: [] for name in problem.allowed(config, options)}
    plans = {name: planned(_with(config, name), options, size, of) for name, of in calls.items()}
    about = list(calibrations), machine, clock
    messages, nbytes = _of_messages(list(plans.values()))
    document = priced([*map(_bare, plans.values(), plans), *messages], *about, kernels="all")
    reasons = {row["title"]: row["reason"] for row in document["tables"]["unpriced"]}
    names = [name for name in plans if name not in reasons]
    if not names or reasons.keys() & {EMPTY, FULL}:
        raise UsageError(next(iter(reasons.values())))
    seconds, per_byte = _seconds(document), _per_byte(document, nbytes)
    placed = problem.placed(_with(config, "table"), options, size)
    choices = [
        Sharding(name, rank) for name in names for rank in (range(size) if name == "table" else [None])
    ]
    costs = []
    for t, of in enumerate(placed):
        parts: list[np.ndarray] = []
        for name in names:
            own = [[call for call in every if call.table == t] for every in calls[name]]
            parts.extend(costs_of(own, seconds, per_byte, of.holders()[0] if name == "table" else None))
        costs.append(np.array(parts))
    found = search(costs)
    for _, chosen in found.best:
        text = in_words([choices[k] for k in chosen])
        if text not in plans:
            plans[text] = planned(_with(config, text), options, size)
    programs, shardings = _different({text: plan for text, plan in plans.items() if text not in reasons})
    price = priced(programs, *about)
    count = len(choices) ** len(costs)
    return Compared(price, shardings, list(reasons.items()), found, count, time.perf_counter() - begin)


def in_words(shardings: Sequence[Sharding]) -> str:
    """The value of --sharding for these shardings of the tables."""
    words = [str(sharding) for sharding in shardings]
    return words[0] if len(set(words)) == 1 else ",".join(words)


def _with(config: Any, sharding: str) -> Any:
    own = deepcopy(config)
    own.embeddings.sharding = sharding
    return own


def _bare(program: Program, title: str) -> Program:
    """The program on devices of any memory: not all tables will have its sharding."""
    classes = tuple(replace(of, memory=(0, 0, 0)) for of in program.classes)
    return replace(program, title=title, classes=classes)


def _of_messages(plans: Sequence[Program]) -> tuple[list[Program], int]:
    """(the messages for tables in a step alone, without bytes and with the mean of `plans`; these bytes of a rank);
    none on one rank."""
    first = plans[0]
    waits = [wait for wait in first.classes[0].waits if wait.name in MESSAGES]
    if not waits:
        return [], 0
    every = [
        wait.nbytes for plan in plans for of in plan.classes for wait in of.waits if wait.name in MESSAGES
    ]
    calls = next(work.dims[0] for work in first.works if work.key.startswith(f"{PREFIX}{BETWEEN}"))
    programs = []
    for title, each in ((EMPTY, 0), (FULL, max(sum(every) // len(every), 1))):
        sent = tuple(replace(wait, nbytes=each) for wait in waits)
        segments = Segment(((0, 1),), NOTHING), *(Segment((), NOTHING) for _ in sent)
        ranks = Ranks(tuple(range(first.size)), segments, sent, (0, 0, 0))
        works = (between(calls, each * len(sent)),)
        programs.append(replace(first, title=title, works=works, classes=(ranks,), model_flops=0))
    return programs, each * len(waits)


def _seconds(document: Mapping[str, Any]) -> dict[str, float]:
    """{kernel@dims: seconds of a call} in a document of prices."""
    rows = document["tables"]["kernels"]
    return {f"{PREFIX}{row['kernel']}@{row['dims']}": row["seconds"] / row["calls"] for row in rows}


def _per_byte(document: Mapping[str, Any], nbytes: int) -> float:
    """Seconds of a byte of a message, and of its packing."""
    taken = {row["title"]: row["communication_s"] + row["compute_s"] for row in document["tables"]["plans"]}
    return max(taken[FULL] - taken[EMPTY], 0.0) / nbytes if nbytes else 0.0


def _different(plans: Mapping[str, Program]) -> tuple[list[Program], dict[str, str]]:
    """(the different programs of `plans`, each with a title of its own, {title: sharding})."""
    programs: dict[bytes, Program] = {}
    shardings = {}
    for number, (text, plan) in enumerate(plans.items(), start=1):
        content = to_json(replace(plan, title="-"))
        if content not in programs:
            title = _titled(text, number)
            programs[content], shardings[title] = replace(plan, title=title), text
    return list(programs.values()), shardings


def _titled(sharding: str, number: int) -> str:
    """A title of the plan of this number, which no other has."""
    short = counted(sharding)
    return sharding if short == sharding else f"{number}: {short}"
