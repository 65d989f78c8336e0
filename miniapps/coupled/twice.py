"""The parts of a step of the flow that `--duplicate` verifies block by block: the closure, and the rate of each stage.

Both are functions of a block's own padded fields, and under `layout` their bits depend on nothing else."""

from collections.abc import Callable

import numpy as np


def compare_closure(model, eddy: np.ndarray) -> None:
    """Verifies nu_e of the closure, `eddy` (own blocks, by + 2, bx + 2), before the network learns. Collective."""
    twice, state, closure = model.duplicates, model.state, model.member.closure

    def again(_, given):
        return [[nu] for nu in closure.eddy(*given)]

    twice.check("closure", [state.zeta, state.psi], _drawn(model, eddy), again)
    twice.settle()


def compare_rate(model, stage: int, terms: Callable, eddy: np.ndarray | None, *results: np.ndarray) -> None:
    """Verifies the `results` of terms(zeta, psi, force, eddy) in a stage, each (own blocks, by, bx). Collective."""
    twice, state = model.duplicates, model.state
    inputs = [state.zeta, state.psi, model.force, *([] if eddy is None else [eddy])]

    def again(_, given):
        return list(zip(*terms(*given, *([None] if eddy is None else [])), strict=True))

    twice.check(f"rhs of stage {stage}", inputs, _drawn(model, *results), again)


def _drawn(model, *results: np.ndarray) -> list[list[np.ndarray]]:
    """The parts of `results` in the blocks that another rank verifies."""
    places = [model.blocks.index(block) for block in model.duplicates.own]
    return [[result[k] for result in results] for k in places]
