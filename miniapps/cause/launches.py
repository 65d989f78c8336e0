"""Launches of a program under `fpna run`, undisturbed or with disturbances no larger than rounding."""

from __future__ import annotations

import os
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from miniapps.errors import UsageError
from miniapps.launching import run_to_end
from miniapps.system.python import module

# With one thread, launches do not differ in how threads share work, nor in which thread adds first.
ONE_THREAD = {
    name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
}
OWN = "{out}"  # in a command: the directory of a program that records itself


@dataclass(frozen=True)
class Plan:
    """How to launch a program. `launcher`: the words before it, with `{ranks}`. `replay`: the run whose order of
    messages is repeated; None: the order of arrival. `observer`: more options of `fpna run`, such as --guarantee."""

    command: tuple[str, ...]
    launcher: str
    ranks: int
    replay: Path | None
    observer: tuple[str, ...] = ()

    @property
    def records_itself(self) -> bool:
        """Whether the program records itself."""
        return any(OWN in word for word in self.command)

    def words(self, out: Path, seed: int | str | None) -> list[str]:
        """The command line of one launch into the new directory `out`. `seed`: of the disturbance, or "up" or "down"
        for the rounding; None: undisturbed."""
        observed = out / "calls" if self.records_itself else out
        words = [*shlex.split(self.launcher.replace("{ranks}", str(self.ranks))), *module("fpna", "run")]
        words += ["--quiet", "--out", str(observed), *self.observer]
        words += ["--disturb", str(seed)] if seed is not None else []
        words += ["--replay", str(self.replay.resolve())] if self.replay else []
        return [*words, "--", *(word.replace(OWN, str(self.own(out))) for word in self.command)]

    def own(self, out: Path) -> Path:
        """The directory of the compared traces of a launch into `out`."""
        return out / "own" if self.records_itself else out


def launch(plan: Plan, out: Path, seed: int | str | None, timeout: float) -> Path:
    """Launch the program once; returns the directory of its traces. Raises UsageError if it fails or does not end."""
    words = plan.words(out, seed)
    if plan.records_itself:
        out.mkdir(parents=True)
    how = "without disturbance" if seed is None else f"disturbed by {seed}"
    what = f"the launch {how} on {plan.ranks} ranks"
    if shutil.which(words[0]) is None:
        raise UsageError(
            f"no launcher {words[0]!r} on PATH; name one that starts the ranks: --launcher 'srun -n {{ranks}}'"
        )
    run_to_end(what, words, shlex.join(words), timeout, os.environ | ONE_THREAD)
    return plan.own(out)
