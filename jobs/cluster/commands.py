"""`python -m jobs cluster COMMAND`: several nodes on this machine."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jobs.cluster import iproute, nodes, registry
from jobs.cluster.errors import ClusterError, Usage
from jobs.cluster.launch import LIBRARIES, address
from jobs.cluster.links import FORMS, MOST_NODES, show_rate
from jobs.cluster.nodes import Cluster, Job
from jobs.cluster.registry import Record
from kernels.as_json import Document, document, rows
from kernels.commands.options import add_json, add_loudness, add_version
from miniapps.system import interrupts
from miniapps.untrusted.text import tell

DONE, FAILED, BAD_USAGE, AROUND, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 130, 143
GRACE_S = 10  # time for the ranks to save their data after a signal

WHAT_IT_IS = (
    "It is a real network for correctness, placement, bandwidth-bound behaviour, unequal and cut links. It is no "
    "machine to time computation or latency on: all nodes share the cores, and a message waits for the kernel, some "
    "10 us with a free core for each rank, 50 us to milliseconds without."
)
DESCRIPTION = f"""\
Several nodes on this machine: network namespaces with host names n1, n2, ..., addresses and links of a chosen rate,
across which MPICH and Open MPI launch. Linux, root only; nothing passes to or from the network of the machine.

{textwrap.fill(WHAT_IT_IS + " See docs/how-to/cluster.md.", 118)}
"""
EXAMPLES = """\
examples:
  python -m jobs cluster up --nodes 4 --link 1gbit --link 3-4=100mbit
  python -m jobs cluster run -n 8 --ranks-per-node 2 -- python -m miniapps.coupled --out two
  python -m jobs cluster run -n 8 --mpi openmpi --trace mine -- python mine.py
  python -m jobs cluster status
  python -m jobs cluster cut 2
  python -m jobs cluster down

