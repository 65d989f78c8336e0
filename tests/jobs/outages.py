"""Drawn campaigns under a real Slurm whose jobs, daemons and launcher are cut off at drawn moments; whether each task
comes to its one end.

    .venv/bin/python -m tests.jobs.outages --cases 50 [--seed 1] [--lanes 6]

A campaign has one to three tasks of a second or two; some of them fail by themselves. It is submitted until nothing is
left of it. Three things may not be: that an honest task has a failed attempt, that a task has two results, that a
finished task is not whole. A task that fails by itself must have failed as often as it may.
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from pathlib import Path

from jobs.campaign import read
from jobs.plan import job, plan
from jobs.render import render
from jobs.sites import site
from jobs.state import DONE, FAILED, FINISHED, State, look, survey
from miniapps.untrusted.result import read_result
from tests.jobs.slurm import start
from tests.launch import ROOT

# Jobs of the partition `debug` are preempted after three seconds, and Slurm looks often: it has minutes by itself.
SETTINGS = """ PriorityTier=1 PreemptMode=REQUEUE GraceTime=3
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=9 PreemptMode=OFF
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdTimeout=8
SlurmctldTimeout=8
InactiveLimit=0
MessageTimeout=4
"""
SITE = """\
scheduler = "slurm"
page = "https://slurm.schedmd.com/sbatch.html"
date = 2026-11-21
launch = ["{folder}/srun --mpi=pmi2 --nodes={{nodes}} --ntasks={{ranks}} --ntasks-per-node={{ranks_per_node}}", ""]
"""
# Refuses, as srun does in a job that ends, until the time in the file `until`.
SRUN = """\
#!/bin/sh
[ "$(date +%s)" -ge "$(cat {folder}/until)" ] && exec srun "$@"
echo "srun: error: Unable to create step for job $SLURM_JOB_ID: Job/step already completing or completed" >&2
exit 1
"""
HEAD = """\
name = "c"
out = "out"
[sites.cluster]
ranks_per_node = 2
[defaults]
time = "00:02:00"
retries = {retries}
"""
TASK = """
[[runs]]
app = "reductions"
ranks = {ranks}
seeds = {seed}
options = {{ "problem.sizes" = {size}, "problem.arrays" = 1, "method.samples" = 2, "method.variants" = "sptr"{more} }}
"""
FAULTS = ('"run.fault" = "raise@step=1,rank=0"', '"run.fault" = "kill@step=1,rank=0"')
ITS_OWN = ("limit", "cancel", "requeue", "refuse", "step", "runner", "nothing")
# These hit all campaigns that run at the time, so they are drawn less often.
OF_ALL = ("preempt", "controller", "node")
SUBMISSIONS = 12  # of one campaign, the last half of them undisturbed
URGENT = ("--partition=urgent", "--ntasks=8", "--output=/dev/null", "--wrap=sleep 2")
GONE = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "PREEMPTED", "gone")


class Disturbed:
    """A Slurm that several campaigns share, what happened to it, and who disturbs all of them now."""

    def __init__(self, slurm):
        self.slurm = slurm
        self.one = threading.Lock()
        self.events = Counter()

    def command(self, *argv):
        """What a command prints; "" where Slurm is away."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.slurm.command(*argv, check=False)
        return ""

    def state(self, number):
        """The state of a job; `gone` where Slurm knows it no more, `away` where Slurm does not answer."""
        text = self.command("scontrol", "show", "job", "--oneliner", number)
        if "Invalid job id" in text:
            return "gone"
        fields = dict(word.split("=", 1) for word in text.split() if "=" in word)
        if fields.get("Reason") in ("BeginTime", "Prolog") and fields.get("JobState") == "PENDING":
            self.command(
                "scontrol", "update", f"JobId={number}", "StartTime=now"
            )  # it would wait two minutes
        if fields.get("JobState") == "PENDING" and "DRAIN" in fields.get("Reason", ""):
            # A controller that lost its last seconds finds jobs that it did not start, and drains their node.
            self.command("scontrol", "update", f"NodeName={self.slurm.hosts[0]}", "State=RESUME")
        if fields.get("JobState") == "PENDING" and "held" in fields.get("Reason", ""):
            self.command("scontrol", "release", number)
        return fields.get("JobState", "away")

    def restart(self, name, seconds):
        """Kill a daemon, and start it again."""
        daemon = self.slurm.daemons[name]
        daemon.kill()
        time.sleep(seconds)
        daemon.begin()
        end = time.monotonic() + 60
        while "is UP" not in self.command("scontrol", "ping") and time.monotonic() < end:
            time.sleep(0.5)


