"""Makes nodes: network namespaces, each joined by a link to a switch, which is a bridge in another namespace."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from jobs.cluster import iproute, registry
from jobs.cluster.errors import ClusterError, Usage
from jobs.cluster.launch import INTERFACE, address, launch, library, spread, write_scripts
from jobs.cluster.links import MOST_NODES, Links, parse_links
from jobs.cluster.registry import Limit, Record
from jobs.processes import identity
from miniapps.system import interrupts
from miniapps.system.environment import without_rank

JOB = "FPNA_CLUSTER_JOB"  # marks the processes of a job, since some leave its session
# BURST: the size of a token bucket, in seconds of its rate and at least LEAST_BURST bytes. Packets have up to 64 KiB; a
# bucket of one packet would split them, which costs a sixth of 1 Gbit/s. QUEUE: the queue of a port, above which
# packets are dropped.
BURST_S, LEAST_BURST = 0.0005, 128 * 1024
QUEUE_S, LEAST_QUEUE = 0.02, 256 * 1024
UNLIMITED = 400 * 10**9  # bits per second, for classes without a limit, since each must have a rate


@dataclass(frozen=True)
class Counters:
    """The traffic at the interface of a node, headers included, since it was made or between two readings."""

    sent_bytes: int
    sent_packets: int
    received_bytes: int
    received_packets: int

    def __sub__(self, before: Counters) -> Counters:
        return Counters(
            self.sent_bytes - before.sent_bytes,
            self.sent_packets - before.sent_packets,
            self.received_bytes - before.received_bytes,
            self.received_packets - before.received_packets,
        )


@dataclass(frozen=True)
class Ended:
    """The end of a job: the exit code of its launcher, and the traffic of the job at the interface of each node."""

    code: int
    traffic: list[Counters]


class Job:
    """A running job, made by `Cluster.start`. As a context manager it ends all processes of the job."""

    def __init__(self, cluster: Cluster, process: subprocess.Popen[Any], mark: str):
        self._cluster, self._process, self._mark = cluster, process, mark
        self._before = cluster.counters()

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def wait(self, timeout: float | None = None) -> Ended:
        """Waits for its end; the code is 128 + n if signal n ended the launcher. Raises subprocess.TimeoutExpired."""
        code = self._process.wait(timeout)
        traffic = [now - then for now, then in zip(self._cluster.counters(), self._before, strict=True)]
        return Ended(128 - code if code < 0 else code, traffic)

    def signal(self, number: int) -> None:
        """Sends a signal to the launcher, which passes it on to the ranks."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def processes(self) -> list[int]:
        """The ids of its processes, in all nodes."""
        entry = f"{JOB}={self._mark}".encode()
        return [pid for pid in self._cluster.processes() if entry in _environment_of(pid)]

    def end(self) -> None:
        """Ends its processes, which may outlive the launcher, by SIGTERM, then SIGKILL. Raises ClusterError."""
        with interrupts.held():
            if self._process.poll() is None:
                self.signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(registry.GRACE_S)
            registry.end(self.processes(), iter(self.processes, None))
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait()


