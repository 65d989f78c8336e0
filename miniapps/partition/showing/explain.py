"""Explains a plan on a mesh: the axes of every value, its messages and bytes, and operations that are not cut."""

from __future__ import annotations

import re
from collections import Counter as Tally
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from miniapps.partition.cuts.axes import axes_of, text
from miniapps.partition.cuts.mesh import CONTIGUOUS, ZIGZAG, Mesh
from miniapps.partition.cuts.steps import Compute, Plan, step_operands, step_results
from miniapps.partition.graphs.flops import node_flops
from miniapps.partition.graphs.graph import Graph
from miniapps.partition.graphs.periods import repeats
from miniapps.partition.graphs.simplify import operation
from miniapps.partition.pricing.pipeline import Pipeline, pipeline_of
from miniapps.partition.showing.traffic import Counter

UNREACHED = "no axis reaches it"
NUMBER = re.compile(r"\b\d+\b")  # of a layer, in the name of a module
REPEATED = 24  # lines that are saved where equal layers are shown once


def explain(plan: Plan, mesh: Mesh, graph: Graph | None = None, named: bool = True) -> dict[str, Any]:
    """The whole explanation, in the form of the JSON document. Without the `graph`, shares of FLOPs are 0. `named`:
    whether values have the names of a run, so that the problem has its hash."""
    counter = Counter(plan, mesh)
    sent: Tally[tuple] = Tally()
    calls: Tally[tuple] = Tally()
    rows = []
    for step in plan.steps:
        traffic = counter.step(step)
        if traffic is not None:
            key = traffic.kind, traffic.axes, traffic.ranks
            calls[key] += traffic.calls
            sent[key] += traffic.nbytes
        if isinstance(step, Compute) or traffic is not None:
            rows.append(row(plan, step, traffic))
    return {
        "problem": plan.hash if named else None,
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
        "uncut": uncut(plan, graph),
        "steps": rows,
        "reasons": dict(plan.reasons),
        "pipeline": {} if (pipeline := pipeline_of(plan, mesh)) is None else asdict(pipeline),
    }


def uncut(plan: Plan, graph: Graph | None) -> list[dict[str, Any]]:
    """The rows of operations that are not cut like their operands, or that no axis cuts although they have FLOPs."""
    flops: dict[str, int] = {}
    if graph is not None:
        shapes = {name: tensor.shape for name, tensor in graph.tensors().items()}
        flops = {node.name: node_flops(node, shapes) for node in graph.nodes}
    total = max(1, sum(flops.values()))
    found = []
    for step in plan.steps:
        if not isinstance(step, Compute):
            continue
        values = [plan.values[name] for name in (*step_operands(step), *step.results)]
        whole = not step.over and not any(axes_of(value.cut) for value in values)
        own = flops.get(step.node, 0)
        why = plan.reasons.get(step.node, UNREACHED if whole and own and not plan.stages else "")
        if why:
            found.append(
                {
                    "node": step.node,
                    "module": step.where,
                    "operation": operation(step.target),
                    "why": why,
                    "whole": whole,
                    "flops": 100 * own / total,
                }
            )
    return found


