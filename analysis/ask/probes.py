"""Collects facts of runs that suggest a question. They come from loaded data; none takes a second on usual runs.

The option that injects a fault is hidden first, so that an injected fault is found by the same facts as a real one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from analysis import studies
from analysis.divergence.cause import cause
from analysis.divergence.classes import Cause
from analysis.divergence.compare import NothingInCommon, compare
from analysis.divergence.points import Comparison
from analysis.groups import FREE, UNSET, effects, factors, grouped, of_effect
from analysis.headline import headline
from analysis.lint import conditions, sampling, timing
from analysis.lint.experiment import Experiment
from analysis.lint.rules import name_of
from analysis.load.frames import Frames
from analysis.load.timeline import WAITING
from analysis.overview import Overview
from analysis.runs import Id, ids, samples
from analysis.verdict import DAMAGED, FAILURES
from miniapps.system.scope import AMONG, apart, mixed

LEAST = (
    "run"  # environments are compared by the conditions of this guarantee; the level `none` has no conditions
)
MOST = 24  # runs of a problem that are compared with its first run
LATE = 1.25  # a rank is late if it works longer than this times the median of the others
WAITED = 0.2  # share of waiting in the time of all ranks above which ranks wait notably
# Rules whose findings suggest one question; most other rules have findings in nearly all runs.
RULES = (sampling.wide_interval, timing.unstable_times, timing.several_clusters, conditions.mixed_environments,
         conditions.outside_the_promise, conditions.mixed_nodes)  # fmt: skip
# Relations of two runs of a problem: the first that holds counts.
REPEATS, RESTART, METHOD, ENVIRONMENT, RANKS, SAME = (
    "repeats", "restart", "method", "environment", "ranks", "same"
)  # fmt: skip
RELATIONS = (REPEATS, RESTART, METHOD, ENVIRONMENT, RANKS, SAME)


@dataclass(frozen=True)
class Pair:
    """Two compared runs: their relation (one of RELATIONS), and the cause of their difference, if they differ."""

    relation: str
    comparison: Comparison
    cause: Cause | None


@dataclass(frozen=True)
class Late:
    """A rank of a run for which the others wait, since it works `factor` times as long as their median."""

    run: Id
    rank: int
    factor: float


@dataclass(frozen=True)
class Evidence:
    """The facts of runs, and the data that they come from.

    frames      without options that injected faults
    pairs       compared runs, pairs that differ first
    late        the latest rank of all runs; None: no rank is late
    waiting     {run: share of waiting in the time of its ranks}
    not_finite  (run, step, name, block, rank) of the first number that is NaN or infinite
    unusual     {run: reason} of runs that ended early, failed or are damaged
    facts       {fact: 1.0} of all facts that hold
    """

    frames: Frames
    pairs: tuple[Pair, ...]
    late: Late | None
    waiting: dict[Id, float]
    not_finite: tuple[Id, int, str, int, int] | None
    unusual: dict[str, str]
    facts: dict[str, float]

    @property
    def parted(self) -> Pair | None:
        """The first pair that differs."""
        return next((pair for pair in self.pairs if pair.comparison.differs), None)


def evidence(frames: Frames) -> Evidence:
    """All facts of `frames`, which hold one run or more."""
    frames = hidden(frames)
    pairs = tuple(sorted(_pairs(frames), key=_by_place))
    late, waiting = _times(frames)
    known = Evidence(frames, pairs, late, waiting, _not_finite(frames), _unusual(frames), {})
    overview = Overview(frames)
    names = (*_of_runs(frames), *_of_pairs(pairs), *_of_records(known, overview), *_of_rules(overview))
    facts = dict.fromkeys(names, 1.0)
    return replace(known, facts=facts)


def hidden(frames: Frames) -> Frames:
    """`frames` without the options that injected faults."""
    methods = []
    for method, options in zip(frames.runs["method"], frames.runs["options"], strict=True):
        known = effects(options)
        kept = {key: value for key, value in json.loads(method).items() if known.get(key) != "fault"}
        methods.append(json.dumps(kept, sort_keys=True))
    return replace(frames, runs=frames.runs.assign(method=pd.Series(methods, dtype="str")))


def _pairs(frames: Frames) -> Iterator[Pair]:
    """Compares the first run of each problem with its other runs: complete runs come first, restarted ones last."""
    runs = frames.runs.assign(restarted=[bool(_restart(row)) for _, row in frames.runs.iterrows()])
    runs = runs[~samples(runs).to_numpy()]
    runs = runs.sort_values(["restarted", "complete"], ascending=[True, False], kind="stable")
    for _, same in runs.groupby(["app", "problem"], sort=False):
        rows = dict(zip(ids(same), same.to_dict("records"), strict=True))
        first, *others = rows
        for other in others[:MOST]:
            try:
                comparison = compare(frames, first, other)
            except NothingInCommon:
                continue
            yield Pair(relation(rows[first], rows[other]), comparison, cause(frames, comparison))


def relation(one, other) -> str:
    """The relation, one of RELATIONS, of two rows of `Frames.runs` of one problem."""
    if one["run"] == other["run"]:
        return REPEATS
    if _restart(one) != _restart(other):
        return RESTART
    methods = [factors(row["method"], row["options"], (*FREE, "replay")) for row in (one, other)]
    if methods[0] != methods[1] or one["ordering"] != other["ordering"]:
        return METHOD
    if apart(json.loads(one["environment"]), json.loads(other["environment"]), LEAST):
        return ENVIRONMENT
    owners = [of_effect(row["method"], row["options"], *FREE) for row in (one, other)]
    return RANKS if one["size"] != other["size"] or owners[0] != owners[1] else SAME


def _restart(row) -> object:
    """The value of the option by which a run continues another; None if no such option is set."""
    config = json.loads(row["config"])
    for key in (key for key, effect in effects(row["options"]).items() if effect == "restart"):
        section, _, name = key.partition(".")
        values = config.get(section)
        if isinstance(values, dict) and values.get(name) not in UNSET:
            return values[name]
    return None


def _by_place(pair: Pair) -> tuple:
    """A sort key: pairs that differ come first, then pairs that lack records; among equals the last of RELATIONS."""
    comparison = pair.comparison
    return (not comparison.differs, comparison.comparable, -RELATIONS.index(pair.relation))


def _of_runs(frames: Frames) -> Iterator[str]:
    """Facts from the attributes of runs, and from their numbers."""
    runs = frames.runs
    launches, sizes = runs["run"].nunique(), runs["size"].nunique()
    yield f"runs: {'one' if len(runs) == 1 else 'two' if len(runs) == 2 else 'several'}"
    yield f"launches: {'one' if launches == 1 else 'two' if launches == 2 else 'several'}"
    checks = {
        "several problems": runs[["app", "problem"]].drop_duplicates().shape[0] > 1,
        "several rank counts": sizes > 1, "three rank counts": sizes > 2,
        "several allocations": runs["allocation_id"].nunique() > 1,
        "several nodes": len(_nodes(runs)) > 1,
        "several guarantees": runs["guarantee"].nunique() > 1,
        "several orderings": runs["ordering"].nunique() > 1,
        "several methods": len(_kernels(runs)) > 1,
        "several seeds": runs["seed"].nunique() > 1,
        "promised": bool((runs["guarantee"] != "none").any()),
        "order of the library": bool(runs["ordering"].str.contains("library").any()),
        "order of arrival": bool(runs["ordering"].str.contains("arrival").any()),
        "restarted": any(_restart(row) for _, row in runs.iterrows()),
        "ended early": bool((~runs["complete"]).any()),
        "ranks with other libraries": any(mixed(json.loads(text), LEAST) for text in runs["environment"]),
    }  # fmt: skip
    yield from (name for name, so in checks.items() if so)
    said = set(frames.excluded["what"])
    for name, kinds in (("failed", FAILURES), ("damaged", DAMAGED), ("ranks disagree", ("ranks disagree",))):
        if said & set(kinds):
            yield name


def _nodes(runs: pd.DataFrame) -> set[str]:
    return {
        node for text in runs["environment"] for node in str(json.loads(text).get("node", "")).split(AMONG)
    }


def _kernels(runs: pd.DataFrame) -> set[str]:
    stated = zip(runs["method"], runs["options"], strict=True)
    return {json.dumps(factors(*each, (*FREE, "reduction", "replay")), sort_keys=True) for each in stated}


def _of_pairs(pairs: tuple[Pair, ...]) -> Iterator[str]:
    """Facts from compared runs: relations, differences, the cause of the first one, and their number."""
    differing = [pair for pair in pairs if pair.comparison.differs]
    yield from (f"compared: {pair.relation}" for pair in pairs)
    yield from (f"differs: {pair.relation}" for pair in differing)
    if differing and (why := differing[0].cause):
        yield f"cause: {why.kind}"
    if len(differing) > 2:
        yield "three or more differ"
    if pairs and not differing:
        yield "all equal" if all(pair.comparison.equal for pair in pairs) else "records lacking"


def _of_records(known: Evidence, overview: Overview) -> Iterator[str]:
    """Facts from records: the studies that apply and their facts, late or waiting ranks, NaN, the verdict."""
    for name in studies.names():
        about = studies.about(name)
        asked = hasattr(about, "ANSWERS") and not hasattr(about, "FACT")
        if asked and (found := overview.study(name)) is not None:
            yield name
            yield from studies.study(name).facts(found)
    if known.late:
        yield "one rank late"
    if max(known.waiting.values(), default=0.0) > WAITED:
        yield "ranks wait"
    if known.not_finite:
        yield "not finite"
    judged = headline(overview.groups, known.frames, overview.findings)
    yield f"verdict: {judged.verdict}"


def _of_rules(overview: Overview) -> Iterator[str]:
    """Facts from RULES: the rules with a finding."""
    experiment = Experiment(overview)
    for rule in RULES:
        if next(rule(experiment), None):
            yield f"rule: {name_of(rule)}"


def _not_finite(frames: Frames) -> tuple[Id, int, str, int, int] | None:
    """(run, step, name, block, rank) of the first recorded number that is NaN or infinite."""
    values = frames.values
    wrong = values[~np.isfinite(values["value"].to_numpy())]
    if wrong.empty:
        return None
    row = wrong.sort_values(["step", "seq", "block"], kind="stable").iloc[0]
    where = int(row["step"]), str(row["name"]), int(row["block"]), int(row["rank"])
    return (str(row["run"]), int(row["repeat"])), *where


def _unusual(frames: Frames) -> dict[str, str]:
    """{run: reason} of runs that ended early, failed or are damaged."""
    runs, kinds = frames.runs, (*FAILURES, *DAMAGED, "ranks disagree")
    said = dict.fromkeys(runs.loc[~runs["complete"], "run"], "ended early")
    for run, what, *_ in frames.excluded.itertuples(index=False):
        if what in kinds:
            said[run] = what
    return said


def _times(frames: Frames) -> tuple[Late | None, dict[Id, float]]:
    """(the latest rank of all runs or None, {run: share of waiting in the time of its ranks}), of runs on several
    ranks."""
    events = frames.events
    kinds = {row["run"]: json.loads(row["regions"]) for _, row in frames.runs.iterrows()}
    several = frames.runs[frames.runs["size"] > 1]
    late, waiting = None, {}
    for run, repeat in ids(several):
        own = events[((events["run"] == run) & (events["repeat"] == repeat)).to_numpy()]
        waits = own["name"].map({name: kind in WAITING for name, kind in kinds[run].items()}).eq(True)
        total = own.groupby("rank")["exclusive_ns"].sum()
        waited = own[waits.to_numpy()].groupby("rank")["exclusive_ns"].sum()
        waited = waited.reindex(total.index, fill_value=0)
        if not waits.any() or total.sum() <= 0:
            continue
        waiting[run, repeat] = float(waited.sum() / total.sum())
        work = total - waited
        rank = int(work.idxmax())
        usual = float(work.drop(rank).median())
        if usual <= 0:  # the others recorded no work, so the factor is unknown
            continue
        factor = float(work[rank]) / usual
        if factor > LATE and waiting[run, repeat] > WAITED / 2 and (late is None or factor > late.factor):
            late = Late((run, repeat), rank, factor)
    return late, waiting


def cells(frames: Frames) -> Iterator[tuple[str, pd.DataFrame]]:
    """(label, complete runs) of each cell with several complete runs; runs whose steps are samples are left out."""
    runs = frames.runs[frames.runs["complete"] & ~samples(frames.runs)]
    for label, same in grouped(runs).groupby("cell", sort=False):
        if len(same) > 1:
            yield str(label), same
