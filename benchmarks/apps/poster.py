"""Compares a published table of accuracies with runs, row by row and claim by claim, for each kind of links.

    python -m jobs example adaprec; python -m jobs local adaprec.toml
    python -m benchmarks.apps.poster runs/adaprec --json benchmarks/results --pictures docs/pictures/learning

Oyama's poster on AdaPrec (2018): CaffeNet (61.0 million parameters), 16 classes, 4 P100. Runs here have another network
and other data, so only the direction of a difference is comparable. A claim holds if the 95 % interval of our
difference is on the published side of 0. It does not hold if the interval is on the other side, or contains 0 but not
the published difference.
"""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.load.frames import load
from analysis.load.watch import Watch
from analysis.page.sections import Shown, Table, lines_of
from analysis.page.svg import picture
from analysis.page.terminal import printer
from analysis.page.text import interval
from analysis.studies.learning.figures import accuracy_figures
from analysis.studies.learning.paired import FEWEST, Difference, difference
from analysis.studies.learning.prices import BEST, Basis, bases, measured
from analysis.studies.learning.runs import WIDEST, Trainings, trainings
from analysis.studies.learning.tables import known_of, points, signed
from benchmarks.harness.results import add_quiet, machine, report, save

# Top accuracies, %, and the corresponding wires or policies here; below what the poster does not have.
PUBLISHED = {"float": 73.6, "fp8": 71.9, "Table-1": 60.1, "Fastest": 72.3, "AdaPrec": 74.4}
SAME = {"float": WIDEST, "fp8": ("fp8",), "Table-1": ("table:n=1",), "Fastest": ("fastest",),
        "AdaPrec": ("adaprec",)}  # fmt: skip
MORE = {
    "L-GreCo": ("lgreco",),
    "cautious": ("cautious",),
    "int4 with rotation": ("int4:rotate=on",),
    "e3m0": ("e3m0",),
}
FIXED = ("float", "fp8", "Table-1", "int4 with rotation")  # wires, of which the best is the one to beat
CLAIMS = (("fp8", "float"), ("Table-1", "float"), ("Fastest", "float"), ("AdaPrec", "float"),
          ("AdaPrec", "Fastest"))  # fmt: skip
HOLDS, DOES_NOT, UNTOLD = "holds", "does not", "cannot be told"

POSTER = {"family": "str", "basis": "str", "measure": "str", "claim": "str", "line": "str", "against": "str",
          "published": "float64", "published_against": "float64", "published_difference": "float64",
          "accuracy": "float64", "accuracy_against": "float64", "pairs": "int64", "difference": "float64",
          "difference_low": "float64", "difference_high": "float64", "verdict": "str", "why": "str"}  # fmt: skip
COLUMNS = (
    Shown("claim", lambda row: row.claim),
    Shown("compared", lambda row: ", ".join(filter(None, [row.basis, row.measure]))),
    Shown("published", lambda row: f"{points(row.published)} and {points(row.published_against)}", number=True),
    Shown("ours, %", lambda row: " and ".join(points(x) or "-" for x in (row.accuracy, row.accuracy_against)),
          number=True),
    Shown("difference, points", lambda row: signed(row.difference), number=True),
    Shown("95 % interval", lambda row: interval(row.difference_low, row.difference_high, signed), number=True),
    Shown("seeds", lambda row: row.pairs, number=True),
    Shown("verdict", lambda row: row.verdict),
    Shown("why", lambda row: row.why),
)  # fmt: skip


def poster(known: Trainings) -> pd.DataFrame:
    """The claims at the learning rate of most runs, and at the best of each line; columns POSTER."""
    wires = {(row.family, row.line): row.wire for row in known.runs.itertuples(index=False)}
    return claims([basis for basis in bases(measured(known)) if basis.first or basis.name == BEST], wires)


def tables(compared: pd.DataFrame) -> list[tuple[str, Table]]:
    """(title, table) per family: the published claims on each basis."""
    return [
        (f"Claims of the poster{f': {family}' if family else ''}", lines_of(same, COLUMNS))
        for family, same in compared.groupby("family", sort=False)
    ]


