"""Finds the operation and module that cause a first difference in a watched model (`miniapps.programs.watching`).

Records are in the order of computation, so the inputs of the first record that differs are equal.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analysis.divergence.classes import (
    COLLECTIVE,
    FROM_INPUT,
    KERNEL,
    MEMORY,
    RANDOM_STATE,
    UNDECIDED,
    Cause,
    Operation,
)
from analysis.divergence.scene import Scene
from miniapps.trace.records import (
    BEFORE,
    DATA,
    GIVEN,
    GRADIENT,
    LOSS,
    OUTPUT,
    OUTPUT_GRADIENT,
    RANDOM,
    UPDATE,
    WATCHED,
    WEIGHTS,
)

OF_RANK = " by rank"


def of_watched(scene: Scene, _: str) -> Cause:
    """The cause if a record of a watched model differs first."""
    name = scene.at.name.removesuffix(OF_RANK)
    prefix = next(each for each in (*WATCHED, WEIGHTS) if name.startswith(each))
    return JUDGES[prefix](scene, name.removeprefix(prefix))


def _before(scene: Scene, name: str) -> Cause:
    why = f"{name} differs as step {scene.at.step} begins, the first step after the last equal one that was recorded"
    return _cause(scene, UNDECIDED, "an earlier step, without records (every=1 records all steps)", why)


def _random(scene: Scene, name: str) -> Cause:
    why = f"the random state of {name} differs as the forward pass begins: another seed, or other draws before it"
    return _cause(scene, RANDOM_STATE, f"random state of {name}", why)


def _data(scene: Scene, name: str) -> Cause:
    why = f"input {name} of the model differs, and nothing that was recorded before it: another batch, or other order"
    return _cause(scene, FROM_INPUT, f"input {name} of the model", why)


def _given(scene: Scene, name: str) -> Cause:
    why = f"an input of {name} differs; code between modules computed it, after {_last_equal(scene)}"
    return _cause(scene, KERNEL, f"forward pass before {name}", why)


def _output(scene: Scene, name: str) -> Cause:
    why = f"the inputs of {name} are equal, its output differs"
    found = _cause(scene, KERNEL, f"forward pass of {name}", why, _class_of(name), "forward")
    path, _, _ = name.partition(" (")
    names = scene.frames.recorded("fingerprints", *scene.comparison.a)
    if not any(each.startswith(f"{WEIGHTS}{path}.") for each in names):
        return found
    reason = "weights or buffers may have changed since they were recorded"
    return replace(found, instead=MEMORY, instead_why=reason)


def _loss(scene: Scene, name: str) -> Cause:
    return _cause(
        scene, KERNEL, "loss", "the outputs of the model are equal, the loss differs", "", "forward"
    )


def _output_gradient(scene: Scene, name: str) -> Cause:
    last = _last_equal(scene)
    why = f"the gradient of the output of {name} differs; it follows {last}, which is equal"
    return _cause(
        scene, KERNEL, f"backward pass behind {name}", why, _passed(scene, last), "backward", "input"
    )


def _gradient(scene: Scene, name: str) -> Cause:
    module = _module_of(scene, name)
    why = (
        f"the gradient of {name} differs; the gradient of the output of its module, and all before, are equal"
    )
    part = name.rpartition(".")[2].partition(",")[0]
    return _cause(
        scene,
        KERNEL,
        f"backward pass of {module}, gradient of {name}",
        why,
        _class_of(module),
        "backward",
        part,
    )


def _update(scene: Scene, name: str) -> Cause:
    a, b = int(scene.a["size"]), int(scene.b["size"])
    if a != b:
        why = f"{a} and {b} ranks add gradients of other parts of the batch; gradients of single ranks do not compare"
        return _cause(scene, UNDECIDED, f"gradient of {name}", why)
    own = f"{GRADIENT}{name}{OF_RANK}"
    runs = scene.comparison.a, scene.comparison.b
    if not all(own in scene.frames.recorded("fingerprints", *run) for run in runs):
        why = f"the gradient of {name} differs as the optimiser takes it; a run has no gradients of single ranks"
        return _cause(scene, UNDECIDED, f"backward pass or sum over ranks, gradient of {name}", why)
    if a > 1:
        why = f"the gradients of {name} of all ranks are equal, and their sum over ranks differs"
        return _cause(scene, COLLECTIVE, f"sum of gradients over ranks, {name}", why)
    why = f"the gradient of {name} is equal after the backward pass and differs as the optimiser takes it"
    return _cause(scene, KERNEL, f"code between backward pass and optimiser, gradient of {name}", why)


def _state(scene: Scene, name: str) -> Cause:
    if not scene.at.step:
        why = f"{name} differs before the first step: other initial weights, or another checkpoint"
        return _cause(scene, FROM_INPUT, f"initial {name}", why)
    why = f"the gradients that the optimiser took are equal, and {name} differs after its step"
    return _cause(scene, KERNEL, f"step of the optimiser, {name}", why)


JUDGES = {
    BEFORE: _before, RANDOM: _random, DATA: _data, GIVEN: _given, OUTPUT: _output, LOSS: _loss,
    OUTPUT_GRADIENT: _output_gradient, GRADIENT: _gradient, UPDATE: _update, WEIGHTS: _state,
}  # fmt: skip


def _cause(
    scene: Scene,
    kind: str,
    name: str,
    why: str,
    module: str | None = None,
    direction: str = "",
    part: str = "",
) -> Cause:
    """The Cause with one reason. `module`: the class whose operation it is, empty for code outside of modules."""
    rank = scene.rank if scene.at.name.endswith(OF_RANK) else None
    size = scene.sizes()[1] if module is not None else None
    operation = None if module is None else Operation(module, direction, part, size.dtype if size else "")
    return Cause(kind, scene.at, name, rank, None, (why,), operation=operation)


def _class_of(module: str) -> str:
    """`Linear` of `3 (Linear)`; empty where no class is known."""
    return module.rpartition(" (")[2].partition(")")[0] if " (" in module else ""


def _passed(scene: Scene, last: str) -> str:
    """The class of the module that the backward pass went through after the equal record `last`; empty for none."""
    if last.startswith(OUTPUT_GRADIENT):
        return _class_of(last.removeprefix(OUTPUT_GRADIENT))
    if last.startswith(GRADIENT):
        return _class_of(_module_of(scene, last.removeprefix(GRADIENT)))
    return ""


def _module_of(scene: Scene, parameter: str) -> str:
    """`NAME (CLASS)` of the module of a parameter."""
    path = parameter.rpartition(".")[0]
    names = scene.frames.recorded("fingerprints", *scene.comparison.a)
    for prefix in (OUTPUT, GIVEN):
        for name in names:
            if name.startswith(f"{prefix}{path} ("):
                return name.removeprefix(prefix).partition(")")[0] + ")"
    return path or "the model"


def _last_equal(scene: Scene) -> str:
    """The record before the first difference, in the order of the first run."""
    leaves = scene.frames.leaves("fingerprints", *scene.comparison.a)
    before = np.flatnonzero((leaves.step == scene.at.step) & (leaves.seq < scene.at.seq))
    if not len(before):
        return "the beginning of the step"
    return str(scene.frames.names[leaves.name[before[np.argmax(leaves.seq[before])]]]).removesuffix(OF_RANK)
