"""The step of DLRM on all ranks, without a run around it: the trainer that runs, on real samples and tables."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Any

from miniapps.dlrm.program import STEP, timed_config
from miniapps.dlrm.trainer import DlrmTrainer
from miniapps.runner.context import Context
from miniapps.runner.options import RunOptions
from miniapps.trace import Tracer


class Together:
    """Steps of a complete `config` with the ranks of `comm`. Construction, `step` and `free` are collective."""

    def __init__(self, comm: Any, config: Any, options: RunOptions):
        self._folder = tempfile.TemporaryDirectory(prefix="together-")
        folder = Path(self._folder.name)
        self._tracer = Tracer(folder / "rank.h5", {"rank": comm.rank}, size=comm.size)
        log = logging.getLogger(__name__)
        self._ctx = Context(comm, timed_config(config), options, self._tracer, log, folder)
        self._trainer, self._number = DlrmTrainer(self._ctx), STEP

    def step(self) -> None:
        """Do the next step, with what a run records in it."""
        self._ctx.begin_step(self._number, self._number, self._trainer.peek)
        self._trainer.advance(self._number)
        self._number += 1

    def free(self) -> None:
        """Free the communicators and remove the trace."""
        self._ctx.release()
        self._trainer.free()
        self._tracer.close()
        self._folder.cleanup()