def sentence(compared: pd.DataFrame) -> str:
    """A sentence with the counts of claims that hold, do not hold, and cannot be judged."""
    count = compared["verdict"].value_counts()
    parts = [f"{count.get(name, 0)} {name}" for name in (HOLDS, DOES_NOT, UNTOLD)]
    return f"Of {len(compared)} comparisons with published claims: {', '.join(parts)}."


def claims(bases: list[Basis], wires: dict[tuple[str, str], str]) -> pd.DataFrame:
    """Each of CLAIMS on each of `bases`; columns POSTER. `wires` is {(family, line): its wire}.

    Accuracies and differences are fractions. A claim holds if the 95 % interval of our difference is on the published
    side of 0. It does not hold if the interval is on the other side, or contains 0 but not the published difference.
    Otherwise it cannot be judged. If no basis has both sides of a claim, the claim has one row. A family with no line
    of a published name other than float has no rows.
    """
    rows = []
    for family in dict.fromkeys(basis.family for basis in bases):
        mine = [basis for basis in bases if basis.family == family]
        own = [(basis, {name: _line(basis, wires, same) for name, same in SAME.items()}) for basis in mine]
        if not any(line for _, lines in own for name, line in lines.items() if name != "float"):
            continue
        for claim in CLAIMS:
            possible = [(basis, lines) for basis, lines in own if all(lines[name] for name in claim)]
            never = {name: next((lines[name] for _, lines in own if lines[name]), "") for name in claim}
            rows += [_row(basis, claim, lines) for basis, lines in possible or [(_none(family), never)]]
    return pd.DataFrame(rows, columns=list(POSTER)).astype(POSTER)


def _none(family: str) -> Basis:
    """The empty basis of a claim for which no basis has both sides."""
    return Basis(family, "", "", {}, {})


def _row(basis: Basis, claim: tuple[str, str], lines: dict[str, str]) -> dict[str, object]:
    """The row of POSTER of one claim."""
    ours, other = claim
    published = (PUBLISHED[ours] - PUBLISHED[other]) / 100
    nothing = pd.Series(dtype=np.float64)
    a, b = (basis.accuracy.get(lines[name], nothing) for name in claim)
    d = difference(a, b)
    verdict, why = judged(d, published, [name for name in claim if not lines[name]])
    return {
        "family": basis.family, "basis": basis.name, "measure": basis.measure,
        "claim": f"{ours} {'above' if published > 0 else 'below'} {other}",
        "line": lines[ours], "against": lines[other],
        "published": PUBLISHED[ours] / 100, "published_against": PUBLISHED[other] / 100,
        "published_difference": published, "accuracy": a.mean(), "accuracy_against": b.mean(),
        "pairs": d.pairs, "difference": d.mean, "difference_low": d.low, "difference_high": d.high,
        "verdict": verdict, "why": why,
    }  # fmt: skip


def judged(d: Difference, published: float, missing: list[str]) -> tuple[str, str]:
    """(one of HOLDS, DOES_NOT, UNTOLD, why) of the claim that the difference is `published`; `missing` were not run."""
    if missing:
        return UNTOLD, f"no complete run of {' and of '.join(missing)}"
    if d.pairs < FEWEST:
        return UNTOLD, f"{d.pairs} seed{'s' * (d.pairs != 1)} that both have, {FEWEST} are needed"
    inside = d.low <= published <= d.high
    if d.low <= 0 <= d.high:
        if inside:
            return UNTOLD, "both no difference and the published one lie in the interval"
        return DOES_NOT, "no difference seen, and the published one would have been"
    if np.sign(d.mean) != np.sign(published):
        return DOES_NOT, "the difference is the other way round"
    return HOLDS, "" if inside else "in direction, not in size"


