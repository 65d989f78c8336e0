"""The step of each call: the number of collectives on all ranks before it.

Concurrent calls of threads have another order in every run, but the calls on one communicator keep their order. So if
threads other than the first make collectives on a communicator, its calls are counted separately, from the step at
which it was made.
"""

from __future__ import annotations

import numpy as np

from miniapps.programs.rawlog import FIRST_WRITE, INTER, KINDS, OTHER_THREAD, RawLog

# Calls that all ranks make together.
COLLECTIVES = (
    *range(KINDS.index("MPI_Send")),
    *(
        kind
        for kind in range(FIRST_WRITE, len(KINDS))
        if KINDS[kind].endswith(("_all", "_ordered", "_fence"))
    ),
)


def on_all_ranks(log: RawLog) -> np.ndarray:
    """A mask (n,) of the calls on a communicator of all ranks."""
    rows = log.records
    return np.asarray((rows["comm_size"] == log.size) & (rows["flags"] & INTER == 0))


def steps(log: RawLog) -> np.ndarray:
    """The step of each call, (n,) int64."""
    rows = log.records
    everywhere = on_all_ranks(log) & np.isin(rows["kind"], COLLECTIVES)
    other = rows["flags"] & OTHER_THREAD != 0
    apart = np.isin(rows["comm"], rows["comm"][everywhere & other])
    counted = everywhere & ~apart
    own = _before(counted)
    for comm in np.unique(rows["comm"][apart | other]).tolist():
        born = log.communicators[comm].born if comm in log.communicators else 0
        here = (rows["comm"] == comm) & (apart | other)
        own[here] = np.count_nonzero(counted & (rows["number"] < born)) + _before(everywhere[here])
    return own


def _before(counted: np.ndarray) -> np.ndarray:
    """The number of `counted` calls before each call."""
    return np.asarray(np.cumsum(counted, dtype=np.int64) - counted)
