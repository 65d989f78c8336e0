"""The other ranks of this node: which of them died without saying so. Other nodes: which of them answer."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PORT = 22  # nodes of a cluster have a shell there, and answer also where they have none
ANSWER_S = 2.0
DEAD = ("Z", "X")  # states of /proc/PID/stat: what nobody has waited for yet is still listed

Peers = dict[int, tuple[int, str]]  # process id and start time by rank


def peers_of(node: Any, rank: int) -> Peers:
    """The ranks of the communicator `node`, this one being `rank` of the run, whose processes can be seen from here:
    not in containers that hide them, nor without Linux's /proc. Collective."""
    own = (rank, os.getpid(), alive(os.getpid()))
    return {peer: (pid, start) for peer, pid, start in node.allgather(own) if start and alive(pid) == start}


def dead(peers: Peers) -> int | None:
    """The lowest of the ranks that have ended, if any has."""
    return min((rank for rank, (pid, start) in peers.items() if alive(pid) != start), default=None)


def answering(hosts: Sequence[str]) -> dict[str, bool]:
    """Of each host whether it answers a TCP connection from here, be it by a refusal, in ANSWER_S; without those whose
    name is not known here."""
    answers: dict[str, bool] = {}

    def ask(host: str) -> None:
        try:
            socket.create_connection((host, PORT), timeout=2 * ANSWER_S).close()
            answers[host] = True
        except ConnectionRefusedError:
            answers[host] = True
        except socket.gaierror:
            answers.pop(host, None)
        except OSError:
            pass

    asking = [threading.Thread(target=ask, args=(host,), daemon=True) for host in hosts]
    answers.update(dict.fromkeys(hosts, False))
    for thread in asking:
        thread.start()
    end = time.monotonic() + ANSWER_S
    for thread in asking:
        thread.join(max(0.0, end - time.monotonic()))
    return dict(answers)


def alive(pid: int) -> str:
    """When the process `pid` began, which tells it from a later one of that number; empty if there is none."""
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state in DEAD else rest[18]
