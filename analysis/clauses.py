"""Words the verdict on a group of runs, in one clause with its coverage."""

from __future__ import annotations

from analysis.counterparts import REPLAY
from analysis.divergence.points import Comparison
from analysis.groups import SPANS_LAYOUTS
from analysis.power import unseen
from analysis.runs import label
from analysis.sentences import NO_RESULTS, in_both, lacks, place, rows_text
from analysis.verdict import (
    BROKEN,
    HOLDS,
    INCOMPARABLE,
    OUTSIDE,
    SAME,
    UNTESTED,
    URGENT,
    Cell,
    Group,
    counted,
    over,
    ranks,
)

NOTHING = ": nothing to compare with"  # the end of a clause on a single run
APART = "runs on different numbers of ranks recorded nothing that can be compared between them"


def clause(group: Group) -> str:
    """The clause on a group, without its name."""
    return "; ".join(filter(None, (*group.failures, _of_bits(group), _of_beside(group))))


def _of_bits(group: Group) -> str:
    """The comparison of the runs of a group with each other."""
    verdicts = {cell.verdict for cell in group.cells}
    verdict = next((each for each in (*URGENT, HOLDS, SAME) if each in verdicts), UNTESTED)
    if verdict == UNTESTED and group.spanned:
        verdict = SAME
    if verdict == UNTESTED:
        return _untested(group)
    if verdict == INCOMPARABLE:
        cell, comparison = next(
            (cell, cell.lacking) for cell in group.cells if cell.verdict == verdict and cell.lacking
        )
        return f"{counted(cell.runs, 'run')} on {ranks(cell.sizes)} cannot be compared: {lacks(comparison)}"
    if verdict == OUTSIDE:
        return _outside(next(cell for cell in group.cells if cell.verdict == OUTSIDE))
    if verdict in (HOLDS, SAME):
        return _clause_of_equal(group)
    several = len([cell for cell in group.cells if cell.runs > 1]) > 1
    parts = []
    for cell in group.cells:
        if cell.verdict == verdict:
            where = f" on {ranks(cell.sizes)}" if several or group.guarantee in SPANS_LAYOUTS else ""
            parts.append(_count(cell) + where)
    promised = "equal bits were promised, but " if verdict == BROKEN else ""
    at = f", first at {place(group.first.part)}" if group.first else ""
    return f"{promised}{', '.join(parts)}{at}{_cause(group, group.first)}"


def _untested(group: Group) -> str:
    """The clause on a group in which no two runs of a cell were compared."""
    if not group.runs:
        return f"no complete run ({group.incomplete} incomplete)"
    runs = f"{counted(group.runs, 'run')} on {ranks(group.sizes)}"
    if group.across:
        return f"{runs}: {_apart_by_ranks(group, group.across)}"
    if any(cell.runs > 1 for cell in group.cells):
        return f"{counted(group.runs, 'run')} recorded nothing in common to compare"
    if group.beyond:
        return f"{runs}: {APART}"
    return "" if group.beside else f"{runs}{NOTHING}"


def _clause_of_equal(group: Group) -> str:
    """The clause on a group in which no cell has runs that differ."""
    on = group.over
    where = ""
    if by_ranks(group):
        alone = sum(cell.over.compared < 1 for cell in group.cells)
        more = f" ({counted(alone, 'rank count')} with one run only)" if alone else ""
        where = f" wherever the number of ranks was the same{more}"
    text = f"{counted(on.compared, 'run')} on {ranks(compared_sizes(group))} gave the same bits{where}"
    part = min((c.least for c in group.cells if c.least), key=lambda c: c.compared, default=None)
    text += f" {in_both(part)}" if part else f" in {rows_text(on)}"
    text += f"; {NO_RESULTS}" if not on.results else ""
    text += "; each compared with one other run only" if not on.every_pair else ""
    text += f" ({unseen(group.tested)})" if group.tested > 1 else ""
    if group.across:
        return f"{text}; {_apart_by_ranks(group, group.across)}"
    return text + not_compared([group])


