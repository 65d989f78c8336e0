"""Totals that the owner of one block alone needs: gradients of its keys and values, in attention block by block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import prod

from miniapps.partition.cuts.axes import Dim
from miniapps.partition.cuts.steps import Home
from miniapps.partition.planning.decide import Decision
from miniapps.partition.rules.project import Axes

READER = "partition.put_span"


def homes(decisions: Sequence[Decision], reduced: Iterable[str], axes: Axes) -> dict[str, Home]:
    """The home of each of the `reduced` values that nothing reads but a `put_span` among the places of one block."""
    found: dict[str, set[Home | None]] = {name: set() for name in reduced}
    for decision in decisions:
        node = decision.ruled.node
        for tensor in decision.ruled.read:
            if tensor.name not in found:
                continue
            home = None
            if node.target == READER and node.args[1] == f"%{tensor.name}":
                dim, begin = node.args[3:]
                (places,) = decision.needs[-1]
                home = block_at(places, dim, (begin, begin + tensor.shape[dim]), axes)
            found[tensor.name].add(home)
    return {name: home for name, several in found.items() if len(several) == 1 for home in several if home}


def block_at(cut: Dim, dim: int, places: tuple[int, int], axes: Axes) -> Home | None:
    """The block of a cut whose places are [begin, end); None without one."""
    if not cut or cut[0][1] is None or any(axis is not None for _, axis in cut[1:]):
        return None
    (n, axis), *minor = cut
    starts = (start * prod(m for m, _ in minor) for start in axes.by_name[str(axis)].at(n))
    return next((Home(dim, str(axis), b) for b, at in enumerate(pairwise(starts)) if at == places), None)
