"""Fused updates, planned at the first call with given vectors, because a plan is bound to its vectors."""

from collections.abc import Callable

MOST = 64  # pairs of vectors remembered: restarted GMRES has one for each vector of its basis


class Plans:
    """A cache: `plans(r, z)` returns `make(r, z)`, made once for every pair of arrays; drops the least recently
    used."""

    def __init__(self, make: Callable):
        self._make = make
        self._plans: dict[tuple[int, int], tuple] = {}

    def __call__(self, r, z):
        key = (id(r), id(z))  # unique, because the plan keeps both alive
        entry = self._plans.pop(key, None)
        if entry is None:
            if len(self._plans) == MOST:
                del self._plans[next(iter(self._plans))]
            entry = (r, z, self._make(r, z))
        self._plans[key] = entry
        return entry[2]
