"""Parses rates of links: `1gbit` for every port, `3=100mbit` for one port, `3-4=100mbit` between two nodes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from jobs.cluster.errors import Usage
from jobs.words import quoted

MOST_NODES = 64
UNITS = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
LEAST, MOST = 10**6, 100 * 10**9  # bits per second; slower links pass no whole packet in time
RATE = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)(kbit|mbit|gbit)", re.ASCII)
LINK = re.compile(r"(?:([0-9]{1,3})(?:-([0-9]{1,3}))?=)?([^=]*)", re.ASCII | re.DOTALL)
FORMS = "write RATE for every node, NODE=RATE for one, or NODE-NODE=RATE between two, such as 3-4=100mbit"


@dataclass(frozen=True)
class Links:
    """Rates in bits per second; None: no limit. Nodes count from 1.

    every   of the port of each node that `ports` does not list
    ports   {node: rate of its port}
    pairs   {(lower node, higher node): rate between them in either direction}
    """

    every: int | None = None
    ports: dict[int, int] = field(default_factory=dict)
    pairs: dict[tuple[int, int], int] = field(default_factory=dict)

    def port(self, node: int) -> int | None:
        """The rate of the port of `node`."""
        return self.ports.get(node, self.every)

    def between(self, node: int) -> dict[int, int]:
        """{other node: rate limit between it and `node`}."""
        return {b if a == node else a: rate for (a, b), rate in self.pairs.items() if node in (a, b)}


def parse_rate(text: str) -> int:
    """The rate in `text` in bits per second: `2.5gbit` is 2500000000. Raises Usage."""
    match = RATE.fullmatch(text)
    if match is None:
        raise Usage(f"{quoted(text)} is no rate: write a number and {', '.join(UNITS)}, such as 1gbit")
    whole, _, part = match[1].partition(".")
    rate = int(whole + part.ljust(6, "0")) * UNITS[match[2]] // 10**6
    if not LEAST <= rate <= MOST:
        raise Usage(f"{text} is outside of {show_rate(LEAST)} to {show_rate(MOST)}")
    return rate


def show_rate(rate: int | None) -> str:
    """`rate` as `parse_rate` reads it; "unlimited" for None."""
    if rate is None:
        return "unlimited"
    unit = next((unit for unit in reversed(UNITS) if rate >= UNITS[unit]), "kbit")
    text = f"{rate / UNITS[unit]:.6f}".rstrip("0").rstrip(".")
    return f"{text}{unit}"


def parse_links(texts: Sequence[str], nodes: int) -> Links:
    """The links of `nodes` nodes; each of `texts` is RATE, NODE=RATE or NODE-NODE=RATE. Raises Usage."""
    every, ports, pairs = None, dict[int, int](), dict[tuple[int, int], int]()
    for text in texts:
        match = LINK.fullmatch(text)
        if match is None:
            raise Usage(f"--link {quoted(text)}: {FORMS}")
        try:
            rate = parse_rate(match[3])
        except Usage as error:
            raise Usage(f"--link {quoted(text)}: {error}") from None
        ends = [int(end) for end in match.group(1, 2) if end is not None]
        if outside := [end for end in ends if not 1 <= end <= nodes]:
            raise Usage(f"--link {quoted(text)}: there is no node {outside[0]}; they are 1 to {nodes}")
        if len(ends) == 2 and ends[0] == ends[1]:
            raise Usage(f"--link {quoted(text)}: a link is between two nodes")
        taken = (
            every is not None if not ends else (ends[0] in ports if len(ends) == 1 else _pair(ends) in pairs)
        )
        if taken:
            raise Usage(f"--link {quoted(text)}: this link has a rate already")
        if not ends:
            every = rate
        elif len(ends) == 1:
            ports[ends[0]] = rate
        else:
            pairs[_pair(ends)] = rate
    return Links(every, ports, pairs)


def _pair(ends: Sequence[int]) -> tuple[int, int]:
    return min(ends), max(ends)
