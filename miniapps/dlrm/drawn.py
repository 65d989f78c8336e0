"""Steps of DLRM given as text, with ranges from which one can be drawn, for calibrations.

    dlrm table|row tables=4..16 rows=1000..100000 pooling=1..8 width=16..64 batch=128..1024 ranks=2 guarantee=layout

Shardings, sizes (SIZES), ranks and guarantees; `|` separates choices, `..` is a range, drawn uniformly in the
logarithm. Without shardings all, one for all tables; `mixed`: one for each table. Without a guarantee none and layout;
without data zipf.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from kernels.guarantees import LEVELS, known
from miniapps.dlrm.config import DATA, RECORDED, DlrmConfig
from miniapps.dlrm.validate import complete, validate
from miniapps.dlrm.validate import memory as need
from miniapps.embeddings.sharding import SHARDINGS
from miniapps.partition.pricing.space import GUARANTEE, RANKS, USUAL, Choices, choices_of, one_of
from miniapps.partition.pricing.turns import Draws, in_turn
from miniapps.runner.config import Option, convert
from miniapps.runner.config import options as known_options
from miniapps.runner.options import RunOptions
from miniapps.untrusted.program import Program

NAME, MIXED = "dlrm", "mixed"
SOURCES = tuple(name for name in DATA if name != RECORDED)
# (section, name) of the option that each size sets; width: columns of tables.
SIZES = {
    "tables": ("embeddings", "tables"),
    "rows": ("embeddings", "rows"),
    "pooling": ("embeddings", "pooling"),
    "width": ("embeddings", "columns"),
    "features": ("embeddings", "features"),
    "hidden": ("model", "hidden"),
    "batch": ("training", "batch"),
    "micro": ("training", "micro"),
}


@dataclass(frozen=True)
class Drawn:
    """One step: the sharding of the tables, sizes, ranks, guarantee, and data."""

    sharding: str
    sizes: Mapping[str, int]
    ranks: int
    level: str
    data: str

    def __str__(self) -> str:
        """The text that describes this step alone."""
        pairs = (f"{name}={n}" for name, n in (*self.sizes.items(), (RANKS, self.ranks)))
        return " ".join([NAME, self.sharding, f"data={self.data}", *pairs, f"{GUARANTEE}={self.level}"])

    def configured(self, threads: int = 1) -> tuple[DlrmConfig, RunOptions]:
        """The complete configuration of a run that does this step. Raises UsageError or ChoiceError if its sizes do not
        fit each other."""
        config, options = DlrmConfig(), RunOptions(guarantee=self.level, threads=threads)
        for name, n in self.sizes.items():
            section, key = SIZES[name]
            where = f"--plan {NAME}: {name}"
            setattr(getattr(config, section), key, convert(_known_options()[f"{section}.{key}"], n, where))
        config.embeddings.sharding, config.data.name = self.sharding, self.data
        if self.level == "exact":
            config.model.aggregate = "exact"
        complete(config, options, self.ranks)
        validate(config, options, self.ranks)
        return config, options


@dataclass(frozen=True)
class Space:
    """Steps that can be drawn: the choices of shardings, sizes, ranks and guarantees, and the data."""

    shardings: tuple[str, ...]
    sizes: Mapping[str, Choices]
    ranks: Choices
    levels: tuple[str, ...]
    data: str

    def draw(self, rng: np.random.Generator) -> Drawn:
        """A step of the space. Raises as `draws`."""
        return self.draws(rng, 1).found[0]

    def draws(self, rng: np.random.Generator, count: int) -> Draws:
        """Steps whose sizes fit each other; shardings and guarantees take turns. Raises UsageError if none is found."""
        choices = {"sharding": self.shardings, GUARANTEE: self.levels}
        return in_turn(NAME, choices, count, rng, partial(self.drawn, rng))

    def drawn(self, rng: np.random.Generator, sharding: str, level: str) -> Drawn:
        """A step with random sizes. Raises UsageError or ChoiceError if they do not fit each other."""
        sizes = {name: one_of(choices, rng) for name, choices in self.sizes.items()}
        if isinstance(choices := self.sizes.get("batch"), range):  # else hardly a draw is whole micro-batches
            micro = sizes.get("micro", DlrmConfig().training.micro)
            whole = max(round(sizes["batch"] / micro), 1) * micro
            sizes["batch"] = whole if whole in choices else sizes["batch"]
        if sharding == MIXED:
            count = sizes.get("tables", DlrmConfig().embeddings.tables)
            sharding = ",".join(rng.choice(list(SHARDINGS), count))
        found = Drawn(sharding, sizes, one_of(self.ranks, rng), level, self.data)
        found.configured()
        return found


def space_of(text: str) -> Space:
    """The space that a text describes. Raises UsageError, ChoiceError."""
    shardings: tuple[str, ...] = tuple(SHARDINGS)
    sizes: dict[str, Choices] = {}
    ranks: Choices = (1,)
    levels: tuple[str, ...] = USUAL
    data = DlrmConfig().data.name
    for word in text.split()[1:]:
        key, sign, value = word.partition("=")
        if key == GUARANTEE:
            levels = tuple(value.split("|"))
            for level in levels:
                known("guarantee in --plan", level, LEVELS)
        elif key == RANKS:
            ranks = choices_of(value, f"--plan {NAME}: {RANKS}")
        elif key == "data":
            data = known("data of dlrm in --plan", value, SOURCES)
        elif key in SIZES and sign:
            sizes[key] = choices_of(value, f"--plan {NAME}: {key}")
        elif sign and ":" not in key:
            known(f"size of {NAME} in --plan", key, (*SIZES, RANKS, GUARANTEE, "data"))
        else:
            shardings = tuple(word.split("|"))
            for name in {part.partition(":")[0] for each in shardings for part in each.split(",")}:
                known(f"sharding of {NAME} in --plan", name, (*SHARDINGS, MIXED))
    return Space(shardings, sizes, ranks, levels, data)


@cache
def _known_options() -> dict[str, Option]:
    return {option.key: option for option in known_options(DlrmConfig)}


def memory(drawn: Drawn) -> int:
    """Bytes that a rank needs."""
    return need(*drawn.configured(), drawn.ranks).nbytes


def program(drawn: Drawn, threads: int = 1) -> Program:
    """What each rank does in the step."""
    from miniapps.dlrm.program import program_of

    return program_of(*drawn.configured(threads), drawn.ranks, str(drawn))


def rehearsal(drawn: Drawn, threads: int = 1) -> Any:
    """The step of rank 0, ready to be timed (`rehearsal.Rehearsal`)."""
    from miniapps.dlrm.rehearsal import Rehearsal

    return Rehearsal(*drawn.configured(threads), 0, drawn.ranks)


def together(comm: Any, drawn: Drawn, threads: int = 1) -> tuple[Callable[[], None], Callable[[], None]]:
    """(the step on all ranks of `comm`, the end of its steps), both collective (`together.Together`)."""
    from miniapps.dlrm.together import Together

    steps = Together(comm, *drawn.configured(threads))
    return steps.step, steps.free
