"""Calls of a program that was built twice: by another compiler, with other options.

A call in a program without debugging information is named by an address, `MPI_Allreduce at main+0xd6b`, which another
build has elsewhere. Between two builds the k-th call of one MPI function from one function of the program is the same
call, counted in the order in which the run came to them: that order is the program's, not the compiler's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

ADDRESS = re.compile(r"\+0x[0-9a-f]+")
CALL = re.compile(rf"(\w+ at .+?{ADDRESS.pattern}(?: from .+?{ADDRESS.pattern})*)")


def as_in(first: Iterable[str], other: Iterable[str]) -> dict[str, str]:
    """What the names `other` of one run are called in the run with the names `first`, both in the order in which they
    came up; those that change.

    Empty where any call of both has one address, as in one build. A function is left out where the runs call MPI from
    it at another number of places.
    """
    texts = list(other)
    sites = [_by_function(names) for names in (first, texts)]
    if {site for each in sites[0].values() for site in each} & {
        site for each in sites[1].values() for site in each
    }:
        return {}
    changed = {
        theirs: ours
        for function, found in sites[1].items()
        if len(known := sites[0].get(function, [])) == len(found)
        for theirs, ours in zip(found, known, strict=True)
    }
    renamed = {text: CALL.sub(lambda match: changed.get(match[1], match[1]), text) for text in texts}
    return {text: name for text, name in renamed.items() if name != text}


def _by_function(names: Iterable[str]) -> dict[str, list[str]]:
    """The calls that have addresses, by what is left of them without."""
    found: dict[str, dict[str, None]] = {}
    for name in names:
        for site in CALL.findall(name):
            found.setdefault(ADDRESS.sub("", site), {})[site] = None
    return {function: list(sites) for function, sites in found.items()}