class Campaign:
    """A drawn campaign in `folder`: its file, its site, its batch script, and which of its tasks fail by themselves."""

    def __init__(self, draw, folder):
        self.draw, self.folder = draw, folder
        folder.mkdir()
        self.until = folder / "until"
        self.until.write_text("0")
        (folder / "srun").write_text(SRUN.format(folder=folder))
        (folder / "srun").chmod(0o755)
        (folder / "cluster.toml").write_text(SITE.format(folder=folder))
        self.retries = draw.choice((0, 1, 1, 2))
        text = HEAD.format(retries=self.retries)
        for index in range(draw.choice((1, 2, 2, 3))):
            more = f", {draw.choice(FAULTS)}" if draw.random() < 0.2 else ""
            text += TASK.format(
                ranks=draw.choice((1, 1, 2)), seed=index + 1, size=draw.choice((50, 2000)), more=more
            )
        (folder / "campaign.toml").write_text(text)
        where = site(str(folder / "cluster.toml"))
        self.plan = plan(read(folder / "campaign.toml"), where, str(folder / "cluster.toml"))
        script = render(job(self.plan, environment=sys.prefix), where)
        (folder / "job.sh").write_text(
            script.replace("python -m miniapps doctor", "true")
        )  # costs more than a task
        State(self.plan.campaign.out, 0).create()

    def standings(self):
        return survey(self.plan.campaign.out, self.plan.tasks)

    def over(self):
        return all(standing.over for standing in self.standings())

    def wrong(self):
        """Sentences on what may not be."""
        out, found = self.plan.campaign.out, []
        for standing in self.standings():
            task, record = standing.task, standing.record
            fails = any(name == "run.fault" for name, _ in task.options)
            results = [out / task.id, *out.glob(f"failed/{task.id}.*")]
            whole = [run for run in results if _status(run) == "done"]
            if not standing.over:
                found.append(
                    f"{task.id} is {standing.state} after {SUBMISSIONS} submissions: {standing.reason}"
                )
            if not fails and record.failures:
                found.append(f"{task.id} did not fail: {[(e.code, e.reason) for e in record.failures]}")
            if len(whole) > 1 or sum(end.outcome in FINISHED for end in record.ended) > 1:
                found.append(f"{task.id} ran twice to its end: {whole}")
            if standing.state == DONE and (verdict := look(out / task.id, task.ranks))[0] != DONE:
                found.append(f"{task.id} is counted as done: {verdict}")
            if fails and (standing.state != FAILED or len(record.failures) != self.retries + 1):
                found.append(f"{task.id} fails by itself: {standing.state}, {len(record.failures)} failures")
        return found


def _status(run):
    with contextlib.suppress(Exception):
        return read_result(run).status
    return None


