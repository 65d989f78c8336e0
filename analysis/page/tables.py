"""Tables of groups, variability, regions and steps, for the terminal and for the report."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pandas as pd

from analysis.clauses import NOTHING, clause
from analysis.comparison import COMPARED
from analysis.divergence.calls import CALLS
from analysis.divergence.steps import GROWTH
from analysis.headline import BADGES, badge
from analysis.load.frames import Frames
from analysis.page.sections import ON, Mark, Shown, Table, lines_of, said_once
from analysis.page.text import below, number
from analysis.pairs import EACH_OTHER
from analysis.regions import regions, summary
from analysis.verdict import DIFFERS, UNTESTED, Group, by_weight, counted

MOST_RUNS = 12  # of which each is shown
MOST_KINDS = 3  # of more runs, of which one is shown
MOST_NAMES = 100  # rows of a table of names; the rest is counted, and all are in CSV and JSON
SHARES = 0.005  # by how much rounded shares may add up to more than all
STATE_SHOWN = 12  # characters of a final state
GROUPS = ("verdict", "badge", "group", "words", "guarantee", "ordering", "ranks", "runs", "incomplete", "results",
          "state", "text")  # fmt: skip
RECORDED = ("run", "table", "name", "rows", "steps", "blocks")
LACKING = ("run", "what", "call", "why", "calls")
NOT_RECORDED, NOT_REACHED = "not recorded", "not reached"  # `what` a run lacks


def groups_frame(groups: list[Group]) -> pd.DataFrame:
    """A row per group, the worst first; columns GROUPS. `ranks` are lists of rank counts, `results` how many different
    ones there are, `state` the hash of the final state where all runs have one, `text` what there is to say."""
    rows = [
        (
            group.verdict, badge(group), group.label, group.words, group.guarantee, group.ordering,
            list(group.sizes), group.runs, group.incomplete, group.distinct, group.state, clause(group),
        )
        for group in by_weight(groups)
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=list(GROUPS), dtype=object)


def decisions_frame(decisions: Iterable[tuple[str, str, str]]) -> pd.DataFrame:
    """The families of solves in which a decision changed, a row each."""
    return pd.DataFrame(decisions, columns=["family", "verdict", "text"], dtype=object)


def groups_table(groups: list[Group], decisions: Iterable[tuple[str, str, str]] = ()) -> tuple[str, Table]:
    """What each group is, how many results it has, and what there is to say of it, the worst first. Those with nothing
    to compare are in `alone`. `decisions` of solves that changed, (name, verdict, words), follow."""
    columns = ("verdict", "group", "ranks", "runs", "results", "final state", "what there is to say")
    names = {group.label: Mark(group.words, "", series=i) for i, group in enumerate(groups)}
    rows: list[tuple[object, ...]] = [
        (
            Mark(row.badge, row.verdict), names[row.group], ", ".join(map(str, row.ranks)),
            f"{row.runs}" + (f" + {row.incomplete} incomplete" if row.incomplete else ""),
            row.results, row.state[:STATE_SHOWN] or ("several" if row.results > 1 else "-"), row.text,
        )
        for row in groups_frame(groups).itertuples(index=False)
        if row.verdict != UNTESTED
    ]  # fmt: skip
    rows += [
        (Mark(BADGES[verdict], verdict), name, "", "", "", "", words) for name, verdict, words in decisions
    ]
    return "Groups of runs", Table(columns, rows, ("results",))


def alone(groups: list[Group]) -> list[str]:
    """What there is to say of each group with nothing to compare."""
    return [
        f"{group.words} ({clause(group).removesuffix(NOTHING)})"
        for group in groups
        if group.verdict == UNTESTED
    ]


VARIABILITY = (
    Shown("against", lambda row: row.against if row.against == EACH_OTHER else f"against {row.against}"),
    Shown("name", lambda row: row.name),
    Shown("of", lambda row: "blocks" if row.kind == "fingerprints" else "values"),
    Shown("step", lambda row: row.step, number=True),
    Shown("pairs", lambda row: row.pairs, number=True),
    Shown("distinct", lambda row: f"{row.distinct} of {row.runs}", number=True),
    Shown("effective", lambda row: number(row.effective), number=True),
    Shown("max |V_s|", lambda row: number(row.v_s_max), number=True),
    Shown("V_ermv", lambda row: number(row.v_ermv_mean), number=True),
    Shown("V_c", lambda row: number(row.v_c_mean), number=True),
    Shown("max ULP", lambda row: number(row.ulp_max), number=True),
    Shown("undefined", lambda row: row.undefined or "", number=True),
)


def variability_tables(frame: pd.DataFrame) -> tuple[list[tuple[str, Table]], list[str]]:
    """([(title, table)], sentences) of what `variability` returned: a table for each cell, runs that are judged against
    each other, of the names that differ; the others are counted in the title. Of cells in which nothing differs there
    are sentences."""
    tables, alike = [], dict[str, list[str]]()
    for cell, same in frame.groupby("cell", sort=False):
        differ = (same["v_c_max"] > 0) | (same["distinct"] > 1)
        if not differ.any():
            alike.setdefault(_equal_names(same), []).append(cell)
            continue
        some = same[differ].sort_values("against", key=lambda of: of != EACH_OTHER, kind="stable")
        title, names = cell, some["name"].nunique()
        if names > MOST_NAMES:
            far = some.groupby("name", sort=False)[["v_c_max", "ulp_max"]].max().fillna(0.0)
            ordered = far.sort_values(["v_c_max", "ulp_max"], ascending=False, kind="stable")
            some = some[some["name"].isin(ordered.index[:MOST_NAMES])]
            title += f"; the {MOST_NAMES} of {names:,} names that differ most"
        for against, equal in same[~differ].groupby("against", sort=False):
            between = "among these runs" if against == EACH_OTHER else f"from {against}"
            title += f"; {_equal_names(equal)} {between}"
        table, once = said_once(lines_of(some, VARIABILITY, by="against"))
        tables.append((title + once, table))
    sentences = [f"{'; '.join(cells)}: {what}." for what, cells in alike.items()]
    return tables, sentences


def _equal_names(same: pd.DataFrame) -> str:
    """`9 names do not differ (p < 53 %)`, of rows of `variability` without a difference."""
    count, pairs = same["name"].nunique(), same["pairs"] > 0
    if not pairs.any():
        return f"{counted(count, 'name')}, no other run to compare with"
    bounds = sorted({below(bound) for bound in same["bound"]} - {""})
    p = f" (p {' or '.join(bounds)} at 95 %)" if bounds else ""
    return f"{count:,} {'name does' if count == 1 else 'names do'} not differ{p}"


def never_differ(count: int) -> str:
    """`9 names never differ`."""
    return f"{count:,} {'name never differs' if count == 1 else 'names never differ'}"


OF_LEVELS = (
    Shown("against", lambda row: row.against),
    Shown("distinct", lambda row: _distinct(row)),
    Shown("effective", lambda row: number(row.effective), number=True),
    Shown("pairs that differ", lambda row: f"{row.differing} of {row.pairs}", number=True),
    Shown("max |V_s|", lambda row: number(row.v_s_max), number=True),
    Shown("V_ermv", lambda row: number(row.v_ermv_max), number=True),
    Shown("V_c", lambda row: number(row.v_c_max), number=True),
    Shown("max ULP", lambda row: number(row.ulp_max), number=True),
    Shown("undefined", lambda row: row.undefined or "", number=True),
    Shown("no difference seen", lambda row: row.note.partition(";")[0]),
)


def factor_table(frame: pd.DataFrame, factor: str) -> tuple[str, Table]:
    """What `factors.by_factor` returned."""
    app = [] if factor == "app" else [Shown("app", lambda row: row.app)]
    columns = (*app, Shown(factor, lambda row: row.level), *OF_LEVELS)
    return f"Variability by {factor}: largest over names, at the last step", lines_of(frame, columns)


def _distinct(row: Any) -> str:
    if row.distinct != row.distinct:
        return f"{row.runs} run{'s' * (row.runs != 1)}"
    return f"{row.distinct:.0f} in {row.runs} runs" + (f", {row.cells} cells" if row.cells > 1 else "")


TRANSPORT = (
    Shown("from", lambda row: row.a),
    Shown("to", lambda row: row.b),
    Shown("name", lambda row: row.name),
    Shown("step", lambda row: row.step, number=True),
    Shown("runs", lambda row: f"{row.runs_a}, {row.runs_b}", number=True),
    Shown("W1", lambda row: number(row.w1), number=True),
    Shown("of its deviation", lambda row: number(row.w1 / row.scale) if row.scale else "", number=True),
    Shown("p", lambda row: number(row.p), number=True),
    Shown("above at deciles", lambda row: row.above),
    Shown("below at deciles", lambda row: row.below),
)
SHIFT = (
    Shown("quantile", lambda row: f"{row.quantile:.1f}", number=True),
    Shown("from", lambda row: f"{row.start:.6g}", number=True),
    Shown("to", lambda row: f"{row.end:.6g}", number=True),
    Shown("shift", lambda row: number(row.shift), number=True),
    Shown("low", lambda row: number(row.low), number=True),
    Shown("high", lambda row: number(row.high), number=True),
)


def transport_tables(distances: pd.DataFrame, shifts: pd.DataFrame) -> list[tuple[str, Table]]:
    """What `transport.transport` returned: the distances, then a table of the shift function for each value whose band
    leaves zero somewhere."""
    tables = [("Transport from cell to cell", lines_of(distances, TRANSPORT))]
    telling = distances[(distances["above"] != "") | (distances["below"] != "")]
    for row in telling.itertuples(index=False):
        own = shifts[(shifts["a"] == row.a) & (shifts["b"] == row.b) & (shifts["name"] == row.name)]
        tables.append((f"Shift of {row.name}: {row.a} to {row.b}", lines_of(own, SHIFT)))
    return tables


def region_table(medians: pd.DataFrame) -> Table:
    """What `regions.summary` returned: a row per region, below the name of its group where there are several groups or
    rank counts. Exclusive times have a column per rank count, inclusive times one of the most ranks, shares and
    imbalances one of the fewest and one of the most."""
    sizes = sorted(set(medians["size"]))
    several = len(medians[["group", "size"]].drop_duplicates()) > 1
    ends = sorted({sizes[0], sizes[-1]})
    shown = {"s inclusive": ends[-1:], "s exclusive": sizes, "share": ends, "imbalance": ends}
    columns = [(what, size) for what, own in shown.items() for size in own]
    rows = []
    for (group, name), same in medians.groupby(["group", "name"], sort=False):
        by = {row.size: row for row in same.itertuples(index=False)}
        calls = sorted(row.calls / (row.size if several else 1) for row in by.values())
        texts = {size: _region_texts(by.get(size), size, several) for size in sizes}
        told = " to ".join(dict.fromkeys((number(calls[0]), number(calls[-1]))))
        rows.append((group, name, told, *(texts[size][what] for what, size in columns)))
    names = [f"{what}{ON}{size}" if several else what for what, size in columns]
    heads = ("group", "region", "calls a rank" if several else "calls", *names)
    if not several:
        return Table(heads[1:], [row[1:] for row in rows], heads[2:])
    order = {group: i for i, group in enumerate(medians["group"].drop_duplicates())}
    return Table(heads, sorted(rows, key=lambda row: order[row[0]]), heads[2:], by="group")


def _region_texts(row: Any, size: int, several: bool) -> dict[str, str]:
    """The texts by quantity; inclusive time is empty beside several others where no region is inside, imbalance on one
    rank."""
    if row is None:
        return dict.fromkeys(("s inclusive", "s exclusive", "share", "imbalance"), "")
    inclusive, exclusive = number(row.total_s), number(row.exclusive_s)
    return {
        "s inclusive": "" if several and inclusive == exclusive else inclusive,
        "s exclusive": exclusive,
        "share": f"{row.share:.1%}",
        "imbalance": "" if several and size == 1 else f"{row.imbalance:.1%}",
    }


def steps_table(frame: pd.DataFrame, steps: int = 7, most: int = 25) -> tuple[str, Table]:
    """What `divergence.growth` returned, a row per name that differs: blocks whose fingerprints differ, or the largest
    relative difference of values, at about `steps` of the steps where something differs, evenly chosen.
    Of more than `most` names those are shown of which the most differs."""
    differing = frame[frame["differing"] > 0]
    known = differing["step"].drop_duplicates().tolist()
    last = max(1, min(steps, len(known)) - 1)
    chosen = [known[round(i * (len(known) - 1) / last)] for i in range(min(steps, len(known)))]
    names = differing["name"].drop_duplicates().tolist()
    equal = frame["name"].nunique() - len(names)
    title = "Growth: blocks that differ, and the largest relative difference of values"
    if len(names) > most:
        far = (
            differing.groupby("name", sort=False)["fraction"]
            .max()
            .sort_values(ascending=False, kind="stable")
        )
        first = set(far.index[:most])
        title += f"; {most} of {len(names):,} names, which differ most"
        names = [name for name in names if name in first]
    if equal:
        title += f"; {never_differ(equal)}"
    cells = {
        (row.name, row.step): f"{row.differing}/{row.elements}"
        if row.kind == "fingerprints"
        else number(row.max_relative)
        for row in frame[frame["step"].isin(chosen) & frame["name"].isin(names)].itertuples(index=False)
    }
    columns = tuple(f"step {step}" for step in chosen)
    rows = [(name, *(cells.get((name, step), "") for step in chosen)) for name in names]
    return title, Table(("name", *columns), rows, columns)


def calls_table(frame: pd.DataFrame, most: int = 12) -> tuple[str, Table]:
    """What `divergence.calls.by_call` returned: the first `most` calls that differ; the others are counted."""
    heads = ("call", "first step", "given", "got", "sources")
    differing = frame[frame["step"] >= 0]
    rows = [
        (row.call, row.step, *(f"{differ}/{all_of}" if all_of else "" for differ, all_of in (
            (row.given_differing, row.given), (row.got_differing, row.got), (row.sources_differing, row.sources),
        )))
        for row in differing.head(most).itertuples(index=False)
    ]  # fmt: skip
    first = f"the first {most} of " if len(differing) > most else ""
    title = f"Calls: {first}{len(differing)} that differ, {len(frame) - len(differing)} repeat"
    return title, Table(heads, rows, heads[1:])


def comparison_frames(
    rows: list[dict[str, object]],
    remarks: list[list[tuple[str, str]]],
    steps: list[pd.DataFrame],
    calls: list[pd.DataFrame],
) -> dict[str, pd.DataFrame]:
    """`comparisons`, a row for each pair as `comparison.comparison_row` makes it; `facts`, what there is to say of each
    pair; `growth`, what `divergence.growth` returned for the pairs that differ, one after the other, and
    `calls` what `divergence.by_call` did."""
    differing = [row for row in rows if row["verdict"] == DIFFERS]
    facts = [
        (row["a"], row["b"], *each)
        for row, told in zip(rows, remarks, strict=True)
        for each in told
    ]  # fmt: skip
    grown, called = (
        [frame.assign(a=row["a"], b=row["b"]) for row, frame in zip(differing, frames, strict=True)]
        for frames in (steps, calls)
    )
    return {
        "comparisons": pd.DataFrame(rows, columns=list(COMPARED), dtype=object).astype(COMPARED),
        "facts": pd.DataFrame(facts, columns=["a", "b", "what", "text"], dtype=object),
        "growth": pd.concat(grown, ignore_index=True) if grown else pd.DataFrame(columns=[*GROWTH, "a", "b"]),
        "calls": pd.concat(called, ignore_index=True) if called else pd.DataFrame(columns=[*CALLS, "a", "b"]),
    }


def run_tables(shown: dict[str, pd.DataFrame]) -> Iterator[tuple[str, Table]]:
    """What each run is, its repeats, what it recorded, and its times, from what `run_frames` returned. Of many runs
    those of one kind are counted, and the first of each of the first kinds is shown."""
    runs = shown["runs"]
    if runs["run"].nunique() > MOST_RUNS:
        table, first = _kinds_of_runs(runs)
        yield (
            f"{runs['run'].nunique():,} runs; of each row the first is shown below, up to {MOST_KINDS}",
            table,
        )
        runs = runs[runs["run"].isin(first)]
    for run, repeats in runs.groupby("run", sort=False):
        first = repeats.iloc[0]
        method = ", ".join(f"{key}={_plain(value)}" for key, value in json.loads(first["method"]).items())
        rows = [
            ("path", first["path"]), ("run id", first["run_id"]), ("started", first["started"]),
            ("application", first["app"]), ("problem", first["problem"]), ("ranks", first["size"]),
            ("guarantee", first["guarantee"]), ("ordering", first["ordering"]), ("seed", first["seed"]),
            ("method", method),
            ("events", f"{first['events']:,} over all ranks; tracing took {number(first['tracing_s'])} s"),
        ]  # fmt: skip
        yield f"Run {run}", Table(("", ""), rows)
        heads = ("repeat", "whole", "last step", "wall time, s", "final state")
        repeated = [
            (r.repeat, "yes" if r.complete else "NO", r.last_step, number(r.wall_s), r.state or "-")
            for r in repeats.itertuples(index=False)
        ]
        yield "Repeats", Table(heads, repeated, ("last step", "wall time, s"))
        heads = ("table", "name", "rows", "steps", "blocks")
        recorded = shown["recorded"]
        rows_of_names: list[tuple[object, ...]] = [
            (r.table, r.name, r.rows, r.steps, r.blocks or "-")
            for r in recorded[recorded["run"] == run].itertuples(index=False, name="Row")
        ]
        rows_of_names, counted_ = first_names(rows_of_names, lambda row: row[2], "of the most rows")
        yield f"Recorded{counted_}", Table(heads, rows_of_names, ("rows", "steps", "blocks"))
        yield from _lacking_tables(shown["lacking"][shown["lacking"]["run"] == run])
        medians = shown["regions"][shown["regions"]["run"] == run]
        if len(medians):
            title = "Wall time per region, mean over ranks, median over repeats"
            if medians["share"].sum() > 1.0 + SHARES:
                title += "; shares add up to more than 100 %, since regions overlap or repeats differ"
            few, counted_ = few_regions(medians)
            yield title + counted_, region_table(few)


def _kinds_of_runs(runs: pd.DataFrame) -> tuple[Table, list[str]]:
    """Runs counted by what they are, and the first run of each of the first rows."""
    by = runs.groupby(["app", "problem", "guarantee", "ordering", "size", "method"], sort=False)
    heads = ("application", "problem", "guarantee", "ordering", "ranks", "runs", "whole", "last step", "wall time, s",
             "first")  # fmt: skip
    rows: list[tuple[object, ...]] = []
    for (app, problem, guarantee, ordering, size, _), same in by:
        times, steps = (
            same["wall_s"].dropna(),
            sorted({int(same["last_step"].min()), int(same["last_step"].max())}),
        )
        wall = " to ".join(dict.fromkeys((number(times.min()), number(times.max())))) if len(times) else ""
        rows.append((app, problem, guarantee, ordering, size, len(same), int(same["complete"].sum()),
                     " to ".join(map(str, steps)), wall, same["run"].iloc[0]))  # fmt: skip
    rows.sort(key=lambda row: -int(str(row[5])))
    first = [str(row[-1]) for row in rows[:MOST_KINDS]]
    if left := rows[MOST_NAMES:]:
        rest = sum(int(str(row[5])) for row in left)
        rows = [*rows[:MOST_NAMES], (f"and {len(left):,} more", "", "", "", "", rest, "", "", "", "")]
    return Table(heads, rows, ("ranks", "runs", "whole", "last step", "wall time, s")), first


def first_names(
    rows: list[tuple[Any, ...]], weight: Callable[[tuple[Any, ...]], float], what: str
) -> tuple[list[tuple[Any, ...]], str]:
    """Of many `rows` the MOST_NAMES of the greatest `weight`, in their order, and what to say of it."""
    if len(rows) <= MOST_NAMES:
        return rows, ""
    most = sorted(range(len(rows)), key=lambda i: -weight(rows[i]))[:MOST_NAMES]
    return [rows[i] for i in sorted(most)], f": the {MOST_NAMES} {what} among {len(rows):,} names"


def few_regions(medians: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The regions of `regions.summary` with the most exclusive time, where there are many, and what to say of it."""
    names = medians["name"].drop_duplicates()
    if len(names) <= MOST_NAMES:
        return medians, ""
    kept = medians[medians["name"].isin(names.iloc[:MOST_NAMES])]
    share = kept["exclusive_s"].sum() / max(medians["exclusive_s"].sum(), 1e-300)
    return kept, f"; the {MOST_NAMES} longest of {len(names):,} regions, {share:.0%} of the time of all"


