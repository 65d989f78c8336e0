"""Predicted times per step of tasks: from a ledger, from one prediction, or from plans that a calibration prices."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from jobs import applications
from jobs.campaign import CampaignError
from jobs.plan import Plan, Task
from jobs.words import cut
from miniapps.errors import UsageError
from miniapps.untrusted.ledger import read_ledger
from miniapps.untrusted.prediction import Prediction, read_prediction
from miniapps.untrusted.program import Program

HASH_SHOWN = 12  # characters
NO_PLAN, NO_PRICE = "no plan", "no price"


@dataclass(frozen=True)
class Predicted:
    """Predictions for tasks: `by_task` {task id: (prediction, its file and line)}; `words` describes their source.

    Of tasks whose plans were priced: `steps` {task id: steps of all repeats}, and `unpriced` {task id: (NO_PLAN or
    NO_PRICE, the reason)}."""

    by_task: dict[str, tuple[Prediction, str]]
    words: str
    steps: dict[str, int] = field(default_factory=dict)
    unpriced: dict[str, tuple[str, str]] = field(default_factory=dict)

    def of(self, tasks: Sequence[Task]) -> str:
        """The median in ms with its 80 % interval, for the first of `tasks` with a prediction; else why the first
        has none, in two words, or `-`."""
        known = [self.by_task[task.id][0] for task in tasks if task.id in self.by_task]
        if not known:
            return self.unpriced.get(tasks[0].id, ("-", ""))[0]
        low, high = known[0].interval
        within = f"{1e3 * low:.3g} to {1e3 * high:.3g}" if low < high else "error unknown"  # a machine file's
        span = f"{1e3 * known[0].median:.3g} ms ({within})"
        some = f", {len(known)} of {len(tasks)} tasks" if len(known) < len(tasks) else ""
        clock = " of CPU time" if known[0].clock == "cpu" else ""
        return f"{span}{clock}{some}"

    def whole(self, tasks: Sequence[Task]) -> str:
        """All steps of the first of `tasks` by the median of a step; `-` without a prediction."""
        return next((f"{s:.1f} s" for s in map(self._seconds, tasks) if s is not None), "-")

    def _seconds(self, task: Task) -> float | None:
        """The seconds of all steps of all repeats of a task, by the median; None if a number is unknown."""
        if task.id not in self.by_task or task.id not in self.steps:
            return None
        return self.steps[task.id] * self.by_task[task.id][0].median

    def document(self, task: Task) -> dict[str, Any] | None:
        """The prediction for a task as a JSON object, or why its plan has no price; None if there is neither."""
        if task.id in self.unpriced:
            return {"unpriced": self.unpriced[task.id][1]}
        if task.id not in self.by_task:
            return None
        prediction, source = self.by_task[task.id]
        low, high = prediction.interval
        return {"median_s": prediction.median, "low_s": low, "high_s": high, "clock": prediction.clock,
                "model": prediction.model, "source": source,
                **({"total_s": self._seconds(task)} if task.id in self.steps else {})}  # fmt: skip


def predictions(plan: Plan, path: Path) -> Predicted:
    """The predictions for the tasks of `plan` in the file `path`: a ledger, or one prediction if it ends in .json.

    Of several predictions of a task the last counts; the wall clock takes precedence over CPU time. Raises Refused if
    the file was changed after it was written, CampaignError if it cannot be read.
    """
    known: dict[tuple, tuple[Prediction, str]] = {}
    try:
        if path.suffix == ".json":
            prediction = read_prediction(path)
            known[prediction.target] = prediction, str(path)
            words = f"one prediction, {path}"
        else:
            ledger = read_ledger(path)
            known = {
                row.prediction.target: (row.prediction, f"{path}, line {row.number}")
                for row in sorted(ledger.rows, key=lambda row: row.prediction.clock == "wall")
            }
            words = f"the ledger {path} of {len(ledger.rows)} rows, the last {ledger.head[:HASH_SHOWN]}"
    except OSError as error:
        raise CampaignError(
            f"--predictions {path}: cannot be read: {error.strerror}; give a ledger"
        ) from error
    by_task = {}
    with contextlib.chdir(plan.campaign.path.parent):  # paths in options are relative to the campaign
        for task in plan.tasks:
            if found := known.get(applications.target(task.app, task.arguments, task.ranks)):
                by_task[task.id] = found
    models = sorted({prediction.model for prediction, _ in by_task.values()})
    by = f", by {', '.join(models)}" if models else ""
    some = f"{len(by_task)} of {len(plan.tasks)} tasks"
    return Predicted(by_task, f"predicted: medians per step and 80 % intervals of {some}; from {words}{by}")


def prices(plan: Plan, calibrations: Sequence[str], machine: str | None = None) -> Predicted:
    """The prices of the plans of tasks by these calibrations, or on the `machine` that a file describes, in wall time.
    Nothing of the campaign runs: applications
    say what each rank does in a step, and `python -m analysis price` prices it. Tasks that differ only in seed and
    allocation have one price. Raises CampaignError if a calibration or the machine cannot be used, or prices no
    plan."""
    from miniapps.partition.showing.price import priced

    given = [f"--calibration {path}" for path in calibrations] + [f"--machine {machine}"] * bool(machine)
    by = " ".join([*calibrations, *([machine] if machine else [])])
    alike: dict[tuple, list[Task]] = {}
    for task in plan.tasks:
        alike.setdefault(task.configuration, []).append(task)
    programs: list[tuple[Program, int, list[Task]]] = []
    unpriced: dict[str, tuple[str, str]] = {}
    with contextlib.chdir(plan.campaign.path.parent):  # paths in options are relative to the campaign
        for tasks in alike.values():
            first, why = tasks[0], (NO_PLAN, f"{tasks[0].app} has no plan of its steps")
            try:
                found = applications.step_of(first.app, first.arguments, first.ranks)
            except applications.Refusal as error:
                found, why = None, (NO_PLAN, cut(str(error)))
            if found is None:
                unpriced |= {task.id: why for task in tasks}
            else:
                programs.append((*found, tasks))
    by_task: dict[str, tuple[Prediction, str]] = {}
    steps: dict[str, int] = {}
    if programs:
        numbered = [msgspec.structs.replace(each, title=str(k)) for k, (each, *_) in enumerate(programs)]
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory, "ledger.jsonl")
            try:
                tables = priced(numbered, calibrations, machine, ledger=str(file))["tables"]
            except UsageError as error:
                raise CampaignError(f"{' '.join(given)}: {error}") from None
            rows = read_ledger(file).rows
        for told, row in zip(tables["plans"], rows, strict=True):
            _, count, tasks = programs[int(told["title"])]
            source = f"a plan, priced by {by}"
            by_task |= {task.id: (row.prediction, source) for task in tasks}
            steps |= {task.id: count * task.repeats for task in tasks}
        for told in tables["unpriced"]:
            unpriced |= {task.id: (NO_PRICE, told["reason"]) for task in programs[int(told["title"])][-1]}
    words = [
        f"predicted: medians per step and 80 % intervals of {len(by_task)} of {len(plan.tasks)} tasks, wall time, from "
        f"their plans, without a run, priced by {by}; in all: the median for the steps of all "
        "repeats, without start, evaluations and files"
    ]
    words += [
        f"{each[0]} ({_names(task for task in plan.tasks if unpriced.get(task.id) == each)}): {each[1]}"
        for each in dict.fromkeys(unpriced.values())
    ]
    return Predicted(by_task, "\n".join(words), steps, unpriced)


def _names(tasks: Iterable[Task]) -> str:
    ranks: dict[str, dict[str, None]] = {}
    for task in sorted(tasks, key=lambda task: (task.line, task.ranks)):
        ranks.setdefault(task.app, {})[str(task.ranks)] = None
    return "; ".join(
        f"{app} on {', '.join(counts)} rank{'s' * (list(counts) != ['1'])}" for app, counts in ranks.items()
    )
