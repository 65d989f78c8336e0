"""Ghost entries: elements of a distributed vector that a rank needs and others own, stored after its own.

`plan` determines the messages once. An exchange is then one message per pair of ranks and direction
(`miniapps.layout.messages`). It copies bits and adds nothing, so it cannot affect reproducibility.
"""

from collections.abc import Callable

import numpy as np

from miniapps.layout.messages import Messages, exchange
from miniapps.layout.rows import Rows
from miniapps.trace.records import SENT


def plan(rows: Rows, comm, columns: np.ndarray, dtype="float64", xp=np) -> "Ghosts":
    """Plan the exchange of vectors over `rows` where this rank needs the global rows `columns` (k,) of others.

    Collective over `comm`. Raises ValueError unless `columns` are ascending and owned by others.
    """
    columns = np.ascontiguousarray(columns, np.int64)
    if (np.diff(columns) < 1).any() or (rows.local_of(columns) >= 0).any():
        raise ValueError(f"rank {rows.rank}: ghost columns must be ascending rows that other ranks own")
    return Ghosts(rows, comm, columns, np.dtype(dtype), xp)


class Ghosts:
    """A planned exchange for vectors x of `rows.m` own elements and the ghosts after them, in ascending global order.

    `ghosts(x)` fills x[m : m + k]; so do `start(x)` and `finish(x)`, between which own elements may be read but not
    written. Each exchange sends `nbytes`; call `free()` at the end.
    """

    def __init__(self, rows, comm, columns, dtype, xp):
        owners = rows.owner_of(columns)
        wanted = [rows.local_of(asked) for asked in exchange(comm, owners, columns)]
        self._wanted = xp.asarray(np.concatenate(wanted))
        by_owner = np.argsort(owners, kind="stable")  # the order of `incoming`
        places = np.empty_like(by_owner)
        places[by_owner] = np.arange(len(columns))
        self._places = xp.asarray(places)
        sends = _parts([len(rows) for rows in wanted])
        receives = _parts(np.bincount(owners, minlength=comm.size).tolist())
        self.partners = sorted({*sends, *receives})  # ranks
        self.messages = Messages(comm, sends, receives, dtype, xp)
        self.nbytes = self.messages.nbytes
        self._begin, self._end, self._dtype = rows.m, rows.m + len(columns), dtype
        self._take = _take_at if xp is np else xp.take

    def __call__(self, x) -> None:
        """Fill the ghosts of `x`; raises ValueError if the vector is too short or its type differs from the plan."""
        self.start(x)
        self.finish(x)

    def start(self, x) -> None:
        """Send own elements of `x` to the ranks that need them; raises like `__call__`."""
        if x.ndim != 1 or len(x) < self._end or x.dtype != self._dtype:
            raise ValueError(
                f"ghosts planned for vectors of {self._end} or more {self._dtype} elements, called with "
                f"{x.dtype} {x.shape}; make vectors by operand()"
            )
        if self.messages.requests:
            self._take(x, self._wanted, out=self.messages.outgoing)
            self.messages.start()

    def finish(self, x) -> None:
        """Wait for the messages and store their elements in `x`."""
        if self.messages.requests:
            self.messages.finish()
            self._take(self.messages.incoming, self._places, out=x[self._begin : self._end])

    def free(self) -> None:
        """Release requests and communicator. Collective."""
        self.messages.free()


class WatchedGhosts:
    """Ghosts that `miniapps.runner.watch` observes, with the same interface. `needs` holds, for each own block, the
    places in a vector of the elements that it needs of other blocks, in ascending global order; `owners` (k,) holds the
    owners of the ghosts.
    """

    def __init__(self, ghosts: "Ghosts | WatchedGhosts", rows: Rows, needs, owners: np.ndarray, watch):
        self._inner, self._rows, self._needs, self._watch = ghosts, rows, needs, watch
        self._from = {int(owner): np.flatnonzero(owners == owner) + rows.m for owner in np.unique(owners)}
        self.senders = sorted(self._from)
        self.partners: list[int] = ghosts.partners
        self.nbytes: int = ghosts.nbytes
        self.free: Callable[[], None] = ghosts.free

    def __call__(self, x) -> None:
        """Like `Ghosts`, with a record."""
        self.start(x)
        self.finish(x)

    def start(self, x) -> None:
        """Like `Ghosts.start`, with a record of the own blocks."""
        self._lost = self._watch.due("lost-halo")
        self._watch.record(SENT + "halo", self._rows.own, self.sent(x))
        self._before = x.copy() if self._lost else None
        self._inner.start(x)

    def finish(self, x) -> None:
        """Like `Ghosts.finish`, with a record; a due fault loses a message."""
        self._inner.finish(x)
        self._watch.arrived(self._rows.own, self, x, self._before, self._lost)
        self._before = None

    def sent(self, x):
        """The own blocks of `x`."""
        return self._rows.parts(x)

    def received(self, x):
        """The elements that each own block needs of other blocks."""
        return (x[places] for places in self._needs)

    def restore(self, x, before, sender: int) -> None:
        """Undo the message from rank `sender`: restore in `x` the elements that it held in `before`."""
        x[self._from[sender]] = before[self._from[sender]]


def _take_at(x, places, out):
    np.take(x, places, out=out, mode="clip")  # any mode but the default writes straight into `out`


def _parts(counts: list[int]) -> dict:
    """{peer: (start, stop)} of the messages that are not empty, one after another."""
    ends = np.cumsum([0, *counts]).tolist()
    return {peer: (ends[peer], ends[peer + 1]) for peer, count in enumerate(counts) if count}
