"""Fused updates that are planned at the first call with given vectors, since a plan is bound to its vectors."""

from collections.abc import Callable

MOST = 64  # pairs of vectors remembered: restarted GMRES has one for each vector of its basis


class Plans:
    """`plans(r, z)` is `make(r, z)`, made once for every pair of arrays; those not used for long are forgotten."""

    def __init__(self, make: Callable):
        self._make = make
        self._made: dict[tuple[int, int], tuple] = {}

    def __call__(self, r, z):
        key = (id(r), id(z))  # the plan keeps both alive, so no others can have their places
        made = self._made.pop(key, None)
        if made is None:
            if len(self._made) == MOST:
                del self._made[next(iter(self._made))]
            made = (r, z, self._make(r, z))
        self._made[key] = made
        return made[2]