def axis_row(plan: Plan, mesh: Mesh, name: str) -> dict[str, Any]:
    """The row of an axis: its blocks and its carrier."""
    axis, carrier = plan.axis(name), mesh.carrier(name)
    counts = np.bincount(mesh.owners(axis), minlength=1 if carrier is None else mesh.extent(carrier)).tolist()
    return {
        "axis": name,
        "elements": axis.extent,
        "blocks": axis.blocks,
        "carrier": carrier,
        "ranks": mesh.extent(carrier) if carrier else 1,
        "least": min(counts),
        "most": max(counts),
        "owners": ZIGZAG if name in mesh.zigzag else CONTIGUOUS,
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
    problem = f"; problem {found['problem'][:12]}" if found["problem"] else ""
    lines = [
        f"{title}: {operations} operations, {len(values)} values, {cut} of them cut{problem}",
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
                    (str(a["most"]) if a["least"] == a["most"] else f"{a['least']} to {a['most']}")
                    + f", {ZIGZAG}" * (a["owners"] == ZIGZAG),
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
    if found["pipeline"]:
        lines += ["", *bubble_lines(found["pipeline"])]
    lines += ["", *reasons(found["uncut"])]
    if found.get("notes"):
        lines += ["", *found["notes"]]
    if steps:
        lines += [
            "",
            *step_lines(found["steps"]),
        ]
    return "\n".join(lines)


def bubble_lines(of: Mapping[str, Any]) -> list[str]:
    """Lines about a pipeline: its size, and how long its ranks wait."""
    lines = [
        f"Pipeline: {counted(of['stages'], 'stage')} on {counted(of['ranks'], 'rank')}, "
        f"{counted(of['micro_batches'], 'micro-batch')}, schedule {of['schedule']}.",
        f"The ranks wait {100 * of['bubble']:.1f} % of the time for other stages, if all products have one rate.",
    ]
    return [*lines, few] if (few := Pipeline(**of).few()) else lines


def counted(number: int, noun: str) -> str:
    """`1 stage`, `2 stages`."""
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def step_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line per step; steps of equal layers once, behind the number of layers."""
    cells = list(map(step_cells, rows))
    lines = table(("node", "module", "operation", "result", "bytes"), cells)
    head, body, found, at = lines[0], lines[1:], [], 0
    for of in repeats([(NUMBER.sub("", cell[1]), *cell[2:]) for cell in cells], REPEATED):
        first, last = cells[of.begin][1], cells[of.end - of.period][1]
        found += body[at : of.begin]
        found.append(
            f"x {of.count}, from {first or body[of.begin].split()[0]} to {last or body[of.end - of.period].split()[0]}:"
        )
        found += [f"| {line}" for line in body[of.begin : of.begin + of.period]]
        at = of.end
    return [head, *found, *body[at:]]


def step_cells(row: Mapping[str, Any]) -> tuple:
    """The cells of a step."""
    what = row["what"].removeprefix("aten.").removesuffix(".default")
    if row["sends"] == "halo":
        what += " with halo"
    cut = row["cut"] + (f", partial over {', '.join(row['partial'])}" if row["partial"] else "")
    others = len(row["results"]) - 1
    node = row["node"] + (f" and {others} more" if others and not row["what"].startswith("aten.") else "")
    return node, row["module"], what, cut, f"{row['bytes']:,}" if row["bytes"] else ""


def reasons(rows: list[dict[str, Any]]) -> list[str]:
    """Lines about the operations that are not cut like their operands, by reason."""
    if not rows:
        return ["Every operation is cut like its operands."]
    by_reason: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_reason.setdefault(row["why"], []).append(row)
    lines = ["Not cut like their operands:"]
    for why, several in by_reason.items():
        shown = ", ".join(row["node"] for row in several[:4])
        lines.append(f"  {why}: {shown}" + (f" and {len(several) - 4} more" if len(several) > 4 else ""))
        modules = list(dict.fromkeys(row["module"] for row in several if row["module"]))
        if modules:
            more = f" and {len(modules) - 4} more" if len(modules) > 4 else ""
            lines.append(f"    in {', '.join(modules[:4])}{more}")
    whole, some = (sum(row["flops"] for row in rows if row["whole"] == flag) for flag in (True, False))
    if whole:
        lines.append(f"{share(whole)} of the FLOPs run whole on every rank.")
    if some:
        lines.append(f"{share(some)} of the FLOPs are in operations that only some of their axes cut.")
    return lines


def share(percent: float) -> str:
    """A percentage with two digits."""
    return (
        "less than 0.1 %" if percent < 0.1 else f"{percent:.2g} %" if percent < 99.5 else f"{percent:.0f} %"
    )


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
