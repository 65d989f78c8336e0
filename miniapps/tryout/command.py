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
AMONG_S = 300  # limit for the findings over ranks of this launch, which may be many on few cores
LIMIT_S = 60.0  # limit for a process that examines its own sums
# Variables from which BLAS and OpenMP libraries read their number of threads.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")

DOCUMENTS = {
    "try": Document(
        columns("""
            cpu | text | the processor
            cores | integer | cores that this process may use
            seconds | number, s | time of the whole command
            results | integer? | number of different sums of the MPI library over the rank counts in `tables.sums`;
              null without ranks
            results_layout | integer? | the same under `layout`
            launcher | text? | the command that started the ranks
            libmpi | text? | the library that mpi4py had to load for this launcher, by `MPI4PY_LIBMPI`
            library | object? | `library` (name and version), `ranks`, `orderings` (list of `ordering`, empty if no
              ordering of this suite matches, and `lengths`), `alike` (how many orderings give these bits), `follows`
              (`call`, `rank`, `rank count`, `length`, `placement`: whether the bits changed with it; without `rank
              count` below 4 ranks)
            left_out | list of text | each missing finding, with the reason and the remedy
        """),
        (
            rows(
                "tables.sums",
                "the same sum on several ranks",
                """
            ranks | integer
            library layout | number | the sum by the MPI library, and under `layout`
            """,
            ),
            rows(
                "tables.processes",
                "a sum inside one process",
                """
            what library dtype | text
            kind | text | `tree`, or the reason why the order is no tree
            lanes depth | integer? | of the tree
            threads | list of integer | numbers of threads that were tried
            follows_alignment follows_threads | boolean? | whether the bits changed with it; null: not tried
            """,
            ),
            rows("tables.next", "what to do next", "for command | text"),
        ),
        "Exit code 1 also comes with a document: then the command could examine neither ranks nor a process",
    )
}


def parser(prog: str = "fpna try") -> argparse.ArgumentParser:
    """The command line; `prog` is what the user typed before the options."""
    top = Parser(
        prog=prog,
        description="Adds the same numbers on 2, 3 and 4 ranks, finds out how this machine's MPI library, NumPy and "
        "PyTorch add, and prints the next commands to try. It starts its own ranks and writes no file.",
        example=prog,
    )
    add_json(top)
    add_loudness(top, "the findings alone, no progress")
    add_version(top)
    return top


@command_line
def main(argv: list[str] | None = None, prog: str = "fpna try") -> int:
    """Print the findings; 0 if it found sums over ranks or in a process, 1 if neither, 3 if a guarantee was broken."""
    options = parsed(parser(prog), argv)
    begin = time.monotonic()
    launched = environment.innermost()
    if not speaks():
        return _serve()

    def say(text: str) -> None:
        if not options.quiet:
            tell(f"fpna try: {text}", sys.stderr)

    among = launched is not None and launched.size > 1
    if among:  # the other ranks wait; child processes must start before MPI does
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
    """How NumPy and torch add: an entry for each sum, and a sentence for each missing one."""
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
    """(entries that `miniapps.tryout.sums` prints in its own process, problem); the problem is empty on success."""
    count = f"{threads[0]} thread{'s' * (threads[0] > 1)}"
    say(f"sums in one process: {library}, {count}" + "".join(f" and {more}" for more in threads[1:]))
    env = environment.without_rank() | dict.fromkeys(THREADS, str(threads[-1]))
    done = ended(module("miniapps.tryout.sums", library, *map(str, threads)), LIMIT_S, env)
    if done.code is None:
        return [], f"not finished after {LIMIT_S:.0f} s"
    if done.code:
        signalled = f"ended by {signal.Signals(-done.code).name}; " if done.code < 0 else ""
        return [], signalled + gist(done.err)
    return [json.loads(line) for line in done.out.splitlines() if line.startswith("{")], ""


def _among_ranks(say: Any) -> Launched:
    """The findings over the ranks of this launch, on rank 0."""
    say("sums over the ranks of this launch")
    found = Launched()
    try:
        _measure(lambda line: found.findings.update({line["finding"]: line}))
    except UsageError as error:
        found.refused.append(str(error))
    return found


def _serve() -> int:
    """Take part in the measurements, as any rank but 0."""
    try:
        _measure(lambda line: None)
    except UsageError:
        return 0  # rank 0 prints the error
    return 0


def _measure(tell_finding: ranks.Tell) -> None:
    signal.alarm(AMONG_S)  # nothing else ends ranks that wait for a dead one
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
