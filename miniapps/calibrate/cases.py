"""What is measured: a case is a call with its parameters, timed again and again in turn with all others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from miniapps.trace.schema import COMPUTE


@dataclass
class Case:
    """A micro-benchmark. `call` does it once; an event of the region `region` is left by it, unless `traced` says that
    it leaves one itself. `values`: its parameters, as the trace states them. `flops`, `nbytes`: what a call does.
    `together`: all ranks begin at one time."""

    region: str
    call: Callable[[], object]
    values: dict[str, float]
    kind: str = COMPUTE
    flops: int = 0
    nbytes: int = 0
    traced: bool = False
    together: bool = False
    partners: list[int] = field(default_factory=list)
    free: Callable[[], None] = lambda: None
