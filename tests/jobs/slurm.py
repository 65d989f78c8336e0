"""A Slurm for the tests: Debian's munged, slurmctld and slurmd, with all state in a separate directory.

    def test_a_job_ends(slurm):            # a fixture of conftest.py; skips where none can run
        job = slurm.sbatch("#!/bin/sh\\nhostname\\n")
        slurm.wait(job)                    # {"JobState": "COMPLETED", "ExitCode": "0:0", ...}

Its one node is this machine. With the nodes of `jobs.cluster` each of them has a slurmd, and the first slurmctld and
all commands, as a login node has:

    with cluster(nodes=2) as nodes, start(directory, nodes) as slurm:
        slurm.command("srun", "--mpi=pmi2", "-N2", "-n4", "python", ...)

Nothing of the machine is touched: own configuration (SLURM_CONF), ports, spool, munge key and socket. The daemons
start as root only, since slurmd starts jobs in the name of users.
"""

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from jobs.cluster import Cluster
from jobs.cluster.launch import WITHIN, address

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol", "scancel", "sinfo")
CPUS = 8  # more than there may be: jobs of two tests run side by side, and ranks may share a core
FEATURE = "haswell"  # by which jobs ask for the nodes, a kind of its own
FINAL = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY", "DEADLINE")

CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}({address})
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket
CredType=cred/munge
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool-%n
# Where PMIx has its sockets: hosts that are nodes of a cluster share /tmp.
TmpFS={root}/tmp-%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd-%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
ReturnToService=2
KillWait=2
# MPICH names shared memory by job and step: numbers used before would find what killed ranks have left.
FirstJobId={first}
SchedulerParameters=sched_interval=2,batch_sched_delay=0,sched_min_interval=0
# {cpus} processors of each node, however many the machine has
SlurmdParameters=config_overrides
{hosts}
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP{settings}
"""


def missing():
    """Why Slurm cannot run here (str), or None where it can."""
    if os.geteuid() != 0:
        return "a Slurm of one's own needs root: slurmd starts jobs in the name of users"
    absent = [program for program in PROGRAMS if not shutil.which(program, path=search_path())]
    if absent:
        return f"no {', '.join(absent)} here: apt-get install slurmctld slurmd slurm-client munge"
    try:
        pwd.getpwnam("munge")
    except KeyError:
        return "no user munge, which the package munge makes"
    return None


def search_path():
    """PATH with the directories of daemons, which users seldom have."""
    return os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))


@dataclass(frozen=True)
class Slurm:
    """A running Slurm: its directory, its hosts, the first of which has all commands, the environment in which these
    find it, and the cluster of which the hosts are nodes; None for this machine. `daemons` holds munged, slurmctld and
    one `slurmd-HOST` for each host."""

    root: Path
    hosts: tuple
    environment: dict
    nodes: Cluster | None = None
    daemons: dict = field(default_factory=dict)

    def on(self, host, argv):
        """The command line that runs `argv` on one of the hosts."""
        return list(argv) if self.nodes is None else self.nodes.command(self.hosts.index(host) + 1, argv)

    def command(self, *argv, check=True, cwd=None, env=None):
        """What a command, of Slurm or any other, printed on the first host (str); with `check`, its failure fails the
        test."""
        run = subprocess.run(
            self.on(self.hosts[0], map(str, argv)),
            capture_output=True,
            text=True,
            timeout=60,
            cwd=cwd,
            env={**self.environment, **(env or {})},
        )
        assert not check or run.returncode == 0, f"{' '.join(map(str, argv))}: {run.stdout}{run.stderr}"
        return run.stdout + run.stderr

    def idle(self):
        """Whether all hosts are up and have nothing to do."""
        states = self.command("sinfo", "--noheader", "--Node", "--format=%t", check=False).split()
        return len(states) >= len(self.hosts) and set(states) == {"idle"}  # a line for each partition

    def sbatch(self, script, *options, cwd=None):
        """Submit a script (its text) and return the job's id (str)."""
        file = self.root / f"script-{secrets.token_hex(4)}.sh"
        file.write_text(script)
        return self.command("sbatch", "--parsable", *options, file, cwd=cwd).strip()

    def jobs(self):
        """What Slurm knows of every job: a list of dicts, one per job or element of an array."""
        records = self.command("scontrol", "show", "job", "--oneliner").splitlines()
        return [
            dict(field.split("=", 1) for field in record.split() if "=" in field)
            for record in records
            if record.startswith("JobId=")
        ]

    def job(self, number):
        """What Slurm knows of one job (a dict); for an array `number` is like `12_1`."""
        records = self.jobs()
        for record in records:
            element = f"{record.get('ArrayJobId')}_{record.get('ArrayTaskId')}"
            if number in (record["JobId"], element):
                return record
        for record in records:  # elements that wait share one record
            if number.partition("_")[0] == record.get("ArrayJobId") and not record["ArrayTaskId"].isdigit():
                return record
        raise AssertionError(f"Slurm knows no job {number}: {self.command('squeue', '-t', 'all')}")

    def wait(self, number, until=FINAL, seconds=240):
        """The job's record once its state is one of `until`; the test fails after `seconds`."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            record = self.job(number)
            if record["JobState"] in until:
                return record
            time.sleep(0.2)
        raise AssertionError(f"job {number} is not {' or '.join(until)} after {seconds} s: {record}")


class Daemon:
    """A program in the foreground, with what it prints added to the file `log`."""

    def __init__(self, argv, environment, log):
        self.argv, self.environment, self.log = argv, environment, log
        self.begin()

    def begin(self):
        """Start it, again where it was stopped."""
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                self.argv,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def kill(self):
        """End it as a lost node or a full memory does: without a word. What it has started goes on."""
        self.process.kill()
        self.process.wait()

    def end(self):
        """End it in good order, where it runs."""
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@contextlib.contextmanager
def start(root, nodes=None, settings=""):
    """A Slurm with all its files below `root` (a directory that others can enter), until the block ends; on this
    machine, or on the `nodes` of a cluster (jobs.cluster.Cluster). `settings`: what follows the definition of the
    partition `debug` in its configuration: more for that partition, and lines."""
    if nodes is None:
        addresses = {socket.gethostname().split(".")[0]: "127.0.0.1"}
        more = {}
    else:
        addresses = {f"n{node}": address(node) for node in range(1, nodes.nodes + 1)}
        more = {name: value for variables in WITHIN.values() for name, value in variables.items()}
    environment = {
        **without_job(os.environ),
        **more,
        "SLURM_CONF": str(root / "slurm.conf"),
        "PATH": search_path(),
    }
    slurm = Slurm(root, tuple(addresses), environment, nodes)
    first = slurm.hosts[0]
    of_hosts = [f"{name}-{host}" for host in slurm.hosts for name in ("spool", "tmp")]
    for name in ("state", "munge", *of_hosts):
        (root / name).mkdir(mode=0o755)
    controller_port, node_port = free_ports(2)
    configuration = CONFIGURATION.format(
        root=root,
        host=first,
        address=addresses[first],
        cpus=CPUS,
        hosts="\n".join(
            f"NodeName={host} NodeAddr={place} CPUs={CPUS} RealMemory=1024 Feature={FEATURE} State=UNKNOWN"
            for host, place in addresses.items()
        ),
        first=secrets.randbelow(30_000_000) + 1,
        controller_port=controller_port,
        node_port=node_port,
        settings=settings,
    )
    (root / "slurm.conf").write_text(configuration)
    # Nothing here uses control groups. Without this slurmd looks for them, and in a network namespace there are none.
    (root / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    munge = root / "munge"
    key = munge / "key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    for path in (munge, key):
        shutil.chown(path, "munge", "munge")
    with contextlib.ExitStack() as daemons:

        def run(name, argv):
            slurm.daemons[name] = daemon = Daemon(argv, environment, root / f"{name}.out")
            daemons.callback(daemon.end)

        as_munge = ("setpriv", "--reuid=munge", "--regid=munge", "--clear-groups", "--")
        places = {"socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        options = [f"--{option}={munge}/{file}" for option, file in places.items()]
        # One for all hosts: its socket is a file.
        run("munged", [*as_munge, "munged", "--foreground", *options, f"--key-file={key}"])
        until(lambda: (munge / "socket").exists(), "munged makes no socket", root)
        run("slurmctld", slurm.on(first, ["slurmctld", "-D", "-i"]))
        until(lambda: "is UP" in slurm.command("scontrol", "ping", check=False), "slurmctld is silent", root)
        for host in slurm.hosts:
            run(f"slurmd-{host}", slurm.on(host, ["slurmd", "-D", "-N", host]))
        until(slurm.idle, "the nodes do not come up", root)
        try:
            yield slurm
        finally:
            slurm.command("scancel", "--user=root", check=False)
            with contextlib.suppress(AssertionError):
                until(lambda: not slurm.command("squeue", "-h", check=False), "jobs do not end", root)


def until(condition, complaint, root, seconds=20):
    """Return once `condition()` holds; after `seconds` fail with the ends of the daemons' logs."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.1)
    logs = "\n".join(f"--- {log.name}\n{log.read_text()[-1500:]}" for log in sorted(root.glob("*.out")))
    raise AssertionError(f"{complaint} after {seconds} s\n{logs}")


def free_ports(number):
    """Ports of this machine that nobody listens on."""
    with contextlib.ExitStack() as sockets:
        listeners = [sockets.enter_context(socket.socket()) for _ in range(number)]
        for listener in listeners:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in listeners]


def without_job(variables):
    """An environment without what a job around the tests has set, and without a launcher's variables."""
    prefixes = ("SLURM_", "SBATCH_", "SRUN_", "PMI_", "PMIX_", "OMPI_", "HYDRA_", "HYDI_")
    return {name: value for name, value in variables.items() if not name.startswith(prefixes)}
