"""Ranks that are started once per MPI library and then carry out run after run.

    run = on_ranks(3, ["-m", "miniapps.coupled", "--steps", "2"])
    assert run.returncode == 0, run.stderr

Starting the ranks, Python and all that an application imports on each of them takes longer than most runs of a test.
The communicator of a run is its own; the modules are those of the runs before. So `tests.launch.run_mpi` is for what
begins or ends as no other run does: faults that end the job, signals, and one true launch of every application.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.launch import ROOT, environment, kill_tree, launcher

RANKS = (4, 8, 64)  # started: the fewest that a run can have
RANKS_ELSEWHERE = 3  # in another environment than that of all tests
SERVE = ROOT / "tests" / "mpi" / "programs" / "serve.py"
_jobs = {}


def on_ranks(n, argv, library="mpich", env=None, timeout=240, cwd=None):
    """Run `python argv...` on `n` of the ranks that are there, in this environment; otherwise as `run_mpi`."""
    started = RANKS_ELSEWHERE if env else min(ranks for ranks in RANKS if ranks >= n)
    which = library, started, *sorted((env or {}).items())
    if which in _jobs and _jobs[which].process.poll() is not None:
        _jobs.pop(which).end()
    if which not in _jobs:
        _jobs[which] = _start(library, env or {}, started)
    try:
        return _jobs[which].run(n, [str(word) for word in argv], timeout, str(cwd or ROOT))
    except BaseException:
        _jobs.pop(which).end()
        raise


def end():
    """End all ranks that wait for runs."""
    while _jobs:
        _jobs.popitem()[1].end()


@dataclass
class Job:
    """Ranks that wait for runs."""

    process: subprocess.Popen
    folder: Path
    pipes: list  # to each rank

    def run(self, n, argv, timeout, cwd):
        """The CompletedProcess of one run; where it has ended the job, with the output of that."""
        answer = self.folder / "answer"
        request = json.dumps({"ranks": n, "argv": argv, "cwd": cwd}) + "\n"
        for pipe in self.pipes[:n]:
            pipe.write(request)
            pipe.flush()
        limit, before = time.monotonic() + timeout, [len(text) for text in self.printed()]
        while not answer.exists():
            if self.process.poll() is not None:
                return subprocess.CompletedProcess(argv, self.process.returncode or 1, *self.printed(before))
            if time.monotonic() > limit:
                shown = "\n".join(self.printed(before))
                pytest.fail(f"no end after {timeout} s on {n} ranks: {' '.join(argv)}\n{shown}")
            time.sleep(0.005)
        outcome = json.loads(answer.read_text())
        answer.unlink()
        return subprocess.CompletedProcess(argv, *outcome)

    def printed(self, before=(0, 0)):
        """Standard output and standard error of the job, from these characters on."""
        texts = [(self.folder / name).read_text(errors="replace") for name in ("stdout", "stderr")]
        return [text[start:] for text, start in zip(texts, before, strict=True)]

    def end(self):
        """The ranks end, by force where they do not by themselves."""
        for pipe in self.pipes:
            with contextlib.suppress(OSError):
                pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        kill_tree(self.process)
        shutil.rmtree(self.folder)


def _start(library, env, ranks):
    """A job of so many ranks, which wait for runs; skips the test where the library is not installed."""
    command, extra = launcher(library)
    return serve([*command, "-n", str(ranks)], ranks, extra | env)


@contextlib.contextmanager
def ranks_in(nodes, ranks, ranks_per_node, library="mpich"):
    """A Job of ranks in the first nodes of a cluster (`jobs.cluster.Cluster`), as many in each."""
    command, extra = launcher(library)
    start = ["-m", "jobs", "cluster", "run", "--quiet", "--name", nodes.name, "--mpi", library]
    where = ["--mpirun", command[0], "-n", str(ranks), "--ranks-per-node", str(ranks_per_node), "--"]
    job = serve([sys.executable, *start, *where], ranks, extra)
    try:
        yield job
    finally:
        job.end()


def serve(command, ranks, env):
    """A job of so many ranks, started by `command`, which wait for runs."""
    folder = Path(tempfile.mkdtemp(prefix="fpna-ranks-"))
    for rank in range(ranks):
        os.mkfifo(folder / str(rank))
    with (folder / "stdout").open("w") as out, (folder / "stderr").open("w") as err:
        process = subprocess.Popen(
            [*command, sys.executable, str(SERVE), str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=environment(env),
            start_new_session=True,
        )
    # Opened for reading too, a pipe waits for no reader; closed, it still ends, for nobody else writes to it.
    pipes = [os.fdopen(os.open(folder / str(rank), os.O_RDWR), "w") for rank in range(ranks)]
    return Job(process, folder, pipes)