class Cluster:
    """A cluster that is up."""

    def __init__(self, record: Record):
        self.record = record
        self.name, self.nodes = record.name, record.nodes
        self.links = Links(
            record.every,
            {limit.a: limit.rate for limit in record.limits if limit.b is None},
            {(limit.a, limit.b): limit.rate for limit in record.limits if limit.b is not None},
        )

    def run(
        self,
        command: Sequence[str],
        ranks: int,
        ranks_per_node: int | None = None,
        timeout: float | None = None,
        **more: Any,
    ) -> Ended:
        """Runs `command` on `ranks` ranks and waits for its end; `more` as in `start`.

        No process of the job is left afterwards, also after an exception. Raises subprocess.TimeoutExpired, and the
        errors of `start`."""
        with self.start(command, ranks, ranks_per_node, **more) as job:
            return job.wait(timeout)

    def start(
        self,
        command: Sequence[str],
        ranks: int,
        ranks_per_node: int | None = None,
        mpi: str = "mpich",
        mpirun: str | None = None,
        environment: Mapping[str, str] | None = None,
        stdout: IO[Any] | int | None = None,
        stderr: IO[Any] | int | None = None,
        cwd: str | os.PathLike[str] | None = None,
    ) -> Job:
        """Starts `command` under the launcher of `mpi`; nodes 1, 2, ... are filled with ranks in order.

        `mpirun`: replaces the launcher that `library` finds. `environment`: added to the environment of this process,
        without variables that mark a process as a rank. Raises Usage if ranks do not fit, ClusterError if the library
        is missing.
        """
        counts = spread(ranks, ranks_per_node, self.nodes)
        found, loading = library(mpi, mpirun)
        whole = without_rank() | loading | dict(environment or {})
        planned = launch(self.record.folder, counts, command, mpi, found, whole)
        mark = secrets.token_hex(8)
        try:
            process = subprocess.Popen(
                planned.command,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                cwd=cwd,
                env=whole | planned.environment | {JOB: mark},
                start_new_session=True,  # Ctrl-C reaches only this process, which passes it on
            )
        except OSError as error:
            raise ClusterError(f"{planned.command[0]} cannot be started: {error.strerror}") from None
        return Job(self, process, mark)

    def command(self, node: int, words: Sequence[str]) -> list[str]:
        """The command that runs `words` in `node`, which counts from 1, without MPI. Raises Usage."""
        self._require_node(node)
        return [str(self.record.folder / "enter"), str(node), *words]

    def counters(self) -> list[Counters]:
        """The traffic at the interface of each node since the node was made. Raises ClusterError."""
        return [_counters(iproute.links(self._namespace(node))) for node in range(1, self.nodes + 1)]

    def cut(self, node: int) -> None:
        """Cuts the link of `node`, which counts from 1, to the switch. Raises Usage, ClusterError."""
        self._require_node(node)
        iproute.ip("-n", self.record.namespaces[-1], "link", "set", f"port{node}", "down")

    def restore(self, node: int) -> None:
        """Restores the link of `node`. Raises Usage, ClusterError."""
        self._require_node(node)
        iproute.ip("-n", self.record.namespaces[-1], "link", "set", f"port{node}", "up")

    def is_cut(self) -> list[bool]:
        """For each node True if its link is cut. Raises ClusterError."""
        ports = iproute.links(self.record.namespaces[-1])
        try:
            return ["UP" not in ports[f"port{node}"]["flags"] for node in range(1, self.nodes + 1)]
        except KeyError as error:
            raise ClusterError(
                f"the switch has no {error}: it was changed from outside; make it anew"
            ) from None

    def processes(self) -> list[int]:
        """The ids of all processes in its nodes."""
        return [pid for name in self.record.namespaces for pid in iproute.processes(name)]

    def down(self) -> None:
        """Removes the cluster, and ends all processes in it. Raises ClusterError."""
        with interrupts.held():
            registry.remove(self.record)

    def _namespace(self, node: int) -> str:
        return self.record.namespaces[node - 1]

    def _require_node(self, node: int) -> None:
        if not 1 <= node <= self.nodes:
            raise Usage(f"there is no node {node}: they are 1 to {self.nodes}")


@contextlib.contextmanager
def cluster(nodes: int, link: str | Sequence[str] = (), name: str | None = None) -> Iterator[Cluster]:
    """Makes a cluster for the block and removes it afterwards; `link`: one or several values of --link.

    If this process is killed, the next call that makes a cluster removes it. Raises Usage, ClusterError."""
    made = up(nodes, [link] if isinstance(link, str) else link, registry.own_name() if name is None else name)
    try:
        yield made
    finally:
        made.down()


