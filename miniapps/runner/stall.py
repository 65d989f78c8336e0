"""`--stall SECONDS` ends a run whose ranks make no progress.

To TCP, and so to MPI, a cut cable and a node without power look like silence: ranks wait for a quarter of an hour, or
for ever. So a thread of every rank samples it some forty times in SECONDS. A rank that stayed in the same call at all
samples, and ended no region and no step, is *stalled*. It decides this alone, because it may reach no other rank, and
ends as after any failure (`failure.fail`): a message, a closed trace, MPI_Abort.

After half the time a stalled rank writes a note into the directory of the run: where it waits. It removes the note if
it proceeds. From the notes the other ranks know where each one waits, and which ranks are silent. One rank of every
node prints a message, because other nodes may be unreachable.
"""

from __future__ import annotations

import contextlib
import linecache
import os
import platform
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

import msgspec

from kernels.allreduce.errors import ranks_text
from miniapps.errors import Stalled
from miniapps.layout.messages import Messages
from miniapps.runner.failure import LAST_RESORT_S, State, fail
from miniapps.runner.traced import Reducer
from miniapps.system import peers
from miniapps.untrusted.records import read_json
from miniapps.untrusted.regular import Refused

LOOKS = 40  # samples in the allowed time
PAUSE_S = 1.0  # between two samples, at most
SHOWN = 8  # groups of ranks, and nodes, in a message
ASKED = 64  # nodes, at most
NOTE_MOST = 65536  # bytes
OWN = ("miniapps", "kernels")


class Note(msgspec.Struct, forbid_unknown_fields=True):
    """The place where a rank waits."""

    repeat: int
    step: int
    where: str


class Watchdog:
    """Watches one rank in a thread, inside `with`. Collective; does nothing if `seconds` is 0."""

    def __init__(self, seconds: float, app: str, comm: Any, state: State):
        self._seconds, self._app, self._comm, self._state = seconds, app, comm, state
        self._pause = min(seconds / LOOKS, PAUSE_S)
        self._over = threading.Event()
        self._main = threading.get_ident()
        self._hosts: list[str] = comm.allgather(platform.node()) if seconds else []
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watchdog:
        if self._seconds:
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        if self._seconds:
            self._thread.join()  # never returns if the thread is ending the run

    def _look(self) -> None:
        silence, before, noted = 0.0, None, False
        while not self._over.wait(self._pause):
            now = self._position()
            if now == before:
                silence += self._pause  # counts samples, no clock: a suspended job is not stalled
            else:
                silence, before = 0.0, now
            if noted and not silence:
                self._remove_note()
                noted = False
            if not noted and silence >= self._seconds / 2:
                self._write_note()
                noted = True
            if silence >= self._seconds:
                code = fail(self._stalled(), self._app, self._comm, self._state)
                os._exit(code)

    def _position(self) -> tuple[Any, ...]:
        """A value that changes while the rank makes progress: repeat, step, ended regions, and its call stack."""
        ctx, frame = self._state.ctx, self._frame()
        reached = () if ctx is None else (ctx.tracer.repeat, ctx.tracer.step, ctx.tracer.ended())
        stack = []
        while frame is not None:
            stack += [frame.f_code, frame.f_lasti]
            frame = frame.f_back
        return (*reached, *stack)

    def _frame(self) -> FrameType | None:
        return sys._current_frames().get(self._main)

    def _own(self) -> Note:
        ctx = self._state.ctx
        repeat, step = (0, 0) if ctx is None else (ctx.tracer.repeat, ctx.tracer.step)
        return Note(repeat, step, whereabouts(self._frame()))

    def _write_note(self) -> None:
        signal.alarm(int(self._seconds) + LAST_RESORT_S)  # in case the file system does not answer
        with contextlib.suppress(OSError):
            if self._state.place is not None:
                self._state.place.write(_file(self._comm.rank), msgspec.json.encode(self._own()).decode())
        signal.alarm(0)

    def _remove_note(self) -> None:
        with contextlib.suppress(OSError):
            if self._state.place is not None:
                self._state.place.remove(_file(self._comm.rank))

    def _stalled(self) -> Stalled:
        rank, place = self._comm.rank, self._state.place
        names = set(os.listdir(place.path)) if place is not None else set()
        left = [other for other in range(self._comm.size) if other == rank or _file(other) in names]
        first = min(other for other in left if self._hosts[other] == self._hosts[rank])
        notes = {rank: self._own()}
        for other in left if rank == first else []:
            if place is None:
                break
            with contextlib.suppress(OSError, Refused):
                notes.setdefault(other, read_json(place.path / _file(other), Note, NOTE_MOST))
        message, blamed = conclusion(rank, self._seconds, notes, self._hosts, peers.answering)
        return Stalled(message, blamed, speaks=rank == first)


