"""Injected faults: `--fault KIND@step=S,...`, so that tests and users can prove what the tools see."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from miniapps.config import UsageError, closest

# What each kind needs besides `step`, and what it may have.
KINDS = {
    "nan": (("block",), ("index",)),
    "bitflip": (("block",), ("bit", "index")),
    "raise": (("rank",), ()),
    "kill": (("rank",), ()),
}


class InjectedFault(RuntimeError):
    """What `--fault raise@...` raises."""


@dataclass(frozen=True)
class Fault:
    """One fault: at the beginning of `step` of `repeat`, on the rank, or on the rank that owns the block."""

    spec: str
    kind: str
    step: int
    repeat: int = 0
    block: int | None = None
    rank: int | None = None
    bit: int = 0
    index: int = 0

    def strike(self, rank: int, peek: Callable[[int], np.ndarray | None] | None) -> bool:
        """Do it if it is this rank's to do; whether it was. `peek(block)` is the writable state array of an
        owned block, or None."""
        if self.rank is not None:
            if self.rank == rank and self.kind == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.rank == rank:
                raise InjectedFault(f"fault injected by --fault {self.spec}")
            return False
        state = peek(self.block) if peek else None
        if state is None:
            return False
        if not 0 <= self.index < state.size:
            raise UsageError(
                f"--fault {self.spec}: the state of a block has {state.size} elements, from 0 on"
            )
        where = np.unravel_index(self.index, state.shape)
        if self.kind == "nan":
            state[where] = np.nan
        else:
            state[where] = _flip(state[where], self.bit, self.spec)
        return True


def parse(spec: str, size: int, repeats: int) -> Fault:
    """The fault that `KIND@step=S,key=value,...` describes, for a run of `size` ranks; raises UsageError."""
    kind, _, rest = spec.partition("@")
    if kind not in KINDS:
        raise UsageError(f"--fault {spec}: unknown kind {kind!r}{closest(kind, KINDS)}")
    needed, optional = ("step", *KINDS[kind][0]), ("repeat", *KINDS[kind][1])
    values = {}
    for item in filter(None, rest.split(",")):
        key, _, text = item.partition("=")
        if key not in needed + optional:
            raise UsageError(f"--fault {spec}: unknown key {key!r}{closest(key, needed + optional)}")
        if not text.isdecimal():
            raise UsageError(f"--fault {spec}: {key} takes a whole number from 0 on, not {text!r}")
        values[key] = int(text)
    if missing := [key for key in needed if key not in values]:
        raise UsageError(
            f"--fault {spec}: {', '.join(missing)} missing; write {kind}@"
            + ",".join(f"{key}=N" for key in needed)
        )
    for key, count, what in (("rank", size, "ranks"), ("repeat", repeats, "repeats")):
        if values.get(key, 0) >= count:
            raise UsageError(
                f"--fault {spec}: {key} {values[key]} of a run with {count} {what}; they count from 0"
            )
    return Fault(spec, kind, **values)


def inject(faults: list[Fault], comm, repeat: int, step: int, peek: Callable | None) -> list[Fault]:
    """Let the faults of this step strike and return them; collective where one is due, free of charge
    elsewhere.

    Raises UsageError on all ranks when a fault concerns a block that no rank owns.
    """
    due = [fault for fault in faults if fault.step == step and fault.repeat == repeat]
    for fault in due:
        struck = fault.strike(comm.rank, peek)
        if fault.block is not None and not comm.allreduce(int(struck)):
            raise UsageError(f"--fault {fault.spec}: no rank has a block {fault.block}; blocks count from 0")
    return due


def _flip(value: np.generic, bit: int, spec: str) -> np.generic:
    """`value` with one bit of its pattern inverted; bit 0 is the least significant."""
    if bit >= 8 * value.dtype.itemsize:
        raise UsageError(f"--fault {spec}: {value.dtype} has the bits 0 to {8 * value.dtype.itemsize - 1}")
    pattern = np.dtype(f"u{value.dtype.itemsize}")
    return (value.view(pattern) ^ pattern.type(1 << bit)).view(value.dtype)
