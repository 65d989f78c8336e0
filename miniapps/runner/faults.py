"""Injected faults: `--fault KIND@step=S,...`, so that tests and users can prove what the tools see."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from miniapps.errors import UsageError
from miniapps.runner.config import INT32, closest, cut

# What each kind needs, and what it may have.
KINDS = {
    "nan": (("step", "block"), ("index",)),
    "bitflip": (("step", "block"), ("bit", "index")),
    "raise": (("step", "rank"), ()),
    "kill": (("step", "rank"), ()),
    "kernel-bit": (("step", "block"), ("call", "bit", "index")),
    "swap-order": (("step", "rank", "other"), ("call",)),
    "lost-halo": (("step", "rank"), ("call", "message")),
    "seed": (("block",), ()),
    "slow": (("step", "rank", "factor"), ()),
}
INSIDE = ("kernel-bit", "swap-order", "lost-halo")  # strike in the midst of a step: miniapps.runner.watch
BETWEEN_RANKS = ("swap-order", "lost-halo")


class InjectedFault(RuntimeError):
    """What `--fault raise@...` raises."""


@dataclass(frozen=True)
class Fault:
    """One fault: at the beginning of `step` of `repeat`, on the rank, or on the rank that owns the block; those of
    INSIDE at the `call`-th kernel, all-reduce or exchange of the step, from 0."""

    spec: str
    kind: str
    step: int = 0
    repeat: int = 0
    block: int | None = None
    rank: int | None = None
    bit: int = 0
    index: int = 0
    call: int = 0
    factor: int = 1  # by which a rank is slowed
    other: int | None = None  # the rank whose contributions change places with those of `rank`
    message: int = 0  # of those that `rank` receives, in the order of the ranks they come from

    @property
    def nowhere(self) -> str:
        """Why it did not strike, where it did not."""
        if self.kind == "seed":
            return "the run draws no random numbers for such a block"
        inside = self.kind in INSIDE
        return "the run has no such step" + (", or not so many calls in it" if inside else "")

    def strike(self, rank: int, peek: Callable[[int], np.ndarray | None] | None) -> bool:
        """Do it if it is this rank's to do; whether it was. `peek(block)` is the writable state array of an
        owned block, or None."""
        if self.kind == "slow":
            return False  # the context does it, to the end of the repeat
        if self.rank is not None:
            if self.rank == rank and self.kind == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.rank == rank:
                raise InjectedFault(f"fault injected by --fault {self.spec}")
            return False
        state = peek(self.block) if peek and self.block is not None else None
        if state is None:
            return False
        self.spoil(state, "the state of a block")
        return True

    def spoil(self, array: np.ndarray, what: str) -> None:
        """Write NaN into element `index` of `array`, or flip a bit of it."""
        if not 0 <= self.index < array.size:
            raise UsageError(f"--fault {self.spec}: {what} has {array.size} elements, from 0 on")
        where = np.unravel_index(self.index, array.shape)
        if self.kind == "nan":
            array[where] = np.nan
        else:
            array[where] = _flip(array[where], self.bit, self.spec)


@dataclass(frozen=True)
class Struck:
    """Where faults of one kind can strike: in blocks 0 to `count` - 1. `elements(block)` and `bits` of each of their
    numbers; None where that shows only when they strike."""

    count: int
    elements: Callable[[int], int] | None = None
    bits: int | None = None


@dataclass(frozen=True)
class Targets:
    """What a run has that faults can strike, as its application knows it before the run.

    Its steps are `first` to `last`; None: how many there are shows only as it goes. `blocks(fault)` says where a fault
    of this kind and step can strike, with count 0 where nowhere; None where that shows only then. Without `blocks`
    nowhere. `exchanges`: whether ranks exchange halos.
    """

    last: int | None
    first: int = 1
    blocks: Callable[[Fault], Struck | None] = lambda fault: Struck(0)
    exchanges: bool = False


def require_targets(faults: Iterable[Fault], app: str, targets: Targets) -> None:
    """Raise UsageError for a fault that has nothing to strike in a run of `app` with these `targets`."""
    for fault in faults:
        where, last = f"--fault {fault.spec}", targets.last
        if fault.kind == "lost-halo" and not targets.exchanges:
            raise UsageError(f"{where}: {app} exchanges no halos; choose another kind of fault")
        # What passes before the first step is of step 0, and after the last of one more.
        inside = fault.kind in INSIDE
        first = 0 if inside else targets.first
        if fault.kind != "seed" and not (
            first <= fault.step and (last is None or fault.step <= last + inside)
        ):
            steps = f"from {targets.first} on" if last is None else f"{targets.first} to {last}"
            raise UsageError(f"{where}: the run has no step {fault.step}; its steps are {steps}")
        place = None if fault.block is None else targets.blocks(fault)
        if place is not None and fault.block is not None:
            _require_place(where, fault, fault.block, app, place)


def _require_place(where: str, fault: Fault, block: int, app: str, place: Struck) -> None:
    if place.count == 0:
        raise UsageError(
            f"{where}: {app} has no block that {fault.kind} could strike; choose another kind of fault"
        )
    if block >= place.count:
        raise UsageError(f"{where}: no rank has a block {block}; the run has {place.count}, from 0 on")
    if place.elements is not None and fault.index >= place.elements(block):
        raise UsageError(
            f"{where}: index {fault.index}: block {block} has {place.elements(block)} elements, from 0 on"
        )
    if place.bits is not None and fault.bit >= place.bits:
        raise UsageError(f"{where}: bit {fault.bit}: its numbers have the bits 0 to {place.bits - 1}")


def parse(spec: str, size: int, repeats: int) -> Fault:
    """The fault that `KIND@step=S,key=value,...` describes, for a run of `size` ranks; raises UsageError."""
    kind, _, rest = spec.partition("@")
    if kind not in KINDS:
        raise UsageError(f"--fault {spec}: unknown kind {kind!r}{closest(kind, KINDS)}")
    needed, optional = KINDS[kind][0], ("repeat", *KINDS[kind][1])
    values = {}
    for item in filter(None, rest.split(",")):
        key, _, text = item.partition("=")
        if key not in needed + optional:
            raise UsageError(f"--fault {spec}: unknown key {key!r}{closest(key, needed + optional)}")
        if not re.fullmatch("[0-9]{1,10}", text) or int(text) > INT32:
            raise UsageError(
                f"--fault {cut(spec)}: {key} takes a whole number from 0 to {INT32}, not {cut(repr(text))}"
            )
        values[key] = int(text)
    if missing := [key for key in needed if key not in values]:
        raise UsageError(
            f"--fault {spec}: {', '.join(missing)} missing; write {kind}@"
            + ",".join(f"{key}=N" for key in needed)
        )
    for key, count, what in (
        ("rank", size, "ranks"),
        ("other", size, "ranks"),
        ("repeat", repeats, "repeats"),
    ):
        if values.get(key, 0) >= count:
            raise UsageError(
                f"--fault {spec}: {key} {values[key]} of a run with {count} {what}; they count from 0"
            )
    if kind == "slow" and not 1 <= values["factor"] <= 100:
        raise UsageError(
            f"--fault {spec}: factor {values['factor']}: choose 1 to 100, by which the rank is slowed"
        )
    if kind in BETWEEN_RANKS and size < 2:
        raise UsageError(f"--fault {spec}: nothing passes between ranks in a run of one; start 2 or more")
    if kind == "swap-order" and values["rank"] == values["other"]:
        raise UsageError(f"--fault {spec}: rank and other are the same; name two ranks")
    return Fault(spec, kind, **values)


def inject(faults: list[Fault], comm, repeat: int, step: int, peek: Callable | None) -> list[Fault]:
    """Let the faults of this step strike and return them; collective where one is due, free of charge
    elsewhere.

    Raises UsageError on all ranks when a fault concerns a block that no rank owns.
    """
    due = [
        fault
        for fault in faults
        if fault.kind not in (*INSIDE, "seed") and (fault.repeat, fault.step) == (repeat, step)
    ]
    for fault in due:
        struck = fault.strike(comm.rank, peek)
        if fault.block is not None and not comm.allreduce(int(struck)):
            raise UsageError(f"--fault {fault.spec}: no rank has a block {fault.block}; blocks count from 0")
    return due


def other_seeds(faults: list[Fault], repeat: int, seed: int, blocks: Iterable[int]) -> dict[int, int]:
    """{block: seed} of those `blocks` whose numbers a fault wants drawn by another seed than `seed`: the next."""
    asked = {fault.block for fault in faults if fault.kind == "seed" and fault.repeat == repeat}
    return {int(block): seed + 1 for block in blocks if int(block) in asked}


def _flip(value: np.generic, bit: int, spec: str) -> np.generic:
    """`value` with one bit of its pattern inverted; bit 0 is the least significant."""
    if bit >= 8 * value.dtype.itemsize:
        raise UsageError(f"--fault {spec}: {value.dtype} has the bits 0 to {8 * value.dtype.itemsize - 1}")
    pattern = np.dtype(f"u{value.dtype.itemsize}")
    return (value.view(pattern) ^ pattern.type(1 << bit)).view(value.dtype)
