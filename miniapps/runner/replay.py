"""What a run to be replayed recorded: orders of arrival, and what it decided from a clock."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from miniapps.errors import UsageError
from miniapps.trace import TraceError, read_run


@dataclass(frozen=True)
class Replay:
    """Of the directory `run`: application, problem, number of ranks; `orders`: uint16 (calls, size) by name of the
    reducer and repeat; `choices` by repeat, step, name and block."""

    run: str
    app: str
    problem: str
    size: int
    orders: dict[tuple[str, int], np.ndarray]
    choices: dict[tuple[int, int, str, int], str]

    def require(self, app: str, problem: str, size: int) -> None:
        """Raise UsageError unless this run is of the same application, problem and number of ranks."""
        for what, theirs, ours in (
            ("application", self.app, app),
            ("number of ranks", self.size, size),
            ("problem (hash of the options that define it)", self.problem, problem),
        ):
            if theirs != ours:
                raise UsageError(
                    f"--replay {self.run}: its {what} is {theirs}, here it is {ours}; repeat it with the same "
                    "application, options and number of ranks"
                )

    def order(self, name: str, repeat: int) -> list[np.ndarray]:
        """The orders of the reducer `name`. Raises UsageError where there are none."""
        if (name, repeat) not in self.orders:
            recorded = ", ".join(f"{n} (repeat {r})" for n, r in self.orders)
            raise UsageError(
                f"--replay {self.run}: no orders of reducer {name!r} in repeat {repeat}; it has {recorded or 'none'}; "
                "record with --allreduce arrival and the same --repeats"
            )
        return list(self.orders[name, repeat])

    def choice(self, name: str, repeat: int, step: int, block: int) -> str:
        """What was chosen. Raises UsageError where nothing was."""
        if (choice := self.choices.get((repeat, step, name, block))) is None:
            where = f"repeat {repeat}, step {step}" + (f", block {block}" if block >= 0 else "")
            raise UsageError(
                f"--replay {self.run}: no choice {name!r} in {where}; replay a run that made it, with the same method "
                "and --repeats"
            )
        return choice


def read(run: str) -> Replay:
    """What rank 0 of the directory `run` recorded; raises UsageError where that cannot be replayed."""
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
    choices = {(r, step, names[name], block): names[choice] for r, step, name, block, choice in rows}
    if not keys and not choices:
        raise UsageError(
            f"--replay {run}: no orders and no choices in it; record a run with --allreduce arrival on several "
            "ranks, or one that decides from a clock"
        )
    orders = {
        (names[name], r): order["ranks"][(order["name"] == name) & (order["repeat"] == r)] for name, r in keys
    }
    attributes = trace.attributes
    return Replay(run, attributes["app"], attributes["problem"], attributes["size"], orders, choices)
