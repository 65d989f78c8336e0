"""The figures of watched models: where modules differ in which step, and how far gradients and weights lie apart."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from analysis.page import svg
from analysis.page.axes import floor_of, log_axis
from analysis.page.svg import Figure, figure_of
from analysis.studies.watched.runs import (
    EQUAL,
    FIRST,
    INPUT,
    LAST,
    PASSES,
    SIZED,
    Pair,
    chosen_steps,
)

MOST_ROWS, MOST_STEPS = 24, 12
ROW_IN = 0.2
GAP = 0.46  # half of a cell


def figures_of(pair: Pair, number: int) -> list[Figure]:
    """The map of modules and steps of a pair, and the sizes of its differences."""
    if pair.first is None:
        return []
    shown = drawn(pair)
    rows = shown["module"].drop_duplicates().tolist()
    step, module, of, _ = pair.first
    run, against = pair.names
    folded = (
        ""
        if set(rows) >= set(pair.states["module"])
        else " Modules are shown together, as `LAYER (n modules)`."
    )
    caption = (
        f"Modules of the model in the order of computation, by recorded step: a dot is equal to {against}, a filled "
        f"cell differs, and the framed cell is the first difference: {of} pass of {module}, step {step}. "
        f"An empty cell has no record.{folded}"
    ).replace("weights pass of", "weights of")
    title = f"Modules that differ: {run} and {against}"
    height = 1.1 + ROW_IN * len(rows)
    found = [figure_of(f"watched-{number}", title, _map(shown, rows), caption, height, (), (1, 3), shown)]
    if (pair.sizes["largest"] > 0).any():
        caption = (
            "Differences in units in the last place of the numbers: the largest gradient or weight of each step, and "
            "the median over all gradients or weights (dotted). They are estimates from sums with signs"
            f"{pair.of_sample}. Points at the bottom are equal."
        )
        legend = tuple(enumerate(SIZED))
        title = f"Growth of the difference: {run} and {against}"
        found.append(figure_of(f"watched-growth-{number}", title, _sizes(pair.sizes), caption, 2.6, legend,
                               data=pair.sizes))  # fmt: skip
    return found


def drawn(pair: Pair) -> pd.DataFrame:
    """The states of at most MOST_ROWS modules or groups of modules, and of MOST_STEPS steps, the first difference among
    them."""
    states, (step, module, *_) = pair.states, pair.first or (-1, "")
    states = states[states["step"].isin(chosen_steps(states["step"], MOST_STEPS, step))]
    names = states["module"].drop_duplicates().tolist()
    together = grouped(names, module)
    rows = states.assign(module=states["module"].map(together), worst=states["state"].map(_weight))
    rows = rows.groupby(["module", "pass", "step"], sort=False).agg(
        records=("records", "sum"), differing=("differing", "sum"), worst=("worst", "max")
    )
    rows = rows.reset_index()
    rows["state"] = rows["worst"].map({_weight(state): state for state in states["state"].unique()})
    order = {name: i for i, name in enumerate(dict.fromkeys(together[name] for name in names))}
    rows = rows.sort_values("module", key=lambda of: of.map(order), kind="stable", ignore_index=True)
    return rows.drop(columns="worst")


def grouped(names: list[str], own: str) -> dict[str, str]:
    """{module: its row}: at most about MOST_ROWS rows, of modules with a common beginning of their paths; `own` keeps a
    row of its own."""
    paths = {name: name.partition(" (")[0].split(".") for name in names if name not in (INPUT, LAST, own)}
    for depth in range(max(map(len, paths.values()), default=1), 0, -1):
        keys = {name: ".".join(path[:depth]) for name, path in paths.items()}
        if len(set(keys.values())) + 3 <= MOST_ROWS:
            break
    members: dict[str, list[str]] = {}
    for name, key in keys.items():
        members.setdefault(key, []).append(name)
    kept = list(members)
    if len(kept) + 3 > MOST_ROWS:  # one long list of modules
        size = -(-len(kept) // (MOST_ROWS - 3))
        members = {
            f"{kept[i]} to {kept[min(i + size, len(kept)) - 1]}": [
                name for key in kept[i : i + size] for name in members[key]
            ]
            for i in range(0, len(kept), size)
        }
    rows = {
        name: every[0] if len(every) == 1 else f"{key} ({len(every)} modules)"
        for key, every in members.items()
        for name in every
    }
    return {name: rows.get(name, name) for name in names}


def _weight(state: str) -> int:
    return {EQUAL: 0, FIRST: 2}.get(state, 1)


def _map(shown: pd.DataFrame, rows: list[str]) -> Callable:
    steps = sorted(shown["step"].unique())

    def plot(axes) -> None:
        for of, each in zip(PASSES, axes, strict=True):
            for row in shown[shown["pass"] == of].itertuples(index=False):
                x, y = steps.index(row.step), rows.index(row.module)
                if row.state == EQUAL:
                    each.plot(x, y, ".", color=svg.INK, markersize=1.5)
                    continue
                corners = _cell(x, y)
                each.fill(
                    *corners, color=svg.SERIES[1], alpha=1.0 if row.state == FIRST else 0.45, linewidth=0
                )
                if row.state == FIRST:
                    frame = [[*side, side[0]] for side in corners]
                    each.plot(*frame, color=svg.INK, linewidth=1.5, zorder=4)
            stride = max(1, -(-len(steps) // 4))
            each.set_xticks(range(0, len(steps), stride), [str(step) for step in steps[::stride]], fontsize=8)
            each.set_yticks(range(len(rows)), rows if of == PASSES[0] else [""] * len(rows), fontsize=8)
            each.set(xlim=(-0.6, len(steps) - 0.4), ylim=(len(rows) - 0.4, -0.6), xlabel="step")
            each.set_title(of, fontsize=9)
            each.grid(visible=False)

    return plot


def _cell(x: float, y: float) -> tuple[list[float], list[float]]:
    """The corners of the cell at column x and row y, with a gap to its neighbours."""
    return [x - GAP, x + GAP, x + GAP, x - GAP], [y - GAP, y - GAP, y + GAP, y + GAP]


def _sizes(sizes: pd.DataFrame) -> Callable:
    def plot(axes) -> None:
        floor = floor_of(sizes[["median", "largest"]].to_numpy())
        for i, what in enumerate(SIZED):
            own, look = sizes[sizes["what"] == what], svg.series(i)
            for column, style in (("largest", "-"), ("median", ":")):
                axes.plot(own["step"], own[column].where(own[column] > 0), style, color=look["color"])
                points = own[column].where(own[column] > 0, floor)
                axes.plot(own["step"], points, linestyle="none", alpha=0.8, **look)
        axes.set(xlabel="step", ylabel="units in the last place")
        axes.xaxis.get_major_locator().set_params(integer=True)
        log_axis(axes.yaxis, axes.set_yscale, floor)

    return plot
