"""Sentences and tables on watched models, for the terminal and for the report."""

from __future__ import annotations

from analysis.page.sections import Shown, Table, lines_of
from analysis.page.tables import MOST_NAMES
from analysis.page.text import number
from analysis.studies.watched.runs import PASSES, Pair, chosen_steps
from analysis.verdict import counted

MOST_STEPS = 7  # steps of a table of sizes

GROWTH = (
    Shown("of", lambda row: row.what),
    Shown("step", lambda row: row.step, number=True),
    Shown("names", lambda row: row.names, number=True),
    Shown("median", lambda row: number(row.median), number=True),
    Shown("largest", lambda row: number(row.largest), number=True),
)


def sentence(pair: Pair) -> str:
    """The first difference of a pair in a sentence."""
    run, against = pair.names
    modules = pair.modules(pair.states)
    if pair.first is None:
        if pair.comparison.differs:
            return f"{run} and {against} differ, but in no record of the model."
        return f"{run} and {against}: no difference in {counted(modules, 'module')} of the model."
    step, module, of, name = pair.first
    where = f"the {of} pass of {module}" if of != PASSES[-1] else f"the weights of {module}"
    differing = pair.modules(pair.states[pair.states["differing"] > 0])
    grown = ""
    sizes = pair.sizes[(pair.sizes["what"] == "weights") & (pair.sizes["largest"] > 0)]
    if len(sizes):
        last = sizes.iloc[-1]
        most = number(last["largest"])
        grown = f"; in step {last['step']} the weights lie up to {most} units in the last place apart{pair.of_sample}"
    return (
        f"{run} and {against} part in step {step}, in {where} ({name}); {differing} of {counted(modules, 'module')} "
        f"differ at some step{grown}."
    )


def pair_tables(pair: Pair) -> list[tuple[str, Table]]:
    """(title, table): the first step in which each module and pass differs, and the sizes of differences by step."""
    if pair.first is None:
        return []
    run, against = pair.names
    states = pair.states
    differing = states[states["differing"] > 0]
    first = differing.groupby(["module", "pass"], sort=False)["step"].min()
    names = differing["module"].drop_duplicates().tolist()
    title = f"{run} and {against}: first step that differs"
    if equal := pair.modules(states) - pair.modules(differing):
        title += f"; {counted(equal, 'module')} never {'differs' if equal == 1 else 'differ'}"
    if len(names) > MOST_NAMES:
        early = first.groupby("module").min().sort_values(kind="stable").index[:MOST_NAMES]
        title += f"; the {MOST_NAMES} of {len(names):,} modules that differ first"
        names = [name for name in names if name in set(early)]
    rows = [(name, *(first.get((name, of), "") for of in PASSES)) for name in names]
    found = [(title, Table(("module", *PASSES), rows, PASSES))]
    if len(pair.sizes):
        some = pair.sizes[
            pair.sizes["step"].isin(chosen_steps(pair.sizes["step"], MOST_STEPS, pair.first[0]))
        ]
        title = f"{run} and {against}: differences in units in the last place{pair.of_sample}"
        found.append((title, lines_of(some, GROWTH, by="of")))
    return found