exit codes: of run: that of the job, or 3 where --trace shows that messages went around the network; else 0 done; 1 it
cannot be; 2 usage; 130 SIGINT, 143 SIGTERM
"""

DOCUMENTS = {
    "jobs cluster status": Document(
        rows=(
            rows(
                "clusters",
                "a cluster",
                """
            name | text
            kept | text | until when, in words
            processes | integer | that run in its nodes
            nodes | list of objects | of each `host`, `address`, `port` (its rate, or `unlimited`), `cut`, and since it
              was made `sent_bytes`, `sent_packets`, `received_bytes`, `received_packets`
            limits | list of objects | between two nodes: `nodes`, their numbers, and `rate`
            """,
            ),
        )
    )
}


def add_commands(parser: argparse.ArgumentParser) -> None:
    """Adds the commands to `parser`."""
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add_version(parser)
    commands = parser.add_subparsers(dest="action", required=True, metavar="COMMAND", title="commands")

    def command(name: str, help: str, description: str = "", quiet: str = "") -> argparse.ArgumentParser:
        text = description or help[0].upper() + help[1:] + "."
        subparser = commands.add_parser(name, help=help, description=text)
        subparser.add_argument(
            "--name", default="cluster", help="which, where there are several (default: %(default)s)"
        )
        if quiet:
            add_loudness(subparser, quiet)
        return subparser

    up = command("up", "make nodes, which stay until `down`", quiet="only what goes wrong")
    up.add_argument("--nodes", type=int, default=2, metavar="N", help=f"1 to {MOST_NODES} (default: 2)")
    up.add_argument(
        "--link",
        action="append",
        default=[],
        metavar="RATE",
        help=f"{FORMS}; units kbit, mbit, gbit; without: as fast as the kernel is; may be repeated",
    )
    run = command(
        "run", "run an MPI job in the nodes",
        "Run COMMAND on ranks in the nodes: of the first node, then of the next.", "only the output of the job",
    )  # fmt: skip
    run.add_argument("-n", type=int, required=True, metavar="RANKS", dest="ranks", help="how many ranks")
    run.add_argument("--ranks-per-node", type=int, metavar="R", help="(as few as fit)")
    run.add_argument("--mpi", default="mpich", metavar="LIBRARY", help=f"{' or '.join(LIBRARIES)} (mpich)")
    run.add_argument("--mpirun", metavar="PATH", help="its launcher (beside this python, or on PATH)")
    run.add_argument(
        "--trace",
        type=Path,
        metavar="RUN",
        help="compare what the interfaces count with the traces that the job writes into this directory; exit code 3 "
        "where messages went around the network",
    )
    run.add_argument("words", nargs="+", metavar="-- COMMAND", help="the program and its options")
    status = command("status", "show all clusters: nodes, links, bytes at their interfaces")
    add_json(status)
    command("down", "end what runs in the nodes, and remove them", quiet="only what goes wrong")
    for name, help in (("cut", "pull the cable of a node"), ("restore", "put the cable of a node back")):
        one = command(name, help, quiet="only what goes wrong")
        one.add_argument("node", type=int, metavar="NODE", help="its number, from 1")


def run_command(options: argparse.Namespace) -> int:
    """Runs one command; returns the exit code."""
    try:
        return COMMANDS[options.action](options)
    except Usage as error:
        return _wrong(error, BAD_USAGE)
    except ClusterError as error:
        return _wrong(error, FAILED)
    except KeyboardInterrupt:
        return _wrong("interrupted", INTERRUPTED)
    except interrupts.Terminated:
        return _wrong("ended by SIGTERM or SIGHUP", TERMINATED)


def make(options: argparse.Namespace) -> int:
    """The command `up`: makes a cluster."""
    cluster = nodes.up(options.nodes, options.link, options.name, kept=True)
    if not options.quiet:
        hosts = "n1" if cluster.nodes == 1 else f"n1 to n{cluster.nodes}"
        tell(f"cluster {cluster.name} is up: {hosts}, {_links(cluster)}. {WHAT_IT_IS}")
        of_name = "" if cluster.name == "cluster" else f" --name {cluster.name}"
        tell(f"next: python -m jobs cluster run{of_name} -n {2 * cluster.nodes} -- COMMAND")
    return DONE


def run(options: argparse.Namespace) -> int:
    """The command `run`: runs an MPI job in the nodes."""
    cluster = _get(options.name)
    if options.trace is not None and options.trace.is_dir() and any(options.trace.iterdir()):
        raise Usage(
            f"--trace {options.trace}: holds files already; name the directory that this job will write"
        )
    with cluster.start(
        options.words, options.ranks, options.ranks_per_node, options.mpi, options.mpirun
    ) as job:
        try:
            ended = job.wait()
        except KeyboardInterrupt:
            return _pass_on(job, signal.SIGINT, INTERRUPTED)
        except interrupts.Terminated:
            return _pass_on(job, signal.SIGTERM, TERMINATED)
    if not options.quiet:
        for node, counters in enumerate(ended.traffic, start=1):
            _note(
                f"n{node}: sent {counters.sent_bytes:,} bytes in {counters.sent_packets:,} packets, "
                f"received {counters.received_bytes:,}"
            )
    if options.trace is None or ended.code:
        return ended.code
    from jobs.cluster import traffic

    compared = traffic.crossed(options.trace, ended.traffic)
    for one in [] if options.quiet else compared:
        least, most = one.stated.least, one.stated.most
        more = "" if most == least else " or more" if most is None else f" to {most:,.0f}"
        _note(f"n{one.node}: sent {one.sent:,.0f} bytes without headers; its trace states {least:,.0f}{more}")
    if text := traffic.verdict(compared):
        _note(text)
    return AROUND if any(one.around for one in compared) else DONE


def show(options: argparse.Namespace) -> int:
    """The command `status`: shows all clusters."""
    _require()
    described, code = [], DONE
    for record in registry.known():
        try:
            described.append(_describe(Cluster(record)))
        except ClusterError as error:
            remedy = f"`python -m jobs cluster down --name {record.name}` removes what is left of it"
            code = _wrong(f"{record.name}: {error}; {remedy}", FAILED)
    if options.json:
        tell(document(1, "jobs cluster status", clusters=described), keep="\n")
        return code
    if not described:
        tell("no cluster is up; `python -m jobs cluster up` makes one")
        return code
    for one in described:
        tell(f"cluster {one['name']}, {one['kept']}, {one['processes']} processes in it")
        tell(
            f"  {'node':5} {'address':12} {'port':>10} {'cable':>6} {'sent bytes':>15} {'received bytes':>15}"
        )
        for node in one["nodes"]:
            tell(
                f"  {node['host']:5} {node['address']:12} {node['port']:>10} {'cut' if node['cut'] else 'in':>6} "
                f"{node['sent_bytes']:>15,} {node['received_bytes']:>15,}"
            )
        for limit in one["limits"]:
            tell(f"  between n{limit['nodes'][0]} and n{limit['nodes'][1]}: {limit['rate']} each way")
    tell(WHAT_IT_IS)
    return code


def remove(options: argparse.Namespace) -> int:
    """The command `down`: removes a cluster."""
    registry.check_name(options.name)
    _require()
    if options.name not in registry.sweep():
        Cluster(registry.get(options.name)).down()
    if not options.quiet:
        tell(f"cluster {options.name} is gone")
    return DONE


def cut_cable(options: argparse.Namespace) -> int:
    """The command `cut`: pulls the cable of a node."""
    cluster = _get(options.name)
    cluster.cut(options.node)
    if not options.quiet:
        tell(
            f"n{options.node} is cut off; `python -m jobs cluster restore {options.node}` puts its cable back"
        )
    return DONE


def restore_cable(options: argparse.Namespace) -> int:
    """The command `restore`: puts the cable of a node back."""
    cluster = _get(options.name)
    cluster.restore(options.node)
    if not options.quiet:
        tell(f"n{options.node} is connected")
    return DONE


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "up": make,
    "run": run,
    "status": show,
    "down": remove,
    "cut": cut_cable,
    "restore": restore_cable,
}


def _require() -> None:
    """Raises ClusterError if this machine cannot make nodes."""
    if reason := iproute.why_not():
        raise ClusterError(reason)


def _get(name: str) -> Cluster:
    registry.check_name(name)
    _require()
    return Cluster(registry.get(name))


def _pass_on(job: Job, number: int, code: int) -> int:
    """Passes a signal on to the ranks, and waits GRACE_S for them to end; returns `code`."""
    job.signal(number)
    try:
        job.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        _note(f"the job did not end in {GRACE_S} s, and is killed")
    except (KeyboardInterrupt, interrupts.Terminated):
        _note("the job is killed")
    return code


def _describe(cluster: Cluster) -> dict[str, Any]:
    record: Record = cluster.record
    rows: Sequence[dict[str, Any]] = [
        {
            "host": f"n{node}",
            "address": address(node),
            "port": show_rate(cluster.links.port(node)),
            "cut": cut,
            "sent_bytes": counters.sent_bytes,
            "sent_packets": counters.sent_packets,
            "received_bytes": counters.received_bytes,
            "received_packets": counters.received_packets,
        }
        for node, (cut, counters) in enumerate(
            zip(cluster.is_cut(), cluster.counters(), strict=True), start=1
        )
    ]
    return {
        "name": cluster.name,
        "kept": "until `down`" if record.kept else f"while process {record.owner.pid} lives",
        "processes": len(cluster.processes()),
        "nodes": rows,
        "limits": [
            {"nodes": [a, b], "rate": show_rate(rate)} for (a, b), rate in cluster.links.pairs.items()
        ],
    }


def _links(cluster: Cluster) -> str:
    links = cluster.links
    parts = [f"{show_rate(links.every)} each"]
    parts += [f"n{node} {show_rate(rate)}" for node, rate in links.ports.items()]
    parts += [f"n{a} to n{b} {show_rate(rate)}" for (a, b), rate in links.pairs.items()]
    return ", ".join(parts)


def _note(text: str) -> None:
    """Prints a line to stderr, apart from the output of the job."""
    tell(f"cluster: {text}", sys.stderr)


def _wrong(what: object, code: int) -> int:
    tell(f"jobs: cluster: {what}", sys.stderr, keep="\n")
    return code
