"""Adapts PSI/J's executors: they submit a script unchanged, and report the reason why a job waits.

PSI/J (Hategan-Marandiuc et al. 2023, "PSI/J: A portable interface for submitting, monitoring, and managing jobs")
writes its own batch script from a JobSpec. The script of `jobs.render` is complete and explains each line, so it must
run as it is: a `SubmitScriptGenerator`, PSI/J's interface for this, passes it on unchanged. PSI/J does all else: the
commands of schedulers, their output, and the meaning of their states.
"""

import subprocess

import psij
from psij.executors.batch.batch_scheduler_executor import BatchSchedulerExecutorConfig, check_status_exit_code
from psij.executors.batch.pbs import PBSJobExecutor
from psij.executors.batch.script_generator import SubmitScriptGenerator
from psij.executors.batch.slurm import SlurmJobExecutor

NEVER = 10**9  # seconds; the command ends before PSI/J's background thread could poll for states


class Verbatim(SubmitScriptGenerator):
    """Passes on `text`, a finished batch script."""

    def __init__(self, config, text):
        super().__init__(config)
        self.text = text

    def generate_submit_script(self, job, context, out):
        out.write(self.text)


class Slurm(SlurmJobExecutor):
    """PSI/J's executor for Slurm, which also lists elements of arrays and reasons of pending jobs.

    PSI/J 0.9.11 asks squeue for the first 20 characters of the reason, splits the line at blanks, and fails at reasons
    that are not in its table; "Nodes required for job are DOWN, DRAINED ..." breaks all three. It also takes an array
    for finished.
    """

    _NAME_ = "slurm"

    def get_status_command(self, native_ids):
        return ["squeue", "--me", "--array", "--noheader", "--states=all", "--format=%i|%t|%T|%r"]

    def parse_status_output(self, exit_code, out):
        check_status_exit_code("squeue", exit_code, out)
        statuses = {}
        for line in out.splitlines():
            number, code, state, reason = line.split("|", 3)
            message = state if reason in ("None", "") else f"{state}: {reason}"
            statuses[number] = psij.JobStatus(
                self._STATE_MAP.get(code, psij.JobState.QUEUED), message=message
            )
        return statuses


class PBS(PBSJobExecutor):
    """PSI/J's executor for PBS Professional and OpenPBS."""

    _NAME_ = "pbs"


EXECUTORS = {"slurm": Slurm, "pbs": PBS}


def executor(scheduler, directory, script=""):
    """PSI/J's executor for a scheduler of EXECUTORS; it writes the submitted `script` below `directory`."""
    config = BatchSchedulerExecutorConfig(
        work_directory=directory, initial_queue_polling_delay=NEVER, keep_files=True
    )
    psij_executor = EXECUTORS[scheduler](config=config)
    psij_executor.generator = Verbatim(config, script)
    return psij_executor


def submit(scheduler, directory, name, script):
    """Submits `script` (str); returns the scheduler's id (str) and the submitted file (Path).

    Raises psij.SubmitException with the scheduler's message, OSError if the file cannot be written.
    """
    psij_executor = executor(scheduler, directory, script)
    job = psij.Job(psij.JobSpec(name=name, executable="/bin/bash"))
    psij_executor.submit(job)
    return job.native_id, psij_executor.work_directory / f"{job.id}.job"


def statuses(scheduler, ids, directory):
    """{native id: psij.JobStatus} of the jobs `ids` and of elements of arrays, from the scheduler.

    Raises RuntimeError with the scheduler's message, OSError if its program cannot be started.
    """
    psij_executor = executor(scheduler, directory)
    asked = subprocess.run(psij_executor.get_status_command(ids), capture_output=True, text=True, timeout=60)
    return psij_executor.parse_status_output(asked.returncode, asked.stdout or asked.stderr)
