"""Products whose sums over ranks begin part by part: a part is added while the next one is computed.

The parts are rows of the product, so each element has the chain of additions that it has in the whole product, and the
tree of its sum over ranks. (Wang et al. 2023, "Overlap communication with dependent computation via decomposition".)
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from miniapps.partition.execution.bound import Added

if TYPE_CHECKING:
    from miniapps.partition.execution.code import Writer


def bounds_of(rows: int, parts: int) -> list[int]:
    """The first row of each part, and the end; parts differ by at most one row, and none is empty."""
    parts = max(min(parts, rows), 1)
    return [rows * k // parts for k in range(parts + 1)]


def write(writer: Writer, step: Added) -> None:
    """Write the parts of a product, each followed by the start of its sum. Their ends join the totals."""
    product = step.product
    assert product is not None
    writer.finish(product.operands)
    name, (rows, columns) = product.operands[0], product.shapes[0]
    whole = writer.variables[name]
    sums: list = []
    moving: list[str] = []

    def end() -> None:
        found = [writer.split(part, total.finish)[0] for part, total in sums]
        joined = writer.put(f"torch.cat(({', '.join(found)},), 0)", found)
        if step.shapes[0] != (rows, columns):
            joined = writer.put(f"{joined}.view({step.shapes[0]!r})", [joined])
        writer.variables[step.results[0]] = joined

    writer.begun.append((step.results, moving, end))
    for number, (begin, stop) in enumerate(pairwise(bounds_of(rows, step.parts))):
        shape = stop - begin, columns
        writer.variables[name] = writer.put(f"{whole}.narrow(0, {begin}, {stop - begin})", [whole])
        writer.operation(replace(product, shapes=(shape,)))
        part = replace(
            step,
            node=f"{step.node}, part {number + 1}",
            operands=product.results,
            shapes=(shape,),
            product=None,
        )
        total = writer.total(part)
        writer.pack(part, total)
        writer.put(f"{writer.constant(total.start, 't')}()", [])
        sums.append((part, total))
        moving.append(writer.constant(total.progress, "t"))
        writer.advance()
    writer.variables[name] = whole