def up(nodes: int, link: Sequence[str], name: str, kept: bool = False) -> Cluster:
    """Makes a cluster, after removing clusters that were left behind.

    It stays until `down` if `kept`, else while this process lives. On a failure everything made so far is removed.
    Raises Usage before anything is made, ClusterError.
    """
    registry.check_name(name)
    if not 1 <= nodes <= MOST_NODES:
        raise Usage(f"--nodes {nodes}: choose 1 to {MOST_NODES}")
    links = parse_links(link, nodes)
    if reason := iproute.why_not():
        raise ClusterError(reason)
    registry.sweep()
    limits = [Limit(rate, node) for node, rate in links.ports.items()]
    limits += [Limit(rate, a, b) for (a, b), rate in links.pairs.items()]
    record = Record(
        name=name, nodes=nodes, every=links.every, limits=limits, kept=False, owner=identity(os.getpid())
    )
    registry.enter(record)
    try:
        write_scripts(record.folder, record.prefix, nodes)
        _make(record, links)
        return Cluster(registry.keep(record) if kept else record)
    except BaseException:
        with interrupts.held():
            registry.remove(record)
        raise


def _make(record: Record, links: Links) -> None:
    *nodes, switch = record.namespaces
    for namespace in record.namespaces:
        iproute.ip("netns", "add", namespace)
    ports = [
        "link set lo up",
        "link add br0 type bridge mcast_snooping 0",
        "link set br0 addrgenmode none up",
    ]
    for node, namespace in enumerate(nodes, start=1):
        ports += [
            f"link add port{node} type veth peer name {INTERFACE} netns {namespace}",
            f"link set port{node} addrgenmode none master br0 up",
        ]
    iproute.ip_batch(switch, ports)
    for node, namespace in enumerate(nodes, start=1):
        iproute.ip_batch(
            namespace,
            [
                "link set lo up",
                f"link set {INTERFACE} addrgenmode none up",
                f"address add {address(node)}/24 dev {INTERFACE}",
            ],
        )
    into = [
        _bucket(f"port{node}", rate)
        for node in range(1, record.nodes + 1)
        if (rate := links.port(node)) is not None
    ]
    if into:
        iproute.tc_batch(switch, into)
    for node, namespace in enumerate(nodes, start=1):
        if lines := _out_of(links.port(node), links.between(node)):
            iproute.tc_batch(namespace, lines)


def _out_of(rate: int | None, limits: Mapping[int, int]) -> list[str]:
    """The lines of `tc` for the traffic out of a node: one bucket, or a class for each node with a separate limit."""
    if not limits:
        return [] if rate is None else [_bucket(INTERFACE, rate)]
    most = rate or UNLIMITED
    lines = [
        f"qdisc add dev {INTERFACE} root handle 1: htb default ff",
        _class("1:", "1:fe", most, most),
        _class("1:fe", "1:ff", most, most),
    ]
    for other, limit in limits.items():
        own = min(limit, most)
        lines += [
            _class("1:fe", f"1:{other:x}", own, own),
            f"filter add dev {INTERFACE} parent 1: protocol ip prio 1 u32 match ip dst {address(other)}/32 "
            f"flowid 1:{other:x}",
        ]
    return lines


def _bucket(device: str, rate: int) -> str:
    queue = _burst(rate) + max(int(rate / 8 * QUEUE_S), LEAST_QUEUE)
    return f"qdisc add dev {device} root tbf rate {rate}bit burst {_burst(rate)} limit {queue}"


def _class(parent: str, name: str, rate: int, ceiling: int) -> str:
    burst = _burst(rate)
    return (
        f"class add dev {INTERFACE} parent {parent} classid {name} htb rate {rate}bit ceil {ceiling}bit "
        f"burst {burst} cburst {burst} quantum 60000"
    )


def _burst(rate: int) -> int:
    return max(int(rate / 8 * BURST_S), LEAST_BURST)


def _counters(links: Mapping[str, Any]) -> Counters:
    try:
        sent, received = (links[INTERFACE]["stats64"][side] for side in ("tx", "rx"))
        return Counters(sent["bytes"], sent["packets"], received["bytes"], received["packets"])
    except KeyError as error:
        raise ClusterError(
            f"a node's {INTERFACE} has no {error}: it was changed from outside; make it anew"
        ) from None


def _environment_of(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # the process has ended
        return []
