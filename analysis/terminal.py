"""Frames and verdicts as text: tables on a terminal, plain lines elsewhere."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd

from analysis import bits
from analysis.divergence.cause import cause, unlike
from analysis.divergence.compare import Comparison, Point
from analysis.divergence.element import Element, first_element
from analysis.divergence.trail import Event
from analysis.load.frames import Frames
from analysis.power import percent
from analysis.regions import regions, summary
from analysis.runs import label
from analysis.variability import bound
from analysis.verdict import BROKEN, HOLDS, INCOMPARABLE, OUTSIDE, SAME, Group, in_both, lacks, place
from miniapps.received.text import encodable, printable

COLOURS = {HOLDS: "green", BROKEN: "bold red", INCOMPARABLE: "yellow", OUTSIDE: "yellow"}
PLAIN_WIDTH = 160  # where the output is no terminal: wide enough that no cell is broken


def printer() -> Callable[..., None]:
    """A function that prints a line of text or a `table`: in colour and as wide as the terminal, or, where the output
    is no terminal, as plain text without spaces at the ends of lines. `bold=True` is for the verdict. Only the
    printer's own colours reach the terminal as control characters."""
    from rich.console import Console

    plain: dict[str, Any] = {"highlight": False, "emoji": False, "markup": False}
    terminal = Console(**plain)
    paper = Console(**plain, width=PLAIN_WIDTH, color_system=None)

    def say(what: object = "", bold: bool = False) -> None:
        console = terminal if terminal.is_terminal else paper
        with console.capture() as captured:
            shown = printable(what) if isinstance(what, str) else what
            console.print(shown, style="bold" if bold else None, soft_wrap=isinstance(what, str))
        lines = captured.get().removesuffix("\n").split("\n")
        if console is paper:
            lines = [line.rstrip() for line in lines]
        print(encodable("\n".join(lines), sys.stdout))

    return say


