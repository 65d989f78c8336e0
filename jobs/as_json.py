"""Plan and status for programs: what docs/how-to/campaigns.md describes, as values that JSON holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jobs.plan import Plan, Task
from jobs.predicted import Predicted
from jobs.state import FINISHED, Standing, measured

if TYPE_CHECKING:  # submission needs PSI/J, which not everyone has
    from jobs.submit import State

SCHEMA = 1  # of both documents; a key that goes or means something else counts it up, a new one does not


def plan_document(
    plan: Plan, standings: Sequence[Standing], predicted: Predicted | None = None
) -> dict[str, Any]:
    """What is run, in which order, what it may cost at most, what is done already, and what was `predicted`."""
    known = measured(standings)
    states = {s.task.id: s.state for s in standings}
    budget = plan.campaign.budget_node_hours
    return _head(plan) | {
        "node_hours": plan.node_hours(),
        "budget_node_hours": budget,
        "within_budget": budget is None or plan.node_hours() <= budget,
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
    """How many tasks are in which state, every task with its attempts, and the jobs of the batch system; `jobs_error`:
    why it could not be asked."""
    return _head(plan) | {
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


def _head(plan: Plan) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
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
