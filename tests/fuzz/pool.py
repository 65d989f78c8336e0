"""Workers and their supervision: a worker that dies or hangs has broken the criterion."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.fuzz.sandbox import clear, room

START_S = 120.0  # for the first case of a worker, which imports and writes the good runs
CASE_S = 150.0  # the guards of `analysis` give a file 60 s
END_S = 20.0  # for a worker to end by itself
ROOT = Path(__file__).resolve().parents[2]


class Worker:
    """One process that plays cases in a directory of its own."""

    def __init__(self):
        self.place = room()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.worker", str(self.place)], cwd=ROOT, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, start_new_session=True, text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )  # fmt: skip
        self.case: tuple[str, int] | None = None
        self.until = 0.0
        self.answered = 0

    def give(self, kind: str, seed: int) -> None:
        """Start a case."""
        self.case = kind, seed
        self.until = time.monotonic() + CASE_S + (0 if self.answered else START_S)
        with contextlib.suppress(BrokenPipeError):
            print(kind, seed, file=self.process.stdin, flush=True)

    def answer(self) -> dict[str, Any]:
        """What came of the case; of a worker that died, that it did."""
        line = self.process.stdout.readline()
        self.answered += 1
        if line:
            return json.loads(line)
        code = self.process.wait()
        return self._broken(f"the worker ended with code {code}")

    def late(self) -> dict[str, Any]:
        """The answer of a worker that has not given one in time."""
        return self._broken(f"no end after {CASE_S:.0f} s")

    def _broken(self, words: str) -> dict[str, Any]:
        kind, seed = self.case
        return {"kind": kind, "seed": seed, "outcome": "", "violated": words, "done": []}

    def end(self) -> None:
        """End it and all that it started, and remove its directory."""
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        if self.case is None:  # it waits for one, and so ends by itself, with what MPI left in memory
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(END_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()
        clear(self.place)


def play(cases: Iterator[tuple[str, int]], jobs: int, heard: Callable[[dict[str, Any]], None]) -> None:
    """Play `cases` (kind, seed), `jobs` at a time; `heard` is given the answer of each."""
    workers = [Worker() for _ in range(jobs)]
    try:
        for i in range(jobs):
            _next(workers[i], cases)
        while any(worker.case for worker in workers):
            busy = [worker for worker in workers if worker.case]
            ready, _, _ = select.select([worker.process.stdout for worker in busy], [], [], 1.0)
            for i, worker in enumerate(workers):
                if worker.case is None:
                    continue
                if worker.process.stdout in ready:
                    answer = worker.answer()
                elif time.monotonic() > worker.until:
                    answer = worker.late()
                else:
                    continue
                heard(answer)
                if worker.process.poll() is not None or time.monotonic() > worker.until:
                    worker.end()
                    workers[i] = worker = Worker()
                _next(worker, cases)
    finally:
        for worker in workers:
            worker.end()


def _next(worker: Worker, cases: Iterator[tuple[str, int]]) -> None:
    worker.case = None
    if case := next(cases, None):
        worker.give(*case)
