"""The chain of a run while it goes on: ranks hash what they recorded, and rank 0 makes and publishes the heads."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any

from miniapps.system.interrupts import held
from miniapps.trace import Tracer
from miniapps.trace.chain import BEGIN, CHECKPOINT, HEAD, STATE, Mark, Rows, hash_of_state, next_head
from miniapps.trace.schema import CHAIN_TIME, COLLECTIVE
from miniapps.untrusted.text import tell

_TWO_WORDS = struct.Struct(">16s16s")


class Heads:
    """The heads of all repeats of a launch. `problem`: 32 bytes, `miniapps.trace.chain.problem_of`; `several`: whether
    there are more repeats than one; `clear` is called before a line is printed."""

    def __init__(
        self, comm: Any, tracer: Tracer, problem: bytes, several: bool = False, clear: Callable = lambda: None
    ):
        self.comm, self.tracer, self.problem, self.marks = comm, tracer, problem, list[Mark]()
        self._several, self._clear, self._head, self._last = several, clear, problem, -1
        tracer.rows = self._rows = Rows()

    def begin_repeat(self) -> None:
        """Begin anew, with nothing before."""
        self._head, self._last, self._rows.after, self._rows.latest = self.problem, -1, -1, -1

    def continue_from(self, step: int, head: str) -> None:
        """Go on from the `head` that the checkpoint of `step` holds, 64 hex digits, on all ranks: what was recorded
        of steps up to this one is outside. A checkpoint without one is where a chain begins."""
        self.tracer.hand_over()
        self._rows.take()
        self._rows.after = self._last = step
        self._head = bytes.fromhex(head) or self.problem
        if self.comm.rank == 0:
            with held():
                self.tracer.value(BEGIN, step)
                self._record(BEGIN, self._head)

    def end_repeat(self, state: str) -> None:
        """The head after all that the repeat recorded, at the last step that any rank recorded, and over the
        fingerprint of its final `state`, of which that of rank 0 counts. Collective."""
        from mpi4py import MPI

        self.tracer.hand_over()
        last = self.comm.allreduce(max(self._rows.latest, self._last + 1), op=MPI.MAX)
        self.tracer.at(self.tracer.repeat, last)
        self._extend(lambda: hash_of_state(state), ends=True)

    def extend(self, checkpoint: Callable[[], bytes]) -> str:
        """The head after the step under way, 64 hex digits, on rank 0; empty elsewhere. Collective.

        `checkpoint()` is the hash of the checkpoint that is written with it, asked of rank 0 alone.
        """
        return self._extend(checkpoint, ends=False)

    def _extend(self, kept: Callable[[], bytes], ends: bool) -> str:
        start = self.tracer.clock()
        self.tracer.hand_over()
        own = self._rows.take()
        digests = self._gathered(own)
        if not ends:  # what follows the last step is in no event either
            self.tracer.event(self.tracer.name("chain", COLLECTIVE), start, len(own))
        step = self._last = self.tracer.step
        begin = time.thread_time()
        hashed = b""
        if self.comm.rank == 0:
            hashed = kept()
            self._head = next_head(self._head, step, digests, hashed, self.problem)
        self.tracer.usage(CHAIN_TIME, step, self._rows.cpu + time.thread_time() - begin)
        self._rows.cpu = 0.0
        if self.comm.rank:
            return ""
        with held():  # a head is recorded as a whole
            self._record(HEAD, self._head)
            self._record(STATE if ends else CHECKPOINT, hashed)
        repeat, earlier = self.tracer.repeat, any(mark.repeat == self.tracer.repeat for mark in self.marks)
        of = {"state" if ends else "checkpoint": hashed.hex()}
        self.marks.append(Mark(repeat, step, self._head.hex(), **of))
        if earlier or not ends:  # at the end alone it says no more than result.json
            self._clear()
            tell(
                f"CHAIN step={step} head={self._head.hex()}" + (f" repeat={repeat}" if self._several else "")
            )
        return self._head.hex()

    def _gathered(self, own: bytes) -> bytes:
        """The digests of all ranks, on rank 0; empty elsewhere. Collective."""
        from mpi4py import MPI

        counts = self.comm.gather(len(own))
        if counts is None:
            self.comm.Gatherv([own, MPI.BYTE], None)
            return b""
        digests = bytearray(sum(counts))
        self.comm.Gatherv([own, MPI.BYTE], [digests, counts, MPI.BYTE])
        return bytes(digests)

    def _record(self, name: str, words: bytes) -> None:
        for half, digest in enumerate(_TWO_WORDS.unpack(words)):
            self.tracer.fingerprint(name, half, digest)
