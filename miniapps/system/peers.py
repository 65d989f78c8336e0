"""The other ranks of this node: which of them died without saying so."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

DEAD = ("Z", "X")  # states of /proc/PID/stat: what nobody has waited for yet is still listed

Peers = dict[int, tuple[int, str]]  # process id and start time by rank


def peers_of(node: Any, rank: int) -> Peers:
    """The ranks of the communicator `node`, this one being `rank` of the run, whose processes can be seen from here:
    not in containers that hide them, nor without Linux's /proc. Collective."""
    own = (rank, os.getpid(), _alive(os.getpid()))
    return {peer: (pid, start) for peer, pid, start in node.allgather(own) if start and _alive(pid) == start}


def dead(peers: Peers) -> int | None:
    """The lowest of the ranks that have ended, if any has."""
    return min((rank for rank, (pid, start) in peers.items() if _alive(pid) != start), default=None)


def _alive(pid: int) -> str:
    """When the process `pid` began, which tells it from a later one of that number; empty if there is none."""
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state in DEAD else rest[18]
