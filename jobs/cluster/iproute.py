"""Starts `ip` and `tc`, as the only module, and checks that the machine allows it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

from jobs.cluster.errors import ClusterError
from jobs.words import cut

PROGRAMS = {
    "ip": "iproute2",
    "tc": "iproute2",
    "unshare": "util-linux",
    "mount": "mount",
}  # {program: its package}
LIMIT_S = 60


def why_not() -> str:
    """The reason why this machine cannot make nodes, in a sentence; "" if it can. Leaves nothing behind."""
    if os.uname().sysname != "Linux":
        return "network namespaces are Linux's, and this is another system"
    if os.geteuid() != 0:
        return "network namespaces are root's to make: try it as root, or with sudo"
    for program, package in PROGRAMS.items():
        if shutil.which(program) is None:
            return f"there is no program {program} on PATH: install {package}"
    tried = subprocess.run(
        ["unshare", "-n", "-u", "-i", "-m", "true"], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if tried.returncode:
        return (
            f"root may not make namespaces here ({cut(tried.stderr.strip())}), as in most containers: try it on the "
            "host, or give the container the capability SYS_ADMIN"
        )
    return ""


def ip(*words: str) -> str:
    """Returns the output of `ip WORDS`. Raises ClusterError with the command and its output."""
    return output(["ip", *words])


def ip_batch(namespace: str, lines: Sequence[str]) -> None:
    """Runs commands of `ip`, one per line, in a network namespace by a single process. Raises ClusterError."""
    output(["ip", "-n", namespace, "-batch", "-"], "\n".join(lines) + "\n")


def tc_batch(namespace: str, lines: Sequence[str]) -> None:
    """Runs commands of `tc`, one per line, in a network namespace by a single process. Raises ClusterError."""
    output(["tc", "-n", namespace, "-batch", "-"], "\n".join(lines) + "\n")


def links(namespace: str) -> dict[str, dict[str, Any]]:
    """The interfaces of a network namespace by name, as `ip -s -j link` describes them. Raises ClusterError."""
    described = output(["ip", "-n", namespace, "-s", "-j", "link", "show"])
    try:
        return {link["ifname"]: link for link in json.loads(described or "[]")}
    except (ValueError, KeyError, TypeError):
        raise ClusterError(f"`ip -s -j link` prints no JSON here: {cut(described, 200)}") from None


def namespaces() -> list[str]:
    """The names of the network namespaces that `ip netns` lists. Raises ClusterError."""
    return [line.split()[0] for line in ip("netns", "list").splitlines() if line.strip()]


def processes(namespace: str) -> list[int]:
    """The ids of all processes in a network namespace; [] if it is gone."""
    try:
        return [int(word) for word in ip("netns", "pids", namespace).split()]
    except ClusterError:
        return []


def output(command: Sequence[str], given: str | None = None) -> str:
    try:
        done = subprocess.run(
            command,
            input=given,
            stdin=subprocess.DEVNULL if given is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_S,
        )
    except OSError as error:
        raise ClusterError(f"{command[0]} cannot be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise ClusterError(f"`{' '.join(command)}` does not end in {LIMIT_S} s") from None
    if done.returncode:
        what = f" ({cut(given, 400)})" if given else ""
        raise ClusterError(
            f"`{' '.join(command)}`{what} failed: {cut((done.stderr or done.stdout).strip()) or 'it says nothing'}"
        )
    return done.stdout
