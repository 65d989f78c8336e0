"""Shows the progress of reading runs, and with --verbose each file and its time."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from kernels.progress import LINE_S, Progress
from miniapps.untrusted.text import tell

NAME = "analysis"
FIRST_S = 1.0  # time until the first line if stderr is no terminal


class Watch:
    """Shows the progress of long work on stderr, unless `quiet`; if `verbose` every file and run too."""

    def __init__(self, quiet: bool = True, verbose: bool = False):
        self.progress = None if quiet else Progress(NAME, first=FIRST_S)
        self.verbose = verbose
        self._files = self._of_files = self._runs = self._of_runs = 0

    def begin(self, files: int, runs: int) -> None:
        """Starts a count: `files` files of `runs` runs will be read."""
        self._files, self._of_files, self._runs, self._of_runs = 0, files, 0, runs
        if self.progress:
            self.clear()
            self.progress = Progress(NAME, first=FIRST_S)  # estimates the time left from reading alone

    def read(self, files: int, seconds: Mapping[Path, float]) -> None:
        """Counts `files` more files as read; `seconds` has the time of each file that could be read."""
        self._files += files
        if self.verbose:
            self.clear()
            for path, taken in seconds.items():
                tell(f"read {path} in {taken:.3f} s", sys.stderr)
        self._show()

    def run(self, directory: Path, kept: bool, seconds: float) -> None:
        """Counts a run as complete; `kept`: all of it came from its cache."""
        self._runs += 1
        if self.verbose:
            self.clear()
            tell(
                f"run {directory}: {'from its cache' if kept else 'from traces'}, {seconds:.3f} s", sys.stderr
            )
        self._show()

    def step(self, done: int, steps: int, text: str) -> None:
        """Shows that `done` of `steps` steps of other work are done; `text` names the step that begins."""
        if self.progress:
            self.progress.show(done / steps, text)

    def clear(self) -> None:
        """Wipes the bar, before other output."""
        if self.progress:
            self.progress.clear()

    def _show(self) -> None:
        if self.progress and self._of_runs:
            done = self._files / self._of_files if self._of_files else self._runs / self._of_runs
            text = f"read {self._files} of {self._of_files} files, {self._runs} of {self._of_runs} runs"
            self.progress.show(done, text)


@contextmanager
def at_work(what: str, quiet: bool) -> Iterator[Callable[[], None]]:
    """Prints to stderr that the command `what` is at work, after a second without other progress and then every ten.

    Ends with the block, or with a call of the function that it yields; `quiet` prints nothing."""
    ended = Event()
    begin = time.monotonic()

    def say() -> None:
        silent_from = begin + FIRST_S - LINE_S
        while not ended.wait(max(0.05, silent_from + LINE_S - time.monotonic())):
            silent_from = max(silent_from, Progress.last)
            if time.monotonic() - silent_from >= LINE_S:
                silent_from = time.monotonic()
                tell(f"{NAME}: {what} is at work, {silent_from - begin:.0f} s so far", sys.stderr)

    if not quiet:
        Thread(target=say, daemon=True).start()
    try:
        yield ended.set
    finally:
        ended.set()


SILENT = Watch()
