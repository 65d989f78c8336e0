"""Detect ranks of this node that died silently, and nodes that do not answer."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PORT = 22  # of ssh; a node without ssh answers, too, by a refusal
ANSWER_S = 2.0
DEAD = ("Z", "X")  # states in /proc/PID/stat of ended processes that their parent has not yet waited for

Peers = dict[int, tuple[int, str]]  # process id and start time by rank


def peers_of(node: Any, rank: int) -> Peers:
    """The ranks of the communicator `node` whose processes this one can see in Linux's /proc; containers may hide them.
    `rank`: this rank of the run. Collective."""
    own = (rank, os.getpid(), alive(os.getpid()))
    return {peer: (pid, start) for peer, pid, start in node.allgather(own) if start and alive(pid) == start}


def dead(peers: Peers) -> int | None:
    """The lowest rank that has ended; None if all live."""
    return min((rank for rank, (pid, start) in peers.items() if alive(pid) != start), default=None)


def answering(hosts: Sequence[str]) -> dict[str, bool]:
    """For each host, whether it answers a TCP connection within ANSWER_S; a refusal is an answer. Leaves out hosts with
    an unknown name."""
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
    """The start time of the process `pid`, which distinguishes it from a later one with this id; empty if it ended."""
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state in DEAD else rest[18]
