"""Check that a run fits the memory and threads of a node, as far as the operating system and the launcher tell.

Rank 0 checks before it creates any file. It assumes that all nodes are alike; an unknown limit refuses nothing.
"""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from miniapps.errors import UsageError

# Variables with the number of ranks on a node: of MPICH and Intel MPI, Open MPI, Cray and Slurm ("4(x2),3").
LOCAL_SIZES = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMI_LOCAL_SIZE", "SLURM_STEP_TASKS_PER_NODE")
ROOT = Path("/")


@dataclass(frozen=True)
class Need:
    """The memory of a rank: `nbytes`, the `options` that cause it, and `fitting(share)`, advice for `share` bytes."""

    nbytes: int
    options: str
    fitting: Callable[[int], str]


def require_memory(need: Need, size: int, root: Path = ROOT) -> None:
    """Raise UsageError if a rank needs more than its share of the free memory of this node."""
    free = free_memory(root)
    if free is None:
        return
    ranks = ranks_on_node(size)
    share = free // ranks
    if need.nbytes > share:
        shared = f", which {ranks} ranks share" if ranks > 1 else ""
        raise UsageError(
            f"{need.options}: a rank needs about {in_words(need.nbytes)} of memory, and this node has "
            f"{in_words(free)} free{shared}; {need.fitting(share)}"
        )


def require_threads(threads: int, size: int, root: Path = ROOT) -> None:
    """Raise UsageError if the ranks of a node may not start so many threads: OpenMP would end the process."""
    ranks = ranks_on_node(size)
    most = most_threads(root)
    if most is not None and threads > 1 and threads * ranks > most:
        raise UsageError(
            f"--threads {threads}: {ranks} rank{'s' * (ranks > 1)} on a node would have {threads * ranks} threads, "
            f"and the system allows {most} (ulimit -u, or the limit of the batch system); use at most "
            f"{max(1, most // ranks)}"
        )


def ranks_on_node(size: int, environ: Mapping[str, str] = os.environ) -> int:
    """How many of the `size` ranks are on this node; 1 if the launcher does not tell."""
    for variable in LOCAL_SIZES:
        if match := re.match(r"[0-9]{1,7}", environ.get(variable, "")):
            return max(1, min(size, int(match[0])))
    return 1


def free_memory(root: Path = ROOT) -> int | None:
    """Bytes that processes on this node may still allocate; None if the system does not tell.

    `root`: the root of the file system; tests replace it.
    """
    amounts = [_available(root), *_free_in_groups(root)]
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        amounts.append(soft)
    return min((n for n in amounts if n is not None), default=None)


def most_threads(root: Path = ROOT) -> int | None:
    """How many threads the processes of this user may have here; None if the system does not tell."""
    limits = [_number(root / "proc/sys/kernel/threads-max")]
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft != resource.RLIM_INFINITY and os.geteuid():  # root is exempt
        limits.append(soft)
    limits += [_number(folder / "pids.max") for folder in _groups(root, "pids")]
    return min((n for n in limits if n is not None), default=None)


def in_words(nbytes: float) -> str:
    """A number of bytes with a unit that keeps it short."""
    units = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
    power = min(max(0, int(nbytes).bit_length() - 1) // 10, len(units) - 1)
    number = nbytes / 1024**power
    return f"{number:.0f} {units[power]}" if not power or number >= 100 else f"{number:.1f} {units[power]}"


def _available(root: Path) -> int | None:
    text = _text(root / "proc/meminfo")
    match = re.search(r"^MemAvailable:\s+([0-9]+) kB", text, re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def _free_in_groups(root: Path) -> Iterator[int | None]:
    """Bytes that each control group of this process leaves; batch systems and containers limit memory by them."""
    names = (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    )
    for folder in _groups(root, "memory"):
        for limit, usage, cache in names:
            most, used = _number(folder / limit), _number(folder / usage)
            if most is None or used is None:
                continue
            # Cached pages of files count as used, but the kernel frees them on demand.
            given_up = re.search(rf"^{cache} ([0-9]+)$", _text(folder / "memory.stat"), re.MULTILINE)
            yield max(0, most - used + (int(given_up[1]) if given_up else 0))


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of the control groups of this process, up to the top; versions 1 and 2.

    In a container the path may be the host's: then only the top exists.
    """
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" or controller in controllers.split(","):
            top = root / "sys/fs/cgroup" / ("" if number == "0" else controller)
            inner = top / path.strip("/")
            yield from (folder for folder in (inner, *inner.parents) if folder.is_relative_to(top))


def _number(path: Path) -> int | None:
    """The number in a file of the kernel; None for `max` and for a missing file."""
    text = _text(path).strip()
    return int(text) if re.fullmatch("[0-9]{1,20}", text) else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