def run_campaign(seed, folder, disturbed):
    """Submit a drawn campaign until nothing is left; (sentences on what is wrong, number of submissions)."""
    draw = random.Random(seed)
    campaign = Campaign(draw, folder)
    for count in range(SUBMISSIONS):
        if campaign.over():
            break
        number = ""
        while not number.isdigit():
            number = disturbed.command("sbatch", "--parsable", f"--chdir={folder}", folder / "job.sh").strip()
            time.sleep(0.3)
        event = (
            draw.choice(OF_ALL if draw.random() < 0.25 else ITS_OWN)
            if count < SUBMISSIONS // 2
            else "nothing"
        )
        pause = draw.choice((0.2, 1, 2, 3, 4, 6)) * draw.random() * 2
        seconds = draw.uniform(1, 12)
        while disturbed.state(number) in ("PENDING", "CONFIGURING", "away"):
            time.sleep(0.5)
        time.sleep(pause)
        disturb(event, number, seconds, campaign, disturbed)
        while disturbed.state(number) not in GONE:
            time.sleep(0.7)
    return campaign.wrong(), count


def disturb(event, number, seconds, campaign, disturbed):
    """Let one thing happen to a job, to Slurm or to the launcher."""
    disturbed.events[event] += 1
    slurm = disturbed.slurm
    if event == "limit":
        disturbed.command("scontrol", "update", f"JobId={number}", f"EndTime=now+{1 + int(seconds / 4)}")
    elif event == "cancel":
        disturbed.command("scancel", number)
    elif event == "requeue":
        disturbed.command("scontrol", "requeue", number)
    elif event == "step":
        disturbed.command("scancel", "--signal=TERM", f"{number}.{campaign.draw.choice((1, 2))}")
    elif event == "refuse":
        campaign.until.write_text(str(int(time.time() + seconds)))
    elif event == "runner":
        held = None
        with contextlib.suppress(Exception):
            held = State(campaign.plan.campaign.out, 0).holder()
        if held is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(held.pid, signal.SIGKILL)
    elif event in OF_ALL:
        with disturbed.one:
            if event == "preempt":
                urgent = disturbed.command("sbatch", "--parsable", *URGENT).strip()
                while urgent.isdigit() and disturbed.state(urgent) not in GONE:
                    time.sleep(0.5)
            else:
                name = "slurmctld" if event == "controller" else f"slurmd-{slurm.hosts[0]}"
                disturbed.restart(name, seconds)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lanes", type=int, default=6, help="campaigns at a time (6)")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no campaign after so many")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="fpna-outages-"))  # kept: it has what a wrong campaign left
    folder.chmod(0o755)
    sys.exit(run_all(options, folder))


def run_all(options, folder):
    """Run all campaigns; 1 if anything is wrong."""
    cases, bad, submitted, done = iter(range(options.cases)), [], Counter(), 0
    begin, lock = time.monotonic(), threading.Lock()
    (folder / "slurm").mkdir(mode=0o755)
    with start(folder / "slurm", settings=SETTINGS) as slurm:
        slurm.environment.update(PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1")
        disturbed = Disturbed(slurm)

        def lane():
            nonlocal done
            while time.monotonic() - begin < 60 * options.minutes:
                with lock:
                    case = next(cases, None)
                if case is None:
                    return
                seed = f"{options.seed} {case}"
                try:
                    wrong, count = run_campaign(seed, folder / f"c{case}", disturbed)
                except Exception:
                    wrong, count = [traceback.format_exc()], -1
                with lock:
                    done += 1
                    submitted[count] += 1
                    bad.extend(f"{seed}: {sentence}" for sentence in wrong)
                    for sentence in wrong:
                        print(f"case {case}: {folder / f'c{case}'}: {sentence}", flush=True)
                    print(f"{done} campaigns, {len(bad)} wrong, {time.monotonic() - begin:.0f} s", flush=True)

        lanes = [threading.Thread(target=lane, daemon=True) for _ in range(options.lanes)]
        for thread in lanes:
            thread.start()
        for thread in lanes:
            thread.join()
    print(f"{done} campaigns of seed {options.seed}, {len(bad)} wrong; submissions {dict(sorted(submitted.items()))}, "
          f"events {dict(disturbed.events)}")  # fmt: skip
    return 1 if bad else 0


if __name__ == "__main__":
    main()
