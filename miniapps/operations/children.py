"""The child process of a rank that audits, started again after a case that took it along."""

import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from typing import Any

from miniapps.errors import RunError
from miniapps.system.environment import without_rank
from miniapps.system.python import module

CRASHED, HUNG = "crashed", "hung"
STARTING_S = 120.0  # a child may take so long to import torch, on a busy file system
TAIL = 2000  # characters of what a child wrote to its standard error


class Child:
    """A process that answers requests (`kernels.torchops.worker`). Use as a context manager; `close` ends it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen | None = None
        self._log: Any = None

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The answer to a request; `outcome` "crashed" or "hung" where the process ended, or took longer than
        `seconds` and was ended. The start of a process does not count. Raises RunError where none starts."""
        if self._process is None:
            self._start()
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        begin = time.perf_counter()
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            line = self._line(begin + seconds)
        except BrokenPipeError:
            line = b""
        took = time.perf_counter() - begin
        if line is None:
            self.close()
            message = f"no answer within {seconds:g} s (--seconds-per-case), so its process was ended"
            return {"outcome": HUNG, "error": message, "seconds": took}
        if not line:
            return {"outcome": CRASHED, "error": self._obituary(), "seconds": took}
        return json.loads(line)

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
        environment = without_rank()
        # torch's threads are asked for call by call; those that wait must not take the cores of the others.
        environment |= {"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0"}
        environment.pop("OMP_NUM_THREADS", None)
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
        """The next line of the process, empty at its end; None when the time is over."""
        process = self._process
        assert process is not None and process.stdout is not None
        parts: list[bytes] = []
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while True:
                if not selector.select(max(0.0, deadline - time.perf_counter())):
                    return None
                part = os.read(process.stdout.fileno(), 1 << 20)
                parts.append(part)
                if not part or part.endswith(b"\n"):
                    line = b"".join(parts)
                    return line if line.endswith(b"\n") else b""

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
