"""Read the orders of a recorded run for a replay: senders of messages from any source, and what calls found."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from miniapps.errors import UsageError
from miniapps.programs import completions
from miniapps.programs.command import arguments_of, name_of
from miniapps.programs.rawlog import call_of
from miniapps.trace import TraceError, read_run
from miniapps.trace.records import ARGUMENTS, SOURCE
from miniapps.untrusted.text import printable


@contextlib.contextmanager
def write_order(run: Path, rank: int, size: int) -> Iterator[tuple[str, str]]:
    """Gives the path of a file with the senders and completions of a rank, for preload/completions.hpp; removed at
    the end of the block. Also the reason why completions are not in it, empty if they are. Raises UsageError, Refused
    and TraceError."""
    sources = np.array(recorded_sources(run, rank), np.int32)
    rows = _completions(run, rank, size)
    head = [rank, size, len(sources), -1 if isinstance(rows, str) else len(rows)]
    with tempfile.NamedTemporaryFile(prefix="fpna-order-") as file:
        file.write(np.array(head, np.int64).tobytes())
        file.write(sources.tobytes())
        file.write(b"" if isinstance(rows, str) else rows.tobytes())
        file.flush()
        yield file.name, rows if isinstance(rows, str) else ""


def _completions(run: Path, rank: int, size: int) -> np.ndarray | str:
    """The completions of a rank of `run`, or the reason why they are not replayed. Raises Refused."""
    (trace,) = read_run(run, tables=[], ranks=[rank])
    shown = printable(str(completions.file_of(run, rank)))
    try:
        return completions.read(run, rank, size, trace.attributes.get("run_id", ""))
    except FileNotFoundError:
        return f"there is no {shown}: copy the whole run, or record it again"
    except completions.OfThreads:
        return (
            f"several threads of rank {rank} looked for requests or messages, and their calls have no order"
        )


def require_same_program(run: Path, command: list[str], same_but: Sequence[str], size: int) -> str:
    """A remark if `run` had other arguments than `command`, ignoring those in `same_but`; else empty.

    Raises UsageError if `run` was not recorded by `fpna run`, by another program or on another number of ranks, and
    TraceError if it cannot be read.
    """
    (trace,) = read_run(run, tables=[], ranks=[0])
    shown, theirs, ours = printable(str(run)), trace.attributes.get("app", ""), name_of(command)
    recorded = trace.attributes.get("problem_options", {}).get(ARGUMENTS)
    if recorded is None:
        raise UsageError(
            f"--replay {shown}: a run of {theirs} that fpna run did not record; give a run of {ours} that it recorded"
        )
    if theirs != ours:
        raise UsageError(f"--replay {shown}: a run of {theirs}, but this is {ours}; give a run of {ours}")
    if trace.attributes["size"] != size:
        raise UsageError(
            f"--replay {shown}: recorded on {trace.attributes['size']} ranks, but this run has {size}; start "
            f"{trace.attributes['size']} ranks"
        )
    if recorded == arguments_of(command, same_but):
        return ""
    return (
        f"{shown} was recorded with the arguments {printable(recorded) or 'none'}: if the new arguments change the "
        "messages, the replay ends early"
    )


def recorded_sources(run: Path, rank: int) -> list[tuple[int, int, int]]:
    """(source, kind, form) of each receive and blocking probe from any source by `rank` of `run`, in the order of the
    calls.

    The source is -1 if no message came; kind and form of the call are those of a raw log.
    """
    traces = list(read_run(run, tables=["events", "values"], ranks=[rank]))
    if not traces:
        raise UsageError(
            f"--replay {run}: it has no trace of rank {rank}; copy the whole run, or record it again"
        )
    (trace,) = traces
    calls = {
        number: call_of(name.removeprefix(SOURCE).partition(" ")[0])
        for number, name in enumerate(trace.names)
        if name.startswith(SOURCE)
    }
    calls = {number: call for number, call in calls.items() if call[0] not in completions.PROBES}
    values = trace.tables["values"]
    taken = np.isin(values["name"], list(calls))
    order = np.argsort(values["after"][taken], kind="stable")  # the order in which calls began
    pairs = zip(values["value"][taken][order].tolist(), values["name"][taken][order].tolist(), strict=True)
    most = trace.attributes["size"]
    if wrong := [source for source in values["value"][taken].tolist() if not -1 <= source < most]:
        raise TraceError(f"{trace.path}: a message from rank {wrong[0]:g} of {most}; leave this run out")
    return [(int(source), *calls[name]) for source, name in pairs]
