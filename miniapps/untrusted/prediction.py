"""A prediction of the time per step, as it lies in ledgers and in files of its own: JSON, checked when it is read."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any, Literal

from msgspec import Meta

from miniapps.untrusted import records
from miniapps.untrusted.regular import read_bytes
from miniapps.untrusted.text import printable

PERCENTS = (5, 10, 25, 50, 75, 90, 95)  # of the quantiles, in their order
MOST = 2**20  # bytes of one prediction as JSON
RANKS_MOST = 2**24
LONGEST_S = 1e9  # of a step
Seconds = Annotated[float, Meta(ge=0, le=LONGEST_S)]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Text = Annotated[str, Meta(max_length=4096)]
_Quantiles = Annotated[tuple[float, ...], Meta(min_length=len(PERCENTS), max_length=len(PERCENTS))]


@dataclass(frozen=True)
class Prediction:
    """How long a step of one configuration will take, as a distribution.

    What it is of, as traces have it: `app`, `problem` (the attribute of this name), `method` (`method_hash`), `ranks`,
    and `mesh`, the axes of a mesh of ranks with their sizes ("" without one; `method` has it, too).
    `quantiles`: seconds per step of a run, of PERCENTS, ascending. A run's seconds per step are its time from the
    beginning of its first step to the end of its last one over the number of steps.
    `regions`: the median seconds per step of each region, without the regions inside it, mean over ranks.
    `clock`: whether these are seconds of the wall clock or of the processors. `model`: name and version of the model.
    `traces`: hashes of the runs that it was made from (of their files); `calibration`: the
    same of the calibration, "" without one. `extrapolated`: what lies outside of what was measured, a name each.

    Raises ValueError for quantiles that descend or are no positive numbers, and for regions that are no numbers.
    """

    app: Name
    problem: Name
    method: Name
    ranks: Annotated[int, Meta(ge=1, le=RANKS_MOST)]
    quantiles: _Quantiles
    model: Name
    mesh: Text = ""
    clock: Literal["wall", "cpu"] = "wall"
    regions: dict[Name, Seconds] = field(default_factory=dict)
    traces: tuple[Sha256, ...] = ()
    calibration: Annotated[str, Meta(pattern="^([0-9a-f]{64})?$")] = ""
    extrapolated: tuple[Text, ...] = ()
    remarks: tuple[Text, ...] = ()
    schema: Literal[1] = 1  # counted up when a field goes or means something else

    def __post_init__(self) -> None:
        if not all(math.isfinite(q) and 0 < q <= LONGEST_S for q in self.quantiles):
            raise ValueError(f"quantiles {list(self.quantiles)}: each must be above 0 s and at most 1e9 s")
        if any(lower > upper for lower, upper in pairwise(self.quantiles)):
            raise ValueError(f"quantiles {list(self.quantiles)} descend; they are of {PERCENTS} percent")
        if wrong := [name for name, s in self.regions.items() if not 0 <= s <= LONGEST_S]:
            raise ValueError(
                f"region {wrong[0]!r}: {self.regions[wrong[0]]} s per step; at least 0, at most 1e9"
            )

    @property
    def median(self) -> float:
        """Seconds per step."""
        return self.quantiles[PERCENTS.index(50)]

    @property
    def interval(self) -> tuple[float, float]:
        """The seconds per step between which 80 % of runs are expected."""
        return self.quantiles[PERCENTS.index(10)], self.quantiles[PERCENTS.index(90)]

    @property
    def target(self) -> tuple[str, str, str, int]:
        """(app, problem, method, ranks): what a run must have to be one of these."""
        return self.app, self.problem, self.method, self.ranks

    def as_dict(self) -> dict[str, Any]:
        """What JSON holds of it."""
        return json.loads(json.dumps(dataclasses.asdict(self), allow_nan=False))

    def to_json(self) -> str:
        """The text of a file that `read_prediction` reads."""
        return json.dumps(self.as_dict(), indent=1, sort_keys=True, allow_nan=False) + "\n"


def from_dict(content: Any, where: str) -> Prediction:
    """The prediction whose `as_dict()` is `content`; raises Refused, its message beginning with `where`."""
    if isinstance(content, dict) and (unknown := content.keys() - Prediction.__dataclass_fields__.keys()):
        raise records.Refused(
            f"{where}: no prediction of this version: it has the field {printable(min(map(str, unknown)))}; there are: "
            f"{', '.join(Prediction.__dataclass_fields__)}"
        )
    return records.conform(content, Prediction, where)


def from_json(text: bytes, where: str) -> Prediction:
    """The prediction in the JSON `text`; raises Refused, its message beginning with `where`."""
    return from_dict(records.loads(text, where), where)


def read_prediction(path: str | os.PathLike) -> Prediction:
    """The prediction in the file `path`. Raises Refused where it is none, OSError where it cannot be read."""
    return from_json(read_bytes(path, MOST, links=True), printable(os.fspath(path)))


def method_hash(attributes: Mapping[str, Any]) -> str:
    """16 hex digits that two runs of a problem share exactly if they ran by the same method: all options of the role
    `method`, and those of the effect `cost`. `attributes` are those of a trace, of which `method`, `options` and
    `config` count (JSON decoded)."""
    method, config = dict(attributes["method"]), attributes.get("config", {})
    for key, stated in attributes.get("options", {}).items():
        if stated.get("effect") == "cost" and key not in method:
            section, _, name = key.partition(".")
            method[key] = config.get(section, {}).get(name)
    text = json.dumps(method, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
