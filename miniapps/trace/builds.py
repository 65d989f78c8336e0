"""Matches the calls of two builds of one program, by different compilers or options.

Without debugging information an address names a call, `MPI_Allreduce at main+0xd6b`, and the address differs between
builds. The k-th call site of an MPI function in a function of the program is the same in both builds, counted in the
order in which the run reached the sites: the program decides this order, not the compiler.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

ADDRESS = re.compile(r"\+0x[0-9a-f]+")
CALL = re.compile(rf"(\w+ at .+?{ADDRESS.pattern}(?: from .+?{ADDRESS.pattern})*)")


def as_in(first: Iterable[str], other: Iterable[str]) -> dict[str, str]:
    """Returns {name in `other`: name in `first`} for the names that differ between two runs; both lists in the order
    in which the runs reached the names.

    Empty if the runs share any address, as runs of one build do. Skips functions that call MPI from different numbers
    of places in the two runs.
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
    """The calls with addresses, grouped by their text without the addresses."""
    found: dict[str, dict[str, None]] = {}
    for name in names:
        for site in CALL.findall(name):
            found.setdefault(ADDRESS.sub("", site), {})[site] = None
    return {function: list(sites) for function, sites in found.items()}
