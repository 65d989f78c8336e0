"""The log and the progress bar of a run."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from kernels.progress import Progress
from miniapps.untrusted.text import printable, tell

FORMAT = "%(asctime)s %(name)s rank %(rank)d %(levelname)s: %(message)s"


class _Formatter(logging.Formatter):
    """Makes messages printable: they repeat names and contents of files."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), keep="\n")


class _File(logging.FileHandler):
    """The log file of a rank. A failed write is reported once and does not end the run."""

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
    """The log of one rank. Rank 0 writes messages from `level` on to stderr, other ranks from warning on; every rank
    writes from `level` on to `file` if given. A second call replaces the handlers."""
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
    """Shows nothing: for ranks other than 0, and for `--no-progress`."""

    def show(self, repeat: int, step: int, steps: int, what: str = "step") -> None:
        """Nothing."""

    def clear(self) -> None:
        """Nothing."""


class StepProgress:
    """Progress over the steps of all repeats."""

    def __init__(self, shown: Progress, repeats: int):
        self._shown, self._repeats = shown, repeats

    def show(self, repeat: int, step: int, steps: int, what: str = "step") -> None:
        """Show that `step` of `steps` begins in `repeat`; `what`: the word for a step."""
        done = (repeat + min(1.0, step / max(1, steps))) / self._repeats
        which = f"repeat {repeat + 1}/{self._repeats}, " if self._repeats > 1 else ""
        self._shown.show(done, f"{which}{what} {step}/{steps}")

    def clear(self) -> None:
        """Erase the bar before other output."""
        self._shown.clear()


def progress(app: str, rank: int, wanted: bool, repeats: int, stream=None) -> StepProgress | NoProgress:
    """The progress bar on `stream` (default: stderr) if `wanted` on rank 0, else a NoProgress."""
    return StepProgress(Progress(app, stream), repeats) if rank == 0 and wanted else NoProgress()
