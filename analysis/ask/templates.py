"""Commands of ours with slots, filled in from what the probes saw.

A template is a function of Evidence that returns a Question, or None where its slots cannot be filled; its docstring
says in the words of people who ask what it answers, and is what their words are compared with.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from analysis.ask.probes import ENVIRONMENT, METHOD, RANKS, REPEATS, RESTART, SAME, Evidence, cells
from analysis.runs import Id, ids, label
from analysis.verdict import counted, place, ranks
from miniapps.received.text import printable

ANALYSIS = ("python", "-m", "analysis")
# That `variability --by` takes, the most telling first.
FACTORS = ("ordering", "guarantee", "kernel", "ranks")
SHOWN = 6  # runs named in a command; of more, their directories are
CHECKPOINTS = "checkpoints"  # the directory of a run that has some
CALIBRATION = "calibrate"  # the application whose runs say what a machine can do


@dataclass(frozen=True)
class Question:
    """A command, filled in: `argv`, `because` (a clause), and its `slots` for programs: `runs`, and where they are
    known `step`, `block`, `rank`, `factor`."""

    template: str
    argv: tuple[str, ...]
    because: str
    slots: dict[str, Any]

    @property
    def command(self) -> str:
        """As it is typed."""
        return " ".join(printable(shlex.quote(word)) for word in self.argv)


Template = Callable[[Evidence], "Question | None"]
TEMPLATES: dict[str, Template] = {}


def template(name: str, module: str = "") -> Callable[[Template], Template]:
    """Register the template `name`, whose command is `module`, by default the command of the analysis of that name."""

    def register(fill: Template) -> Template:
        if _exists(module or f"analysis.commands.{name.partition(' ')[0]}"):
            TEMPLATES[name] = fill
        return fill

    return register


@cache
def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        return False


def description(name: str) -> str:
    """What a template answers, in words."""
    return " ".join((TEMPLATES[name].__doc__ or "").split())


def questions(known: Evidence) -> list[Question]:
    """All commands that can be filled in."""
    filled = (fill(known) for fill in TEMPLATES.values())
    return [question for question in filled if question]


def _divergence(known: Evidence, name: str, relation: str, words: str) -> Question | None:
    """`divergence` of the first pair of that relation; one that differs before others."""
    pair = next((pair for pair in known.pairs if pair.relation == relation), None)
    if pair is None:
        return None
    comparison, runs = pair.comparison, [pair.comparison.a, pair.comparison.b]
    slots: dict[str, Any] = {"runs": _paths(known, runs)}
    if comparison.differs:
        part = comparison.part
        rank = pair.cause.rank if pair.cause and pair.cause.rank is not None else part.rank_b
        slots |= {"step": part.step, "block": part.block, "rank": rank}
        found = f"first differ at {place(part)}" + (f" ({pair.cause.kind})" if pair.cause else "")
    elif comparison.comparable:
        found = f"no difference was seen in {comparison.compared:,} records"
    else:
        found = "one lacks records of the other"
    guarantee = _row(known, runs[1])["guarantee"]
    promise = "" if guarantee == "none" else f" under {guarantee}"
    because = f"{label(runs[0])} and {label(runs[1])} are {words}{promise}: {found}"
    same_launch = runs[0][0] == runs[1][0]
    places = [_path(known, runs[0][0])] if same_launch else _places(known, runs)
    return Question(name, (*ANALYSIS, "divergence", *places), because, slots)


@template("divergence of repeats", "analysis.commands.divergence")
def of_repeats(known: Evidence) -> Question | None:
    """Repeats of one launch differ: not reproducible, nondeterministic, another result every time it is run with the
    same seed and the same input."""
    return _divergence(known, "divergence of repeats", REPEATS, "repeats of one launch")


@template("divergence of runs", "analysis.commands.divergence")
def of_runs(known: Evidence) -> Question | None:
    """Two runs that should be identical give different results: where do they part, wrong values, corrupted data, a
    bit flip, lost message, ghost cells, same seed other output."""
    return _divergence(known, "divergence of runs", SAME, "of one problem and one method")


@template("divergence of rank counts", "analysis.commands.divergence")
def of_rank_counts(known: Evidence) -> Question | None:
    """The result depends on the number of MPI processes, ranks, threads or on the domain decomposition: serial and
    parallel differ."""
    return _divergence(known, "divergence of rank counts", RANKS, "of one problem on other layouts of ranks")


@template("divergence of a restart", "analysis.commands.divergence")
def of_a_restart(known: Evidence) -> Question | None:
    """After a restart, resume or reload from a checkpoint the result or loss differs from the uninterrupted run."""
    words = "a run and one that continues from a checkpoint"
    return _divergence(known, "divergence of a restart", RESTART, words)


@template("divergence of methods", "analysis.commands.divergence")
def of_methods(known: Evidence) -> Question | None:
    """Two settings, kernels, batch sizes, optimisations, precisions or algorithms give different output."""
    return _divergence(known, "divergence of methods", METHOD, "of one problem by two methods")


@template("divergence of environments", "analysis.commands.divergence")
def of_environments(known: Evidence) -> Question | None:
    """Different results on another machine, CPU, processor, library version, compiler or operating system."""
    words = "of one problem with other machines, libraries or settings"
    return _divergence(known, "divergence of environments", ENVIRONMENT, words)


@template("variability")
def by_factor(known: Evidence) -> Question | None:
    """How much do results vary, and which factor, setting, batch size, ordering or kernel does it depend on: a summary
    of many runs by factor."""
    runs = known.frames.runs
    several = {
        "ordering": runs["ordering"].nunique() > 1, "guarantee": runs["guarantee"].nunique() > 1,
        "kernel": "several methods" in known.facts, "ranks": runs["size"].nunique() > 1,
    }  # fmt: skip
    factor = next((name for name in FACTORS if several[name]), None)
    if len(runs) < 3:
        return None
    by = ("--by", factor) if factor else ()
    because = f"{counted(len(runs), 'run')}" + (f" of more than one {factor}" if factor else " of one method")
    slots = _slots(known) | ({"factor": factor} if factor else {})
    return Question("variability", (*ANALYSIS, "variability", *_all(known), *by), because, slots)


@template("growth")
def growing(known: Evidence) -> Question | None:
    """How does a small difference grow with the step: trajectories diverge over time, chaos, drift, when is a tolerance
    crossed, Lyapunov rate."""
    cell = max(cells(known.frames), key=lambda cell: len(cell[1]), default=None)
    if cell is None or not known.parted:
        return None
    name, same = cell
    because = f"{counted(len(same), 'run')} of {name} can be compared step by step, and runs differ"
    slots = {"runs": _paths(known, ids(same))}
    return Question("growth", (*ANALYSIS, "growth", *_shortened(slots["runs"], known)), because, slots)


@template("components")
def where_the_variance_is(known: Evidence) -> Question | None:
    """Is the variance between nodes, allocations, jobs, launches or repeats: performance and results vary from job to
    job and from node to node."""
    runs = known.frames.runs[known.frames.runs["complete"]]
    if len(runs) < 4 or runs["run"].nunique() < 2:
        return None
    jobs, launches = runs["allocation_id"].nunique(), runs["run"].nunique()
    because = f"{counted(len(runs), 'run')} are of {counted(launches, 'launch', 'launches')} in {counted(jobs, 'job')}"
    return Question("components", (*ANALYSIS, "components", *_all(known)), because, _slots(known))


@template("scaling")
def slow(known: Evidence) -> Question | None:
    """Poor scaling, no speedup with more ranks, slow: a straggler, load imbalance, one rank is late and others wait in
    collectives."""
    timed = known.frames.runs[known.frames.runs["complete"] & (known.frames.runs["wall_s"] > 0)]
    if timed.empty or not timed["events"].any():
        return None
    sizes, slots = tuple(sorted(set(timed["size"].tolist()))), _slots(known)
    parts = [f"runs on {ranks(sizes)} were timed"] if len(sizes) > 1 else []
    if known.late:
        late = known.late
        longer = f"works {late.factor:.3g} times as long as the others"
        parts.append(f"rank {late.rank} of {label(late.run)} {longer}")
        slots["rank"] = late.rank
    if known.waiting:
        run, share = max(known.waiting.items(), key=lambda item: item[1])
        parts.append(f"ranks of {label(run)} wait {share:.0%} of the time")
    because = "; ".join(parts) or f"times were recorded of {counted(len(timed), 'run')}"
    return Question("scaling", (*ANALYSIS, "scaling", *_all(known)), because, slots)


@template("nodes")
def over_nodes(known: Evidence) -> Question | None:
    """Communication between nodes, network, bandwidth, placement of ranks on hosts."""
    if "several nodes" not in known.facts:
        return None
    return Question("nodes", (*ANALYSIS, "nodes", *_all(known)), "ranks were on several nodes", _slots(known))


@template("solves")
def solving(known: Evidence) -> Question | None:
    """The linear solver, conjugate gradient, GMRES does not converge, stagnates, needs other numbers of iterations; the
    residual."""
    if "solves" not in known.facts:
        return None
    because = "residuals were recorded by iteration"
    because += ", and a solve did not converge" if "not converged" in known.facts else ""
    because += ", and the numbers of iterations differ" if "other iterations" in known.facts else ""
    return Question("solves", (*ANALYSIS, "solves", *_all(known)), because, _slots(known))


@template("sums")
def summing(known: Evidence) -> Question | None:
    """The sum of floating-point numbers depends on the order of summation: accuracy and cost of pairwise, compensated,
    parallel and exact reductions."""
    if "sums" not in known.facts:
        return None
    return Question(
        "sums", (*ANALYSIS, "sums", *_all(known)), "ways of adding up were compared", _slots(known)
    )


@template("training")
def learning(known: Evidence) -> Question | None:
    """Accuracy and loss of a training vary with the seed, the wire or compression of gradients; the model does not
    reach the published accuracy."""
    if "trainings" not in known.facts:
        return None
    return Question(
        "training", (*ANALYSIS, "training", *_all(known)), "accuracy and loss were recorded", _slots(known)
    )


@template("operations")
def auditing(known: Evidence) -> Question | None:
    """Which operation of PyTorch is nondeterministic, and does the documentation say so."""
    if "audits" not in known.facts:
        return None
    because = "operations of PyTorch were audited"
    return Question("operations", (*ANALYSIS, "operations", *_all(known)), because, _slots(known))


@template("inference")
def answering(known: Evidence) -> Question | None:
    """The output of a network depends on the batch size or on the other requests in the batch: inference is not batch
    invariant."""
    if "answers" not in known.facts:
        return None
    because = "answers of a network to requests were recorded"
    return Question("inference", (*ANALYSIS, "inference", *_all(known)), because, _slots(known))


@template("lint")
def measuring(known: Evidence) -> Question | None:
    """Timings are noisy, unstable and vary between runs: is the benchmark sound, are there enough repeats, were machine
    and libraries the same on all ranks."""
    broken = [name.removeprefix("rule: ") for name in known.facts if name.startswith("rule: ")]
    if "ranks with other libraries" in known.facts:
        because = "ranks of one run have other libraries or settings"
    elif broken:
        because = f"it finds {', '.join(broken)}"
    else:
        because = "it says what the runs do not support"
    return Question("lint", (*ANALYSIS, "lint", *_all(known)), because, _slots(known))


@template("show")
def looking(known: Evidence) -> Question | None:
    """A run crashed, was killed, aborted, hangs, raised an error or ended early; its values become NaN or infinite:
    what is recorded in it."""
    named = next((run for run in known.unusual if run in set(known.frames.runs["run"])), None)
    slots: dict[str, Any] = {}
    if named is not None:
        because = f"{printable(named)}: {known.unusual[named]}"
        early = known.frames.runs[(known.frames.runs["run"] == named) & ~known.frames.runs["complete"]]
        if len(early):
            row = early.iloc[0]
            slots["step"] = int(row["last_step"])
            because += f", after step {slots['step']}"
    elif known.not_finite:
        (named, _), step, name, block, rank = known.not_finite
        where = f", block {block}" if block >= 0 else ""
        because = f"{printable(named)} has a value that is no number, first at step {step}, {name}{where}"
        slots |= {"step": step, "block": block, "rank": rank}
    else:
        named, because = known.frames.runs["run"].iloc[0], "it says what a run holds"
    path = _path(known, named)
    return Question("show", (*ANALYSIS, "show", path), because, {"runs": [path], **slots})


@template("export")
def drawing(known: Evidence) -> Question | None:
    """A timeline or profile of the events of a rank, to look at in a viewer such as Perfetto: where is the time spent,
    which region is slow."""
    runs = known.frames.runs
    timed = runs[(runs["wall_s"] > 0) & (runs["events"] > 0)]
    if timed.empty:
        return None
    slots: dict[str, Any] = {}
    more: tuple[str, ...] = ()
    if known.late:
        run, rank = known.late.run, known.late.rank
        beside = min(rank ^ 1, int(_row(known, run)["size"]) - 1)
        more = ("--ranks", ",".join(map(str, sorted({rank, beside}))))
        because = f"rank {rank} works {known.late.factor:.3g} times as long as the others"
        slots["rank"] = rank
    elif known.parted:
        run, step = known.parted.comparison.b, known.parted.comparison.part.step
        if step <= int(_row(known, run)["last_step"]):
            more, slots["step"] = ("--steps", str(step)), step
        because = f"{label(run)} parts from {label(known.parted.comparison.a)} at step {step}"
    else:
        longest = timed.loc[timed["wall_s"].idxmax()]
        run, because = (longest["run"], int(longest["repeat"])), "its events were recorded"
    path = _path(known, run[0])
    argv = (*ANALYSIS, "export", "perfetto", path, *more, "-o", "events.json")
    return Question("export", argv, because, {"runs": [path], **slots})


@template("identify", "kernels.commands.identify")
def identifying(known: Evidence) -> Question | None:
    """MPI_Allreduce or NCCL all-reduce is nondeterministic: in which order does the library add, which algorithm and
    tree does it take, does it repeat."""
    runs = known.frames.runs[known.frames.runs["ordering"].str.contains("library")]
    if runs.empty:
        return None
    size = int(runs["size"].max())
    because = f"sums over {size} ranks were left to the MPI library, whose order is its own"
    argv = ("mpirun", "-n", str(size), "python", "-m", "kernels.allreduce", "identify", "--tree")
    return Question("identify", argv, because, {"runs": _paths(known, ids(runs))})


@template("chain")
def chaining(known: Evidence) -> Question | None:
    """Was a trace changed or edited after the run: tampering, hashes, proof."""
    path = _with_checkpoints(known)
    if path is None:
        return None
    because = "its records can be checked against the heads that it printed"
    return Question("chain", (*ANALYSIS, "chain", path), because, {"runs": [path]})


@template("verify", "miniapps.verify")
def verifying(known: Evidence) -> Question | None:
    """Is the result of a run what its program computes: execute parts of it again and compare, silent data corruption,
    a wrong node."""
    path = _with_checkpoints(known, "layout", "exact")
    if path is None:
        return None
    argv = ("python", "-m", "miniapps", "verify", path, "--fraction", "0.1")
    return Question("verify", argv, "parts of it can be computed again from checkpoints", {"runs": [path]})


@template("predict")
def predicting(known: Evidence) -> Question | None:
    """How long would it take on more ranks or with another ordering: prediction from a calibration."""
    runs = known.frames.runs
    measured, others = runs[runs["app"] == CALIBRATION], runs[runs["app"] != CALIBRATION]
    if measured.empty or others.empty:
        return None
    paths = _paths(known, ids(others))
    more = ("--calibration", _path(known, measured["run"].iloc[0]))
    because = "there is a calibration of the machine among them"
    argv = (*ANALYSIS, "predict", *paths, *more, "--ranks", str(2 * int(others["size"].max())))
    return Question("predict", argv, because, {"runs": paths})


def _with_checkpoints(known: Evidence, *guarantees: str) -> str | None:
    """The first complete run with checkpoints, of one of `guarantees` where some are given."""
    runs = known.frames.runs
    for run, guarantee, complete in runs[["run", "guarantee", "complete"]].itertuples(index=False):
        path = _path(known, run)
        if complete and (not guarantees or guarantee in guarantees) and Path(path, CHECKPOINTS).is_dir():
            return path
    return None


def _row(known: Evidence, run: Id):
    runs = known.frames.runs
    return runs[(runs["run"] == run[0]) & (runs["repeat"] == run[1])].iloc[0]


def _path(known: Evidence, run: str) -> str:
    """The directory of `run`, never one that reads as an option."""
    runs = known.frames.runs
    path = str(runs.loc[runs["run"] == run, "path"].iloc[0])
    return f"./{path}" if path.startswith("-") else path


def _paths(known: Evidence, runs: list[Id]) -> list[str]:
    """The directories of `runs`, each once."""
    return list(dict.fromkeys(_path(known, run) for run, _ in runs))


def _places(known: Evidence, runs: list[Id]) -> list[str]:
    """`runs` as `divergence` takes them: with the repeat where a launch has several."""
    repeats = known.frames.runs["run"].value_counts()
    return [_path(known, run) + (f":{repeat}" if repeats[run] > 1 else "") for run, repeat in runs]


def _slots(known: Evidence) -> dict[str, Any]:
    return {"runs": _paths(known, ids(known.frames.runs))}


def _all(known: Evidence) -> list[str]:
    return _shortened(_slots(known)["runs"], known)


def _shortened(paths: list[str], known: Evidence) -> list[str]:
    """`paths`; of many the directory that holds all runs, where it holds no others."""
    if len(paths) <= SHOWN:
        return paths
    above = {path.rpartition("/")[0] for path in paths}
    all_runs = set(_paths(known, ids(known.frames.runs)))
    return sorted(above) if len(above) == 1 and all(above) and set(paths) == all_runs else paths
