"""The chain of a run under way: ranks hash their records, and rank 0 computes and publishes the heads."""

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
    the launch has more than one repeat; `clear()` runs before each printed line."""

    def __init__(
        self, comm: Any, tracer: Tracer, problem: bytes, several: bool = False, clear: Callable = lambda: None
    ):
        self.comm, self.tracer, self.problem, self.marks = comm, tracer, problem, list[Mark]()
        self._several, self._clear, self._head, self._last = several, clear, problem, -1
        tracer.rows = self._rows = Rows()

    def begin_repeat(self) -> None:
        """Begin a new chain at the hash of the problem."""
        self._head, self._last, self._rows.after, self._rows.latest = self.problem, -1, -1, -1

    def continue_from(self, step: int, head: str) -> None:
        """Continue from the `head` in the checkpoint of `step`, 64 hex digits, the same on all ranks. The chain leaves
        out all records of steps up to `step`. An empty `head` begins a new chain."""
        self.tracer.hand_over()
        self._rows.take()
        self._rows.after = self._last = step
        self._head = bytes.fromhex(head) or self.problem
        if self.comm.rank == 0:
            with held():
                self.tracer.value(BEGIN, step)
                self._record(BEGIN, self._head)

    def end_repeat(self, state: str) -> None:
        """Compute the last head of the repeat, at the last step that any rank recorded. It covers the fingerprint of
        the final `state` on rank 0. Collective."""
        from mpi4py import MPI

        self.tracer.hand_over()
        last = self.comm.allreduce(max(self._rows.latest, self._last + 1), op=MPI.MAX)
        self.tracer.at(self.tracer.repeat, last)
        self._extend(lambda: hash_of_state(state), ends=True)

    def extend(self, checkpoint: Callable[[], bytes]) -> str:
        """Returns the head after the current step, 64 hex digits, on rank 0; empty elsewhere. Collective.

        `checkpoint()` returns the hash of the checkpoint that is written with the head; only rank 0 calls it.
        """
        return self._extend(checkpoint, ends=False)

    def _extend(self, kept: Callable[[], bytes], ends: bool) -> str:
        start = self.tracer.clock()
        self.tracer.hand_over()
        own = self._rows.take()
        digests = self._gathered(own)
        if not ends:  # nothing after the last step has an event
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
        with held():  # no signal may separate the rows of one head
            self._record(HEAD, self._head)
            self._record(STATE if ends else CHECKPOINT, hashed)
        repeat, earlier = self.tracer.repeat, any(mark.repeat == self.tracer.repeat for mark in self.marks)
        of = {"state" if ends else "checkpoint": hashed.hex()}
        self.marks.append(Mark(repeat, step, self._head.hex(), **of))
        if earlier or not ends:  # a single final head is in result.json already
            self._clear()
            tell(
                f"CHAIN step={step} head={self._head.hex()}" + (f" repeat={repeat}" if self._several else "")
            )
        return self._head.hex()

    def _gathered(self, own: bytes) -> bytes:
        """Returns the digests of all ranks, on rank 0; empty elsewhere. Collective."""
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
