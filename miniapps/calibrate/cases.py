"""The cases of a calibration: a case is a call with its parameters, timed repeatedly in turn with all others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from miniapps.trace.schema import COMPUTE
from miniapps.trace.writer import Tracer


@dataclass
class Case:
    """A micro-benchmark. `call` runs it once, recorded as an event of the region `region`, unless `traced` says that it
    records its own event. `prepare` runs before each call, untimed: it writes the data to send, as an application does,
    since data already in another rank's cache from the last call would arrive faster. With `together`, all ranks begin
    at the same time, after `prepare` each call. `record`, if given, runs the micro-benchmark and records its events
    itself, once in each visit. A round visits the case `visits` times, with the others between. `values` holds the
    parameters for the trace; `flops` and `nbytes` describe a call."""

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
    record: Callable[[Tracer], None] | None = None
    visits: int = 1
    free: Callable[[], None] = lambda: None
