"""The target of a prediction: the problem, the method and the ranks of a run that does not exist yet."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from analysis.errors import Unreachable
from analysis.groups import LAYOUT
from analysis.predict.costs.laws import varied
from analysis.predict.reading.skeleton import Skeleton, label, shares_of, sizes_of, work_of
from analysis.predict.simulation import counts
from kernels.guarantees import meets
from miniapps.layout.owners import contiguous_owner
from miniapps.trace.head import label_of, problem_hash
from miniapps.untrusted.prediction import method_hash

LARGEST = 2**63  # largest number in options


@dataclass(frozen=True)
class Target:
    """A run to predict. `program`: the run whose steps are replayed; `runs`: the runs that determine the costs of its
    segments; `guarantee`: its level. `reduction`: the label that replaces the program's reductions, all of them, or
    with `lifted` those that do not promise `lifted`; None keeps them. `law`: the law of the number of iterations, which
    have the share `iterating` of the work. `varied`: size options with separate laws
    (`analysis.predict.costs.laws`); if empty, costs depend on the product of all sizes, `work`."""

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
    guarantee: str = "none"
    lifted: str | None = None
    law: counts.Law | None = None
    iterating: float = 0.0
    sizes: Mapping[str, float] = field(default_factory=dict)
    varied: Sequence[str] = ()

    def label_of(self, facts: Mapping[str, Any]) -> str:
        """The label of the target's reduction for a reduction `facts` of the program's trace."""
        own = label_of(facts)
        if self.reduction is None or facts.get("decided") == "application":
            return own
        if self.lifted is not None and meets(facts.get("guarantee", "none"), self.lifted):
            return own
        return self.reduction

    @property
    def shares(self) -> np.ndarray:
        """(size,) share of the work of each rank."""
        return shares_of(self.blocks, self.size)

    @property
    def owners(self) -> np.ndarray:
        """(blocks,) owner of each block."""
        return contiguous_owner(self.blocks, self.size)


def target(
    runs: Sequence[Skeleton],
    size: int,
    settings: Mapping[str, str],
    guarantee: str | None = None,
    reduction: str | None = None,
    level: str | None = None,
) -> Target:
    """The target on `size` ranks, based on `runs`, or on those under `guarantee`. `settings` {"section.name": text}
    changes options of the problem, `reduction` the ordering, `level` the guarantee.

    Raises Unreachable if no run has the guarantee, if a setting is not an option of the problem, or if a rank would
    have no block.
    """
    chosen = [run for run in runs if guarantee in (None, run.attributes.get("guarantee"))]
    if not chosen:
        known = ", ".join(sorted({run.attributes.get("guarantee", "none") for run in runs}))
        raise Unreachable(
            f"--guarantee {guarantee}: the local work of ranks depends on the guarantee, and the given runs have "
            f"{known}; record a run on one rank with --guarantee {guarantee} and give it, too"
        )
    if unstated := [
        label(run)
        for run in chosen
        if not {"app", "config", "method", "problem", "problem_options"} <= run.attributes.keys()
    ]:
        raise Unreachable(f"{unstated[0]}: its trace does not name its program and problem; leave it out")
    if len({alike(run) for run in chosen}) > 1:
        named = ", ".join(label(run) for run in chosen)
        raise Unreachable(
            f"{named}: these runs differ in more than their ranks and the size of their problem; give runs of one "
            "method, or choose one with --guarantee"
        )
    first = chosen[0].attributes
    config, problem_options = _set(first, settings)
    work = work_of(config, first.get("options", {}))
    problem = problem_hash(first["app"], problem_options)
    sizes = sizes_of(config, first.get("options", {}))
    apart = varied([run.sizes for run in chosen]) if all(run.size == 1 for run in chosen) else []
    _require_told(chosen, apart, sizes)

    def far(run: Skeleton) -> float:
        """Distance of a run's size from the target's."""
        if apart:
            return sum(abs(math.log(run.sizes[name] / sizes[name])) for name in apart)
        return float(abs(np.log(run.work / work)))

    program = min(chosen, key=lambda run: (run.attributes["problem"] != problem, far(run), run.size))
    blocks = round(program.blocks * work / program.work)
    if blocks and size > blocks:
        raise Unreachable(f"--ranks {size}: the problem has {blocks} blocks, and every rank needs one")
    method = dict(first["method"])
    if size != program.size and (mesh := mesh_of(program)):
        raise Unreachable(
            f"--ranks {size}: the run has a mesh of {program.size} ranks ({mesh}), and the model cannot change the "
            f"mesh; record a run on a mesh of {size} ranks"
        )
    if reduction is not None:
        ordering, _, held = reduction.partition(" in ")
        method |= {"run.allreduce": ordering, "run.accumulate": held or None}
    if level is not None:
        method |= {"run.guarantee": level}
    extrapolated, remarks = [], []
    if apart and size > 1:
        extrapolated.append("the work that ranks share, from laws of several sizes")
    if not apart and _apart_of(sizes, program.sizes):
        extrapolated.append("several sizes, by their product")
        remarks.append(
            f"{', '.join(_apart_of(sizes, program.sizes))} differ from {label(program)}, and the prediction scales "
            "costs with their product; give runs on one rank that change each of them by itself"
        )
    law, iterating = None, 0.0
    if program.attributes["problem"] != problem:
        works = sorted({run.work for run in chosen})
        if not apart and not works[0] <= work <= works[-1]:
            extrapolated.append("sizes beyond those of the runs")
            if len(works) == 2:
                remarks.append(
                    f"two sizes ({works[0]:g} and {works[1]:g}) do not distinguish a square from a line; the "
                    "prediction assumes a line; give a run of a third size if the square matters"
                )
        law = counts.law_of(chosen, work)
        ratio = law.count / counts.mean_count(program) if law and counts.mean_count(program) else 1.0
        moved = (
            counts.iterated(program, ratio)
            if law and counts.FEWEST_RATIO < ratio < counts.MOST_RATIO
            else None
        )
        if law is not None and moved is not None:
            program, iterating = moved
            low, high = law.interval
            extrapolated += ["numbers of iterations"] * law.outside
            between = f"80 %: {low:.3g} to {high:.3g}" if law.freedom else "no interval from two counts"
            remarks.append(
                f"iterations grow as size^{law.exponent:.2f} in the runs: {law.count:.3g} in a step ({between})"
            )
        elif not counts.nothing_iterates(chosen):
            extrapolated.append("numbers of iterations")
            remarks.append(
                f"the prediction assumes as many iterations as in {label(program)}; give a run of this deck on one rank"
            )
        if any(
            first.get("options", {}).get(key, {}).get("effect") != "size"
            for key in _changed(first, problem_options)
        ):
            extrapolated.append("options other than sizes")
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
        level or first.get("guarantee", "none"),
        law=law,
        iterating=iterating,
        sizes=sizes,
        varied=apart,
    )


def _apart_of(sizes: Mapping[str, float], known: Mapping[str, float]) -> list[str]:
    """The size options that differ, if more than one does."""
    names = [name for name in sizes if name in known and sizes[name] != known[name]]
    return names if len(names) > 1 else []


def _require_told(chosen: Sequence[Skeleton], apart: Sequence[str], sizes: Mapping[str, float]) -> None:
    """Raises Unreachable if the target changes a size without a law while others (`apart`) have laws."""
    if not apart:
        return
    known = chosen[0].sizes
    for name in sizes:
        if name not in apart and sizes[name] != known.get(name):
            raise Unreachable(
                f"--set {name}={sizes[name]:g}: all runs have {known.get(name, 0):g}, so its effect beside "
                f"{', '.join(apart)} is unknown; record runs on one rank with another {name} and give them, too"
            )


def mesh_of(run: Skeleton) -> str:
    """The mesh of ranks of a run, as its options name it; empty without one."""
    stated = run.attributes.get("options", {})
    of_mesh = (
        value
        for key, value in run.attributes["method"].items()
        if stated.get(key, {}).get("effect") == "spread"
    )
    return next((str(value) for value in of_mesh if value), "")


def alike(run: Skeleton, but: Collection[str] = ()) -> str:
    """A key that is equal for runs whose costs are comparable; it ignores options with the effects `but`."""
    stated = run.attributes.get("options", {})
    effects = ("size", "until", *LAYOUT, *but)
    free = {key for key, each in stated.items() if each.get("effect") in effects}
    problem = {k: v for k, v in run.attributes.get("problem_options", {}).items() if k not in free}
    method = {k: v for k, v in run.attributes["method"].items() if k not in free}
    return json.dumps([run.attributes["app"], problem, method], sort_keys=True)


def _changed(first: Mapping[str, Any], options: Mapping[str, Any]) -> list[str]:
    before = first.get("problem_options", {})
    return [key for key in options if options[key] != before.get(key)]


def _set(first: Mapping[str, Any], settings: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(configuration, options of the problem) with `settings` applied, each parsed to its type in the run."""
    config, options = copy.deepcopy(dict(first.get("config", {}))), dict(first.get("problem_options", {}))
    for key, text in settings.items():
        if key not in options:
            raise Unreachable(
                f"--set {key}: not an option of the problem; its options are: {', '.join(sorted(options))}"
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
