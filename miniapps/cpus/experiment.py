"""The launches of `fpna cpus`: ordinary ones, one per level of each layer, one per kind of processor, and those that
show which settings hold the program to one result."""

from __future__ import annotations

import os
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from miniapps.cpus import asking, dispatch, launches
from miniapps.cpus.asking import Answers
from miniapps.cpus.launches import Emulator, Launch, Plan
from miniapps.cpus.outcomes import Clocks, Difference, Unrepeated, digest, first_difference, unrepeated
from miniapps.errors import UsageError
from miniapps.launching import TIMEOUT_S
from miniapps.system.layers import (
    LAYERS,
    NEEDS,
    NUMPY,
    PROCESSORS,
    beside,
    level_here,
    numpy_levels,
    together,
)
from miniapps.system.layers import processor as of_kind

EQUAL, DIFFERS = "equal", "differs"
FAILED = "failed"  # the program, under the setting
HERE = "here"  # this processor chooses the same without the setting
NEWER = "newer"  # than this processor
NOT_HELD = "not held"  # the library, or the program, ignores the setting
UNSTEADY = "unsteady"  # two launches under the setting differ
UNSURE = "unsure"  # only numbers beside a word of time differ
TOLD = (EQUAL, DIFFERS, HERE)  # states that tell something of processors
STARTS = re.compile(r"(mpirun|mpiexec|hydra_|orte|prte|prun|srun|aprun|jsrun|ibrun)")  # names of launchers


@dataclass(frozen=True)
class Row:
    """One line of the table: a `layer` held to a `level`, or (layer empty) all layers as on the processor `level`; the
    `variables` that do it, what the library `chose`, the `state`, the first `difference` and `why`."""

    layer: str
    level: str
    variables: Mapping[str, str]
    chose: str
    state: str
    difference: Difference | None = None
    why: str = ""


@dataclass(frozen=True)
class Held:
    """Variables under which the program has one result with every level: the `result` as a hash, the first `difference`
    of launches that contradict it, and the ratio `cost` of processor times, None for too short a program."""

    variables: Mapping[str, str]
    result: str
    difference: Difference | None
    cost: float | None

    @property
    def holds(self) -> bool:
        """Whether no launch contradicts it."""
        return self.difference is None


@dataclass
class Found:
    """Everything that the launches showed. `layers`: the loaded ones; `chose`: what they chose without settings;
    `unheld`: what chooses code for numbers and no setting holds it; `asking`: other files that ask the processor;
    `unanswered`: programs that did not tell their libraries; `differing`: what differs between ordinary launches;
    `result`: the hash of the ordinary result; `wall`: seconds of the second launch."""

    layers: list[str] = field(default_factory=list)
    chose: dict[str, str] = field(default_factory=dict)
    unheld: list[str] = field(default_factory=list)
    asking: list[str] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)
    differing: Unrepeated = field(default_factory=Unrepeated)
    rows: list[Row] = field(default_factory=list)
    emulated: list[Row] = field(default_factory=list)
    held: Held | None = None
    wall: float = 0.0
    launches: int = 0
    result: str = ""


QEMU_ROW = "qemu"  # the layer of rows of emulated processors
SAME = "this processor chooses the same"
APART_S = 1.1  # between the first two launches, so that a time of day in whole seconds differs
SHORT_S = 0.2  # of processor time: a shorter program has no measured cost


