"""Good runs, made once by the real tracer, and what the commands say of them: the verdict that damage must keep."""

from __future__ import annotations

import functools
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analysis.__main__ import main
from analysis.load.frames import load
from miniapps.trace import Tracer, fingerprint, node
from miniapps.trace.schema import rank_file
from tests.analysis.audits_runs import case, refused, statement, write_audit
from tests.analysis.solves_runs import FALLING, solve, write_solves
from tests.analysis.sums_runs import write_sums
from tests.analysis.synthetic import attributes, field_at, flip_bit, write_result, write_run
from tests.fuzz.sandbox import SECRET, Said, Sandbox, Violation, fresh

STEPS = 4
BLOCKS = 4
# Runs that are compared with `a`. `k` was killed: its file has no seal.
PAIRS = {"equal": ("a", "b"), "different": ("a", "c"), "node": ("a", "n"), "killed": ("a", "k")}
EQUAL, DIFFERS = " are equal: ", " differ: first at "


@dataclass(frozen=True)
class Command:
    """A command of `python -m analysis`; `judged`: whether its first line is a verdict over all runs."""

    name: str
    weight: float
    judged: bool = False
    app: str = ""  # of whose runs alone it speaks


COMMANDS = (
    Command("divergence", 120), Command("variability", 8, judged=True), Command("show", 2), Command("lint", 4),
    Command("growth", 2), Command("components", 1), Command("scaling", 1), Command("perfetto", 4),
    Command("extrap", 2), Command("chakra", 2), Command("report", 1, judged=True),
    Command("results", 0.5, judged=True), Command("sums", 2, app="reductions"),
    Command("solves", 2, app="solver"), Command("audits", 4, app="operations"),
)  # fmt: skip


def write_base(place: Path) -> None:
    """Write the good runs below `place`, and one whose texts are SECRET, which is to stay outside."""
    few = {"steps": STEPS, "blocks": BLOCKS, "choices": lambda repeat, step: ("ring", "direct")[step % 2]}
    write_run(place / "a", size=1, **few, run_id="a")
    write_run(place / "b", size=2, **few, run_id="b", orders=lambda repeat, step: [np.arange(2)])
    write_run(place / "c", size=2, **few, run_id="c", change=_differ)
    write_run(place / "n", size=3, **few, run_id="n", result=False)
    node.pack([place / "n" / rank_file(rank) for rank in (0, 2)], place / "n" / "node-00000.h5")
    write_result(place / "n")
    write_run(place / "r", size=2, **few, run_id="r", repeats=2, change=lambda repeat, step, field: None)
    _write_killed(place / "k")
    values = {"sum:spa:emulated:100": [[1.0, 1.5, 1.0, 2.0]], "sum:exact:native:100": [[1.0] * 4]}
    write_sums(place / "sums", values, times={name: [1.0] * 4 for name in values}, run_id="sums")
    write_solves(place / "solves", [solve(FALLING, error=FALLING)] * 2, run_id="solves")
    dot = case("dot", address=2, layers={"ATen default": 2, "MKL AVX": 1})
    cases = [case("take", "backward", runs=3, threads=1), dot, refused("svd")]
    write_audit(place / "audit", cases, [statement("take"), statement("dot")], run_id="audit")
    write_run(place / "secret", size=2, **few, run_id=SECRET, app=SECRET, names=(SECRET, f"{SECRET}2"))


def _differ(repeat, step, field):
    if step >= 2:
        flip_bit(field, 3)


def _write_killed(out: Path) -> None:
    """A run of one rank that was killed after its last flush: the file is there as it was then."""
    out.mkdir()
    path = out / rank_file(0)
    tracer = Tracer(path, attributes(0, 1, "none", "arrival", run_id="k", repeats=1), size=1)
    for step in range(STEPS):
        tracer.at(0, step)
        begin = tracer.clock()
        field = field_at(step, BLOCKS)
        for block in range(BLOCKS):
            tracer.fingerprint("vorticity", block, fingerprint(field[block]))
        tracer.event(tracer.name("step"), begin)
        if step == STEPS - 2:
            tracer.flush()
            killed = path.read_bytes()
    tracer.close()
    path.write_bytes(killed)


class Base:
    """The good runs in `place`/base, and the answers of commands about copies of them in `case`."""

    def __init__(self, place: Path, case: Path):
        self.runs, self.case = place / "base", case
        write_base(self.runs)

    def copy(self, box: Sandbox, *names: str, cached: bool = False) -> list[Path]:
        """Copies of runs in the sandbox; with `cached` also what a reading leaves."""
        for name in names:
            shutil.copytree(self.runs / name, box.runs / name)
        if cached:
            load([box.runs / name for name in names], copies=True)
        return [box.runs / name for name in names]

    def put_outside(self, box: Sandbox) -> Path:
        """A complete run outside, with SECRET for all texts."""
        shutil.copytree(self.runs / "secret", box.outside / "run")
        return box.outside / "run"

    def answer(self, box: Sandbox, command: Command, names: tuple[str, ...], target: str) -> Said:
        """What `command` says of the runs `names` in `box`, of which `target` is the one looked at."""
        arguments = words(command.name, box, names, target)
        return box.say(lambda: main(arguments))

    @functools.cache  # noqa: B019 - a worker has one
    def known(self, command: Command, names: tuple[str, ...], target: str) -> Said:
        """The same of good runs."""
        box = fresh(self.case)
        self.copy(box, *names)
        answer = self.answer(box, command, names, target)
        written = sorted(path for path in box.out.iterdir() if path.is_file() and path.suffix != ".html")
        return Said(answer.code, answer.out + "".join(str(path.read_bytes()) for path in written), answer.err)


