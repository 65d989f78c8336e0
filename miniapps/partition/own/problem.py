"""A user's module as a problem: its graph, and the axes and recipes that suit any module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import make_dataclass
from functools import cached_property
from typing import Any

from kernels.guarantees import ChoiceError
from miniapps.errors import UsageError
from miniapps.partition.cuts.axes import Axis, AxisError, evenly
from miniapps.partition.cuts.steps import STAGE
from miniapps.partition.graphs.graph import Graph
from miniapps.partition.models import Problem
from miniapps.partition.own.inputs import BATCH, Given, inputs_of
from miniapps.partition.own.loading import made, own_code
from miniapps.partition.own.losses import step_of
from miniapps.partition.own.stages import layers_of
from miniapps.partition.planning.pairs import FEATURES, Pairs, best
from miniapps.partition.planning.recipes import STORED

NORMS = "norms"  # the dim that --inputs names beside batch, where no features are cut
ALL = (
    "dp", "tp", "dp+tp", "zero", "spatial", "dp+spatial", "tp+norms", "dp+tp+norms", "pp", "dp+pp", "tp+pp", "dp+tp+pp",
    "tp+norms+pp", "dp+tp+norms+pp",
)  # fmt: skip
BLOCKS = 8  # the default number of blocks along an axis, if it has as many elements


class OwnProblem(Problem):
    """The module FILE.py:NAME with its inputs; exported when it is made.

    Axes: those that --inputs names, else `batch`; `features` of pairs of linear layers, and `norms` for the dim that
    --inputs names beside batch, if it is one, where they are whole; `stored` rows of parameters; `stage` of layers
    (`own.stages`). `parts`: micro-batches of a step, and `named`: its layers, of the options.
    `notes`: sentences about what the recipes cut. Raises UsageError if module, inputs or loss are none, and ExportError
    if the step cannot be captured.
    """

    LATER = (NORMS,)

    def __init__(self, name: str, given: Given, loss: str | None, parts: int = 1, named: str | None = None):
        self.name, self.given, self.parts = name, given, parts
        require_parts(given, parts)
        self._module = made(name)
        self.call = step_of(self._module, loss, name, given.tensors)  # type: ignore[method-assign]
        self.stages, self.unstaged = layers_of(self._module, named)
        self.graph = self._exported()
        blocks = {axis: min(BLOCKS, extent) for axis, extent in self._extents.items()}
        if self.stages:
            blocks[STAGE] = len(self.stages)
        self.Deck = make_dataclass(
            "Deck", [(name, int, n) for name, n in (blocks | {"micro_batches": parts}).items()], frozen=True
        )

    def _exported(self) -> Graph:
        from miniapps.partition.capture.export import export

        with own_code(f"{self.name}: forward"):
            return export(self._module, self.given.tensors, self.call, self.parts)

    @property
    def exported(self) -> Graph:
        return self.graph

    @cached_property
    def pairs(self) -> Pairs:
        """The pairs of linear layers."""
        return best(self.graph)

    @cached_property
    def _between(self) -> str:
        """The dim that `norms` cuts, between pairs; "" without pairs, and if --inputs names none or several beside
        batch."""
        others = [axis for axis in self.given.extents() if axis != BATCH]
        return others[0] if len(others) == 1 and self.pairs.found else ""

    @cached_property
    def _extents(self) -> dict[str, int]:
        extents = self.given.extents()
        if BATCH in extents:
            extents[BATCH] //= self.parts
        if self.stages:
            extents[STAGE] = len(self.stages)
        if self.pairs.found:
            extents[FEATURES] = self.pairs.extent
        if self._between:
            extents[NORMS] = extents[self._between]
        rows = [s.tensor.shape[0] for s in self.graph.sources if s.kind == "parameter" and s.tensor.shape]
        return extents | {STORED: max(rows, default=1)}

    @property
    def RECIPES(self) -> dict[str, dict[str, str]]:  # type: ignore[override]
        """The recipes for these axes."""
        others = {axis: axis for axis in self.given.extents() if axis != BATCH}
        samples = {BATCH: "data"} if BATCH in self._extents else {}
        features = {FEATURES: "model"} if FEATURES in self._extents else {}
        norms = features | {NORMS: "model"} if self._between else {}
        found = {"dp": samples, "tp": features, "dp+tp": {}, "zero": {}, "spatial": others, "dp+spatial": {}}
        if samples:
            found["zero"] = samples | {STORED: "data"}
            found["dp+tp"] = samples | features if features else {}
            found["dp+spatial"] = samples | others if others else {}
        found |= {"tp+norms": norms, "dp+tp+norms": samples | norms if samples and norms else {}}
        if self.stages:
            whole = {"pp": {}, "dp+pp": samples, "tp+pp": features}
            whole["dp+tp+pp"] = samples | features if samples and features else {}
            whole |= {f"{name}+pp": found[name] for name in ("tp+norms", "dp+tp+norms")}
            found |= {name: cut | {STAGE: STAGE} for name, cut in whole.items() if cut or name == "pp"}
        return {name: carriers for name, carriers in found.items() if carriers}

    @property
    def TOGETHER(self) -> tuple[tuple[str, ...], ...]:  # type: ignore[override]
        """Samples and stored rows never cut one value, nor features and what is cut where they are whole."""
        stored = ((BATCH, STORED),) if BATCH in self._extents else ()
        return (*stored, (FEATURES, NORMS)) if self._between else stored

    def module(self, deck: Any) -> Any:
        return self._module

    def inputs(self, deck: Any, seed: int = 0) -> tuple[Any, ...]:
        return self.given.tensors

    def axes(self, deck: Any) -> tuple[Axis, ...]:
        return tuple(evenly(axis, extent, getattr(deck, axis)) for axis, extent in self._extents.items())

    def layers(self, deck: Any) -> tuple[str, ...]:
        return self.stages

    def annotations(self, deck: Any) -> Mapping[str | int, Sequence[str | tuple[str, ...] | None]]:
        found: dict[str | int, Sequence[str | tuple[str, ...] | None]] = {
            k: tuple((axis, NORMS) if axis and axis == self._between else axis for axis in dims)
            for k, dims in enumerate(self.given.dims)
        }
        return found | dict(self.pairs.annotations())

    def require(self, recipe: str) -> None:
        """Raise ChoiceError, with the reason, for a recipe that this module lacks."""
        if recipe in self.RECIPES:
            return
        there = f"this module has {', '.join(self.RECIPES) or 'none'}"
        if recipe not in ALL:
            raise ChoiceError(f"unknown recipe {recipe!r}; {there}")
        words = recipe.split("+")
        if "pp" in words and not self.stages:
            raise ChoiceError(f"--recipe {recipe}: no layers are stages: {self.unstaged}; {there}")
        if "tp" in words and not self.pairs.found:
            reasons = "; ".join(f"{key}: {why}" for key, why in self.pairs.reasons.items())
            why = reasons or "it has no linear layers in its forward pass"
            raise ChoiceError(f"--recipe {recipe}: no two linear layers form a pair ({why}); {there}")
        if "norms" in words and not self._between:
            raise ChoiceError(
                f"--recipe {recipe}: name one dim beside batch in --inputs, as in int64[batch:8,tokens:16]; {there}"
            )
        if "spatial" in words and not set(self.given.extents()) - {BATCH}:
            raise ChoiceError(
                f"--recipe {recipe}: name the dims to cut in --inputs, as in float32[batch:4,3,rows:32,32]; {there}"
            )
        raise ChoiceError(
            f"--recipe {recipe}: no input has a dim batch; name it in --inputs, batch:32; {there}"
        )

    def notes(self, names: Sequence[str]) -> list[str]:
        """Sentences about the inputs, and about the pairs if `names` has features."""
        found = []
        for k, (tensor, dims) in enumerate(zip(self.given.tensors, self.given.dims, strict=True)):
            axes = [axis for axis in dims if axis in names or (axis == self._between and NORMS in names)]
            if not axes and any(axis for axis in names if axis in self.given.extents()):
                found.append(f"Input {k}, {list(tensor.shape)}, is not cut: all ranks hold it whole.")
        if STAGE in names:
            found.append(f"Layers of the stages: {', '.join(self.stages)}.")
        if FEATURES not in names:
            return found
        found += [
            f"Pair: {', '.join(pair.firsts())} by rows, {pair.second} by columns."
            for pair in self.pairs.found
        ]
        found += [f"No pair: {key}: {why}." for key, why in self.pairs.reasons.items()]
        return found


def require_parts(given: Given, parts: int) -> None:
    """Raise ChoiceError if the inputs are no `parts` equal micro-batches: equal parts of a batch in dim 0 of each."""
    if parts == 1:
        return
    for k, (tensor, dims) in enumerate(zip(given.tensors, given.dims, strict=True)):
        if not dims or dims[0] != BATCH or BATCH in dims[1:] or tensor.shape[0] % parts:
            raise ChoiceError(
                f"--micro-batches {parts}: input {k}, {list(tensor.shape)}, has no batch of a multiple of {parts} in "
                "its first dim, which micro-batches are parts of"
            )


def own_problem(
    name: str, inputs: str | None, loss: str | None, parts: int = 1, named: str | None = None
) -> OwnProblem:
    """The problem of the options; `parts`, `named`: as of `OwnProblem`. Raises UsageError, ChoiceError, AxisError."""
    if not inputs:
        raise UsageError(
            f'{name}: give its inputs, --inputs "float32[32,784] int64[32]", or a function that returns them, '
            "--inputs mine.py:inputs"
        )
    try:
        return OwnProblem(name, inputs_of(inputs), loss, parts, named)
    except AxisError as error:
        raise ChoiceError(str(error)) from error
