"""What is predicted: the problem, the method and the ranks of a run that nobody has made yet."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from analysis.predict.prediction import method_hash
from analysis.predict.skeleton import Skeleton, label, shares_of, work_of
from miniapps.trace.head import problem_hash

LARGEST = 2**63  # of a number among options
MESH = "mesh.mesh"  # the factor of a method that says over which mesh of ranks a program is spread


class Unreachable(Exception):
    """The runs given do not lead to this target; the message says why and what would."""


@dataclass(frozen=True)
class Target:
    """A run to predict: `program` is the run whose steps it repeats, `runs` those that the costs of its segments come
    from. `reduction` is the label of its reductions where it is not that of the program."""

    program: Skeleton
    runs: Sequence[Skeleton]
    size: int
    config: Mapping[str, Any]
    problem: str
    method: str
    work: float
    blocks: int
    reduction: str | None
    extrapolated: Sequence[str] = field(default_factory=tuple)
    remarks: Sequence[str] = field(default_factory=tuple)

    @property
    def shares(self) -> np.ndarray:
        """(size,) of the work, by rank."""
        return shares_of(self.blocks, self.size)

    @property
    def owners(self) -> np.ndarray:
        """(blocks,) rank of each block."""
        base, extra = divmod(self.blocks, self.size)
        return np.repeat(np.arange(self.size), base + (np.arange(self.size) < extra))


def target(
    runs: Sequence[Skeleton],
    size: int,
    settings: Mapping[str, str],
    guarantee: str | None = None,
    reduction: str | None = None,
) -> Target:
    """The target on `size` ranks that differs from `runs` in `settings` {"section.name": text}, and in its guarantee
    and ordering where given.

    Raises Unreachable where no run has the guarantee, an option is none of the problem's, or a rank would have no
    block.
    """
    chosen = [run for run in runs if guarantee in (None, run.attributes.get("guarantee"))]
    if not chosen:
        known = ", ".join(sorted({run.attributes.get("guarantee", "none") for run in runs}))
        raise Unreachable(
            f"--guarantee {guarantee}: what ranks compute by themselves is other work under another guarantee, and the "
            f"runs given are of {known}; record one on one rank with --guarantee {guarantee} and give it, too"
        )
    if len({(run.attributes["app"], alike(run)) for run in chosen}) > 1:
        named = ", ".join(label(run) for run in chosen)
        raise Unreachable(
            f"{named}: these runs differ in more than their ranks and the size of their problem; give runs of one "
            "method, or choose one with --guarantee"
        )
    first = chosen[0].attributes
    config, problem_options = _set(first, settings)
    work = work_of(config, first.get("options", {}))
    problem = problem_hash(first["app"], problem_options)
    program = min(
        chosen, key=lambda run: (run.attributes["problem"] != problem, abs(np.log(run.work / work)), run.size)
    )
    blocks = round(program.blocks * work / program.work)
    if blocks and size > blocks:
        raise Unreachable(f"--ranks {size}: the problem has {blocks} blocks, and every rank needs one")
    method = dict(first["method"])
    if size != program.size and (mesh := method.get(MESH)):
        raise Unreachable(
            f"--ranks {size}: the run is of a mesh of {program.size} ranks ({mesh}), and what another mesh would "
            "compute is not modelled; record a run on that mesh"
        )
    if reduction is not None:
        ordering, _, held = reduction.partition(" in ")
        method |= {"run.allreduce": ordering, "run.accumulate": held or None}
    extrapolated, remarks = [], []
    if program.attributes["problem"] != problem:
        extrapolated.append("numbers of iterations")
        remarks.append(
            f"iterations are taken to be as many as in {label(program)}; give a run of this deck on one rank"
        )
        if any(
            first.get("options", {}).get(key, {}).get("effect") != "size"
            for key in _changed(first, problem_options)
        ):
            extrapolated.append("options that are no size")
    return Target(
        program,
        chosen,
        size,
        config,
        problem,
        method_hash({**first, "method": method, "config": config}),
        work,
        blocks,
        reduction,
        extrapolated,
        remarks,
    )


def alike(run: Skeleton) -> str:
    """What runs must share for the costs of one to say something about another."""
    stated = run.attributes.get("options", {})
    free = {key for key, each in stated.items() if each.get("effect") in ("size", "until", "ownership")}
    problem = {k: v for k, v in run.attributes.get("problem_options", {}).items() if k not in free}
    method = {k: v for k, v in run.attributes["method"].items() if k not in free}
    return json.dumps([problem, method], sort_keys=True)


def _changed(first: Mapping[str, Any], options: Mapping[str, Any]) -> list[str]:
    before = first.get("problem_options", {})
    return [key for key in options if options[key] != before.get(key)]


def _set(first: Mapping[str, Any], settings: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(configuration, options of the problem) with the settings, each of the type that it has in the run."""
    config, options = copy.deepcopy(dict(first.get("config", {}))), dict(first.get("problem_options", {}))
    for key, text in settings.items():
        if key not in options:
            raise Unreachable(
                f"--set {key}: no option of the problem; there are: {', '.join(sorted(options))}"
            )
        section, _, name = key.partition(".")
        config[section][name] = options[key] = value = _typed(key, text, options[key])
        numbers = [
            each for each in (value if isinstance(value, list) else [value]) if isinstance(each, int | float)
        ]
        size = first.get("options", {}).get(key, {}).get("effect") == "size"
        if not all((0 if size else -LARGEST) < each < LARGEST for each in numbers):
            raise Unreachable(f"--set {key}={text}: give a finite number{', above 0' if size else ''}")
    return config, options


def _typed(key: str, text: str, like: Any) -> Any:
    if isinstance(text, str) and not isinstance(like, str):
        try:
            value = json.loads(text)
        except ValueError:
            raise Unreachable(f"--set {key}={text}: {like!r} in the run; give a value of this type") from None
    else:
        value = text
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(like, float) and number:
        return float(value)
    if like is not None and type(value) is not type(like):
        raise Unreachable(f"--set {key}={text}: {like!r} in the run; give a value of this type")
    return value
