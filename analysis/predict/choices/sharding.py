"""The fastest sharding of tables of embeddings: loads from a traced run, rates from timed steps, and the search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.predict.choices import lookups
from analysis.predict.choices.lookups import FLOAT, SHARDINGS, Load, Rates
from analysis.predict.choices.search import Assignments, search
from miniapps.trace import RankTrace
from miniapps.trace.records import (
    ASKED,
    ASKED_CLASS,
    ASKED_COLUMNS,
    ASKED_LOOKUPS,
    ASKED_ROWS,
    ASKED_SAMPLES,
    ASKED_SHARES,
)  # fmt: skip
from miniapps.untrusted.lookups import Asked, Measured
from miniapps.untrusted.records import conform
from miniapps.untrusted.regular import Refused
from miniapps.untrusted.text import printable

CACHES = [2**20, 2**22, 2**24, 2**26]  # candidate bytes of a rank's cache: the best fit decides
CLOCKS = ("cpu", "wall")
# Bytes of an element of a partial sum of a bag. `exact` is assumed to need one word. Tables whose values differ by more
# than a factor of about 2**26 in a step need more words (`kernels.exact.Limbs`), and traces do not record how many.
POOLED = {"sorted": FLOAT, "exact": 8}


@dataclass(frozen=True)
class Model:
    """Fitted `rates`, and their fit: bytes of `cache`, number of timed `steps`, `ranks`, and the `order` of sums."""

    rates: Rates
    cache: int
    steps: int
    ranks: int
    order: str

    def costs(self, load: Load, names: Sequence[tuple[str, int]]) -> np.ndarray:
        """Seconds (names, ranks) of one table under each (sharding, rank)."""
        return np.stack([self.rates.of_rank(self._work(load, *name)) for name in names])

    def seconds(self, loads: Sequence[Load], shardings: Sequence[tuple[str, int]]) -> float:
        """Seconds of a step with these tables and shardings."""
        every = zip(loads, shardings, strict=True)
        return self.rates.step + float(sum(self.costs(load, [name])[0] for load, name in every).max())

    def _work(self, load: Load, sharding: str, rank: int) -> np.ndarray:
        return lookups.work(load, sharding, self.ranks, self.cache, rank, POOLED[self.order])


def load_of(asked: Asked) -> Load:
    """The load of a table that a file describes."""
    return Load(
        asked.name,
        asked.rows,
        asked.columns,
        asked.samples,
        asked.lookups,
        np.array(asked.classes, float),
        np.array(asked.shares, float),
    )


def fitted(measured: Measured, clock: str) -> Model:
    """The model fitted to timed steps by `clock`, one of CLOCKS. Raises ValueError for too few steps."""
    known = [[load_of(asked) for asked in problem.tables] for problem in measured.problems]
    seconds = [getattr(step, clock) for problem in measured.problems for step in problem.steps]
    numbers = [number for number, problem in enumerate(measured.problems) for _ in problem.steps]
    word = POOLED[measured.order]
    best: list[tuple[Rates, int]] = []
    for cache in CACHES:
        counted = [
            np.sum(
                [
                    lookups.work(load, sharding, measured.ranks, cache, rank, word)
                    for load, (sharding, rank) in zip(loads, step.shardings, strict=True)
                ],
                axis=0,
            )
            for loads, problem in zip(known, measured.problems, strict=True)
            for step in problem.steps
        ]
        best.append((lookups.fit(counted, seconds, numbers), cache))
    rates, cache = min(best, key=lambda of: of[0].apart)
    return Model(rates, cache, len(seconds), measured.ranks, measured.order)


def loads(trace: RankTrace, where: str) -> list[Load]:
    """The loads of a run's tables that rank 0 recorded; empty if it recorded none. Raises Refused, with a message that
    begins with `where`, for impossible numbers."""
    values = trace.tables["values"]
    by_name: dict[str, dict[int, float]] = {}
    first = values["repeat"] == 0
    rows = zip(values["name"][first], values["block"][first], values["value"][first], strict=True)
    for name, block, value in rows:
        if (text := trace.names[name]).startswith(ASKED):
            by_name.setdefault(text, {})[int(block)] = float(value)
    names = [text.removeprefix(ASKED_ROWS) for text in by_name if text.startswith(ASKED_ROWS)]
    return [_recorded(name, by_name, where) for name in names]


def _recorded(name: str, by_name: dict[str, dict[int, float]], where: str) -> Load:
    of_name = {prefix: sorted(by_name.get(f"{prefix}{name}", {}).items()) for prefix in ASKED}
    vectors = {prefix: np.array([value for _, value in items]) for prefix, items in of_name.items()}
    wrong = f"{where}: the record of table {printable(name)} is incomplete or has impossible numbers; leave it out"
    if not all(len(vector) and np.isfinite(vector).all() for vector in vectors.values()):
        raise Refused(wrong)
    size, columns, samples = (float(vectors[key][0]) for key in (ASKED_ROWS, ASKED_COLUMNS, ASKED_SAMPLES))
    classes, asked = vectors[ASKED_CLASS], vectors[ASKED_LOOKUPS]
    if len(classes) != len(asked):
        raise Refused(wrong)
    given = {
        "name": name, "rows": int(size), "columns": int(columns), "samples": samples, "lookups": float(asked.sum()),
        "classes": list(zip(classes.tolist(), (asked / max(asked.sum(), 1e-300)).tolist(), strict=True)),
        "shares": vectors[ASKED_SHARES].tolist(),
    }  # fmt: skip
    return load_of(conform(given, Asked, where))


def options(ranks: int, order: str, layout: bool) -> list[tuple[str, int]]:
    """The (sharding, rank) pairs that a table may have; `layout`: only shardings whose sums do not depend on ranks."""
    names = [name for name in SHARDINGS if name != "row-pooled" or order == "exact" or not layout]
    return [(name, rank) for name in names for rank in range(ranks if name == "table" else 1)]


def fastest(model: Model, of_tables: Sequence[Load], names: Sequence[tuple[str, int]]) -> Assignments:
    """The fastest choices among `names` for each table; the options in the answer are indices into `names`."""
    costs = [model.costs(load, names) for load in of_tables]
    return search(costs, model.rates.step, model.rates.spread, model.rates.apart)


def in_words(shardings: Sequence[tuple[str, int]]) -> str:
    """The value of `--sharding` for these shardings."""
    return ",".join(name if name != "table" else f"{name}:rank={rank}" for name, rank in shardings)
