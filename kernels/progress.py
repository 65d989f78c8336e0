"""Progress of long work: a bar on a terminal, elsewhere a line every ten seconds."""

from __future__ import annotations

import sys
import time
from typing import TextIO

REDRAW_S = 0.2
LINE_S = 10.0
WIDTH = 40


class Progress:
    """Shows the progress of the work called `what` on `stream` (default: stderr); nothing if `quiet`.

    Where the stream is not a terminal, nothing appears in the `first` seconds. `last`: the time of the last output of
    any Progress, in seconds of time.monotonic."""

    last = 0.0

    def __init__(
        self, what: str, stream: TextIO | None = None, quiet: bool = False, first: float | None = None
    ):
        self.what, self.stream, self.quiet = what, stream or sys.stderr, quiet
        self.terminal = self.stream.isatty()
        self._begin = time.monotonic()
        self._shown = self._begin - (REDRAW_S if self.terminal else 0 if first is None else LINE_S - first)
        self._drawn = False

    def show(self, done: float, text: str) -> None:
        """Shows the fraction `done` of the work, 0 to 1, and `text`, such as `step 3/40`, if it is time to."""
        now = time.monotonic()
        if self.quiet or now - self._shown < (REDRAW_S if self.terminal else LINE_S):
            return
        self._shown = Progress.last = now
        spent, done = now - self._begin, min(1.0, max(0.0, done))
        left = f", {spent * (1 - done) / done:.0f} s left" if done > 0 else ""
        if self.terminal:
            bar = "#" * int(done * WIDTH)
            self.stream.write(f"\r\x1b[K[{bar:<{WIDTH}}] {text}{left}")
            self._drawn = True
        else:
            self.stream.write(f"{self.what}: {text}, {done:.0%}, {spent:.0f} s so far{left}\n")
        self.stream.flush()

    def clear(self) -> None:
        """Erases the bar, before other output."""
        if self._drawn:
            self.stream.write("\r\x1b[K")
            self.stream.flush()
            self._drawn = False
