"""What a person sees while a run goes on: the log and the progress bar."""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path

from miniapps.received.text import printable, tell

FORMAT = "%(asctime)s %(name)s rank %(rank)d %(levelname)s: %(message)s"
REDRAW_S = 0.2


class _Formatter(logging.Formatter):
    """Messages repeat names of files and what is in them."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), keep="\n")


class _File(logging.FileHandler):
    """The log file of a rank; one that cannot be written is told once, and is no reason to end a run."""

    reported = False

    def handleError(self, record: logging.LogRecord) -> None:
        self._tell(sys.exc_info()[1])

    def close(self) -> None:
        try:
            super().close()
        except OSError as error:
            self._tell(error)

    def _tell(self, error: BaseException | None) -> None:
        if not self.reported:
            tell(f"the log {self.baseFilename} cannot be written: {error}", sys.stderr)
        self.reported = True


def logger(app: str, rank: int, level: str, file: Path | None) -> logging.Logger:
    """The log of one rank: rank 0 from `level` on to stderr, others from warning on; everything from `level`
    on to `file` if given. Calling it again replaces the handlers."""
    log = logging.getLogger(f"miniapps.{app}.rank{rank}")
    log.propagate = False
    close(log)
    asked = getattr(logging, level.upper())
    handlers: list[tuple[logging.Handler, int]] = [
        (logging.StreamHandler(sys.stderr), asked if rank == 0 else max(asked, logging.WARNING))
    ]
    if file is not None:
        handlers.append((_File(file, "x", encoding="utf-8", errors="backslashreplace"), asked))
    formatter = _Formatter(FORMAT.replace("%(rank)d", str(rank)).replace("%(name)s", app), "%H:%M:%S")
    for handler, threshold in handlers:
        handler.setLevel(threshold)
        handler.setFormatter(formatter)
        log.addHandler(handler)
    log.setLevel(min(threshold for _, threshold in handlers))
    return log


def close(log: logging.Logger) -> None:
    """Close and remove the handlers of `log`."""
    for handler in list(log.handlers):
        log.removeHandler(handler)
        handler.close()


class NoProgress:
    """What takes the place of the bar on other ranks and without a terminal."""

    def show(self, repeat: int, step: int, steps: int) -> None:
        """Nothing."""

    def clear(self) -> None:
        """Nothing."""


class Progress:
    """A bar of one line on a terminal, redrawn at most five times a second."""

    def __init__(self, stream, repeats: int, width: int = 40):
        self.stream, self.repeats, self.width = stream, repeats, width
        self.drawn = 0.0
        self.begin: float | None = None

    def show(self, repeat: int, step: int, steps: int) -> None:
        """Draw that `step` of `steps` begins in `repeat`."""
        now = time.monotonic()
        self.begin = self.begin or now
        if now - self.drawn < REDRAW_S:
            return
        self.drawn = now
        done = (repeat + min(1.0, step / max(1, steps))) / self.repeats
        bar = "#" * int(done * self.width)
        left = f", {(now - self.begin) * (1 - done) / done:.0f} s left" if done > 0 else ""
        which = f"repeat {repeat + 1}/{self.repeats}, " if self.repeats > 1 else ""
        self.stream.write(f"\r\x1b[K[{bar:<{self.width}}] {which}step {step}/{steps}{left}")
        self.stream.flush()

    def clear(self) -> None:
        """Wipe the line, before other output."""
        if self.drawn:
            self.stream.write("\r\x1b[K")
            self.stream.flush()


def progress(rank: int, wanted: bool, repeats: int, stream=None) -> Progress | NoProgress:
    """The bar of rank 0 where `stream` (default: stderr) is a terminal, else what does nothing."""
    stream = stream or sys.stderr
    return Progress(stream, repeats) if rank == 0 and wanted and stream.isatty() else NoProgress()
