"""The calls of a step, their works and their seconds, while the trainer runs.

    watch = Watch(step)
    with watch.calls(fine=True):
        step.run(2)
    watch.events, watch.seconds

The trainer, its tables and its optimiser are those of a run; their methods are replaced by timed ones (`works.WORKS`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from miniapps.dlrm.alone import Alone
from miniapps.dlrm.ratings import Ratings
from miniapps.dlrm.works import WORKS, handed_over
from miniapps.partition.pricing.dry import Held
from miniapps.partition.pricing.forms import call_of
from miniapps.partition.pricing.keys import work_of
from miniapps.untrusted.program import Wait, Work

now = time.perf_counter


@dataclass(frozen=True)
class Call:
    """A call for the table of a number: its `method`, its `work`, and the bytes that it hands over to each rank."""

    table: int
    method: str
    work: Work
    nbytes: dict[int, int]


class Watch:
    """What a step of `step` calls. After `calls`: `events`, works and waits in order; `tables`, the calls for a table
    alone; `seconds` of each work;
    `network`: seconds of each call of the network; `held`: bytes of the results of calls, without views, and the most
    that torch held; `whole`: seconds of the step, without those of the watch; `share`: of a processor that the step
    got; `sent`: bytes of messages."""

    def __init__(self, step: Alone):
        self.step = step

    @contextmanager
    def calls(self, fine: bool) -> Iterator[None]:
        """A context that watches the calls of a step; `fine`: those of torch's kernels, else the network is one."""
        self.events: list[Work | Wait] = []
        self.tables: list[Call] = []
        self.seconds: list[float] = []
        self.network: list[float] = []
        self.held = self.sent = 0
        self._spent, memory = 0.0, Held()
        trainer, comm = self.step.trainer, self.step.comm
        comm.tell = self._waited
        with ExitStack() as undone:
            for name, methods in WORKS.items():
                of = trainer if name == "trainer" else getattr(trainer, name)
                for method, work in methods.items():
                    undone.enter_context(
                        replaced(of, method, self._around(getattr(of, method), method, work))
                    )
            learn = self._around_network(trainer.network.learn, memory if fine else None)
            undone.enter_context(replaced(trainer.network, "learn", learn))
            begin, used = now(), time.process_time()
            yield
            whole, used = now() - begin, time.process_time() - used
        self.whole, self.share, self.held = whole - self._spent, used / whole, self.held + memory.most

    def add(self, work: Work, seconds: float) -> None:
        """Add a work that took so long."""
        self.events.append(work)
        self.seconds.append(seconds)

    def spend(self, since: float) -> None:
        """Leave the time from `since` until now out of the step."""
        self._spent += now() - since

    def _around(self, function: Callable, method: str, work: Callable[..., Work | None]) -> Callable:
        def watched(*args: Any) -> Any:
            begin = now()
            found = function(*args)
            end = now()
            if (done := work(self.step.trainer, found, *args)) is not None:
                self.add(done, end - begin)
                if method in WORKS["tables"] and isinstance(args[0], int):
                    self.tables.append(Call(args[0], method, done, handed_over(found)))
            self.held += nbytes_of(found)
            self.spend(end)
            return found

        return watched

    def _around_network(self, learn: Callable, memory: Held | None) -> Callable:
        def watched(*args: Any) -> Any:
            begin = now()
            with nullcontext() if memory is None else Kernels(self, memory):
                found = learn(*args)
            self.network.append(now() - begin)
            return found

        return watched

    def _waited(self, wait: Wait) -> None:
        if self.step.comm.size > 1:
            self.events.append(wait)
        self.sent += wait.nbytes


class Kernels(TorchDispatchMode):
    """Adds torch's kernels to a watch; views take no time of their own. `memory` counts their results."""

    def __init__(self, watch: Watch, memory: Held):
        super().__init__()
        self.watch, self.memory = watch, memory

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        begin = now()
        found = func(*args, **(kwargs or {}))
        end = now()
        if not func.is_view:
            self.watch.add(work_of(call_of(str(func), args, kwargs or {}, found)), end - begin)
            if not func._schema.is_mutable:
                self.memory.add([x for x in (found,) if isinstance(x, torch.Tensor)])
        self.watch.spend(end)
        return found


@contextmanager
def replaced(of: object, name: str, by: Callable) -> Iterator[None]:
    """A context in which the method `name` of an object is another."""
    setattr(of, name, by)
    try:
        yield
    finally:
        delattr(of, name)


def nbytes_of(value: Any) -> int:
    """Bytes of the arrays with memory of their own in a result."""
    if isinstance(value, np.ndarray):
        return value.nbytes if value.base is None else 0
    if isinstance(value, Ratings):
        return sum(array.nbytes for array in value.arrays())
    if isinstance(value, dict):
        return sum(map(nbytes_of, value.values()))
    return sum(map(nbytes_of, value)) if isinstance(value, list | tuple) else 0
