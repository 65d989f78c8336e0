"""The sources of messages from any source, taken from a recorded run for one that repeats them."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from miniapps.errors import UsageError
from miniapps.programs.command import arguments_of, name_of
from miniapps.programs.rawlog import call_of
from miniapps.trace import TraceError, read_run
from miniapps.trace.records import ARGUMENTS, SOURCE
from miniapps.untrusted.text import printable


@contextlib.contextmanager
def write_sources(run: Path, rank: int, size: int) -> Iterator[str]:
    """The path of a file for preload/receives.hpp, there until the block ends. Raises UsageError and TraceError."""
    with tempfile.NamedTemporaryFile(prefix="fpna-sources-") as file:
        file.write(np.array([rank, size], np.int32).tobytes())
        file.write(np.array(recorded_sources(run, rank), np.int32).tobytes())
        file.flush()
        yield file.name


def require_same_program(run: Path, command: list[str], same_but: Sequence[str], size: int) -> str:
    """A remark where `run` had other arguments than `command`, those in `same_but` left out; empty where it had not.

    Raises UsageError where `run` was not recorded by `fpna run`, of another program or on another number of ranks, and
    TraceError where it cannot be read.
    """
    (trace,) = read_run(run, tables=[], ranks=[0])
    shown, theirs, ours = printable(str(run)), trace.attributes.get("app", ""), name_of(command)
    recorded = trace.attributes.get("problem_options", {}).get(ARGUMENTS)
    if recorded is None:
        raise UsageError(
            f"--replay {shown}: a run of {theirs} that fpna run did not record; give one that it recorded of {ours}"
        )
    if theirs != ours:
        raise UsageError(f"--replay {shown}: a run of {theirs}, and this is {ours}; give a run of {ours}")
    if trace.attributes["size"] != size:
        raise UsageError(
            f"--replay {shown}: recorded on {trace.attributes['size']} ranks, and these are {size}; start "
            f"{trace.attributes['size']}"
        )
    if recorded == arguments_of(command, same_but):
        return ""
    return (
        f"{shown} was recorded with the arguments {printable(recorded) or 'none'}: where others change what messages "
        "there are, the program leaves the record"
    )


def recorded_sources(run: Path, rank: int) -> list[tuple[int, int, int]]:
    """What `rank` of `run` took from any source, in the order in which it asked.

    Of each the source (-1: no message came), and the kind and the form of the call as in a raw log.
    """
    traces = list(read_run(run, tables=["events", "values"], ranks=[rank]))
    if not traces:
        raise UsageError(
            f"--replay {run}: no trace of rank {rank} in it; copy the whole run, or record it again"
        )
    (trace,) = traces
    calls = {
        number: call_of(name.removeprefix(SOURCE).partition(" ")[0])
        for number, name in enumerate(trace.names)
        if name.startswith(SOURCE)
    }
    values = trace.tables["values"]
    taken = np.isin(values["name"], list(calls))
    order = np.argsort(values["after"][taken], kind="stable")  # calls stand as they began
    pairs = zip(values["value"][taken][order].tolist(), values["name"][taken][order].tolist(), strict=True)
    most = trace.attributes["size"]
    if wrong := [source for source in values["value"][taken].tolist() if not -1 <= source < most]:
        raise TraceError(f"{trace.path}: a message from rank {wrong[0]:g} of {most}; leave this run out")
    return [(int(source), *calls[name]) for source, name in pairs]
