"""The errors that a wire with feedback keeps, as whole arrays, so that checkpoints can hold them.

An error belongs to an element of the total, or of a contribution. Under `layout` every block contributes, so errors are
the same on every mesh. Otherwise every rank contributes, by its place along the axes of the sum: then only the same
mesh has the same contributions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from kernels.guarantees import meets
from miniapps.partition.cuts.steps import Reduce
from miniapps.partition.execution.given import part_of, put_part
from miniapps.partition.execution.partners import is_first
from miniapps.partition.execution.run import Program
from miniapps.partition.execution.wires import contributed

Errors = dict[str, tuple[np.ndarray, np.ndarray]]


def gathered(program: Program) -> Errors:
    """{value: (errors of contributions, errors of the total)}, float32 in the shapes of `contributed`, complete on rank
    0. Collective."""
    plan, place, held = program.plan, program.place, _held(program)
    found = {}
    for name, shape in contributed(plan, program.mesh, program.level).items():
        rows, total = np.zeros(shape, np.float32), np.zeros(shape[1:], np.float32)
        if name in held and is_first(plan, program.mesh, place.rank, name):
            of_rows, of_total = held[name]
            for number, part in zip(_numbers(program, name), of_rows, strict=True):
                put_part(place, plan.values[name], part, rows[number, ...])
            put_part(place, plan.values[name], of_total, total)
        found[name] = _joined(program.comm, rows), _joined(program.comm, total)
    return found


def restore(program: Program, errors: Errors | None) -> None:
    """Continue from the errors that `gathered` returned, of which rank 0 passes all. Collective."""
    plan, place, parts = program.plan, program.place, {}
    for name, shape in contributed(plan, program.mesh, program.level).items():
        rows, total = np.empty(shape, np.float32), np.empty(shape[1:], np.float32)
        if errors is not None:
            rows[...], total[...] = errors[name]
        if program.comm is not None:
            program.comm.Bcast(rows)
            program.comm.Bcast(total)
        if program.bound.has(name):
            whole = (*(rows[k, ...] for k in _numbers(program, name)), total)
            parts[name] = [part_of(place, plan.values[name], torch.from_numpy(x)) for x in whole]
    for sums, blocks, names in program.feeding():
        lost, lost_of_total = sums.reducer.lost()
        for k, name in enumerate(names):
            for row, part in zip((*lost, lost_of_total), parts[name], strict=True):
                blocks.packer(k, row)(part)
        sums.reducer.restore_lost(lost, lost_of_total)


def _held(program: Program) -> dict[str, tuple[list[np.ndarray], np.ndarray]]:
    """{value: (errors of each contribution, errors of the total)} of this rank, in local shapes. Collective."""
    found: dict[str, tuple[list[np.ndarray], np.ndarray]] = {}
    for sums, blocks, names in program.feeding():
        lost, lost_of_total = sums.reducer.lost()
        rows, total = [blocks.unpack(row) for row in lost], blocks.unpack(lost_of_total)
        found |= {name: ([row[k] for row in rows], total[k]) for k, name in enumerate(names)}
    return found


def _numbers(program: Program, name: str) -> tuple[int, ...]:
    """The contributions of this rank to a sum."""
    (axes,) = {s.axes for s in program.plan.steps if isinstance(s, Reduce) and name in s.operands}
    if meets(program.level, "layout"):
        return program.place.rows(axes).numbers
    return (program.mesh.group(axes, program.place.rank).index(program.place.rank),)


def _joined(comm: Any, array: np.ndarray) -> np.ndarray:
    """The array on rank 0 with the elements of all ranks, of which at most one has bits of each."""
    if comm is not None:
        from mpi4py import MPI

        words = array.view(np.int32) if array.ndim else array.reshape(1).view(np.int32)
        comm.Reduce(MPI.IN_PLACE if comm.rank == 0 else words, words, MPI.BOR)
    return array
