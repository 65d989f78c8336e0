"""Counts the cores that the ranks of a run have together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

PIECE = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?")  # Linux counts up to 8,192 cores
LONGEST = 4096  # characters of a list


def cores_of(environments: Iterable[Mapping[str, Any]]) -> int | None:
    """The number of cores of ranks with these `environments` from traces; None if one does not say.

    Cores count once per running operating system (`boot`, else the node), since containers and network namespaces of
    one machine appear as nodes but share its cores. Ranks bound to different cores (`affinity`) have their union."""
    listed: dict[str, set[int]] = {}
    counted: dict[str, int] = {}
    for each in environments:
        cores = each.get("cores")
        if not isinstance(cores, int) or cores <= 0:
            return None
        machine = str(each.get("boot") or each.get("node"))
        listed.setdefault(machine, set()).update(_cores(str(each.get("affinity", ""))))
        counted[machine] = max(counted.get(machine, 0), cores)
    return sum(max(len(listed[machine]), cores) for machine, cores in counted.items()) or None


def _cores(affinity: str) -> set[int]:
    """The cores of a list such as `0-3,8`; none for a text that is not a list, or longer than LONGEST."""
    if len(affinity) > LONGEST:
        return set()
    pieces = [PIECE.fullmatch(piece) for piece in affinity.split(",")]
    found: set[int] = set()
    for piece in pieces:
        if piece is None:
            return set()
        found.update(range(int(piece[1]), int(piece[2] or piece[1]) + 1))
    return found