def words(name: str, box: Sandbox, names: tuple[str, ...], target: str) -> list[str]:
    """The command line of a command on the runs `names` in `box`."""
    every = str(box.runs)
    if name == "divergence":
        return [name, *(str(box.runs / one) for one in names[:2])]
    if name in ("perfetto", "chakra", "extrap"):
        return ["export", name, str(box.runs / target), "-o", str(box.out / "export.json")]
    if name in ("report", "results"):
        more = ["--results", str(box.out / "results")] if name == "results" else []
        return ["report", every, "-o", str(box.out / "r.html"), *more]
    return [name, every]


@dataclass
class Trial:
    """A command on copies of good runs, one of which is to be harmed: `good` is the answer about good runs, `others`
    that about the others alone."""

    base: Base
    command: Command
    names: tuple[str, ...]
    target: str
    good: Said
    others: Said | None

    def play(
        self, box: Sandbox, harm: Callable[[Path], object], bound: Callable[[], bool] = lambda: True
    ) -> str:
        """Harm the target, run the command, and judge: `same`, `damaged`, `others` or `else`. Where what was done is
        not `bound` to the verdict of the good runs, any exit code of a comparison will do: `free`."""
        box.note(f"{self.command.name} of {', '.join(self.names)}")
        box.note(str(harm(box.runs / self.target)))
        with box.watched():
            answer = self.base.answer(box, self.command, self.names, self.target)
        if bound():
            return judge(self.command, answer, self.good, self.others)
        require_code(answer)
        return "damaged" if answer.code == 2 else "free"


def drawn(rng: random.Random, base: Base, pair: str = "") -> Trial:
    """A command, two runs or more, and which of them is the target."""
    command = rng.choices(COMMANDS, [each.weight for each in COMMANDS])[0]
    names = PAIRS[pair or rng.choice(list(PAIRS))]
    target = names[rng.random() < 0.8]
    if command.app:
        target = {"reductions": "sums", "solver": "solves", "operations": "audit"}[command.app]
        names = (*names, target)
    elif command.judged or rng.random() < 0.2:
        names = (*names, "r")
    good = base.known(command, names, target)
    rest = tuple(name for name in names if name != target)
    return Trial(
        base, command, names, target, good, base.known(command, rest, rest[0]) if command.judged else None
    )


def judge(command: Command, answer: Said, good: Said, others: Said | None) -> str:
    """`same`, `damaged` or `others`: what `answer` is, compared with the answers about all good runs and about the
    others alone. Raises Violation for anything else."""
    require_code(answer)
    if command.name == "divergence":
        if DIFFERS in answer.out and DIFFERS not in good.out:
            raise Violation(f"damage looks like a difference: {answer.out[:500]}")
        if EQUAL in answer.out and EQUAL not in good.out:
            raise Violation(f"damage looks like equality: {answer.out[:500]}")
        if (answer.code, heads(answer)) == (good.code, heads(good)):
            return "same"
        # A result.json that cannot be believed has no final state to compare, and the answer claims none.
        without = tuple(head.replace(" and in the final state", "") for head in heads(good))
        if (answer.code, heads(answer)) == (good.code, without):
            return "same"
        if answer.code != 2:
            raise Violation(
                f"another verdict: {heads(answer)}, code {answer.code}; it was {heads(good)}, {good.code}"
            )
        return "damaged"
    if command.judged:
        first, before = answer.out.partition("\n")[0], good.out.partition("\n")[0]
        if answer.code == 2 and not first:
            return "damaged"
        if first == before:
            return "same"
        known = [verdict_in(each.out) for each in (good, others) if each is not None]
        # Nor has it one where runs are judged together; of a result.json that is gone nothing but that can be said.
        known += [verdict.replace(" and the final state", "") for verdict in known]
        if verdict_in(answer.out) not in known:
            raise Violation(f"another verdict: {first!r}; it was {before!r}")
        if first == before.replace(" and the final state", ""):
            return "same"
        if not answer.err.strip():
            raise Violation(f"a run is left out without a word: {first!r}; it was {before!r}")
        return "others"
    return "damaged" if answer.code == 2 else "same" if answer.out == good.out else "else"


def verdict_in(text: str) -> str:
    """The first line of `text` without how many runs there were of how many ranks, and what follows from so many."""
    line = re.sub(r"\d+ runs? on [\d, ]+ ranks?", "runs", text.partition("\n")[0])
    line = re.sub(r"; \d+ runs? (left out|with damaged or missing files)", "", line)
    return re.sub(
        r" \((\d+) of \d+ differ[^)]*\)", lambda match: "" if match[1] == "0" else " (some differ)", line
    )


def require_code(answer: Said) -> None:
    """Raises Violation for an exit code that is neither a verdict nor said to be none."""
    if answer.code not in (0, 2, 3):
        raise Violation(f"exit code {answer.code}: {answer.err[-500:]}")
    if answer.code == 2 and not answer.err.strip():
        raise Violation("exit code 2 without a word")


def heads(answer: Said) -> tuple[str, ...]:
    """The lines of `divergence` that are verdicts."""
    return tuple(re.findall(rf"^.*(?:{EQUAL}|{DIFFERS}).*$", answer.out, re.MULTILINE))
