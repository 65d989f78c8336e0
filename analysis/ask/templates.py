"""Commands of ours with slots, filled in from what the probes saw.

Templates of one shape are rows of a table; each other one is a function of Evidence, whose docstring says what it
answers.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

from analysis import studies
from analysis.ask.paths import all_paths, path_of, paths_of, shortened, with_checkpoints, with_repeats
from analysis.ask.probes import ENVIRONMENT, METHOD, RANKS, REPEATS, RESTART, SAME, Evidence, cells
from analysis.groups import calibrates
from analysis.runs import Id, ids, label
from analysis.sentences import place
from analysis.verdict import counted, ranks
from miniapps.untrusted.text import printable

ANALYSIS = ("python", "-m", "analysis")
# That `variability --by` takes, the most telling first.
FACTORS = ("ordering", "guarantee", "kernel", "ranks")


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
        """The command line as a user types it."""
        return " ".join(printable(shlex.quote(word)) for word in self.argv)


Fill = Callable[[Evidence], "Question | None"]


@dataclass(frozen=True)
class Template:
    """A command with slots: `answers` says what, in the words of people who ask, and is what their words are compared
    with; `fill` returns None where a slot cannot be filled in."""

    answers: str
    fill: Fill


TEMPLATES: dict[str, Template] = {}


def register(name: str, answers: str, fill: Fill, module: str = "") -> None:
    """Add a template if there is its command: the module `module`, or else a command or study of the analysis."""
    command = name.partition(" ")[0]
    if any(
        map(_exists, [module] if module else [f"analysis.commands.{command}", f"analysis.studies.{command}"])
    ):
        TEMPLATES[name] = Template(" ".join(answers.split()), fill)


def template(name: str, module: str = "") -> Callable[[Fill], Fill]:
    """`register` a function, whose docstring says what it answers."""

    def of_function(fill: Fill) -> Fill:
        register(name, fill.__doc__ or "", fill, module)
        return fill

    return of_function


@cache
def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        return False


def description(name: str) -> str:
    """What a template answers, in words."""
    return TEMPLATES[name].answers


def questions(known: Evidence) -> list[Question]:
    """All commands that can be filled in."""
    filled = (template.fill(known) for template in TEMPLATES.values())
    return [question for question in filled if question]


# ---- pairs of runs

# How two runs are related: the name of the template, that in words, and what it answers.
PAIRS = {
    REPEATS: (
        "divergence of repeats", "repeats of one launch",
        "Repeats of one launch differ: not reproducible, nondeterministic, another result every time it is run with "
        "the same seed and the same input.",
    ),
    SAME: (
        "divergence of runs", "of one problem and one method",
        "Two runs that should be identical give different results: where do they part, wrong values, corrupted data, a "
        "bit flip, lost message, ghost cells, same seed other output.",
    ),
    RANKS: (
        "divergence of rank counts", "of one problem on other layouts of ranks",
        "The result depends on the number of MPI processes, ranks, threads or on the domain decomposition: serial and "
        "parallel differ.",
    ),
    RESTART: (
        "divergence of a restart", "a run and one that continues from a checkpoint",
        "After a restart, resume or reload from a checkpoint the result or loss differs from the uninterrupted run.",
    ),
    METHOD: (
        "divergence of methods", "of one problem by two methods",
        "Two settings, kernels, batch sizes, optimisations, precisions or algorithms give different output.",
    ),
    ENVIRONMENT: (
        "divergence of environments", "of one problem with other machines, libraries or settings",
        "Different results on another machine, CPU, processor, library version, compiler or operating system.",
    ),
}  # fmt: skip


def first_pair(known: Evidence, relation: str) -> Question | None:
    """`divergence` of the first pair of that relation; one that differs before others."""
    pair = next((pair for pair in known.pairs if pair.relation == relation), None)
    if pair is None:
        return None
    name, words, _ = PAIRS[relation]
    comparison, runs = pair.comparison, [pair.comparison.a, pair.comparison.b]
    slots: dict[str, Any] = {"runs": paths_of(known, runs)}
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
    places = [path_of(known, runs[0][0])] if same_launch else with_repeats(known, runs)
    return Question(name, (*ANALYSIS, "divergence", *places), because, slots)


for relation, (name, _, answers) in PAIRS.items():
    register(name, answers, partial(first_pair, relation=relation), "analysis.commands.divergence")


# ---- all runs


def of_all(known: Evidence, command: str, because: str, *more: str, **slots: Any) -> Question:
    """That command of the analysis, of all runs."""
    runs = all_paths(known)
    argv = (*ANALYSIS, command, *shortened(runs, known), *more)
    return Question(command, argv, because, {"runs": runs} | slots)


def recorded(known: Evidence, study: str) -> Question | None:
    """The command of a study that says what it answers, where the runs have something for it."""
    about = studies.about(study)
    if getattr(about, "FACT", study) not in known.facts:
        return None
    unusual = [fact for fact in getattr(about, "UNUSUAL", ()) if fact in known.facts]
    return of_all(known, study, ": ".join(filter(None, [about.RECORDED, ", ".join(unusual)])))


for study in studies.names():
    if answers := getattr(studies.about(study), "ANSWERS", ""):
        register(study, answers, partial(recorded, study=study))


@template("cause", "miniapps.cause.command")
def causing(known: Evidence) -> Question | None:
    """Is it rounding or a bug of mine: whether rounding, round-off or floating-point noise explains the difference of
    two runs."""
    found = (pair.comparison for pair in known.pairs if pair.comparison.differs)
    differing = next((each for each in found if each.a[0] != each.b[0]), None)
    if differing is None:
        return None
    paths = [path_of(known, run) for run, _ in (differing.a, differing.b)]
    because = "they differ, and launches disturbed by no more than rounding show how far that moves them"
    return Question("cause", ("fpna", "cause", *paths, "--", "PROGRAM"), because, {"runs": paths})


@template("cost", "miniapps.cost.command")
def costing(known: Evidence) -> Question | None:
    """What does a guarantee or an ordering cost in time: its price, overhead."""
    levels = set(known.frames.runs["guarantee"])
    strong = next((level for level in ("exact", "layout", "run") if level in levels), None)
    if strong is None:
        return None
    runs = known.frames.runs[known.frames.runs["guarantee"] == strong]
    because = f"runs are under {strong}; pairs of launches show what that takes beside none"
    argv = ("fpna", "cost", "--guarantee none", f"--guarantee {strong}", "--", "mpirun", "-n",
            str(int(runs["size"].max())), "fpna", str(runs["app"].iloc[0]))  # fmt: skip
    return Question("cost", argv, because, {"runs": paths_of(known, ids(runs))})


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
    return of_all(known, "variability", because, *by, **({"factor": factor} if factor else {}))


@template("growth")
def growing(known: Evidence) -> Question | None:
    """How does a small difference grow with the step: trajectories diverge over time, chaos, drift, when is a tolerance
    crossed, Lyapunov rate."""
    cell = max(cells(known.frames), key=lambda cell: len(cell[1]), default=None)
    if cell is None or not known.parted:
        return None
    name, same = cell
    because = f"{counted(len(same), 'run')} of {name} can be compared step by step, and runs differ"
    paths = paths_of(known, ids(same))
    return Question("growth", (*ANALYSIS, "growth", *shortened(paths, known)), because, {"runs": paths})


@template("components")
def where_the_variance_is(known: Evidence) -> Question | None:
    """Is the variance between nodes, allocations, jobs, launches or repeats: performance and results vary from job to
    job and from node to node."""
    runs = known.frames.runs[known.frames.runs["complete"]]
    if len(runs) < 4 or runs["run"].nunique() < 2:
        return None
    jobs, launches = runs["allocation_id"].nunique(), runs["run"].nunique()
    because = f"{counted(len(runs), 'run')} are of {counted(launches, 'launch', 'launches')} in {counted(jobs, 'job')}"
    return of_all(known, "components", because)


@template("scaling")
def slow(known: Evidence) -> Question | None:
    """Poor scaling, no speedup with more ranks, slow: a straggler, load imbalance, one rank is late and others wait in
    collectives."""
    timed = known.frames.runs[known.frames.runs["complete"] & (known.frames.runs["wall_s"] > 0)]
    if timed.empty or not timed["events"].any():
        return None
    sizes = tuple(sorted(set(timed["size"].tolist())))
    slots: dict[str, Any] = {}
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
    return of_all(known, "scaling", because, **slots)


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
    return of_all(known, "lint", because)


@template("show")
def looking(known: Evidence) -> Question | None:
    """A run crashed, was killed, aborted, hangs, raised an error or ended early; its values become NaN or infinite:
    show its records."""
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
    path = path_of(known, named)
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
    path = path_of(known, run[0])
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
    return Question("identify", argv, because, {"runs": paths_of(known, ids(runs))})


@template("chain")
def chaining(known: Evidence) -> Question | None:
    """Was a trace changed or edited after the run: tampering, hashes, proof."""
    path = with_checkpoints(known)
    if path is None:
        return None
    because = "its records can be checked against the heads that it printed"
    return Question("chain", (*ANALYSIS, "chain", path), because, {"runs": [path]})


@template("verify", "miniapps.verify")
def verifying(known: Evidence) -> Question | None:
    """Is the result of a run what its program computes: execute parts of it again and compare, silent data corruption,
    a wrong node."""
    path = with_checkpoints(known, "layout", "exact")
    if path is None:
        return None
    argv = ("python", "-m", "miniapps", "verify", path, "--fraction", "0.1")
    return Question("verify", argv, "parts of it can be computed again from checkpoints", {"runs": [path]})


@template("predict")
def predicting(known: Evidence) -> Question | None:
    """How long would it take on more ranks or with another ordering: prediction from a calibration."""
    runs = known.frames.runs
    calibrating = runs["options"].map(calibrates).astype(bool)
    measured, others = runs[calibrating], runs[~calibrating]
    if measured.empty or others.empty:
        return None
    paths = paths_of(known, ids(others))
    more = ("--calibration", path_of(known, measured["run"].iloc[0]))
    because = "there is a calibration of the machine among them"
    argv = (*ANALYSIS, "predict", *paths, *more, "--ranks", str(2 * int(others["size"].max())))
    return Question("predict", argv, because, {"runs": paths})


def _row(known: Evidence, run: Id):
    runs = known.frames.runs
    return runs[(runs["run"] == run[0]) & (runs["repeat"] == run[1])].iloc[0]
