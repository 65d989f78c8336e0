"""What is measured: a case is a call with its parameters, timed again and again in turn with all others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from miniapps.trace.schema import COMPUTE


@dataclass
class Case:
    """A micro-benchmark. `call` does it once; an event of the region `region` is left by it, unless `traced` says that
    it leaves one itself. `prepare` comes before each call and is not timed: it writes what is sent, as an application
    does. What lies in another rank's cache since the last call would travel faster. `values`: its parameters, as the
    trace states them. `flops`, `nbytes`: what a call does. `together`: all ranks begin at one time."""

    region: str
    call: Callable[[], object]
    values: dict[str, float]
    kind: str = COMPUTE
    flops: int = 0
    nbytes: int = 0
    traced: bool = False
    together: bool = False
    prepare: Callable[[], object] | None = None
    partners: list[int] = field(default_factory=list)
    free: Callable[[], None] = lambda: None
