"""Predictions of the time per step, in ledgers or in separate JSON files; reading checks them."""

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

PERCENTS = (5, 10, 25, 50, 75, 90, 95)  # of `quantiles`
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
    """The predicted time per step of one configuration, as a distribution.

    The configuration, by attributes of traces: `app`, `problem`, `method` (by `method_hash`), `ranks`, and `mesh`, the
    axes of a mesh of ranks with their sizes ("" without a mesh; `method` contains it, too).
    `quantiles`: the PERCENTS quantiles of the seconds per step of a run, ascending. The seconds per step of a run are
    the time from the start of its first step to the end of its last one, divided by the number of steps.
    `regions`: the median seconds per step of each region, without the regions inside it, mean over ranks.
    `clock`: the clock of these seconds, wall clock or CPU time. `model`: name and version of the model.
    `traces`: hashes of the files of the runs behind the prediction; `calibration`: the hash of the calibration, ""
    without one. `extrapolated`: names of the quantities outside the measured range.

    Raises ValueError for quantiles that descend or are not positive numbers, and for regions that are not numbers.
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
    schema: Literal[1] = 1  # counted up when a field is removed or changes its meaning

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
        """The median seconds per step."""
        return self.quantiles[PERCENTS.index(50)]

    @property
    def interval(self) -> tuple[float, float]:
        """The 80 % interval of the seconds per step of a run."""
        return self.quantiles[PERCENTS.index(10)], self.quantiles[PERCENTS.index(90)]

    @property
    def target(self) -> tuple[str, str, str, int]:
        """(app, problem, method, ranks) of the runs that this predicts."""
        return self.app, self.problem, self.method, self.ranks

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of this prediction."""
        return json.loads(json.dumps(dataclasses.asdict(self), allow_nan=False))

    def to_json(self) -> str:
        """The text of a file that `read_prediction` reads."""
        return json.dumps(self.as_dict(), indent=1, sort_keys=True, allow_nan=False) + "\n"


def from_dict(content: Any, where: str) -> Prediction:
    """The prediction whose `as_dict()` is `content`; raises Refused, its message beginning with `where`."""
    if isinstance(content, dict) and (unknown := content.keys() - Prediction.__dataclass_fields__.keys()):
        raise records.Refused(
            f"{where}: not a prediction of this version: unknown field {printable(min(map(str, unknown)))}; its fields "
            f"are: {', '.join(Prediction.__dataclass_fields__)}"
        )
    return records.conform(content, Prediction, where)


def from_json(text: bytes, where: str) -> Prediction:
    """The prediction in the JSON `text`; raises Refused, its message beginning with `where`."""
    return from_dict(records.loads(text, where), where)


def read_prediction(path: str | os.PathLike) -> Prediction:
    """Reads the prediction in the file `path`. Raises Refused if it is not one, OSError if it cannot be read."""
    return from_json(read_bytes(path, MOST, links=True), printable(os.fspath(path)))


def method_hash(attributes: Mapping[str, Any]) -> str:
    """A hash (16 hex digits) of the method of a run: all options of the role `method` or the effect `cost`.

    `attributes`: the attributes of a trace, with `method`, `options` and `config` decoded from JSON."""
    method, config = dict(attributes["method"]), attributes.get("config", {})
    for key, stated in attributes.get("options", {}).items():
        if stated.get("effect") == "cost" and key not in method:
            section, _, name = key.partition(".")
            method[key] = config.get(section, {}).get(name)
    text = json.dumps(method, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
