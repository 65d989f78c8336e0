"""An application whose directory a test removes, and the state of directories meanwhile."""

import os
import resource
import shutil
from dataclasses import dataclass, field

import numpy as np

from miniapps.runner import main
from miniapps.trace import fingerprint
from miniapps.trace.schema import rank_file
from tests.miniapps.tiny import TinyConfig


def moved(out):
    """The directory gets another name."""
    os.rename(out, f"{out}-moved")


def removed(out):
    """The directory is removed with all that is in it."""
    shutil.rmtree(out)


def replaced(out):
    """Another directory takes the place of the removed one."""
    shutil.rmtree(out)
    out.mkdir()


def exchanged(out):
    """Another directory takes the place of the moved one."""
    moved(out)
    out.mkdir()


def unlinked(out, rank=0):
    """The trace of a rank is removed."""
    (out / rank_file(rank)).unlink()


def full(out):
    """No file of this process may grow any more."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


@dataclass
class Mishap:
    """`happen(out)` on rank `rank` in the step `step` of the last repeat."""

    happen: object
    step: int
    rank: int = 0
    steps: list = field(default_factory=list)  # that were begun

    def run(self, ctx):
        """Steps that compute nothing; ranks keep together."""
        steps = ctx.config.work.steps
        for step in range(1, steps + 1):
            ctx.begin_step(step, steps)
            self.steps.append(step)
            ctx.tracer.value("step", step)
            if (step, ctx.rank, ctx.repeat) == (self.step, self.rank, ctx.options.repeats - 1):
                self.happen(ctx.out)
            ctx.comm.Barrier()
        return main.Outcome(
            {"steps": (steps, "")}, [main.Check("fine", True)], fingerprint(np.arange(steps)).hex()
        )

    def app(self):
        """The application in which it happens."""
        return main.App(
            "vanishing", TinyConfig, "Loses its directory.", self.run, package="tests.miniapps.tiny"
        )
