"""The JSON documents of `plan` and `status` (docs/how-to/campaigns.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jobs.plan import Plan, Task
from jobs.predicted import Predicted
from jobs.state import (
    CHECK_FAILED,
    DONE,
    FAILED,
    FINISHED,
    INTERRUPTED,
    LEFT,
    RUNNING,
    TO_RETRY,
    Standing,
    measured,
)
from kernels import __version__
from kernels.as_json import Document, columns, rows

if TYPE_CHECKING:  # submission needs PSI/J, which not everyone has
    from jobs.submit import State

SCHEMA = 1  # version of both documents; increase it when a key is removed or changes its meaning, not for a new key

_BOTH = """
    campaign | text | its name
    file out | text | paths of the file and of the directory
    site | text | `local` or the site
"""
_STATES = (DONE, CHECK_FAILED, FAILED, TO_RETRY, INTERRUPTED, RUNNING, LEFT)
_MEANING = (
    "Times are in seconds. Doubts about journals go to standard error. The states are "
    + ", ".join(f"`{state}`" for state in _STATES)
    + "; `check failed` is finished, `failed` is for good"
)
DOCUMENTS = {
    "jobs plan": Document(
        columns(
            _BOTH
            + """
            node_hours | number | at most, in all
            budget_node_hours | number | null without a budget
            within_budget | boolean | it would be submitted
            mixed_nodes | text | a sentence if jobs may get nodes of several kinds; else empty
        """
        ),
        (
            rows(
                "allocations",
                "an allocation",
                """
            allocation | integer | its number, from 0
            tasks done | integer | how many
            nodes | integer
            limit_s | integer, s
            node_hours | number
            """,
            ),
            rows(
                "tasks",
                "the tasks, in the order in which they run",
                """
            id | text | also the name of its directory
            app state | text
            ranks seed allocation threads nodes repeats retries | integer
            limit_s | integer, s
            took_s | number, s | the longest measured
            predicted | object? | with `--predictions` or `--calibration`: `median_s`, `low_s`, `high_s` per step,
              `clock`, `model`, `source`; with `--calibration` also `total_s` of the steps of all repeats, or
              `unpriced` alone, why the plan has no price
            options | object | `"section.name": value`
            line | integer | of its `[[runs]]`
            """,
            ),
        ),
        _MEANING,
    ),
    "jobs status": Document(
        columns(
            _BOTH
            + """
            states | object | how many tasks are in which state, without states that no task is in
            jobs_error | text? | why the batch system could not be asked
        """
        ),
        (
            rows(
                "allocations",
                "an allocation",
                """
            allocation | integer | its number, from 0
            tasks | integer | how many
            states | object | as above
            """,
            ),
            rows(
                "tasks",
                "the tasks",
                """
            id | text | also the name of its directory
            app state reason | text
            ranks seed allocation | integer
            attempts | list of object | that ended: `attempt`, `outcome`, `reason`, `code`, `took_s`, `ended` (UTC),
              `moved` (below `out`, or empty)
            """,
            ),
            rows(
                "jobs",
                "the submitted jobs",
                """
            id name | text
            state | text | PSI/J's word, or `UNKNOWN`
            message | text
            """,
            ),
        ),
        _MEANING,
    ),
}


def plan_document(
    plan: Plan, standings: Sequence[Standing], predicted: Predicted | None = None
) -> dict[str, Any]:
    """The document of `plan`: tasks in their order, the most that they can cost, states, and `predicted` times."""
    known = measured(standings)
    states = {s.task.id: s.state for s in standings}
    budget = plan.campaign.budget_node_hours
    return _head(plan, "jobs plan") | {
        "node_hours": plan.node_hours(),
        "budget_node_hours": budget,
        "within_budget": budget is None or plan.node_hours() <= budget,
        "mixed_nodes": plan.mixed,
        "allocations": [
            {
                "allocation": k,
                "tasks": len(own),
                "done": sum(states[task.id] in FINISHED for task in own),
                "nodes": plan.nodes,
                "limit_s": plan.seconds[k],
                "node_hours": plan.node_hours(k),
            }
            for k in range(plan.campaign.allocations)
            for own in [plan.of(k)]
        ],
        "tasks": [
            _task(task)
            | {
                "threads": task.threads,
                "nodes": plan.nodes_of(task),
                "repeats": task.repeats,
                "retries": task.retries,
                "limit_s": task.seconds,
                "took_s": known.get(task.configuration),
                "predicted": predicted.document(task) if predicted else None,
                "options": dict(task.options),
                "line": task.line,
                "state": states[task.id],
            }
            for task in plan.tasks
        ],
    }


def status_document(
    plan: Plan, standings: Sequence[Standing], jobs: Sequence[State], jobs_error: str | None
) -> dict[str, Any]:
    """The document of `status`: counts of tasks by state, every task with its attempts, the jobs of the batch system.

    `jobs_error` is the reason why the batch system could not be asked."""
    return _head(plan, "jobs status") | {
        "states": Counter(s.state for s in standings),
        "allocations": [
            {"allocation": k, "tasks": len(own), "states": Counter(s.state for s in own)}
            for k in range(plan.campaign.allocations)
            for own in [[s for s in standings if s.task.allocation == k]]
        ],
        "tasks": [
            _task(s.task)
            | {
                "state": s.state,
                "reason": s.reason,
                "attempts": [
                    {
                        "attempt": end.attempt,
                        "outcome": end.outcome,
                        "reason": end.reason,
                        "code": end.code,
                        "took_s": end.seconds,
                        "ended": end.at,
                        "moved": end.moved,
                    }
                    for end in s.record.ended
                ],
            }
            for s in standings
        ],
        "jobs": [
            {"id": job.id, "name": job.name, "state": job.state, "message": job.message} for job in jobs
        ],
        "jobs_error": jobs_error,
    }


def _head(plan: Plan, command: str) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "command": command,
        "version": __version__,
        "campaign": plan.campaign.name,
        "file": str(plan.campaign.path),
        "out": str(plan.campaign.out),
        "site": plan.site,
    }


def _task(task: Task) -> dict[str, Any]:
    return {
        "id": task.id,
        "app": task.app,
        "ranks": task.ranks,
        "seed": task.seed,
        "allocation": task.allocation,
    }
