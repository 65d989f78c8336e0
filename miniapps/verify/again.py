"""Execute a part of a run again, from the checkpoint before it to the head after it."""

from __future__ import annotations

import contextlib
import importlib
import io
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from miniapps.errors import UsageError
from miniapps.runner.main import main

# Options that the second execution sets itself: none affects the bits under `layout`.
ANEW: dict[str, Any] = {
    "run.repeats": 1, "run.threads": 1, "run.trace": "off", "run.record": "state", "run.trace_files": "rank",
    "run.check_ranks": False, "run.replay": None, "run.shuffle_blocks": 0, "run.fault": (), "run.links": None,
    "run.stall": 0.0, "run.duplicate": 0.0, "output.shares": "even", "grid.points_per_rank": 0,
    "run.log_level": "warning", "run.log_all_ranks": False, "run.progress": False,
}  # fmt: skip
LEFT_OUT = ("run.deck", "run.out")


@dataclass(frozen=True)
class Interval:
    """The steps `after` < step <= `until` of a repeat, between two heads. `start`: the checkpoint that it begins from;
    None at the start of the run. `ends`: whether it goes to the end of the repeat."""

    repeat: int
    after: int
    until: int
    start: Path | None
    ends: bool
    head: str
    checkpoint: str
    state: str

    def __str__(self) -> str:
        begin = "the start" if self.start is None else f"step {self.after}"
        return f"{begin} to {'the end' if self.ends else f'step {self.until}'}"


def arguments(
    attributes: Mapping[str, Any], interval: Interval, ranks: int, mesh: str, out: Path
) -> list[str]:
    """The command line that executes an interval again on `ranks` ranks, from the `attributes` of the run's trace.

    `mesh`: the mesh of these ranks, for training over a mesh; empty: all ranks along its first axis.
    """
    config = {f"{s}.{name}": value for s, own in attributes["config"].items() for name, value in own.items()}
    values = {key: ANEW.get(key, value) for key, value in config.items() if key not in LEFT_OUT}
    for key, stated in attributes["options"].items():
        if stated.get("effect") == "restart":
            values[key] = "" if interval.start is None else str(out.parent / f"{out.name}.h5")
        elif stated.get("effect") == "until" and key.endswith(".until") and not interval.ends:
            values[key] = interval.until
    if values.get("mesh.mesh"):
        values["mesh.mesh"] = mesh or _of_ranks(values["mesh.mesh"], ranks)
    settings = [word for key, value in values.items() for word in ("--set", f"{key}={_text(value)}")]
    return ["--out", str(out), *settings]


def execute(app: str, argv: list[str], comm: Any, start: Path | None) -> int:
    """Run an application quietly on all ranks of `comm`; returns its exit code. Collective.

    Rank 0 copies the checkpoint `start` beside the directory of the run, away from the trace that it belongs to: only
    the results of the execution judge it.
    """
    if comm.rank == 0 and start is not None:
        out = Path(argv[1])
        shutil.copyfile(start, out.parent / f"{out.name}.h5")
    comm.Barrier()
    application = importlib.import_module(f"miniapps.{app}").APP
    with contextlib.redirect_stdout(io.StringIO()):
        return main(application, argv, comm)


def _of_ranks(mesh: str, ranks: int) -> str:
    """`data=2,model=2` as a mesh of all ranks along its first axis: `data=R,model=1`."""
    first, *others = (part.partition("=")[0].strip() for part in mesh.split(","))
    return ",".join([f"{first}={ranks}", *(f"{name}=1" for name in others)])


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    if not isinstance(value, str | int | float):
        raise UsageError(
            f"{value!r} is not the value of an option: the trace is damaged, or not of this suite"
        )
    return repr(value) if isinstance(value, float) else str(value)
