"""Makes the report on the runs of a campaign."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from jobs.plan import Plan
from jobs.state import FINISHED, StateError, survey
from jobs.tables import failures_text, short
from jobs.words import cut
from miniapps.system.python import module
from miniapps.untrusted.regular import Refused, kind_of
from miniapps.untrusted.text import printable


def collect(
    plan: Plan,
    say: Callable[[str], None],
    output: Path | None = None,
    results: Path | None = None,
    quiet: bool = False,
) -> int:
    """Lists missing tasks and failed attempts, and writes the report; returns its exit code.

    The exit code is that of `python -m analysis report`. The report covers all runs in the directory of the campaign,
    failed attempts too. `quiet`: its tables are not printed. Raises StateError, Refused."""
    out = short(plan.campaign.out)
    standings = survey(out, plan.tasks, doubt=say)
    missing = [s for s in standings if s.state not in FINISHED]
    if len(missing) == len(standings):
        raise StateError(f"{out}: none of {len(standings)} tasks is finished; run the campaign first")
    if missing or not quiet:
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
        names = cut(", ".join(foreign))
        say(f"not of this campaign as it is now, but in the report, because they are in {out}: {names}")
    report = output or out / "report.html"
    if output is None and (kind := kind_of(report)):
        raise Refused(
            f"{printable(str(report))}: is {kind}, and the report is not written there; move it away, or name another "
            "file with -o"
        )
    command = module("analysis", "report", str(out), f"--output={report}")
    if results:
        command.append(f"--results={results}")
    shown = subprocess.DEVNULL if quiet else None
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=shown).returncode
