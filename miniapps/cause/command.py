"""The command `fpna cause A B -- PROGRAM`: its options, its launches and its answer."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kernels.as_json import Document, columns, document
from kernels.commands.entry import command_line
from kernels.progress import Progress
from miniapps import launching
from miniapps.cause.launches import OWN, Plan, launch
from miniapps.cause.placing import (
    BEYOND,
    NOT_ROUNDING,
    OPEN,
    ROUNDING,
    WITHIN,
    Directed,
    Place,
    Verdict,
    judge,
)
from miniapps.cause.sizes import Sizes, read
from miniapps.errors import UsageError
from miniapps.programs.rawlog import DIRECTIONS
from miniapps.trace import read_run

SCHEMA = 1
CODES = {ROUNDING: 0, NOT_ROUNDING: 3, OPEN: 4}
STILL = 2  # undisturbed launches
AMPLIFIED = 2.0**20  # units in the last place; local sums alone do not reach so many
MORE = (
    6  # launches after the disturbed ones: one again, one as B, two of each run that round in one direction
)
LAUNCHES, MOST_LAUNCHES = 10, 1000
OBSERVED = "program.sums"  # an option in the traces of `fpna run` alone

DESCRIPTION = """\
Decides whether rounding explains the difference of the runs A and B. It launches the program again as in A: twice
undisturbed, then with disturbances no larger than rounding. At each collective call of all ranks, a seed draws whether
they round to nearest, upward or downward, and moves contributions to floating-point sums by at most a unit in the last
place. If A and B lie much farther apart than all of these launches, rounding does not explain the difference: look for
a bug, or another input. Otherwise it launches the program as in A and as in B, with all operations rounded upward and
then downward: a difference by rounding changes, a difference by a bug stays. All launches use one thread. Messages from
any source come in the order of A (or of B, for launches as B).
"""
EPILOG = f"""\
examples:
  fpna cause runs/a runs/b -- ./app input.txt
  fpna cause runs/a runs/b --launcher 'srun -n {{ranks}}' -- ./app input.txt
  fpna cause runs/a runs/b -- python app.py --out {OWN}
      a program that records itself (fpna.record, or an application of this suite) writes into {OWN}

