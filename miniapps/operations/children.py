"""The child process in which a rank runs its cases; it is started again after a case that crashed or hung it."""

import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from miniapps.errors import RunError
from miniapps.system.environment import without_rank
from miniapps.system.layers import beside
from miniapps.system.python import module

CRASHED, HUNG, SLOW = "crashed", "hung", "slow"
STARTING_S = 120.0  # the import of torch in a child may take this long, on a busy file system
MOST_THREADS = 4  # the most that an audit requests
TAIL = 2000  # bytes kept of a child's standard error


class Child:
    """A process that answers requests (`kernels.torchops.worker`), with the environment variables `held` besides those
    of this process. Use it as a context manager; `close` ends it."""

    def __init__(self, held: Mapping[str, str] | None = None) -> None:
        self._held = held or {}
        self._process: subprocess.Popen | None = None
        self._log: Any = None
        self._rest = b""  # its output after its last complete line

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The answer to a request. Its `outcome` is "crashed" if the process ended, "hung" if no call ended within
        `seconds`, and "slow" if some calls ended and more remained; the process is then ended. The time that the
        process takes to start does not count. Raises RunError if no process starts."""
        if self._process is None:
            self._start()
        process = self._process
        assert process is not None and process.stdin is not None
        begin = time.perf_counter()
        calls: dict[str, Any] = {}
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            while line := self._line(begin + seconds):
                answer = json.loads(line)
                if "outcome" in answer:
                    return answer
                calls = answer
        except BrokenPipeError:
            line = b""
        took = time.perf_counter() - begin
        if line is None:
            self.close()
            return _late(seconds, calls) | {"seconds": took}
        return {"outcome": CRASHED, "error": self._obituary(), "seconds": took}

    def close(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, self._log):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        environment = beside(without_rank(), self._held)
        # Each call sets its number of torch threads; threads that wait must not occupy cores that others need.
        environment |= {"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0"}
        environment.pop("OMP_NUM_THREADS", None)
        environment.setdefault(
            "NUMBA_NUM_THREADS", str(max(MOST_THREADS, os.cpu_count() or 1))
        )  # its most, for good
        self._rest = b""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            module("kernels.torchops.worker"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
        )
        if not self._line(time.perf_counter() + STARTING_S):
            self._process.kill()
            raise RunError(f"the process that audits did not start: {self._obituary()}")

    def _line(self, deadline: float) -> bytes | None:
        """The next line of the process; empty at its end, None after the deadline."""
        process = self._process
        assert process is not None and process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not selector.select(max(0.0, deadline - time.perf_counter())):
                    return None
                part = os.read(process.stdout.fileno(), 1 << 20)
                if not part:
                    return b""
                self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        return line + b"\n"

    def _obituary(self) -> str:
        """How the process ended, and the last line that it wrote."""
        assert self._process is not None
        code = self._process.wait()
        self._log.seek(0)
        lines = self._log.read()[-TAIL:].decode(errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "")
        self.close()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"its process ended with {how}" + (f": {last.strip()[:300]}" if last else "")


def _late(seconds: float, calls: dict[str, Any]) -> dict[str, Any]:
    """The answer for a case that took longer than `seconds`; `calls` are the calls that had ended."""
    ended = "so its process was ended"
    if not calls:
        return {"outcome": HUNG, "error": f"no call ended within {seconds:g} s (--seconds-per-case), {ended}"}
    each = calls["seconds"] / calls["calls"]
    error = (
        f"not audited within {seconds:g} s (--seconds-per-case), {ended}: it had made {calls['calls']} calls in "
        f"{calls['seconds']:.3g} s, {each:.2g} s each; give more time, fewer --runs, or smaller inputs"
    )
    return {"outcome": SLOW, "error": error}
