"""Products in parts, beside messages: a part is summed over ranks while the next one is computed (`write`), or parts of
an operand arrive while those that are there are multiplied (`write_arriving`).

The parts are rows of the product, so each element has the chain of additions that it has in the whole product, and the
tree of its sum over ranks. (Wang et al. 2023, "Overlap communication with dependent computation via decomposition".)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch

from miniapps.partition.cuts.axes import axes_of, canonical
from miniapps.partition.execution.bound import Added, Moved
from miniapps.partition.execution.place import Next, Wanted
from miniapps.partition.execution.totals import Total
from miniapps.partition.planning.early import gathered, units

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
    sums: list[tuple[Added, Total]] = []
    moving: list[str] = []

    def end() -> None:
        found = [writer.split(part, total.finish)[0] for part, total in sums]
        joined = writer.put(f"torch.cat(({', '.join(found)},), 0)", found)
        if step.wanted[0] is None and step.shapes[0] != (rows, columns):
            joined = writer.put(f"{joined}.view({step.shapes[0]!r})", [joined])
        writer.added(step, sums[0][1], [joined])

    writer.begun.append((step.results, moving, end))
    count, part_of = _units(writer, step)
    for number, (begin, stop) in enumerate(pairwise(bounds_of(count, step.parts))):
        first, length = (edge * (rows // count) for edge in (begin, stop - begin))
        writer.variables[name] = writer.put(f"{whole}.narrow(0, {first}, {length})", [whole])
        writer.operation(replace(product, shapes=((length, columns),)))
        part = replace(
            part_of(stop - begin),
            node=f"{step.node}, part {number + 1}",
            operands=product.results,
            product=None,
        )
        _view(writer, product.results[0], part.shapes[0])
        total = writer.total(part)
        writer.pack(part, total)
        writer.put(f"{writer.constant(total.start, 't')}()", [])
        sums.append((part, total))
        moving.append(writer.constant(total.progress, "t"))
        writer.advance()
    writer.variables[name] = whole


def _units(writer: Writer, step: Added) -> tuple[int, Callable[[int], Added]]:
    """(number of units of the rows of a product, the reduction of so many of them). A unit is a row, or all rows of a
    place of the major factor, if each rank needs only its part of the total."""
    product, (before,) = step.product, step.shapes
    assert product is not None
    rows, columns = product.shapes[0]
    if step.wanted[0] is None:
        return rows, lambda count: replace(step, shapes=((count, columns),))
    values, place = writer.bound.plan.values, writer.bound.place
    cuts = [values[name].cut for name in (step.operands[0], step.results[0])]
    found = units(*cuts)
    assert found is not None
    shared = set(axes_of(cuts[0])) & set(axes_of(cuts[1]))
    major, *minors = (
        tuple((place.held(n, axis), None) if axis in shared else (n, axis) for n, axis in dim)
        for dim in (*found, *cuts[0][1:], *cuts[1][1:])
    )
    most = len(before) - 1
    others = minors[2 : 2 + most], minors[2 + most :]

    def part(count: int) -> Added:
        held, wanted = (
            tuple(canonical(dim) for dim in (((count, None), *minor), *more))
            for minor, more in zip(minors, others, strict=False)
        )
        return replace(step, shapes=(place.shape(held),), wanted=(wanted,), cuts=(held,))

    return major[0][0], part


def _view(writer: Writer, name: str, shape: tuple[int, ...]) -> None:
    """Write views of this shape of the result of a product, or of all its partials."""
    made = writer.variables[name]
    if len(shape) != 2:
        several = made if isinstance(made, list) else [made]
        views = [writer.put(f"{one}.view({shape!r})", [one]) for one in several]
        writer.variables[name] = views if isinstance(made, list) else views[0]


def write_arriving(writer: Writer, step: Moved) -> None:
    """Write a gather of rows and the products that read it: of this rank's own rows, then of those of the next ranks,
    each time while the rows of further ranks arrive. The whole operand is joined at the end, for other steps."""
    writer.finish([name for each in step.products for name in each.operands])
    place, (name,), (result,) = writer.bound.place, step.operands, step.results
    value = writer.bound.plan.values[name]
    axes = gathered(value.cut, writer.bound.plan.values[result].cut)
    others = len(place.mesh.group(axes, place.rank)) - 1
    parts: list[tuple[str, Wanted]] = []
    for number, (first, last) in enumerate(pairwise(bounds_of(others, step.parts))):
        comes: Wanted = (Next(value.cut[0], axes, first + 1, last + 1), *value.cut[1:])
        part = f"{result}, part {number + 1}"
        node = f"{step.node}, part {number + 1}"
        writer.move(Moved(node, (name,), (part,), (comes,), early=True))
        parts.append((part, comes))
    made: dict[str, list[tuple[np.ndarray, str]]] = {each: [] for each in (result, *_results(step))}
    own: tuple[str, Wanted] = name, (value.cut[0],)
    for part, (where, *_) in (own, *parts):
        writer.finish([part])
        rows = place.indices(where, value.shape[0])
        if not len(rows):
            continue
        variable = writer.variables[result] = writer.variables[part]
        made[result].append((rows, variable))
        for product in step.products:
            writer.operation(replace(product, shapes=((len(rows), product.shapes[0][1]),)))
            (of,) = product.results
            made[of].append((rows, writer.variables[of]))
        writer.advance()
    for of, pieces in made.items():
        writer.variables[of] = _joined(writer, pieces)


def _results(step: Moved) -> list[str]:
    return [name for each in step.products for name in each.results]


def _joined(writer: Writer, pieces: Sequence[tuple[np.ndarray, str]]) -> str:
    """Write the join of pieces with these rows, of which each row is in one."""
    ordered = sorted(pieces, key=lambda piece: piece[0][0])
    variables = [variable for _, variable in ordered]
    whole = writer.put(f"torch.cat(({', '.join(variables)},), 0)", variables)
    rows = np.concatenate([rows for rows, _ in ordered])
    if (np.diff(rows) > 0).all():
        return whole
    order = writer.constant(torch.from_numpy(np.argsort(rows)))
    return writer.put(f"{whole}.index_select(0, {order})", [whole])
