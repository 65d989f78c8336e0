"""Reads predicted times per step of tasks from a ledger, or from one prediction."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs import applications
from jobs.campaign import CampaignError
from jobs.plan import Plan, Task
from miniapps.untrusted.ledger import read_ledger
from miniapps.untrusted.prediction import Prediction, read_prediction

HASH_SHOWN = 12  # characters


@dataclass(frozen=True)
class Predicted:
    """Predictions for tasks: `by_task` {task id: (prediction, its file and line)}; `words` describes their source."""

    by_task: dict[str, tuple[Prediction, str]]
    words: str

    def of(self, tasks: Sequence[Task]) -> str:
        """The median in ms with its 80 % interval, for the first of `tasks` with a prediction; `-` if none has one."""
        known = [self.by_task[task.id][0] for task in tasks if task.id in self.by_task]
        if not known:
            return "-"
        low, high = known[0].interval
        span = f"{1e3 * known[0].median:.3g} ms ({1e3 * low:.3g} to {1e3 * high:.3g})"
        some = f", {len(known)} of {len(tasks)} tasks" if len(known) < len(tasks) else ""
        clock = " of CPU time" if known[0].clock == "cpu" else ""
        return f"{span}{clock}{some}"

    def document(self, task: Task) -> dict[str, Any] | None:
        """The prediction for a task as a JSON object; None if there is none."""
        if task.id not in self.by_task:
            return None
        prediction, source = self.by_task[task.id]
        low, high = prediction.interval
        return {"median_s": prediction.median, "low_s": low, "high_s": high, "clock": prediction.clock,
                "model": prediction.model, "source": source}  # fmt: skip


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