def run_frames(frames: Frames) -> dict[str, pd.DataFrame]:
    """What there is to show of runs: `runs`, a row per (run, repeat); `recorded`, what each run recorded by name, with
    columns RECORDED; `lacking`, calls that it did not record and sums that its guarantee did not reach, with columns
    LACKING; `regions`, for each run what `regions.summary` returned."""
    measured = regions(frames)
    first = frames.runs.drop_duplicates("run")
    labels = first["run"].tolist()
    lacking = [row for run in first.itertuples(index=False) for row in _lacking(run)]
    place = {label: i for i, label in enumerate(labels)}
    measured = measured.sort_values("run", key=lambda runs: runs.map(place), kind="stable")
    return {
        "runs": frames.runs,
        "recorded": _recorded(frames, place),
        "lacking": pd.DataFrame(lacking, columns=list(LACKING), dtype=object),
        "regions": summary(measured, ["run"]),
    }


def _lacking(run: Any) -> Iterator[tuple[object, ...]]:
    """The rows of `lacking` of one row of `Frames.runs`, the most calls first."""
    unseen = sorted(json.loads(run.unseen).items(), key=lambda of: (-of[1], of[0]))
    for function, calls in unseen:
        yield run.run, NOT_RECORDED, function, "", calls
    for own in json.loads(run.unreached):
        yield run.run, NOT_REACHED, own["call"], own["why"], own["calls"]


