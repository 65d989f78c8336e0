"""Injected faults, `--fault KIND@step=S,...`: tests and users prove with them that the tools detect faults."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from miniapps.errors import UsageError
from miniapps.runner.config import INT32, closest, cut

# Required keys of each kind, and optional ones.
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
INSIDE = ("kernel-bit", "swap-order", "lost-halo")  # strike within a step, in miniapps.runner.watch
BETWEEN_RANKS = ("swap-order", "lost-halo")


class InjectedFault(RuntimeError):
    """The error that `--fault raise@...` raises."""


@dataclass(frozen=True)
class Fault:
    """One fault at the beginning of `step` of `repeat`, on `rank` or on the owner of `block`. A kind in INSIDE strikes
    at the `call`-th kernel, all-reduce or exchange of the step, counted from 0."""

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
    other: int | None = None  # the rank that swaps contributions with `rank`
    message: int = 0  # number of the lost message among those that `rank` receives, by sender

    @property
    def nowhere(self) -> str:
        """The reason why the fault may never strike."""
        if self.kind == "seed":
            return "the run draws no random numbers for such a block"
        inside = self.kind in INSIDE
        return "the run has no such step" + (", or not so many calls in it" if inside else "")

    def strike(self, rank: int, peek: Callable[[int], np.ndarray | None] | None) -> bool:
        """Inject the fault if this rank is its target; returns whether it changed a block here. `peek(block)` returns
        the writable state array of an owned block, or None."""
        if self.kind == "slow":
            return False  # the context slows the rank, to the end of the repeat
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
    """Targets of one kind of fault: blocks 0 to `count` - 1 with `elements(block)` numbers of `bits` bits each; None
    where the run knows these only when the fault strikes."""

    count: int
    elements: Callable[[int], int] | None = None
    bits: int | None = None


@dataclass(frozen=True)
class Targets:
    """The targets of faults in a run, as its application knows them before the run.

    The steps are `first` to `last`; None: their number is not known in advance. `blocks(fault)` returns the targets of
    a fault of this kind and step, with count 0 for none, or None where they are not known in advance. The default has
    no targets. `exchanges`: whether ranks exchange halos.
    """

    last: int | None
    first: int = 1
    blocks: Callable[[Fault], Struck | None] = lambda fault: Struck(0)
    exchanges: bool = False


def require_targets(faults: Iterable[Fault], app: str, targets: Targets) -> None:
    """Raise UsageError for a fault without a target in a run of `app` with these `targets`."""
    for fault in faults:
        where, last = f"--fault {fault.spec}", targets.last
        if fault.kind == "lost-halo" and not targets.exchanges:
            raise UsageError(f"{where}: {app} exchanges no halos; choose another kind of fault")
        # Messages before the first step belong to step 0, and after the last step to one more.
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
    """Parses `KIND@step=S,key=value,...` for a run of `size` ranks. Raises UsageError."""
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
            f"--fault {spec}: factor {values['factor']}: choose 1 to 100; the rank takes so many times as long"
        )
    if kind in BETWEEN_RANKS and size < 2:
        raise UsageError(f"--fault {spec}: a run of one rank sends no messages; start 2 or more")
    if kind == "swap-order" and values["rank"] == values["other"]:
        raise UsageError(f"--fault {spec}: rank and other are the same; name two ranks")
    return Fault(spec, kind, **values)


def inject(faults: list[Fault], comm, repeat: int, step: int, peek: Callable | None) -> list[Fault]:
    """Inject the faults of this step and return them; collective in a step with a fault, otherwise without messages.

    Raises UsageError on all ranks for a block that no rank owns.
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
    """{block: seed + 1} of the `blocks` whose seed a fault replaces."""
    asked = {fault.block for fault in faults if fault.kind == "seed" and fault.repeat == repeat}
    return {int(block): seed + 1 for block in blocks if int(block) in asked}


def _flip(value: np.generic, bit: int, spec: str) -> np.generic:
    """`value` with one bit inverted; bit 0 is the least significant."""
    if bit >= 8 * value.dtype.itemsize:
        raise UsageError(f"--fault {spec}: {value.dtype} has the bits 0 to {8 * value.dtype.itemsize - 1}")
    pattern = np.dtype(f"u{value.dtype.itemsize}")
    return (value.view(pattern) ^ pattern.type(1 << bit)).view(value.dtype)
