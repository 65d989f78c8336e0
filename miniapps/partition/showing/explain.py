"""Explains a plan on a mesh: the axes of every value, its messages and bytes, and operations that are not cut."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Mapping
from typing import Any

from miniapps.partition.cuts.axes import text
from miniapps.partition.cuts.mesh import Mesh
from miniapps.partition.cuts.steps import Compute, Plan, step_results
from miniapps.partition.showing.traffic import Counter


def explain(plan: Plan, mesh: Mesh) -> dict[str, Any]:
    """The whole explanation, in the form of the JSON document."""
    counter = Counter(plan, mesh)
    sent: Tally[tuple] = Tally()
    calls: Tally[tuple] = Tally()
    rows = []
    for step in plan.steps:
        traffic = counter.step(step)
        if traffic is not None:
            key = traffic.kind, traffic.axes, traffic.ranks
            calls[key] += 1
            sent[key] += traffic.nbytes
        if isinstance(step, Compute) or traffic is not None:
            rows.append(row(plan, step, traffic))
    return {
        "problem": plan.hash,
        "mesh": dict(mesh.axes),
        "ranks": mesh.size,
        "axes": [axis_row(plan, mesh, axis.name) for axis in plan.axes],
        "collectives": [
            {"kind": kind, "axes": list(axes), "ranks": ranks, "calls": calls[key], "bytes": sent[key]}
            for key in calls
            for kind, axes, ranks in [key]
        ],
        "all_reduces": sum(n for (kind, *_), n in calls.items() if kind in ("all-reduce", "reduce-scatter")),
        "bytes": sum(sent.values()),
        "values": {
            name: {"shape": list(v.shape), "dtype": v.dtype, "cut": text(v.cut), "partial": list(v.partial)}
            for name, v in plan.values.items()
        },
        "steps": rows,
        "reasons": dict(plan.reasons),
    }


def axis_row(plan: Plan, mesh: Mesh, name: str) -> dict[str, Any]:
    """The row of an axis: its blocks and its carrier."""
    axis, carrier = plan.axis(name), mesh.carrier(name)
    counts = [len(mesh.own(axis, rank)) for rank in range(mesh.size)]
    return {
        "axis": name,
        "elements": axis.extent,
        "blocks": axis.blocks,
        "carrier": carrier,
        "ranks": mesh.extent(carrier) if carrier else 1,
        "least": min(counts),
        "most": max(counts),
    }


def row(plan: Plan, step, traffic) -> dict[str, Any]:
    """The row of a step: operation, results and messages."""
    what = step.target if isinstance(step, Compute) else traffic.kind
    results = step_results(step)
    partial = sorted({axis for name in results for axis in plan.values[name].partial})
    return {
        "node": step.node,
        "module": step.where if isinstance(step, Compute) else "",
        "what": what,
        "results": list(results),
        "cut": text(plan.values[results[0]].cut),
        "partial": partial,
        "sends": None if traffic is None else traffic.kind,
        "bytes": 0 if traffic is None else traffic.nbytes,
    }


def as_text(found: Mapping[str, Any], title: str, steps: bool = True) -> str:
    """The explanation as text; `steps`: with a line per operation."""
    values = found["values"].values()
    cut = sum(":" in value["cut"] for value in values)
    operations = sum(row["what"].startswith(("aten.", "partition.")) for row in found["steps"])
    grid = " x ".join(f"{name}={size}" for name, size in found["mesh"].items())
    lines = [
        f"{title}: {operations} operations, {len(values)} values, {cut} of them cut; problem {found['problem'][:12]}",
        f"mesh {grid}: {found['ranks']} ranks",
        "",
        *table(
            ("axis", "elements", "blocks", "carried by", "blocks per rank"),
            [
                (
                    a["axis"],
                    a["elements"],
                    a["blocks"],
                    f"{a['carrier']}={a['ranks']}" if a["carrier"] else "all ranks",
                    a["most"] if a["least"] == a["most"] else f"{a['least']} to {a['most']}",
                )
                for a in found["axes"]
            ],
        ),
        "",
    ]
    if found["collectives"]:
        lines += [
            f"A step has {found['all_reduces']} all-reduces; the ranks send {found['bytes']:,} bytes.",
            "",
            *table(
                ("per step", "over", "ranks", "calls", "bytes"),
                [
                    (c["kind"], ", ".join(c["axes"]), c["ranks"], c["calls"], f"{c['bytes']:,}")
                    for c in found["collectives"]
                ],
            ),
        ]
    else:
        lines.append("The ranks send nothing.")
    lines += ["", *reasons(found["reasons"])]
    if steps:
        lines += [
            "",
            *table(("node", "module", "operation", "result", "bytes"), list(map(step_cells, found["steps"]))),
        ]
    return "\n".join(lines)


def step_cells(row: Mapping[str, Any]) -> tuple:
    """The cells of a step."""
    what = row["what"].removeprefix("aten.").removesuffix(".default")
    if row["sends"] == "halo":
        what += " with halo"
    cut = row["cut"] + (f", partial over {', '.join(row['partial'])}" if row["partial"] else "")
    others = len(row["results"]) - 1
    node = row["node"] + (f" and {others} more" if others and not row["what"].startswith("aten.") else "")
    return node, row["module"], what, cut, f"{row['bytes']:,}" if row["bytes"] else ""


def reasons(given: Mapping[str, str]) -> list[str]:
    """Lines about the operations that are not cut like their operands, by reason."""
    if not given:
        return ["Every operation is cut like its operands."]
    by_reason: dict[str, list[str]] = {}
    for node, why in given.items():
        by_reason.setdefault(why, []).append(node)
    lines = ["Not cut like their operands:"]
    for why, nodes in by_reason.items():
        shown = ", ".join(nodes[:4]) + (f" and {len(nodes) - 4} more" if len(nodes) > 4 else "")
        lines.append(f"  {why}: {shown}")
    return lines


def table(heads: tuple[str, ...], rows: list[tuple]) -> list[str]:
    """Lines of a table; columns of numbers are right-aligned."""
    cells = [heads, *(tuple(map(str, row)) for row in rows)]
    widths = [max(len(row[k]) for row in cells) for k in range(len(heads))]
    right = [
        all(row[k].replace(",", "").isdigit() or not row[k] for row in cells[1:]) for k in range(len(heads))
    ]

    def line(row) -> str:
        parts = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True))
        return "  ".join(parts).rstrip()

    return [line(row) for row in cells]