def _lacking_tables(lacking: pd.DataFrame) -> Iterator[tuple[str, Table]]:
    unseen, unreached = (lacking[lacking["what"] == what] for what in (NOT_RECORDED, NOT_REACHED))
    if len(unseen):
        rows: list[tuple[object, ...]] = list(zip(unseen["call"], unseen["calls"], strict=True))
        yield (
            "Calls that were not recorded",
            Table(("function", "calls of all ranks"), rows, ("calls of all ranks",)),
        )
    if len(unreached):
        heads = ("reduction", "why", "calls of all ranks")
        rows = list(zip(unreached["call"], unreached["why"], unreached["calls"], strict=True))
        yield "Reductions in the order of the MPI library", Table(heads, rows, ("calls of all ranks",))


def _recorded(frames: Frames, place: dict[str, int]) -> pd.DataFrame:
    """RECORDED of the runs of `place`, which says in what order."""
    pieces = []
    for table in ("fingerprints", "values", "sizes", "order", "choices", "usage"):
        rows = getattr(frames, table)
        by = rows.groupby(["run", "name"], observed=True)
        counts = by["step"].agg(rows="size", steps="nunique").assign(table=table, blocks=0)
        if "block" in rows:
            own = rows[(rows["block"] >= 0).to_numpy()].groupby(["run", "name"], observed=True)
            counts["blocks"] = own["block"].nunique().reindex(counts.index, fill_value=0)
        pieces.append(counts.reset_index().astype({"run": "str", "name": "str"}))
    every = pd.concat(pieces, ignore_index=True)
    every = every[every["run"].isin(list(place))]
    ordered = every.sort_values("run", key=lambda runs: runs.map(place), kind="stable", ignore_index=True)
    return ordered[list(RECORDED)].astype(object)


def _plain(value: object) -> str:
    return json.dumps(value) if isinstance(value, dict | list) else str(value)