class _Trials:
    """Launches one program, and compares launches with the first, ordinary one."""

    def __init__(
        self, plan: Plan, folder: Path, leave_out: Sequence[str], show: Callable[[float, str], None]
    ):
        self.plan, self.folder, self.leave_out, self.show = plan, folder, leave_out, show
        self.count, self.expected = 0, 10
        self.clocks: Clocks = {}
        self.unsure: dict[tuple[str, str], Launch] = {}
        self.first = self.launch("the program as it is")
        self.usual = self.first.answers
        if self.first.outcome.code:
            raise UsageError(f"the program ended with {self.first.outcome.code}{self.said(self.first)}")

    def launch(self, name: str, held: Mapping[str, str] | None = None, model: str = "") -> Launch:
        """One launch with the variables `held`, under qemu as `model` if this is not empty."""
        self.show(self.count / max(self.expected, self.count + 1), name)
        self.count += 1
        place = _place_of_program(self.plan.command, self.usual.programs) if model else 0
        emulator = Emulator(model, place) if model else None
        launched = launches.launch(self.plan, self.folder / str(self.count), held or {}, emulator)
        if not model:
            asking.ask_interpreters(launched.answers, beside(os.environ, held or {}))
        return launched

    def compared(self, one: Launch, other: Launch) -> Difference | None:
        return first_difference(one.outcome, other.outcome, self.leave_out, self.clocks)

    def result(self, launched: Launch) -> str:
        return digest(launched.outcome, self.leave_out, self.clocks)

    def said(self, launched: Launch) -> str:
        """The end of a failed launch's messages, and a hint."""
        said = f":\n{launched.errors}" if launched.errors else ""
        if self.plan.input is None and "EOF" in launched.errors:
            said += "\n(its standard input is empty; give it a file: --input FILE)"
        return said

    def row(self, layer: str, level: str, held: Mapping[str, str], host: int) -> Row:
        """Launch with a layer, or with all of them if `layer` is empty, held to a level."""
        name = f"{layer or 'all layers'} as of {level}"
        launched = self.launch(name, held)
        chose = launched.answers.of(layer) if layer else ""
        if layer and (ignored := _ignored(layer, held, self.usual, launched, host, level)):
            return Row(layer, level, held, chose, ignored[0], why=ignored[1])
        found = self.judged(layer, level, held, chose, launched)
        if found.state in (DIFFERS, UNSURE):
            again = self.launch(f"{name}, again", held)
            unsteady = self.learned(launched, again)
            self.drop(again)
            if unsteady:
                return replace(found, state=UNSTEADY, difference=unsteady)
            found = self.judged(layer, level, held, chose, launched)
        if found.state != UNSURE:
            self.drop(launched)
        return found

    def drop(self, launched: Launch) -> None:
        """Removes what a launch wrote, unless all launches are to stay."""
        if not self.plan.stay:
            shutil.rmtree(launched.outcome.printed.parent, ignore_errors=True)

    def learned(self, one: Launch, other: Launch) -> Difference | None:
        """The first difference of two launches with the same settings. Lines that differ and have a word of time are
        left out from now on."""
        found = unrepeated(one.outcome, other.outcome, self.leave_out)
        for name, lines in found.clocks.items():
            self.clocks.setdefault(name, set()).update(lines)
        return found.others[0] if found.others else None

    def judged(self, layer: str, level: str, held: Mapping[str, str], chose: str, launched: Launch) -> Row:
        """The row of a launch by its result."""
        if launched.outcome.code:
            difference = Difference("exit code", "0", str(launched.outcome.code))
            return Row(layer, level, held, chose, FAILED, difference, self.said(launched))
        found = self.compared(self.first, launched)
        state = EQUAL if found is None else UNSURE if found.doubtful else DIFFERS
        row = Row(layer, level, held, chose, state, found)
        if state == UNSURE:
            self.unsure[layer, level] = launched
        return row

    def sure(self, rows: list[Row]) -> list[Row]:
        """`rows`, in which the unsure ones are judged again by what the launches since have shown of times."""
        return [
            self.judged(row.layer, row.level, row.variables, row.chose, self.unsure[row.layer, row.level])
            if row.state == UNSURE and (row.layer, row.level) in self.unsure else row
            for row in rows
        ]  # fmt: skip


