"""PSI/J's executors, changed to submit a script as it is and to say why a job waits.

PSI/J (Hategan-Marandiuc et al. 2023, "PSI/J: A portable interface for submitting, monitoring, and managing jobs")
would write a batch script of its own from a JobSpec. Ours is complete and says why each line is there, so it is what
has to run: a `SubmitScriptGenerator`, the place PSI/J has for this, hands it over unchanged. Everything else, the
commands of the schedulers, what they print and what their states mean, is PSI/J's.
"""

import subprocess

import psij
from psij.executors.batch.batch_scheduler_executor import BatchSchedulerExecutorConfig, check_status_exit_code
from psij.executors.batch.pbs import PBSJobExecutor
from psij.executors.batch.script_generator import SubmitScriptGenerator
from psij.executors.batch.slurm import SlurmJobExecutor

NEVER = (
    10**9
)  # seconds; the thread that asks for states in the background has nothing to tell a command that ends


class Verbatim(SubmitScriptGenerator):
    """Hands over `text`, a finished batch script."""

    def __init__(self, config, text):
        super().__init__(config)
        self.text = text

    def generate_submit_script(self, job, context, out):
        out.write(self.text)


class Slurm(SlurmJobExecutor):
    """PSI/J's executor for Slurm, which also sees the elements of arrays and the reasons of pending jobs.

    PSI/J 0.9.11 asks squeue for the first 20 characters of the reason, splits at blanks and stops at a reason that is
    not in its table ("Nodes required for job are DOWN, DRAINED ..." is all three), and takes an array for finished.
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
    """PSI/J's executor for a scheduler of EXECUTORS; it writes what it submits, `script`, below `directory`."""
    config = BatchSchedulerExecutorConfig(
        work_directory=directory, initial_queue_polling_delay=NEVER, keep_files=True
    )
    psij_executor = EXECUTORS[scheduler](config=config)
    psij_executor.generator = Verbatim(config, script)
    return psij_executor


def submit(scheduler, directory, name, script):
    """Submit `script` (str); return the scheduler's id (str) and the file that was handed over (Path).

    Raises psij.SubmitException with what the scheduler said, OSError where the file cannot be written.
    """
    psij_executor = executor(scheduler, directory, script)
    job = psij.Job(psij.JobSpec(name=name, executable="/bin/bash"))
    psij_executor.submit(job)
    return job.native_id, psij_executor.work_directory / f"{job.id}.job"


def statuses(scheduler, ids, directory):
    """The scheduler's psij.JobStatus of the jobs `ids` and of elements of arrays, by native id.

    Raises RuntimeError with what the scheduler said, OSError where its program cannot be started.
    """
    psij_executor = executor(scheduler, directory)
    asked = subprocess.run(psij_executor.get_status_command(ids), capture_output=True, text=True, timeout=60)
    return psij_executor.parse_status_output(asked.returncode, asked.stdout or asked.stderr)
