"""Lossy wires for the gradients of a plan: reductions of their own, and the wires that a guarantee allows.

No MPI, no torch.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from kernels.allreduce import Reduction
from kernels.allreduce.coding import coding
from kernels.guarantees import ChoiceError, meets
from kernels.wires import PLAIN
from miniapps.partition.cuts.mesh import ZIGZAG, Mesh
from miniapps.partition.cuts.steps import Plan, Reduce, Step
from miniapps.partition.planning.early import gradient_sums

CARRIED = "float32"  # the elements that lossy wires carry


def is_lossy(wire: str) -> bool:
    """Whether a wire loses digits. Raises ChoiceError for an unknown wire."""
    return coding(wire) is not None


def feeds_back(wire: str) -> bool:
    """Whether a wire adds its encoding errors to what it encodes the next time. Raises ChoiceError for an unknown
    wire."""
    found = coding(wire)
    return found is not None and found.feedback


def parted(plan: Plan, apart: frozenset[str]) -> Plan:
    """The plan with the values `apart` in reductions of their own. No bit depends on it, so the hash stays."""
    steps: list[Step] = []
    for step in plan.steps:
        if isinstance(step, Reduce) and 0 < len(apart.intersection(step.operands)) < len(step.operands):
            for group in (True, False):
                pairs = zip(step.operands, step.results, strict=True)
                operands, results = zip(*(pair for pair in pairs if (pair[0] in apart) == group), strict=True)
                steps.append(replace(step, operands=operands, results=results))
        else:
            steps.append(step)
    return replace(plan, steps=tuple(steps))


def wired(level: str, n: int, wire: str, tensors=None) -> Reduction:
    """The all-reduce of n elements over a lossy wire, which encodes each of `tensors`. Under `layout` the contribution
    of every block is encoded, and decoded ones are added exactly. Raises ChoiceError for a wire that the guarantee does
    not allow."""
    held = "exact" if meets(level, "layout") else "working"
    return Reduction("direct", (n,), np.dtype(CARRIED), accumulation=held, wire=wire, tensors=tensors)


def contributed(plan: Plan, mesh: Mesh, level: str) -> dict[str, tuple[int, ...]]:
    """{value: (contributions, *shape of the value)} of each sum of gradients, in the order of names. Under `layout`
    every block contributes, otherwise every rank by its place along the axes of the sum."""
    wired, found = gradient_sums(plan), dict[str, tuple[int, ...]]()
    for step in plan.steps:
        if isinstance(step, Reduce):
            blocks = prod(plan.axis(axis).blocks for axis in step.axes)
            rows = blocks if meets(level, "layout") else len(mesh.group(step.axes, 0))
            found |= {name: (rows, *plan.values[name].shape) for name in step.operands if name in wired}
    return dict(sorted(found.items()))


def bound_to(mesh: Mesh, level: str) -> str:
    """The mesh whose contributions an encoding error belongs to; "any" under `layout`."""
    if meets(level, "layout"):
        return "any"
    texts = []
    for name, size in mesh.axes:
        if size > 1:
            carried = sorted(axis for axis, carrier in mesh.carriers if carrier == name)
            texts.append(f"{name}={size} ({' '.join(carried)})")
    texts += [f"{axis} {ZIGZAG}" for axis in sorted(mesh.zigzag)]
    return ", ".join([*texts, *([f"shuffled by {mesh.shuffle}"] if mesh.shuffle else [])]) or "one rank"


def encoded(wire: str, n: int, contributions: int) -> int:
    """Bytes of n elements over a wire, mean of the way to the owners of parts, to whom each of a rank's contributions
    goes under hops=once, and of the way back; 0 for a wire that loses nothing."""
    found = coding(wire)
    if found is None:
        return 0
    if found.inner is not None:  # to members of groups, as sums of groups, and back
        return round(n * (contributions * found.inner.bits + 2 * found.codec.bits) / 2 / 8)
    times = (contributions + 1) / 2 if found.hops == "once" else 1
    return round(times * n * found.codec.bits / 8)


def require_wire(wire: str, level: str) -> None:
    """Raise ChoiceError for a wire that a mesh does not have, or that the guarantee does not allow."""
    if wire == PLAIN:
        return
    if (found := coding(wire)) is None:
        raise ChoiceError(
            f"--wire {wire}: gradients over a mesh travel as is or over a lossy wire, such as fp8"
        )
    if found.codec.whole:
        raise ChoiceError(f"--wire {wire}: ranks of a mesh have parts of tensors; leave cell=tensor out")
    if level == "exact":
        raise ChoiceError(
            f"--wire {wire}: no total over a lossy wire is exact; choose --guarantee layout, or no wire"
        )
    if found.hops == "every" and meets(level, "layout"):
        raise ChoiceError(
            f"--wire {wire}: it encodes partial sums of ranks, which follow the mesh; leave hops=every out, or choose "
            "--guarantee run"
        )
    wired(level, 1, wire)