def experiment(
    plan: Plan,
    folder: Path,
    leave_out: Sequence[str],
    models: Sequence[str],
    show: Callable[[float, str], None],
) -> Found:
    """Launch as often as the answer needs. `models`: processors that qemu emulates. `show(fraction, text)` tells the
    progress. Raises UsageError if the program fails, or does not end."""
    begin = time.time()
    trials = _Trials(plan, folder, leave_out, show)
    time.sleep(max(0.0, APART_S - (time.time() - begin)))
    ordinary = [trials.first, trials.launch("the program again")]
    # Not the first launch's, in which programs may compile what they keep.
    answers = trials.usual = ordinary[1].answers
    numbers, others = dispatch.unheld(
        answers.loaded, answers.programs or [shutil.which(plan.command[0]) or ""]
    )
    found = Found(
        layers=answers.layers,
        chose={layer: answers.of(layer) for layer in answers.layers},
        unheld=numbers,
        asking=others,
        unanswered=_unanswered(plan.command, answers),
        differing=unrepeated(ordinary[0].outcome, ordinary[1].outcome, leave_out),
        wall=ordinary[1].outcome.wall,
        launches=trials.count,
    )
    if found.differing.others:
        return found
    trials.clocks = found.differing.clocks
    found.result = trials.result(trials.first)
    settings = _settings(answers)
    trials.expected = 7 + sum(map(len, settings.values())) + len(PROCESSORS) + 2 * len(models)
    asked: list[tuple[str, str, Mapping[str, str], int]] = [
        (layer, level, held, NEEDS.get(level, 2))
        for layer, levels in settings.items() for level, held in levels.items()
    ]  # fmt: skip
    for kind in PROCESSORS if settings else ():
        several = [
            settings[name][level] for name, level in kind.levels.items() if level in settings.get(name, {})
        ]
        asked.append(("", kind.name, together(several), kind.needs))
    host = level_here()
    for layer, level, held, needs in asked:
        if needs > host:
            found.rows.append(Row(layer, level, held, "", NEWER, why="this processor lacks its instructions"))
        elif not layer and (wrong := _not_held(found.rows, level)):
            found.rows.append(Row(layer, level, held, "", NOT_HELD, why=f"{wrong.layer}: {wrong.why}"))
        elif not held:
            found.rows.append(Row(layer, level, held, "", HERE, why=SAME))
        elif not layer and (same := next((row for row in found.rows if row.variables == held), None)):
            found.rows.append(replace(same, layer=layer, level=level, chose=""))
        else:
            found.rows.append(trials.row(layer, level, held, host))
    for model in models:
        found.emulated.append(
            trials.judged(QEMU_ROW, model, {}, "", trials.launch(f"under qemu as {model}", model=model))
        )
    found.rows, found.emulated = trials.sure(found.rows), trials.sure(found.emulated)
    if settings and any(row.state == DIFFERS for row in [*found.rows, *found.emulated]):
        found.held = _held(trials, found, settings, ordinary, models)
    ordinary.append(trials.launch("the program as it is, once more"))
    if unsteady := trials.learned(trials.first, ordinary[-1]):
        found.differing.others.append(unsteady)
    found.rows, found.emulated = trials.sure(found.rows), trials.sure(found.emulated)
    found.launches = trials.count
    return found


def _unanswered(command: Sequence[str], answers: Answers) -> list[str]:
    """The programs of a launch that did not tell their libraries. Of a launcher that starts ranks on other nodes
    nothing is known but that only launchers answered."""
    if answers.unanswered:
        return answers.unanswered
    names = {os.path.basename(path) for path in answers.programs}
    if all(STARTS.match(name) for name in names):
        return [command[-1] if names and len(command) > 1 else command[0]]
    return []


