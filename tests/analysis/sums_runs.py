"""Runs of `reductions` with known sums and times, written by the real tracer."""

from unittest import mock

import numpy as np

from miniapps.trace import Tracer
from miniapps.trace.schema import rank_file
from tests.analysis.synthetic import MS, Clock, attributes

PROMISES = {
    "sum:ao:emulated": "none", "sum:spa:emulated": "none", "sum:spa:native": "none", "sum:sptr:native": "run",
    "sum:numpy:numpy": "run", "sum:exact:native": "exact",
}  # fmt: skip
CONFIG = {
    "run": {"seed": 1},
    "problem": {"operation": "sum", "distribution": "uniform", "dtype": "float64", "sizes": [8], "arrays": 2},
}


def write_sums(
    out, values, times=None, size=1, truth=None, worst=None, promises=PROMISES, nbytes=0, repeats=1, complete=True,
    **more,
):  # fmt: skip
    """Write a run of `reductions` into the new directory `out` and return it.

    `values` {"sum:spa:native:100": (arrays, samples)} are the sums; `truth` {n: (arrays,)}; `worst` {name with
    worst-low or worst-high: (arrays,)}; `times` {name: (samples,)} or {name: (ranks, samples)} the milliseconds of
    one call, of which there is one per array; `nbytes` of each call. All repeats are alike. `more` replaces
    attributes.
    """
    out.mkdir(parents=True)
    values = {name: np.atleast_2d(np.asarray(sums, np.float64)) for name, sums in values.items()}
    times = {name: np.atleast_2d(np.asarray(ms, np.float64)) for name, ms in (times or {}).items()}
    levels = more.pop("guarantee", "none"), more.pop("ordering", "native")
    given = {
        "app": "reductions",
        "config": CONFIG,
        "problem": "p0",
        "run_id": str(out),
        "repeats": repeats,
        **more,
    }
    for rank in range(size):
        clock = Clock()
        with mock.patch("time.perf_counter_ns", clock):
            tracer = Tracer(
                out / rank_file(rank),
                attributes(rank, size, *levels, **given),
                size=size,
            )
            tracer.attributes(promises=dict(promises))
            for repeat in range(repeats):
                tracer.at(repeat, 0)
                if rank == 0:
                    _single(
                        tracer,
                        {f"truth:exact:native:{n}": v for n, v in (truth or {}).items()} | (worst or {}),
                    )
                for sample in range(max(sums.shape[1] for sums in values.values())):
                    tracer.at(repeat, sample)
                    for name, sums in values.items():
                        if sample >= sums.shape[1]:
                            continue
                        for _ in range(len(sums) if name in times else 0):
                            begin = clock.now
                            ms = times[name]
                            clock.now += round(ms[rank % len(ms), sample] * MS)
                            tracer.event(tracer.name(name), begin, nbytes)
                        if rank == 0:
                            tracer.values(name, np.arange(len(sums)), sums[:, sample])
            tracer.close(complete=complete)
    return out


def _single(tracer, named):
    for name, numbers in named.items():
        numbers = np.atleast_1d(numbers)
        tracer.values(name, np.arange(len(numbers)), numbers)