def _apart_by_ranks(group: Group, across: Comparison) -> str:
    results = f"{group.distinct} different results" if group.distinct > 1 else "other bits"
    return (
        f"{results} on different numbers of ranks, between which nothing is promised, "
        f"first at {place(across.part)}{_cause(group, across)}"
    )


def _cause(group: Group, of: Comparison | None) -> str:
    """`; cause: message order (scalars, step 0)`; empty if the cause of `of` is unknown."""
    if group.cause is None or of is not group.shown:
        return ""
    who = "" if group.cause.rank is None else f" on rank {group.cause.rank}"
    cause_of = "cause" if group.sure else "probable cause"
    return f"; {cause_of}: {group.why} ({group.cause.name}{who}, step {group.cause.step})"


def _of_beside(group: Group) -> str:
    """The comparison of a group with its counterpart: the source of a replay, or a run without the fault."""
    beside = group.beside
    if beside is None:
        return ""
    relation = "the run that it replays" if beside.kind == REPLAY else "the run without the fault"
    if beside.lacking:
        return f"cannot be compared with {relation}: {lacks(beside.lacking)}"
    if beside.first is None:
        on = over(2, 2, [beside.shown])
        none = "" if on.results else f"; {NO_RESULTS}"
        return f"the same bits as {relation}, {label(beside.source)}, in {rows_text(on)}{none}"
    outside = f" in another environment ({', '.join(beside.apart)})" if beside.apart else ""
    at = f"first at {place(beside.first.part)}{_cause(group, beside.first)}"
    return f"other bits than {relation}{outside}, {label(beside.source)}, {at}"


def _outside(cell: Cell) -> str:
    """The clause on a cell with runs of several environments."""
    bits = (
        f"{cell.distinct} different results"
        if cell.distinct > 1
        else f"the same bits in {rows_text(cell.over)}"
    )
    if cell.distinct < 2 and cell.first:
        bits = "one result, but differ on the way" if cell.distinct else f"they differ; {NO_RESULTS}"
    at = f", first at {place(cell.first.part)}" if cell.first else ""
    where = f"{cell.environments} environments" if cell.environments > 1 else "an environment that is not one"
    known = cell.over.compared or cell.differs
    return (
        f"{counted(cell.runs, 'run')} on {ranks(cell.sizes)} in {where}, for which nothing is promised "
        f"({', '.join(cell.apart)}): {bits if known else 'nothing to compare'}{at}"
    )


def _count(cell: Cell) -> str:
    if cell.distinct == cell.runs > 1:
        return f"{cell.runs} of {cell.runs} runs differ"
    if cell.distinct > 1:
        return f"{cell.distinct} different results in {cell.runs} runs"
    if not cell.distinct:  # the run recorded no result, such as a program under `fpna run`
        return f"{cell.runs} runs differ in what passes through their calls ({NO_RESULTS})"
    return f"{cell.runs} runs end in one result but differ on the way"


def compared_sizes(group: Group) -> tuple[int, ...]:
    """The rank counts of the runs of a group that were compared."""
    if group.spanned or group.beside:
        return group.sizes
    return tuple(sorted({size for cell in group.cells if cell.over.compared for size in cell.sizes}))


def by_ranks(group: Group) -> bool:
    """True if the runs of a group are equal on each number of ranks, but not between numbers of ranks."""
    return (len([cell for cell in group.cells if cell.over.compared]) > 1 and not group.spanned) or bool(
        group.across
    )


def not_compared(groups: list[Group]) -> str:
    """The end of a sentence: the runs that were not compared."""
    alone = sum(group.runs - group.over.compared for group in groups if not group.beside)
    parts = [f"{counted(alone, 'other run')} had nothing to be compared with"] if alone else []
    parts += [APART] if any(_unspanned(group) for group in groups) else []
    return "".join(f"; {part}" for part in parts)


def _unspanned(group: Group) -> bool:
    """True if runs on different numbers of ranks could not be compared."""
    return bool(group.across is None and group.beyond and not group.spanned)