def effective(command: tuple[str, ...]) -> list[tuple[str, str, Mapping[str, str]]]:
    """(layer, level, variables) of each setting that makes a library of a program choose other code on this processor;
    `command` starts a program that loads the libraries. Raises UsageError."""
    with tempfile.TemporaryDirectory(prefix="fpna-cpus-", ignore_cleanup_errors=True) as scratch:
        plan = Plan(command, launches.EMPTY, None, TIMEOUT_S, asking.library())
        trials = _Trials(plan, Path(scratch), (), lambda done, text: None)
        host, found = level_here(), []
        for layer, levels in _settings(trials.first.answers).items():
            for level, held in levels.items():
                if NEEDS.get(level, 2) <= host:
                    launched = trials.launch(level, held)
                    if not _ignored(layer, held, trials.usual, launched, host, level):
                        found.append((layer, level, held))
    return found


def _settings(answers: Answers) -> dict[str, Mapping[str, Mapping[str, str]]]:
    """The levels of each loaded layer, by the variables that hold it to them."""
    settings = {layer.name: layer.levels for layer in LAYERS if layer.name in answers.layers}
    if NUMPY in settings:
        settings[NUMPY] = numpy_levels(asking.dispatched(answers))
    return settings


def _held(
    trials: _Trials,
    found: Found,
    settings: Mapping[str, Mapping[str, Mapping[str, str]]],
    ordinary: Sequence[Launch],
    models: Sequence[str],
) -> Held:
    """Hold the layers that differ to their last levels, or all if the others then change the result, and launch this
    again and under qemu: the result must stay."""
    differing = {row.layer for row in found.rows if row.layer and row.state in (DIFFERS, UNSTEADY)}
    last = {layer: levels[list(levels)[-1]] for layer, levels in settings.items() if levels}
    own, every = together(held for layer, held in last.items() if layer in differing), together(last.values())
    alone, with_all = (
        trials.launch("the settings that hold it", own),
        trials.launch("all layers at their last levels", every),
    )
    if not differing or trials.compared(alone, with_all):  # a layer may matter only beside others
        own, alone = every, with_all
    others = [
        trials.launch(f"the settings that hold it, under qemu as {model}", own, model) for model in models
    ]
    others.append(trials.launch("the settings that hold it, again", own))
    against = next(filter(None, (trials.compared(alone, other) for other in others)), None)
    usual = statistics.median(each.outcome.cpu for each in ordinary)
    return Held(own, trials.result(alone), against, alone.outcome.cpu / usual if usual >= SHORT_S else None)


def _not_held(rows: Sequence[Row], processor: str) -> Row | None:
    """The first row of a layer that no setting held to its level on a processor."""
    levels = of_kind(processor).levels
    return next((row for row in rows if levels.get(row.layer) == row.level and row.state == NOT_HELD), None)


def _ignored(
    layer: str, held: Mapping[str, str], ordinary: Answers, launched: Launch, host: int, level: str
) -> tuple[str, str] | None:
    """The state and the reason if the setting `held` did not make the library choose other code; None if it did."""
    for name in held:
        values = launched.answers.variables.get(name, set())
        if values and beside(os.environ, held)[name] not in values:
            theirs = " or ".join(sorted(filter(None, values))) or "nothing"
            return NOT_HELD, f"the program itself sets {name} to {theirs}"
    answer, usual = launched.answers.of(layer), ordinary.of(layer)
    if not answer and not launched.outcome.code:
        return NOT_HELD, "the library does not say what it chose"
    if answer != usual:
        return None
    if NEEDS.get(level, 2) >= host or level.lower() in usual.lower():
        return HERE, SAME
    return NOT_HELD, "the library chose the same code with this setting as without"


def _place_of_program(command: Sequence[str], programs: Sequence[str]) -> int:
    """The place in the command of the word that names the last program that answered, behind a launcher such as mpirun;
    0 if no word does."""
    real = {os.path.realpath(program) for program in programs}
    places = [
        i for i, word in enumerate(command) if (path := shutil.which(word)) and os.path.realpath(path) in real
    ]
    return places[-1] if places else 0
