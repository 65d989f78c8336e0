"""Formats plan and status as plain text, without the packages of the analysis, which login nodes may lack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from jobs.plan import Plan, Task, options_text
from jobs.predicted import Predicted
from jobs.sites import clock
from jobs.state import DONE, FAILED, FINISHED, Standing, measured
from jobs.words import cut
from miniapps.untrusted.text import printable


def plan_text(
    plan: Plan, standings: Sequence[Standing], every: bool = False, predicted: Predicted | None = None
) -> str:
    """The plan as text: the tasks, the most that they can cost, and how many are done.

    `every`: also each task, in order; `predicted`: also predicted times per step."""
    done = {s.task.id for s in standings if s.state in FINISHED}
    known = measured(standings)
    rows: dict[tuple, list[Task]] = {}
    for task in sorted(plan.tasks, key=lambda task: (task.line, task.label, task.ranks)):
        rows.setdefault(task.configuration, []).append(task)
    nodes = [plan.nodes_of(task) for task in plan.tasks]
    common: dict[int, set] = {}
    for task in plan.tasks:
        common[task.line] = common.get(task.line, set(task.options)) & set(task.options)
    tasks_of = Counter(task.allocation for task in plan.tasks)
    done_of = Counter(task.allocation for task in plan.tasks if task.id in done)
    parts = [
        f"campaign {plan.campaign.name} on {plan.site}: {len(plan.tasks)} tasks, results in {shown(plan.campaign.out)}"
    ]
    parts.append(
        table(
            (
                "app",
                "options",
                "ranks",
                "threads",
                "nodes",
                "seeds",
                "allocations",
                "repeats",
                "limit",
                *(["predicted per step"] if predicted else []),
                *(["predicted in all"] if predicted and predicted.steps else []),
                "took",
                "done",
            ),
            [
                (
                    first.app,
                    options_text(o for o in first.options if o not in common[first.line]) or "-",
                    first.ranks,
                    first.threads,
                    plan.nodes_of(first),
                    len({task.seed for task in tasks}),
                    len({task.allocation for task in tasks}),
                    first.repeats,
                    clock(first.seconds),
                    *([predicted.of(tasks)] if predicted else []),
                    *([predicted.whole(tasks)] if predicted and predicted.steps else []),
                    f"{known[configuration]:.1f} s" if configuration in known else "-",
                    f"{sum(task.id in done for task in tasks)}/{len(tasks)}",
                )
                for configuration, tasks in rows.items()
                for first in tasks[:1]
            ],
        )
    )
    if predicted:
        parts.append("\n".join(printable(line) for line in predicted.words.splitlines()))
    apps = {task.line: task.app for task in plan.tasks}
    shared = [
        printable(f"all of {apps[n]} (line {n}): {options_text(sorted(common[n]))}")
        for n in sorted(common)
        if common[n]
    ]
    if shared:
        parts.append("\n".join(shared))
    parts.append(
        table(
            ("allocation", "tasks", "done", "nodes", "limit", "node-hours"),
            [
                (
                    k,
                    tasks_of[k],
                    done_of[k],
                    plan.nodes,
                    clock(plan.seconds[k]),
                    f"{plan.node_hours(k):.2f}",
                )
                for k in range(plan.campaign.allocations)
            ],
        )
    )
    budget = plan.campaign.budget_node_hours
    total = f"at most {plan.node_hours():.2f} node-hours in all"
    if budget is not None:
        over = plan.node_hours() > budget
        total += (
            f", {'MORE THAN' if over else 'within'} the budget of {budget:g}"
            + "; will not be submitted" * over
        )
    parts.append(total)
    if plan.mixed:
        parts.append(printable(plan.mixed))
    if every:
        parts.append("\n".join(f"{s.task.id}  {s.state}" for s in standings))
    if max(nodes) > min(nodes):
        parts.append("tasks on few nodes leave the others idle: campaigns of one node count each cost less")
    return "\n\n".join(parts)


def status_text(plan: Plan, standings: Sequence[Standing]) -> str:
    """The status as text: counts of tasks by state and allocation, attempts that did not finish, and tasks with a
    reason."""
    words = list(dict.fromkeys([DONE, *sorted({s.state for s in standings} - {DONE})]))
    counts: dict[int, Counter] = {k: Counter() for k in range(len(plan.seconds))}
    for standing in standings:
        counts[standing.task.allocation][standing.state] += 1
    parts = [
        f"campaign {plan.campaign.name}: {shown(plan.campaign.out)}",
        table(
            ("allocation", "tasks", *words),
            [(k, n.total(), *(n[w] for w in words)) for k, n in counts.items()],
        ),
    ]
    if failures := failures_text(plan, standings):
        parts.append(failures)
    if odd := [
        f"{s.task.id}  {s.state}: {s.reason}" for s in standings if s.reason and s.state not in (DONE, FAILED)
    ]:
        parts.append("\n".join(odd))
    return "\n\n".join(parts)


def failures_text(plan: Plan, standings: Iterable[Standing]) -> str:
    """A line per attempt that did not finish, with its reason and the directory of its files; empty: all finished."""
    lines = []
    for standing in standings:
        for end in standing.record.ended:
            if end.outcome in FINISHED:
                continue
            left = f"  {shown(plan.campaign.out / end.moved)}" if end.moved else ""
            lines.append(
                f"  {standing.task.id} attempt {end.attempt}  {end.outcome}: {cut(end.reason)}{left}"
            )
    return "\n".join([f"attempts that did not finish: {len(lines)}", *lines]) if lines else ""


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table as text with aligned columns; columns of numbers are aligned to the right."""
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    widths = [max(len(name), *(len(row[i]) for row in cells)) for i, name in enumerate(columns)]
    right = [all(_number(row[i]) for row in cells) for i in range(len(columns))]

    def line(row: Sequence[str]) -> str:
        return "  ".join(
            c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)
        ).rstrip()

    return "\n".join(line(row) for row in (columns, ["-" * w for w in widths], *cells))


def shown(path: Path) -> str:
    """The text of `short(path)`, printable."""
    return printable(str(short(path)))


def short(path: Path) -> Path:
    """`path` relative to the current directory if it is below, unless it would begin with a dash like an option."""
    here = Path.cwd()
    inner = path.relative_to(here) if path.is_relative_to(here) else path
    return path if str(inner).startswith("-") else inner


def _number(text: str) -> bool:
    return text[:1].isdigit() or text == "-"
