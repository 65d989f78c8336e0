"""One timed launch of a command, and the load of other programs meanwhile."""

from __future__ import annotations

import os
import re
import shlex
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from miniapps.errors import UsageError
from miniapps.launching import cpu_of_children, run_to_end
from miniapps.system.python import PACKAGES
from miniapps.untrusted import Refused, read_bytes, records
from miniapps.untrusted.text import printable

RANKS = ("-n", "-np", "-c", "--np", "--ntasks", "-N")  # options of mpirun, mpiexec, srun
APPLICATION = re.compile(r"miniapps\.([a-z]+)")


@dataclass(frozen=True)
class Command:
    """The command `name`, A or B: its `words`, or `text` for the shell if it has no words.
    `application`: whether it is an application of this suite, which reports its own times."""

    name: str
    text: str
    words: tuple[str, ...] = ()
    application: bool = False

    @property
    def ranks(self) -> int:
        """The number of ranks that its launcher starts; 1 without a launcher."""
        try:
            words = self.words or tuple(shlex.split(self.text))
        except ValueError:  # quotes of a shell that Python does not know
            return 1
        found = [int(after) for word, after in pairwise(words)
                 if word in RANKS and after.isdecimal()]  # fmt: skip
        return max(found[:1], default=1)


@dataclass(frozen=True)
class Launch:
    """One launch. `wall`, `cpu`: seconds of the run after its start, for an application; else of the command and all
    processes that it started here. `others`: processors that other programs used meanwhile; None: unknown."""

    wall: float
    cpu: float
    others: float | None


def command(name: str, variant: str, common: Sequence[str]) -> Command:
    """The command of one side: the shell's line `variant`, or the words of `common` followed by those of `variant`.

    Raises UsageError."""
    if not common:
        if not variant.strip():
            raise UsageError(
                f"{name} is empty; give a command in quotes, or options and, after --, the command that takes them"
            )
        return Command(name, variant)
    try:
        words = (*common, *shlex.split(variant))
    except ValueError as error:
        raise UsageError(f"{name}, {printable(variant)!r}: {error}; close the quotes") from None
    return Command(name, shlex.join(words), words, _application(words))


def launch(one: Command, timeout: float) -> Launch:
    """Launch a command once. Raises UsageError if it fails, or does not end in `timeout` seconds."""
    with tempfile.TemporaryDirectory(prefix="fpna-cost-") as scratch:
        out = Path(scratch) / "run"
        more = ("--out", str(out), "--no-progress") if one.application else ()
        before, cpu, begin = _busy(), cpu_of_children(), time.perf_counter()
        run_to_end(one.name, [*one.words, *more] if one.words else one.text, one.text, timeout)
        wall, cpu, after = time.perf_counter() - begin, cpu_of_children() - cpu, _busy()
        others = None if before is None or after is None else max(0.0, (after - before - cpu) / wall)
        if one.application:
            wall, cpu = _of_result(out, one)
        return Launch(wall, cpu, others)


def _application(words: Sequence[str]) -> bool:
    """Whether these words start an application of this suite without `--out`."""
    if "--out" in words or any(word.startswith("--out=") for word in words):
        return False
    names = [found[1] for word in words if (found := APPLICATION.fullmatch(word))]
    names += [after for word, after in pairwise(words) if Path(word).name == "fpna"]
    names = [name for name in names if name.isidentifier()]
    return any((PACKAGES / "miniapps" / name / "config.py").is_file() for name in names)


def _of_result(out: Path, one: Command) -> tuple[float, float]:
    try:
        result = records.loads(read_bytes(out / "result.json", records.MOST), str(out / "result.json"))
        return float(result["wall_s"]), float(result["cpu_s"])
    except (OSError, Refused, KeyError, ValueError, TypeError) as error:
        raise UsageError(
            f"{one.name} wrote no result.json with its times: {one.text}; is it an application of this suite?"
        ) from error


def _busy() -> float | None:
    """CPU seconds of all programs of this machine; None if the system does not count them."""
    try:
        used = Path("/proc/stat").read_text().split("\n")[0].split()[1:9]
        user, nice, system, _, _, irq, soft, steal = map(int, used)
    except (OSError, ValueError):
        return None
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")
