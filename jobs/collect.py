"""From the runs of a campaign to the report on them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from jobs.plan import Plan
from jobs.state import FINISHED, StateError, survey
from jobs.tables import failures_text, shown


def collect(
    plan: Plan, say: Callable[[str], None], output: Path | None = None, results: Path | None = None
) -> int:
    """Say what is missing and which attempts failed, and write the report on all that is in the directory of the
    campaign, failed attempts among it; the exit code of `python -m analysis report`. Raises StateError."""
    out = shown(plan.campaign.out)
    standings = survey(out, plan.tasks)
    missing = [s for s in standings if s.state not in FINISHED]
    if len(missing) == len(standings):
        raise StateError(f"{out}: none of {len(standings)} tasks is finished; run the campaign first")
    say(
        f"{len(standings) - len(missing)} of {len(standings)} tasks finished"
        + (", missing:" if missing else "")
    )
    for standing in missing:
        say(f"  {standing.task.id}  {standing.state}" + (f": {standing.reason}" if standing.reason else ""))
    if failed := failures_text(plan, standings):
        say(failed)
    known = {s.task.id for s in standings} | {"failed", "jobs", "logs", "state"}
    if foreign := sorted(
        d.name for d in out.iterdir() if d.is_dir() and d.name not in known and d.name[0] != "."
    ):
        say(
            f"not of this campaign as it is now, but in the report, because they are in {out}: {', '.join(foreign)}"
        )
    command = [sys.executable, "-m", "analysis", "report", str(out), "-o", str(output or out / "report.html")]
    if results:
        command += ["--results", str(results)]
    return subprocess.run(command, stdin=subprocess.DEVNULL).returncode
