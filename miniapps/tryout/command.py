"""The command `fpna try`: three findings about the sums of this machine, and what to do next."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from importlib.util import find_spec
from typing import Any

from kernels.as_json import Document, columns, document, rows
from kernels.commands.entry import FAILED, command_line
from kernels.commands.options import add_json, add_loudness, add_version
from kernels.threads import cores
from miniapps.doctor import gist
from miniapps.errors import UsageError
from miniapps.system import environment
from miniapps.system.processes import ended
from miniapps.system.python import module
from miniapps.system.world import parsed, speaks, world
from miniapps.tryout import ranks, showing
from miniapps.tryout.launches import Launched, launch
from miniapps.untrusted.arguments import Parser
from miniapps.untrusted.text import tell

BROKEN = 3
AMONG_S = 300  # of the findings over ranks that were started with this process: they may be many on few cores
LIMIT_S = 60.0  # of a process that looks at sums of its own
# Names that BLAS and OpenMP libraries read their number of threads from.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")

DOCUMENTS = {
    "try": Document(
        columns("""
            cpu | text | the processor
            cores | integer | that this process may use
            seconds | number, s | that the command took
            results | integer? | how many results the sum has over the rank counts of `tables.sums`, by the MPI library;
              null without ranks
            results_layout | integer? | the same under `layout`
            launcher | text? | the command that started the ranks
            libmpi | text? | the file that `MPI4PY_LIBMPI` had to name for it
            library | object? | `library` (name and version), `ranks`, `orderings` (list of `ordering`, empty for one
              that is none of ours, and `lengths`), `alike` (how many orderings have these bits), `follows` (`call`,
              `rank`, `rank count`, `length`, `placement`: whether the bits were seen to follow it; without `rank
              count` below 4 ranks)
            left_out | list of text | what was not found out, why, and what to do
        """),
        (
            rows(
                "tables.sums",
                "the same sum on several ranks",
                """
            ranks | integer
            library layout | number
            """,
            ),
            rows(
                "tables.processes",
                "a sum inside one process",
                """
            what library dtype | text
            kind | text | `tree`, or why there is none
            lanes depth | integer?
            threads | list of integer | that were tried
            follows_alignment follows_threads | boolean? | null: not tried
            """,
            ),
            rows("tables.next", "what to do next", "for command | text"),
        ),
        "The document is printed with exit code 1, too: then neither ranks nor a process could be looked at",
    )
}


def parser(prog: str = "fpna try") -> argparse.ArgumentParser:
    """The command line; `prog` is what the user typed before the options."""
    top = Parser(
        prog=prog,
        description="Adds the same numbers on 2, 3 and 4 ranks, finds out how this machine's MPI library, NumPy and "
        "PyTorch add, and says what to do next. It starts its own ranks and writes no file.",
        example=prog,
    )
    add_json(top)
    add_loudness(top, "the findings alone, no progress")
    add_version(top)
    return top


@command_line
def main(argv: list[str] | None = None, prog: str = "fpna try") -> int:
    """Print the findings; 0 if sums over ranks or in a process could be shown, 1 if not, 3 if a promise was broken."""
    options = parsed(parser(prog), argv)
    begin = time.monotonic()
    launched = environment.innermost()
    if not speaks():
        return _serve()

    def say(text: str) -> None:
        if not options.quiet:
            tell(f"fpna try: {text}", sys.stderr)

    among = launched is not None and launched.size > 1
    if among:  # the others wait; children are started before MPI is
        processes, left_out = inside_processes(say)
        over_ranks = _among_ranks(say)
    else:
        over_ranks = launch(lambda command: say(f"sums over ranks: {command}"))
        processes, left_out = inside_processes(say)
    found = showing.Found(
        over_ranks.findings.get("ranks"), over_ranks.findings.get("library"), processes, left_out, over_ranks,
        time.monotonic() - begin,
    )  # fmt: skip
    if options.json:
        print(document(1, "try", **found.entry()))
    else:
        tell(found.text(), keep="\n")
    if found.broken:
        return BROKEN
    return 0 if found.ranks or found.processes else FAILED


def inside_processes(say: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """How NumPy and torch add, and what could not be asked."""
    most = min(max(cores(), 1), 4)
    left_out = []
    entries, problem = _asked("numpy", [1], say)
    if problem:
        left_out.append(f"np.sum and np.dot: {problem}")
    elif most == 1:
        left_out.append("np.dot with more threads: this process may use one core")
    else:
        more, problem = _asked("numpy", [most], say)
        if problem:
            left_out.append(f"np.dot on {most} threads: {problem}")
        for entry, other in zip(entries, more, strict=False):
            entry["threads"] += other["threads"]
            entry["by_threads"] += other["by_threads"]
    if find_spec("torch") is None:
        left_out.append("torch.sum: torch is not installed (pip install torch)")
        return entries, left_out
    own, problem = _asked("torch", [1, max(2, most)], say)
    if problem:
        left_out.append(f"torch.sum: {problem}")
    return entries + own, left_out


def _asked(library: str, threads: list[int], say: Any) -> tuple[list[dict[str, Any]], str]:
    """What `miniapps.tryout.sums` tells in a process of its own, and what went wrong; empty where nothing did."""
    count = f"{threads[0]} thread{'s' * (threads[0] > 1)}"
    say(f"sums in one process: {library}, {count}" + "".join(f" and {more}" for more in threads[1:]))
    env = environment.without_rank() | dict.fromkeys(THREADS, str(threads[-1]))
    done = ended(module("miniapps.tryout.sums", library, *map(str, threads)), LIMIT_S, env)
    if done.code is None:
        return [], f"no end after {LIMIT_S:.0f} s"
    if done.code:
        signalled = f"ended by {signal.Signals(-done.code).name}; " if done.code < 0 else ""
        return [], signalled + gist(done.err)
    return [json.loads(line) for line in done.out.splitlines() if line.startswith("{")], ""


def _among_ranks(say: Any) -> Launched:
    """The findings over the ranks that this process was started with, as rank 0."""
    say("sums over the ranks that were started with this one")
    found = Launched()
    try:
        _measure(lambda line: found.findings.update({line["finding"]: line}))
    except UsageError as error:
        found.refused.append(str(error))
    return found


def _serve() -> int:
    """What the other ranks do."""
    try:
        _measure(lambda line: None)
    except UsageError:
        return 0  # rank 0 tells it
    return 0


def _measure(tell_finding: ranks.Tell) -> None:
    signal.alarm(AMONG_S)  # where ranks wait for one that has gone, nothing else would end them
    comm = world()
    part = comm.Split(int(comm.rank >= ranks.RANKS), comm.rank)
    if comm.rank < ranks.RANKS:
        try:
            ranks.measure(part, tell_finding)
        except BaseException:
            ranks.give_up(comm)
            raise
    comm.Barrier()
    signal.alarm(0)