def _line(basis: Basis, wires: dict[tuple[str, str], str], same: tuple[str, ...]) -> str:
    """The line of the basis with one of these wires, with any further parameters; empty if there is none. Of several
    lines, the one with the most seeds."""
    lines = [
        line for wire in same for line in basis.accuracy
        if (own := wires[basis.family, line]) == wire or own.startswith(f"{wire},") or own.startswith(f"{wire}:")
    ]  # fmt: skip
    return max(lines, key=lambda line: len(basis.accuracy[line]), default="")


def accuracies(known: Trainings, links: str) -> list[dict]:
    """For each family a row for each name of SAME and MORE with runs: mean accuracy at the end over seeds, the accuracy
    of each and their standard deviation, what the best fixed wire of the family has more (paired by seed, with its
    interval), and mean seconds and steps of training."""
    rows = []
    complete = known.runs[known.runs["complete"].to_numpy()]
    for family, runs in complete.groupby("family", sort=False):
        by = {
            name: runs[runs["wire"].isin(wires).to_numpy()]
            .groupby("seeds")[["accuracy", "seconds", "steps"]]
            .mean()
            for name, wires in (SAME | MORE).items()
        }
        by = {name: own for name, own in by.items() if len(own)}
        fixed = [name for name in by if name in FIXED]
        best = max(fixed, key=lambda name: by[name]["accuracy"].mean(), default=None)
        for name, own in by.items():
            lost = difference(by[best]["accuracy"], own["accuracy"]) if best else None
            rows.append({
                "links": links, "family": family, "what": name, "published": PUBLISHED.get(name), "seeds": len(own),
                "accuracy": float(own["accuracy"].mean()), "accuracies": own["accuracy"].tolist(),
                "sd": float(own["accuracy"].std(ddof=1)) if len(own) > 1 else None,
                "best_fixed": best, "regret": _number(lost, "mean"), "regret_low": _number(lost, "low"),
                "regret_high": _number(lost, "high"), "seconds": float(own["seconds"].mean()),
                "steps": float(own["steps"].mean()),
            })  # fmt: skip
    return rows


def _number(lost: Difference | None, key: str) -> float | None:
    """A number of a difference; None where there is none."""
    x = np.nan if lost is None else getattr(lost, key)
    return None if np.isnan(x) else float(x)


def drawn(known: Trainings, links: str, into: Path) -> None:
    """Writes accuracy over time, a picture of each family, into a directory."""
    into.mkdir(parents=True, exist_ok=True)
    for figure in accuracy_figures(known_of(known)):
        if figure.name.startswith("training-time"):
            titled = replace(figure, title=f"{figure.title}, links {links or 'of this machine'}")
            name = "-".join(filter(None, ["accuracy", re.sub(r"[^0-9a-z]+", "-", links), figure.name[-1]]))
            (into / f"{name}.svg").write_bytes(picture(titled, "svg"))


def main() -> None:
    """Prints accuracies and claims, and writes both."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.apps.poster", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument(
        "--json", help="write both to this file, or under a name of its own into this directory"
    )
    parser.add_argument(
        "--pictures", metavar="DIR", help="write pictures of accuracy over time (SVG) into this directory"
    )
    add_quiet(parser)
    asked = parser.parse_args()
    watch = Watch(asked.quiet)
    frames = load(asked.runs, watch=watch)
    watch.clear()
    say, where, reached, judged_rows = printer(), machine(), [], []
    stated = pd.Series([json.loads(method).get("run.links") or "" for method in frames.runs["method"]])
    for links in sorted(stated.unique()):
        known = trainings(replace(frames, runs=frames.runs[(stated == links).to_numpy()]))
        compared = poster(known)
        reached += accuracies(known, links)
        shown = compared.astype(object).where(compared.notna(), None)
        judged_rows += [{"links": links, **row} for row in shown.to_dict("records")]
        if asked.pictures:
            drawn(known, links, Path(asked.pictures))
        for part in [f"Links: {links or 'those of this machine'}", sentence(compared), *tables(compared)]:
            say(part)
    report("poster", reached, where, None, hidden=("accuracies",))
    if asked.json:
        save({"title": "poster", "machine": where, "rows": reached, "claims": judged_rows}, asked.json)


if __name__ == "__main__":
    main()