def table(title: str, columns: Iterable[str], rows: Iterable[Iterable[object]], numbers: Iterable[str] = ()):
    """A rich table of `printable` text; columns named in `numbers` are set to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(title=printable(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        made.add_column(printable(column), justify="right" if column in numbers else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text(printable(cell), style=COLOURS.get(cell, "")) for cell in map(str, row)))
    return made


def groups_table(groups: list[Group]):
    """What each group is, how many results it has, and the verdict."""
    rows = [
        (
            group.label, ", ".join(map(str, group.sizes)),
            f"{group.runs}" + (f" + {group.incomplete} incomplete" if group.incomplete else ""),
            group.distinct, group.state[:12] or ("several" if group.distinct > 1 else "-"), group.verdict,
            unseen(group),
        )
        for group in groups
    ]  # fmt: skip
    columns = ("group", "ranks", "runs", "distinct", "final state", "verdict", "p at 95 %")
    return table("Groups of runs", columns, rows, numbers=("distinct", "p at 95 %"))


def unseen(group: Group) -> str:
    """`< 22 %` where no difference was seen: what its probability per run is below; empty elsewhere."""
    return f"< {percent(bound(group.tested))}" if group.verdict in (HOLDS, SAME) else ""


def excluded_lines(excluded: pd.DataFrame) -> list[str]:
    """One line for each thing that was left out or is doubtful."""
    return [
        f"{what}: {reason} [kept: {kept}]" for _, what, _, reason, kept in excluded.itertuples(index=False)
    ]


def variability_tables(frame: pd.DataFrame):
    """What `variability` returned: one table for each set of runs that are judged against each other."""
    columns = ("name", "of", "step", "against", "pairs", "distinct", "effective", "max |V_s|", "V_ermv",
               "V_c", "max ULP", "undefined", "p at 95 %")  # fmt: skip
    for cell, same in frame.groupby("cell", sort=False):
        rows = [
            (
                row.name,
                "blocks" if row.kind == "fingerprints" else "values", row.step, row.against, row.pairs,
                f"{row.distinct}/{row.runs}", number(row.effective), number(row.v_s_max),
                number(row.v_ermv_mean), number(row.v_c_mean), number(row.ulp_max), row.undefined or "",
                f"< {row.bound:.1%}" if row.bound == row.bound else "",
            )
            for row in same.itertuples(index=False)
        ]  # fmt: skip
        yield table(f"Variability: {cell}", columns, rows, numbers=(columns[2], *columns[4:]))


def factor_table(frame: pd.DataFrame, factor: str):
    """What `factors.by_factor` returned."""
    columns = ("app", factor, "against", "distinct", "effective", "pairs that differ", "max |V_s|", "V_ermv", "V_c",
               "max ULP", "undefined", "no difference seen")  # fmt: skip
    rows: list[tuple[object, ...]] = [
        (
            row.app, row.level, row.against,
            f"{row.distinct:.0f} in {row.runs} runs" + (f", {row.cells} cells" if row.cells > 1 else "")
            if row.distinct == row.distinct else f"{row.runs} run{'s' * (row.runs != 1)}",
            number(row.effective), f"{row.differing} of {row.pairs}", number(row.v_s_max), number(row.v_ermv_max),
            number(row.v_c_max), number(row.ulp_max), row.undefined or "",
            row.note.partition(";")[0],
        )
        for row in frame.itertuples(index=False)
    ]  # fmt: skip
    shown = columns if factor != "app" else (columns[0], *columns[2:])
    rows = [row if factor != "app" else (row[0], *row[2:]) for row in rows]
    return table(
        f"Variability by {factor}: largest over names, at the last step", shown, rows, numbers=shown[-8:-1]
    )


def comparison_lines(found: Comparison, frames: Frames) -> list[str]:
    """Where two runs part, in words."""
    a, b = label(found.a), label(found.b)
    if not found.comparable:
        return [
            f"{a} and {b} cannot be compared, since records are missing: {lacks(found)}.",
            f"  {'compared':<15}no difference {in_both(found)}",
        ]
    if found.equal:
        told = _unequal_lengths(found, frames)
        told += [("unlike", "; ".join(words))] if (words := unlike(frames, found)) else []
        unequal = [f"  {what:<15}{text}" for what, text in told]
        if found.only_a or found.only_b:
            return [f"{a} and {b} are equal {in_both(found)}, up to step {found.through}.", *unequal]
        return [f"{a} and {b} are equal: the same bits in {compared(found)}.", *unequal]
    head = f"{a} and {b} differ: first at {place(found.part)}."
    return [head, *(f"  {what:<15}{text}" for what, text in facts(found, frames))]


def facts(found: Comparison, frames: Frames) -> list[tuple[str, str]]:
    """What is known about the first divergence of two runs, as (label, text)."""
    lines = []
    if found.fingerprint:
        at = found.fingerprint
        lines.append(("fingerprint", f"{place(at)}: {_owners(at, found, frames)}"))
        if at.recorded > 1:
            lines.append(("spread", f"{at.differing} of {at.recorded} blocks of {at.name} differ there"))
    lines += [("value there", difference(point)) for point in found.values]
    if found.largest and found.largest not in found.values:
        lines.append(("largest there", difference(found.largest)))
    if found.value and found.value not in found.values:
        lines.append(("first value", f"step {found.value.step}: {difference(found.value)}"))
    lines += _cause_lines(found, frames)
    if found.order:
        step, name, call, first, second = found.order
        orders = f"{_sequence(first)} against {_sequence(second)}"
        lines.append(("arrival order", f"first differs at step {step}, {name}, call {call + 1}: {orders}"))
    return [*lines, *_unequal_lengths(found, frames), ("compared", compared(found))]


def _cause_lines(found: Comparison, frames: Frames) -> list[tuple[str, str]]:
    """The class of the cause, its event, the reasons, and the first element where files hold it."""
    lines = []
    if judged := cause(frames, found):
        who = "" if judged.rank is None else f" on rank {judged.rank}"
        again = f" in block {judged.at.block}" if judged.at.block >= 0 and judged.rank is not None else ""
        step = judged.event.step if judged.event else judged.at.step
        lines.append(("cause", f"{judged.kind}: {judged.name}{again}{who}, step {step}"))
        if judged.event:
            lines.append(("event", event_text(judged.event, label(found.b))))
        lines.append(("why", "; ".join(judged.why)))
        if judged.instead:
            lines.append(("or", f"{judged.instead}: {judged.instead_why}"))
    element, unread = first_element(frames, found)
    if element:
        lines.append(("element", element_text(element)))
    return lines + [("not compared", sentence) for sentence in unread]


def event_text(event: Event, run: str) -> str:
    """`scalars, call 6 of step 2, rank 0 of b:0: 1.2034 s into the run, 41.2 us long (event 137)`."""
    return (
        f"{event.name}, call {event.call + 1} of step {event.step}, on rank {event.rank} in {run}: "
        f"{event.start / 1e9:.6f} s into the run, {(event.end - event.start) / 1e3:.4g} us long (event {event.index})"
    )


def element_text(element: Element) -> str:
    """Where, both numbers in decimal and as bits, how far apart, and how many more there are."""
    block = f", block {element.block} at {_index(element.local)}" if element.block >= 0 else ""
    a, b = (f"{float(x)!r} ({float(x).hex()})" for x in (element.a, element.b))
    ulp = "NaN" if math.isnan(element.ulp) else f"{number(element.ulp)} ULP"
    most = "NaN" if math.isnan(element.most) else f"{number(element.most)} ULP"
    return (
        f"{element.field}{_index(element.index)}{block}: {a} against {b}, {ulp}; "
        f"{element.differing} of {element.elements} differ, most at {_index(element.furthest)} by {most} "
        f"({element.file})"
    )


def _index(index: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, index))}]"


def _unequal_lengths(found: Comparison, frames: Frames) -> list[tuple[str, str]]:
    """A line that says so where one run has more steps than the other."""
    last = frames.runs.set_index(["run", "repeat"])["last_step"]
    a, b = int(last[found.a]), int(last[found.b])
    if a == b:
        return []
    return [
        (
            "steps",
            f"{label(found.a)} has steps up to {a}, {label(found.b)} up to {b}: only those in both count",
        )
    ]


def compared(found: Comparison) -> str:
    """How much of two runs was compared."""
    alone = [
        f"{n} only in {label(run)}" for n, run in ((found.only_a, found.a), (found.only_b, found.b)) if n
    ]
    return "; ".join([f"{found.compared} fingerprints and values up to step {found.through}", *alone])


def difference(point: Point) -> str:
    """`sample[17]: -2.5 against -2.5000000000000004 (1 ULP, relative 1.8e-16)`."""
    where = f"[{point.block}]" if point.block >= 0 else ""
    ulp = float(bits.ulp_distance(point.a, point.b))
    relative = float(bits.relative_difference(point.a, point.b))
    size = "NaN or infinite" if math.isnan(ulp) else f"{number(ulp)} ULP, relative {number(relative)}"
    return f"{point.name}{where} {point.a!r} against {point.b!r} ({size})"


def growth_table(frame: pd.DataFrame, steps: int = 12):
    """What `growth` returned, a row per step: blocks whose fingerprints differ, and the largest relative
    difference of values. Of the steps where something differs about `steps` are shown, evenly chosen."""
    known = frame.loc[frame["differing"] > 0, "step"].drop_duplicates().tolist()
    last = max(1, min(steps, len(known)) - 1)
    chosen = {known[round(i * (len(known) - 1) / last)] for i in range(min(steps, len(known)))}
    names = frame["name"].drop_duplicates().tolist()
    rows = []
    for step, same in frame[frame["step"].isin(chosen)].groupby("step"):
        cells = {
            row.name: f"{row.differing}/{row.elements}"
            if row.kind == "fingerprints"
            else number(row.max_relative)
            for row in same.itertuples(index=False)
        }
        rows.append((step, *(cells.get(name, "") for name in names)))
    title = "Growth: blocks that differ, and the largest relative difference of values"
    return table(title, ("step", *names), rows, numbers=("step", *names))


def show(frames: Frames):
    """What is in the runs of `frames`: renderables for the console."""
    for run, repeats in frames.runs.groupby("run", sort=False):
        first = repeats.iloc[0]
        method = ", ".join(f"{key}={_plain(value)}" for key, value in json.loads(first["method"]).items())
        rows = [
            ("path", first["path"]), ("run id", first["run_id"]), ("started", first["started"]),
            ("application", first["app"]), ("problem", first["problem"]), ("ranks", first["size"]),
            ("guarantee", first["guarantee"]), ("ordering", first["ordering"]), ("seed", first["seed"]),
            ("method", method),
            ("events", f"{first['events']:,} over all ranks; tracing took {number(first['tracing_s'])} s"),
        ]  # fmt: skip
        yield table(f"Run {run}", ("", ""), rows)
        columns = ("repeat", "whole", "last step", "wall time, s", "final state")
        repeated = [
            (r.repeat, "yes" if r.complete else "NO", r.last_step, number(r.wall_s), r.state or "-")
            for r in repeats.itertuples(index=False)
        ]
        yield table("Repeats", columns, repeated, numbers=columns[2:4])
        columns = ("table", "name", "rows", "steps", "blocks")
        yield table("Recorded", columns, _recorded(frames, run), numbers=columns[2:])
        yield from _times(frames, run)


def _times(frames: Frames, run: str):
    measured = regions(frames)
    medians = summary(measured[measured["run"] == run])
    if medians.empty:
        return
    rows = [
        (
            r.name,
            int(r.calls),
            number(r.total_s),
            number(r.exclusive_s),
            number(r.imbalance),
            f"{r.share:.1%}",
        )
        for r in medians.itertuples(index=False)
    ]
    columns = ("region", "calls", "s inclusive", "s exclusive", "imbalance", "share")
    yield table("Wall time per region, mean over ranks, median over repeats", columns, rows, columns[1:])


def number(x: float) -> str:
    """Three digits, as few characters as that takes; empty for what does not exist."""
    if isinstance(x, float) and math.isnan(x):
        return ""
    if math.isinf(x):
        return str(x)
    return f"{x:,.0f}" if x == int(x) and abs(x) < 1e7 else f"{x:.3g}"


def interval(low: float, high: float, show=number) -> str:
    """`1.2 to 1.4`; empty where there is none."""
    return f"{show(low)} to {show(high)}" if low == low and high == high else ""


def _recorded(frames: Frames, run: str) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for name in ("fingerprints", "values", "order", "choices", "usage"):
        frame = getattr(frames, name)
        for what, same in frame[(frame["run"] == run).to_numpy()].groupby("name", observed=True):
            blocks = same["block"][same["block"] >= 0].nunique() if "block" in same else 0
            rows.append((name, what, len(same), same["step"].nunique(), blocks or "-"))
    return rows


def _owners(point: Point, found: Comparison, frames: Frames) -> str:
    sizes = frames.runs.set_index(["run", "repeat"])["size"]
    owners = ((point.rank_a, found.a), (point.rank_b, found.b))
    return "owned by " + ", ".join(f"rank {rank} of {sizes[run]} in {label(run)}" for rank, run in owners)


def _sequence(order: tuple[int, ...]) -> str:
    shown = " ".join(map(str, order[:16]))
    return f"{shown} ..." if len(order) > 16 else shown


def _plain(value: object) -> str:
    return json.dumps(value) if isinstance(value, dict | list) else str(value)