def conclusion(
    rank: int,
    seconds: float,
    notes: Mapping[int, Note],
    hosts: Sequence[str],
    answering: Callable[[Sequence[str]], Mapping[str, bool]],
) -> tuple[str, int | None]:
    """Returns the message of `rank` about a stalled run, and the rank to blame, None if unknown.

    The message names where it waits, where others wait by their `notes`, silent ranks and silent nodes. `hosts`: host
    of each rank; `answering(hosts)`: whether each of them answers."""
    own, here = notes[rank], hosts[rank]
    waiting: dict[tuple[str, str], list[int]] = {}
    unheard: dict[str, list[int]] = {}
    for other, host in enumerate(hosts):
        if other not in notes:
            unheard.setdefault(host, []).append(other)
        elif other != rank:
            waiting.setdefault((host, _where(notes[other], own)), []).append(other)
    parts = [f"no progress for {seconds:g} s (--stall): waits in {own.where}"]
    parts += [
        f"{ranks_text(ranks)} on {host} {'waits' if len(ranks) == 1 else 'wait'} in {where}"
        for (host, where), ranks in list(waiting.items())[:SHOWN]
    ]
    if unheard:
        who = [f"{ranks_text(ranks)} on {host}" for host, ranks in list(unheard.items())[:SHOWN]]
        parts.append(f"no note from {', '.join(who)}: killed, cut off, or computing")
    elsewhere = [host for host in dict.fromkeys([*unheard, *hosts]) if host != here][:ASKED]
    answers = answering(elsewhere)
    mute = [host for host in elsewhere if answers.get(host) is False]
    heard = [host for host in elsewhere if answers.get(host)]
    if mute:
        parts.append(f"{', '.join(mute[:SHOWN])} {'does' if len(mute) == 1 else 'do'} not answer {here}")
    if heard:
        parts.append(f"{', '.join(heard[:SHOWN])} {'answers' if len(heard) == 1 else 'answer'} {here}")
    return "; ".join(parts), min((r for host in mute for r in unheard.get(host, [])), default=None)


def whereabouts(frame: FrameType | None) -> str:
    """The place of the innermost call `frame`: a reduction, an exchange with other ranks, or a line of code."""
    inner = frame
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, Reducer):
            return owner.region
        if isinstance(owner, Messages):
            return f"an exchange with {ranks_text(owner.peers)}"
        frame = frame.f_back
    while inner is not None:
        module = inner.f_globals.get("__name__", "")
        if module.partition(".")[0] in OWN:
            line = linecache.getline(inner.f_code.co_filename, inner.f_lineno).strip()
            return f"{module}, line {inner.f_lineno}: {line}"
        inner = inner.f_back
    return "an unknown place"


def _where(note: Note, own: Note) -> str:
    same = (note.repeat, note.step) == (own.repeat, own.step)
    return note.where if same else f"{note.where} (repeat {note.repeat}, step {note.step})"


def _file(rank: int) -> str:
    return f"stalled-rank-{rank:05d}.json"