Exit codes: 0 rounding explains the difference; 1 failure; 2 usage, or a launch failed; 3 rounding does not explain
the difference; 4 open, and the answer says what is missing.
"""

DOCUMENTS = {
    "cause": Document(
        columns("""
            a b | text | the runs
            verdict | text | `rounding`, `not rounding`, `open`
            why | text
            unrepeated | object? | the first record that also differs between identical launches: `name`, `step`,
              `apart`, `size`
            first farthest | object? | the first record that differs, and the one with the largest `ratio`; null if
              no record can be judged: `name`, `step`, `block`, `apart` and `reach` in the unit of the numbers, `ratio`,
              `units`: the reach in units in the last place
            compared differing unstable integers | integer | numbers of records
            within beyond | number | bounds of the ratio: rounding explains a ratio up to `within`, and none from
              `beyond` on
            launches undisturbed seed ranks threads | integer
            replay | boolean | whether messages came in the order of A
            stays | object? | whether the difference stays when rounding changes; null without these launches, or if
              launches did not repeat A and B: `name`, `step` of its first record, `error` in the unit of the numbers,
              `ratio`, and the ratios `likely` and `rare` that rounding exceeds in one case of ten and of ten thousand
            next | text | the next command or step
        """),
        meaning="Exit codes are the same as with text output: 0, 3, 4 ([page](../how-to/cause.md))",
    ),
}


def parser(prog: str = "fpna cause") -> argparse.ArgumentParser:
    """The command line."""
    top = launching.parser(
        prog, f"{prog} A B [options] -- PROGRAM [ARGUMENTS]", DESCRIPTION, EPILOG, quiet="the verdict alone"
    )
    top.add_argument(
        "a", metavar="A", type=Path, help="the directory of a run; the launches use its number of ranks"
    )
    top.add_argument("b", metavar="B", type=Path, help="the directory of a run that differs from A")
    top.add_argument(
        "--launches", type=int, default=LAUNCHES, metavar="N", help=f"disturbed launches ({LAUNCHES})"
    )
    top.add_argument(
        "--seed", type=int, default=1, metavar="N", help="seed of the first disturbed launch (1)"
    )
    top.add_argument(
        "--launcher", default="mpirun -n {ranks}", metavar="WORDS",
        help="command that starts the ranks; {ranks} is their number ('mpirun -n {ranks}')",
    )  # fmt: skip
    top.add_argument(
        "--mpicxx", metavar="PATH", help="the C++ compiler of the program's MPI (mpicxx on PATH)"
    )
    top.add_argument(
        "--keep", type=Path, metavar="DIR", help="keep all launches in this new or empty directory"
    )
    return top


@command_line
def main(argv: Sequence[str] | None = None, prog: str = "fpna cause") -> int:
    """Make the experiment and print the answer; returns the exit code."""
    own, command = launching.around_dashes(argv)
    options = parser(prog).parse_args(own)
    return launching.code_of(prog, partial(_answer, options, command, prog))


def _answer(options: argparse.Namespace, command: list[str], prog: str) -> int:
    if not command:
        raise UsageError(
            f"no program after --; give the command that made A: {prog} {options.a} {options.b} -- ./app ARGUMENTS"
        )
    if not 3 <= options.launches <= MOST_LAUNCHES:
        raise UsageError(f"--launches {options.launches}: choose 3 to {MOST_LAUNCHES}")
    names: dict[str, int] = {}
    runs = read(options.a, names), read(options.b, names)
    plan, other = (
        _plan(options, run, command, bool(sizes.sources))
        for run, sizes in zip((options.a, options.b), runs, strict=True)
    )
    with launching.kept(options.keep, "fpna-cause-") as directory:
        progress = Progress("cause", quiet=options.quiet)
        verdict = _experiment(options, (plan, other), runs, names, directory, progress)
        progress.clear()
    if options.json:
        print(_document(options, plan, verdict))
    else:
        lines = sentences(options, plan, verdict)
        print("\n".join(lines[:1] if options.quiet else lines))
    return CODES[verdict.kind]


def _experiment(
    options: argparse.Namespace,
    plans: tuple[Plan, Plan],
    runs: tuple[Sizes, Sizes],
    names: dict[str, int],
    directory: Path,
    progress: Progress,
) -> Verdict:
    """Launch as often as the answer needs, and judge. `plans`, `runs`: of A and of B."""
    seeds = range(options.seed, options.seed + options.launches)
    launched = 0

    def made(plan: Plan, name: str, how: int | str | None) -> Sizes:
        nonlocal launched
        launched += 1
        progress.show(launched / (STILL + len(seeds) + MORE), f"launch {launched}")
        return read(launch(plan, directory / name, how, options.timeout), names)

    still = [made(plans[0], f"still-{i}", None) for i in range(STILL)]
    disturbed = [made(plans[0], f"disturbed-{seed}", seed) for seed in seeds]
    judged = partial(judge, *runs, still, disturbed, names)
    verdict = judged()
    again: dict[int, Sizes] = {}
    if verdict.kind == ROUNDING and verdict.launch is not None:  # does it come from the disturbance?
        seed = seeds[verdict.launch]
        again[verdict.launch] = made(plans[0], f"again-{seed}", seed)
        verdict = judged(again)
    if verdict.kind != NOT_ROUNDING and verdict.worst is not None and verdict.repeats:
        a, b = (
            [made(plan, f"{side}-{way}", way) for way in DIRECTIONS]
            for side, plan in zip("ab", plans, strict=True)
        )
        directed = Directed(made(plans[1], "b-still", None), a, b)
        verdict = judged(again, directed)
    return verdict


def _plan(options: argparse.Namespace, run: Path, command: list[str], replayed: bool) -> Plan:
    """The plan to launch the program of `run`, A or B; `replayed`: in its order of messages.

    Raises UsageError if A and B are runs of different problems, or if a program records itself and its command has no
    {out}.
    """
    heads = [next(iter(read_run(run, tables=[], ranks=[0]))).attributes for run in (options.a, options.b)]
    if heads[0]["problem"] != heads[1]["problem"]:
        raise UsageError(
            f"{options.a} and {options.b} solve different problems; give two runs of one problem"
        )
    observed = OBSERVED in heads[0]["options"]
    if not observed and not any(OWN in word for word in command):
        raise UsageError(
            f"the program of {options.a} records itself: write {OWN} in place of its directory in the command"
        )
    head = heads[run is options.b]
    settings = head["config"]["program"] if observed else {}
    observer: tuple[str, ...] = ("--guarantee", settings["sums"]) if settings.get("sums") else ()
    observer += ("--mpicxx", options.mpicxx) if options.mpicxx else ()
    replay = run if observed and replayed else None
    return Plan(tuple(command), options.launcher, head["size"], replay, observer)


def sentences(options: argparse.Namespace, plan: Plan, verdict: Verdict) -> list[str]:
    """The answer as lines of text: the verdict, its numbers, its blind spot, what to do."""
    heads = {
        ROUNDING: "rounding explains the difference",
        NOT_ROUNDING: "rounding does not explain the difference",
        OPEN: "open: this experiment cannot tell whether rounding explains the difference",
    }
    lines = [f"{options.a} and {options.b}: {heads[verdict.kind]}", f"  why        {verdict.why}"]
    shown = (
        [("first", verdict.first), ("farthest", verdict.worst)]
        if verdict.first != verdict.worst
        else [("at", verdict.worst)]
    )
    lines += [f"  {word:10} {_place(place)}" for word, place in shown if place is not None]
    order = f", messages in the order of {options.a}" if plan.replay else ""
    lines.append(
        f"  launches   {options.launches} disturbed (from seed {options.seed} on) and {STILL} undisturbed, each on "
        f"{plan.ranks} ranks and one thread{order}"
    )
    if verdict.stay is not None:
        lines.append("             and 5 as A or B, 4 of them with all operations rounded upward or downward")
    lines.append(
        f"  compared   {verdict.compared} records; {verdict.differing} of them differ between the runs"
    )
    if verdict.unstable:
        lines.append(
            f"  left out   {verdict.unstable} records with names that differ between identical launches"
        )
    if verdict.integers:
        lines.append(
            f"  left out   {verdict.integers} records of integers, which no disturbed launch changed"
        )
    if verdict.kind == ROUNDING and verdict.worst is not None:
        reach = verdict.worst.reach
        if verdict.stay is not None:
            reach = min(reach, verdict.stay.error * verdict.stay.rare)
        lines.append(f"  unseen     a bug that moves results by less than rounding, {reach:.2g} here")
    return [*lines, f"  next       {_next(options, plan, verdict)}"]


def _place(place: Place) -> str:
    where = f"{place.name}, step {place.step}" + (f", block {place.block}" if place.block >= 0 else "")
    units = f" ({place.units:.2g} units in the last place)" if place.units else ""
    return (
        f"{where}: A and B lie {place.apart:.2g} apart, disturbed launches at most {place.reach:.2g}{units}"
    )


def _next(options: argparse.Namespace, plan: Plan, verdict: Verdict) -> str:
    """The next thing to do, in one line."""
    command = shlex.join(plan.command)
    if verdict.kind == NOT_ROUNDING and verdict.unrepeated is not None and verdict.first is None:
        at = verdict.unrepeated
        return f"find out why {at.name} of step {at.step} differs from launch to launch, as a clock does"
    if verdict.kind == NOT_ROUNDING and verdict.first is not None:
        return f"look for a bug, or another input, before {verdict.first.name} of step {verdict.first.step}"
    if verdict.kind == ROUNDING and verdict.first is not None and verdict.first.units > AMPLIFIED:
        return (
            "find out what amplifies rounding so much: float32 (also for an index), a difference of large numbers, "
            "chaos; if the program should have none of these, it has a bug"
        )
    if verdict.kind == ROUNDING:
        return (
            "a difference of this size needs no bug; docs/tutorials/own-programs.md shows how to make such runs "
            "equal"
        )
    if verdict.unstable and verdict.worst is None:
        return "first fix the program so that launches repeat (a seed from the clock, for instance); then ask again"
    if not verdict.compared:
        return "record both runs again with this version, so that they contain the sizes of their numbers"
    return f"launch more: fpna cause {options.a} {options.b} --launches {4 * options.launches} -- {command}"


def _stays(verdict: Verdict) -> dict[str, Any] | None:
    """The entry `stays` of the document."""
    if verdict.stay is None or verdict.at is None:
        return None
    name, step = verdict.at
    return {"name": name, "step": step} | {
        key: getattr(verdict.stay, key) for key in ("error", "ratio", "likely", "rare")
    }


def _document(options: argparse.Namespace, plan: Plan, verdict: Verdict) -> str:
    def place(at: Place | None) -> dict[str, Any] | None:
        return None if at is None else vars(at)

    return document(
        SCHEMA, "cause", a=str(options.a), b=str(options.b), verdict=verdict.kind, why=verdict.why,
        unrepeated=verdict.unrepeated and vars(verdict.unrepeated),
        first=place(verdict.first), farthest=place(verdict.worst), compared=verdict.compared,
        differing=verdict.differing, unstable=verdict.unstable, integers=verdict.integers, within=WITHIN, beyond=BEYOND,
        launches=options.launches, undisturbed=STILL, seed=options.seed, ranks=plan.ranks, threads=1,
        replay=plan.replay is not None, stays=_stays(verdict), next=_next(options, plan, verdict),
    )  # fmt: skip
