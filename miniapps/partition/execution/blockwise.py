"""Finds operations with a partial result per block that one call can compute for all blocks of a rank.

These are products and sums whose blocks are neighbours along the summed dim. Kernels of `kernels.contract` take the
lengths of the blocks, and add the sums of blocks by the tree or keep them apart. The bits equal those of one call per
block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from miniapps.partition.execution.bound import Called, Operation

FLOATS = ("float32", "float64")


@dataclass(frozen=True)
class Blocks:
    """For each operand the dim that blocks cut, and the begin of each block in it; `lengths` of the blocks."""

    dims: tuple[int, ...]
    begins: tuple[tuple[int, ...], ...]
    lengths: tuple[tuple[int, ...], ...]


def blocks_of(step: Operation, dtypes: Mapping[str, str], added: bool) -> Blocks | None:
    """The blocks of an operation that one call can compute; None if it cannot. `dtypes`: of the operands; `added`:
    whether the call adds the blocks; integers and products require it."""
    if len(step.calls) < 2 or len(step.results) > 1:
        return None
    if not added and (step.kernel != "rowsum" or any(dtypes[name] not in FLOATS for name in step.operands)):
        return None
    dims = summed_dims(step)
    if dims is None or any(not plain(call, k, dims) for k, call in enumerate(step.calls)):
        return None
    ranges = [[call.parts[o].ranges[0][1:] for call in step.calls] for o in range(len(dims))]  # type: ignore[union-attr]
    begins = tuple(tuple(begin for begin, _ in each) for each in ranges)
    lengths = tuple(tuple(length for _, length in each) for each in ranges)
    neighbours = all(
        before + length == after
        for begin, length_of in zip(begins, lengths, strict=True)
        for before, length, after in zip(begin, length_of, begin[1:], strict=False)
    )
    return Blocks(dims, begins, lengths) if neighbours and len(set(lengths)) == 1 else None


def summed_dims(step: Operation) -> tuple[int, ...] | None:
    """The major summed dim of each operand; None if no kernel takes blocks of it."""
    if step.target in ("aten.mm.default", "aten.bmm.default") and step.args == ("%0", "%1"):
        last = 1 if step.target == "aten.mm.default" else 2
        return last, last - 1
    if step.target == "conv.weight" and len(step.operands) == 2:
        return 0, 0
    if step.kernel == "rowsum" and step.calls[0].parts[0] is not None:
        n = len(step.calls[0].parts[0].shape)
        return (min((d % n for d in step.args[1]), default=0),)
    return None


def plain(call: Called, k: int, dims: tuple[int, ...]) -> bool:
    """Whether call k reads a range of only these dims, and its result is exactly partial k."""
    return (
        call.into == ((k, None),)
        and not any(call.padding)
        and all(
            part is not None and part.factors is None and len(part.ranges) == 1 and part.ranges[0][0] == dim
            for part, dim in zip(call.parts, dims, strict=True)
        )
    )
