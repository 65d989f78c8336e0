"""The records that a replay repeats: orders of arrival, packings of trees, and decisions from a clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernels.allreduce.packing import Packing, decode
from kernels.guarantees import ChoiceError
from miniapps.errors import UsageError
from miniapps.trace import TraceError, read_run
from miniapps.trace.records import PACKING


@dataclass(frozen=True)
class Replay:
    """The records in the directory `run`: application, options of the problem by key, number of ranks.

    `orders`: uint16 (calls, size) by (name of the reducer, repeat); `packings` by the same key; `trees`: the ordering
    of the packings, None without packings; `choices` by (repeat, step, name, block).
    """

    run: str
    app: str
    problem: Mapping[str, Any]
    size: int
    orders: dict[tuple[str, int], np.ndarray]
    choices: dict[tuple[int, int, str, int], str]
    packings: dict[tuple[str, int], Packing] = field(default_factory=dict)
    trees: str | None = None

    def require(self, app: str, problem: Mapping[str, Any], size: int, flags: Mapping[str, str]) -> None:
        """Raise UsageError unless this run has the same application, problem and number of ranks; `flags`: spelling of
        each option on the command line, by key."""
        _require_app(self.run, self.app, app)
        if self.size != size:
            raise UsageError(
                f"--replay {self.run}: it ran on {self.size} ranks, this run has {size}; start {self.size}"
            )
        keys = [key for key in (*self.problem, *problem) if self.problem.get(key) != problem.get(key)]
        if keys:
            theirs, ours = (
                " ".join(_spelled(flags.get(key, key), values.get(key)) for key in dict.fromkeys(keys))
                for values in (self.problem, problem)
            )
            raise UsageError(
                f"--replay {self.run}: it ran with {theirs}, this run has {ours}; leave these options out: a replay "
                "takes the problem from the recorded run"
            )

    def order(self, name: str, repeat: int) -> list[np.ndarray]:
        """The orders of the reducer `name`. Raises UsageError where the run has none."""
        if (name, repeat) not in self.orders:
            recorded = ", ".join(f"{n} (repeat {r})" for n, r in self.orders)
            raise UsageError(
                f"--replay {self.run}: no orders of reducer {name!r} in repeat {repeat}; it has {recorded or 'none'}; "
                "record with --allreduce arrival and the same --repeats"
            )
        return list(self.orders[name, repeat])

    def packing(self, name: str, repeat: int) -> Packing:
        """The packing of the reducer `name`. Raises UsageError where the run has none."""
        if (name, repeat) not in self.packings:
            recorded = ", ".join(f"{n} (repeat {r})" for n, r in self.packings)
            raise UsageError(
                f"--replay {self.run}: no trees of reducer {name!r} in repeat {repeat}; it has {recorded or 'none'}; "
                "replay it with the same options and --repeats"
            )
        return self.packings[name, repeat]

    def choice(self, name: str, repeat: int, step: int, block: int) -> str:
        """The recorded choice. Raises UsageError where the run has none."""
        if (choice := self.choices.get((repeat, step, name, block))) is None:
            where = f"repeat {repeat}, step {step}" + (f", block {block}" if block >= 0 else "")
            raise UsageError(
                f"--replay {self.run}: no choice {name!r} in {where}; replay a run that made it, with the same method "
                "and --repeats"
            )
        return choice


def problem_of(run: str, app: str) -> Mapping[str, Any]:
    """The options that define the problem of the directory `run`. Raises UsageError unless it is a run of `app`."""
    try:
        (trace,) = read_run(run, tables=[], ranks=[0])
    except TraceError as error:
        raise UsageError(f"--replay {error}") from error
    _require_app(run, trace.attributes.get("app", "unknown origin"), app)
    return trace.attributes.get("problem_options", {})


def _require_app(run: str, theirs: str, ours: str) -> None:
    if theirs != ours:
        raise UsageError(f"--replay {run}: a run of {theirs}, not of {ours}; give a run of {ours}")


def _spelled(flag: str, value: Any) -> str:
    """An option with its value as on the command line: `--steps 8`."""
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return f"{flag}{text}" if flag.endswith("=") else f"{flag} {text}"


def read(run: str) -> Replay:
    """Reads the records of rank 0 in the directory `run`. Raises UsageError where they cannot be replayed."""
    try:
        (trace,) = read_run(run, tables=["order", "choices"], ranks=[0])
    except TraceError as error:
        raise UsageError(f"--replay {error}") from error
    order, names = trace.tables["order"], trace.names
    keys = sorted({(int(name), int(r)) for name, r in zip(order["name"], order["repeat"], strict=True)})
    rows = zip(
        *(trace.tables["choices"][key].tolist() for key in ("repeat", "step", "name", "block", "choice")),
        strict=True,
    )
    recorded = {(r, step, names[name], block): names[choice] for r, step, name, block, choice in rows}
    choices = {key: choice for key, choice in recorded.items() if not key[2].startswith(PACKING)}
    if not keys and not recorded:
        raise UsageError(
            f"--replay {run}: it has no orders and no choices; record a run with --allreduce arrival on several "
            "ranks, with --allreduce trees:links=FILE, or one that decides from a clock"
        )
    try:
        packings = {
            (name.removeprefix(PACKING), r): decode(choice)
            for (r, _, name, _), choice in recorded.items()
            if name.startswith(PACKING)
        }
    except ChoiceError as error:
        raise UsageError(f"--replay {run}: {error}") from error
    orders = {
        (names[name], r): order["ranks"][(order["name"] == name) & (order["repeat"] == r)] for name, r in keys
    }
    attributes = trace.attributes
    if missing := [key for key in ("app", "problem_options") if key not in attributes]:
        raise UsageError(
            f"--replay {run}: the attribute {missing[0]} of its trace is missing; record it again"
        )
    return Replay(run, attributes["app"], attributes["problem_options"], attributes["size"], orders, choices,
                  packings, _trees(run, attributes.get("reductions", {}), packings))  # fmt: skip


def _trees(
    run: str, reductions: Mapping[str, Mapping[str, Any]], packings: Mapping[tuple[str, int], Packing]
) -> str | None:
    """The ordering of the reductions that have `packings`. Raises UsageError unless all share one ordering, which
    names the packings' digest."""
    orderings = {reductions[name]["ordering"] for name, _ in packings if name in reductions}
    digests = {packing.digest for packing in packings.values()}
    if len(orderings) > 1 or any(digest not in str(orderings) for digest in digests):
        raise UsageError(
            f"--replay {run}: its reductions used different trees, {', '.join(sorted(orderings))}: the file of links "
            "changed while it ran, and no option can repeat that; record a new run"
        )
    return next(iter(orderings), None)
