"""The kernels that a rank calls in a step, and how often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from miniapps.partition.cuts.mesh import Mesh
from miniapps.partition.cuts.steps import Plan
from miniapps.partition.pricing.dry import dry_run
from miniapps.partition.pricing.events import Array, KernelCall, Moves
from miniapps.partition.showing.explain import table


def calls_of(plan: Plan, mesh: Mesh, rank: int, level: str) -> list[dict[str, Any]]:
    """A row per kernel and shape, in the order of its first call, and a last one for torch's operations between
    kernels: cuts, copies, joins, sums of blocks. `bytes`: of operands and results, of all calls."""
    events = dry_run(plan, mesh, rank, level)
    tally = Counter(
        (event.target, event.own, event.operands, event.results)
        for event in events
        if isinstance(event, KernelCall)
    )
    rows = [
        {
            "kernel": target,
            "own": own,
            "operands": list(map(shown, operands)),
            "results": list(map(shown, results)),
            "calls": count,
            "bytes": count * sum(array.nbytes for array in (*operands, *results)),
        }
        for (target, own, operands, results), count in tally.items()
    ]
    between = [event for event in events if isinstance(event, Moves)]
    copied = sum(array.nbytes for event in between for array in event.results)
    return [
        *rows,
        {"kernel": "", "own": False, "operands": [], "results": [], "calls": len(between), "bytes": copied},
    ]


def shown(array: Array) -> str:
    """`float32[4, 64]`."""
    return f"{array.dtype}[{', '.join(map(str, array.shape))}]"


def lines_of(rows: Sequence[Mapping[str, Any]], rank: int, level: str) -> list[str]:
    """The rows as lines of text."""
    cells = [
        (
            row["kernel"].removeprefix("aten.").removesuffix(".default") or "(between kernels)",
            "own" if row["own"] else "torch",
            " ".join(row["operands"]),
            " ".join(row["results"]),
            f"{row['calls']:,}",
            f"{row['bytes']:,}",
        )
        for row in rows
    ]
    heads = ("kernel", "by", "operands", "results", "calls", "bytes")
    return [f"Rank {rank} calls in a step, guarantee {level}:", "", *table(heads, cells)]
