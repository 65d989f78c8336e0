"""Variance components in words and as tables."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from analysis.page.sections import Shown, Table, lines_of
from analysis.page.tables import MOST_NAMES
from analysis.page.text import interval, number
from analysis.studies.components.estimates import ALGORITHM, RUN_TO_RUN
from analysis.studies.components.observations import PLURAL

TITLES = {RUN_TO_RUN: "Run-to-run variance", ALGORITHM: "Variance by change of algorithm"}
LISTED = 6  # most outcomes named in a sentence
SHARE = {RUN_TO_RUN: "share of run-to-run", ALGORITHM: "share of all"}


def problems(frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """(app and problem in words, its rows of `frame`) for each problem; `frame` from `components`."""
    for (app, problem), same in frame.groupby(["app", "problem"], sort=False):
        yield f"{app} {problem}".strip(), same


def sentences(frame: pd.DataFrame, most: int | None = None) -> list[str]:
    """A sentence for each varying outcome, of the first `most` outcomes of each problem (None: all): the shares of its
    run-to-run variance, largest first. A variance of 0 has no shares, nor has one that only one factor could have."""
    lines = []
    for where, problem in problems(frame):
        varying = 0
        for outcome, same in problem.groupby("outcome", sort=False):
            known = same[same["variance"].notna()]
            if len(known) < 2:  # a single component has no shares
                continue
            varying += 1
            if most is not None and varying > most:
                break
            parts = [_chance(known[known["kind"] == RUN_TO_RUN], outcome)]
            parts += [
                f"change of {row.factor} is {share(row)} of all variance"
                for row in known[(known["kind"] == ALGORITHM) & known["share"].notna()].itertuples(
                    index=False
                )
            ]
            lines.append(f"{where}: {'; '.join(parts)}.")
    return lines


def _chance(known: pd.DataFrame, outcome: str) -> str:
    """A clause on the run-to-run variance of `outcome`."""
    if known.empty:
        return f"the run-to-run variance of {outcome} is unknown"
    if not (known["variance"] > 0).any():
        return f"{outcome} has no run-to-run variance: equal bits in all runs of one algorithm"
    if len(known) == 1:
        level = PLURAL[known.iloc[0]["factor"]]
        return f"the run-to-run variance of {outcome} cannot be divided: the runs differ in {level} only"
    shares = known.sort_values("share", ascending=False, kind="stable").itertuples(index=False)
    parts = ", ".join(f"{share(row)} is between {PLURAL[row.factor]}" for row in shares)
    return f"of the run-to-run variance of {outcome} {parts}"


def notes(frame: pd.DataFrame) -> list[str]:
    """Limits of the numbers, and outcomes that do not vary: a line per reason, with its problems."""
    lines: dict[str, list[str]] = {}
    for where, problem in problems(frame):
        varying = set(problem.loc[problem["variance"].notna(), "outcome"])
        lost = problem[problem["left_out"] > 0].drop_duplicates("outcome")
        reasons = [
            *problem.loc[problem["variance"].isna(), ["outcome", "factor", "remark"]].itertuples(
                index=False, name=None
            ),
            *(
                (row.outcome, row.factor, f"no interval: {row.refused}")
                for row in problem[problem["refused"] != ""].itertuples(index=False)
            ),
            *(
                (
                    row.outcome,
                    "",
                    f"{row.left_out} of {row.left_out + row.observations} runs have no finite number",
                )
                for row in lost.itertuples(index=False)
            ),
        ]
        for remark in dict.fromkeys(remark for _, _, remark in reasons):
            outcomes = list(dict.fromkeys(outcome for outcome, _, r in reasons if r == remark))
            factors = list(dict.fromkeys(factor for _, factor, r in reasons if r == remark and factor))
            about = [*([] if varying and varying <= set(outcomes) else [_listed(outcomes)])]
            about += [", ".join(factors)] if remark.startswith(("not separable", "no interval")) else []
            lines.setdefault(": ".join([*about, remark]), []).append(where)
    return [f"{'; '.join(of)}: {line}" for line, of in lines.items()]


def _listed(outcomes: list[str]) -> str:
    """The first LISTED of `outcomes`, and the number of others."""
    more = len(outcomes) - LISTED
    return ", ".join(outcomes[:LISTED]) + (f" and {more:,} more" if more > 0 else "")


def component_tables(frame: pd.DataFrame) -> list[tuple[str, Table]]:
    """(title, table) per problem: run-to-run components, and separately those of the algorithm."""
    tables = []
    for where, problem in problems(frame):
        known = problem[problem["variance"].notna()]
        for kind, title in TITLES.items():
            own = known[known["kind"] == kind]
            if own.empty:
                continue
            still = (
                own["outcome"][(own["variance"] == 0).groupby(own["outcome"]).transform("all")]
                .unique()
                .tolist()
            )
            own = own[~own["outcome"].isin(still)]
            if own.empty:  # a sentence names them
                continue
            left, every = (
                f"; no variance: {_listed(still)}" if still else "",
                own["outcome"].drop_duplicates(),
            )
            if len(every) > MOST_NAMES:
                left += f"; the first {MOST_NAMES} of {len(every):,} outcomes"
                own = own[own["outcome"].isin(every.iloc[:MOST_NAMES])]
            columns = [
                Shown("outcome", lambda row: f"{row.outcome} ({row.scale})"),
                Shown("between", lambda row: PLURAL.get(row.factor, row.factor)),
                Shown("levels", lambda row: row.levels, number=True),
                Shown("df", lambda row: row.df, number=True),
                Shown("sd", lambda row: number(np.sqrt(row.variance)), number=True),
                Shown(
                    "95 % interval", lambda row: interval(np.sqrt(row.low), np.sqrt(row.high)), number=True
                ),
                Shown(SHARE[kind], lambda row: percent(row.share), number=True),
                Shown(
                    "interval of it",
                    lambda row: interval(row.share_low, row.share_high, percent),
                    number=True,
                ),
                *([Shown("remark", lambda row: row.remark)] if own["remark"].any() else []),
            ]
            tables.append((f"{title}: {where}{left}{_drawn(own)}", lines_of(own, columns)))
    return tables


def percent(x: float) -> str:
    """`81 %`."""
    return "" if x != x else f"{100 * x:.0f} %"


def share(row) -> str:
    """`81 % (60 to 92 %)`, the interval if there is one."""
    between = interval(row.share_low, row.share_high, lambda x: f"{100 * x:.0f}")
    return percent(row.share) + (f" ({between} %)" if between else "")


def _drawn(own: pd.DataFrame) -> str:
    drawn = own[own["drawn"] != ""]
    if drawn.empty:
        return "; no intervals"
    row = drawn.iloc[0]
    return f"; intervals by {row['resamples']} resamples of {row['units']} {PLURAL[row['drawn']]}"
