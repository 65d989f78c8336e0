"""Several nodes on one machine: creates them, uses them by both MPI libraries, cuts, kills and removes them."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jobs.cluster import ClusterError, cluster, iproute, nodes, registry, traffic
from tests.launch import either_library, environment, launcher, run_python

if reason := iproute.why_not():
    pytest.skip(f"no nodes here: {reason}", allow_module_level=True)

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 100
TINY = (
    "--steps",
    "2",
    "--set",
    "grid.nx=64",
    "--set",
    "grid.ny=64",
    "--guarantee",
    "layout",
    "--closure",
    "physics",
    "--no-progress",
)
SUMS = """
import sys
import numpy as np
import fpna
from mpi4py import MPI

out, ordering = sys.argv[1:]
level = "none" if ordering == "library" else "run"
comm = fpna.wrap(MPI.COMM_WORLD, level, ordering=ordering)
x = np.ones(1 << 18)
with fpna.record(out, comm):
    for _ in range(4):
        comm.Allreduce(x, np.empty_like(x))
"""
CALLS, BYTES = 4, 8 << 18
PEERS = """
import socket, sys, time
if sys.argv[1] == "take":
    with socket.create_server(("", 9999)) as server:
        print("ready", flush=True)
        link, _ = server.accept()
        while link.recv(1 << 20):
            pass
        link.sendall(b".")
else:
    with socket.create_connection((sys.argv[2], 9999)) as link:
        begin = time.perf_counter()
        link.sendall(bytes(int(sys.argv[3])))
        link.shutdown(socket.SHUT_WR)
        link.recv(1)
        print(time.perf_counter() - begin)
"""


@pytest.fixture(scope="module")
def two():
    """Two nodes, 1 Gbit/s each."""
    with cluster(nodes=2, link="1gbit") as made:
        yield made


def mpi_of(library):
    """The keywords by which a job uses this library; skips where it is not installed."""
    command, extra = launcher(library)
    return {"mpi": library, "mpirun": command[0], "environment": environment(extra)}


def python(*argv):
    return [sys.executable, *map(str, argv)]


def jobs(*argv, **env):
    """`python -m jobs cluster ARGV`, as its subprocess.CompletedProcess."""
    return run_python(["-m", "jobs", "cluster", *map(str, argv)], env=env, timeout=LIMIT_S)


def own(name):
    """Namespaces and files of clusters of that name."""
    spaces = [space for space in iproute.namespaces() if space.startswith(f"fpna-{name}-")]
    return spaces + [str(path) for path in registry.DIRECTORY.glob(f"*{name}*")]


def until(true, seconds=20.0):
    """Wait until `true()`."""
    end = time.monotonic() + seconds
    while not (value := true()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
    return value


@either_library
def test_two_nodes_have_the_bits_of_one_rank(two, library, tmp_path):
    coupled = ["-m", "miniapps.coupled", *TINY]
    mpi = mpi_of(library)
    ended = two.run(
        python(*coupled, "--out", tmp_path / "nodes"), 4, 2, LIMIT_S, stdout=subprocess.DEVNULL, **mpi
    )
    assert ended.code == 0
    assert run_python([*coupled, "--out", str(tmp_path / "one")], env=mpi["environment"]).returncode == 0
    nodes, one = (json.loads((tmp_path / run / "result.json").read_text()) for run in ("nodes", "one"))
    assert nodes["fingerprints"] == one["fingerprints"]
    assert len(one["fingerprints"]) == 1
    hosts = [trace.attributes["environment"]["node"] for trace in traffic.traces_of(tmp_path / "nodes")]
    assert hosts == ["n1", "n1", "n2", "n2"]


@either_library
@pytest.mark.parametrize(("ordering", "ranks", "times"), [("ring", 4, 1.5), ("library", 2, None)])
def test_the_bytes_of_an_all_reduce_cross_the_network(two, library, ordering, ranks, times, tmp_path):
    out = tmp_path / "run"
    ended = two.run(python("-c", SUMS, out, ordering), ranks, ranks // 2, LIMIT_S, **mpi_of(library))
    compared = traffic.crossed(out, ended.traffic)
    assert ended.code == 0 and not traffic.verdict(compared)
    stated = CALLS * BYTES * (times or 1)
    assert [one.stated.least for one in compared] == [stated, stated]
    if times:
        assert all(stated < one.sent < 1.05 * stated + traffic.STARTING for one in compared)
    else:
        assert all(one.sent > stated for one in compared)


@either_library
def test_the_halos_and_sums_of_a_solve_are_stated_to_the_byte(two, library, tmp_path):
    """Sums by a schedule, elements of vectors, and the solution, which rank 0 gathers."""
    out = tmp_path / "run"
    grid = ("--nx=64", "--ny=64", "--nz=32", *(f"--set=grid.b{axis}=16" for axis in "xyz"))
    asked = (
        "--preconditioner=jacobi",
        "--tolerance=1e-10",
        "--allreduce=recursive-doubling",
        "--no-progress",
    )
    job = python("-m", "miniapps.solver", *grid, *asked, "--no-progress", "--out", out)
    mpi = mpi_of(library)
    ended = two.run(job, 4, 2, LIMIT_S, stdout=subprocess.DEVNULL, **mpi)
    assert ended.code == 0
    compared = traffic.crossed(out, ended.traffic)
    for one in compared:
        assert one.stated.least == one.stated.most > 4 * traffic.STARTING
        assert abs(one.sent - one.stated.least) < traffic.TOLERANCE * one.stated.least
    assert not traffic.verdict(compared)


def test_a_library_that_goes_around_the_network_is_found_out(tmp_path):
    name = f"around{os.getpid()}"
    with cluster(2, "1gbit", name) as made:
        enter = made.record.folder / "enter"  # without memory of their own, nodes look like one to UCX
        enter.write_text(enter.read_text().replace(" -i -m", "").replace("mount ", "true "))
        out = tmp_path / "run"
        job = python("-c", SUMS, out, "ring")
        done = jobs("run", "--name", name, "-n", 2, "--trace", out, "--", *job, UCX_TLS="all")
        assert done.returncode == 3, done.stderr
        assert re.search(
            r"cluster: messages went around the network: by its trace node n[12] sent at least", done.stderr
        )
        assert (
            jobs("run", "--name", name, "-n", 2, "--trace", out, "--", "true").returncode == 2
        )  # it is there
        again = python("-c", SUMS, tmp_path / "again", "ring")
        done = jobs("run", "--name", name, "-n", 2, "--trace", tmp_path / "again", "--", *again)
        assert done.returncode == 0, done.stderr
        assert "its trace states 8,388,608" in done.stderr


def test_nodes_with_memory_of_their_own_cannot_be_gone_around(two, tmp_path):
    mpi = mpi_of("mpich")
    mpi["environment"]["UCX_TLS"] = "all"
    ended = two.run(python("-c", SUMS, tmp_path / "run", "ring"), 2, 1, LIMIT_S, **mpi)
    assert not traffic.verdict(traffic.crossed(tmp_path / "run", ended.traffic))


def test_a_cluster_stays_until_it_is_taken_down(tmp_path):
    name = f"kept{os.getpid()}"
    try:
        up = jobs("up", "--name", name, "--nodes", 3, "--link", "1gbit", "--link", "2-3=10mbit")
        assert up.returncode == 0, up.stderr
        assert "n1 to n3, 1gbit each, n2 to n3 10mbit. It is a real network" in up.stdout
        assert jobs("up", "--name", name).returncode == 2
        with cluster(1, name=f"other{os.getpid()}"):  # which sweeps
            status = jobs("status").stdout
        assert f"cluster {name}, until `down`, 0 processes in it" in status
        assert f"cluster other{os.getpid()}, while process {os.getpid()} lives" in status
        assert "between n2 and n3: 10mbit each way" in status and "all nodes share the cores" in status
        done = jobs("run", "--name", name, "-n", 3, "--", "sh", "-c", "cat /proc/sys/kernel/hostname; exit 7")
        assert sorted(done.stdout.split()) == ["n1", "n2", "n3"]
        assert done.returncode == 7 and "cluster: n3: sent " in done.stderr
        assert (
            jobs("run", "--quiet", "--name", name, "-n", 7, "--ranks-per-node", 2, "--", "true").returncode
            == 2
        )
        asleep = subprocess.Popen(nodes.Cluster(registry.get(name)).command(2, ["sleep", "1000"]))
        until(lambda: nodes.Cluster(registry.get(name)).processes())
    finally:
        down = jobs("down", "--name", name)
    assert down.returncode == 0 and not own(name)
    assert asleep.wait(10) == -signal.SIGTERM


def test_a_cut_cable_is_seen_and_the_job_goes_on_when_it_is_back(two, tmp_path):
    enough = tmp_path / "enough"
    code = (
        "import os, time; from mpi4py import MPI; c = MPI.COMM_WORLD\n"
        f"open({str(tmp_path / 'begun')!r} + str(c.rank), 'w')\n"
        f"while c.allreduce(os.path.exists({str(enough)!r})) < 2: time.sleep(0.05)\n"
    )
    with two.start(python("-c", code), 2, 1, **mpi_of("mpich")) as job:
        until(lambda: len(list(tmp_path.glob("begun*"))) == 2)
        assert jobs("cut", "--name", two.name, 2).returncode == 0
        try:
            enough.touch()
            described = json.loads(jobs("status", "--json").stdout)
            [mine] = [one for one in described["clusters"] if one["name"] == two.name]
            assert [node["cut"] for node in mine["nodes"]] == two.is_cut() == [False, True]
            with pytest.raises(subprocess.TimeoutExpired):
                job.wait(2)
        finally:
            two.restore(2)
        assert two.is_cut() == [False, False]
        assert job.wait(LIMIT_S).code == 0
    assert jobs("cut", "--name", two.name, 3).returncode == 2


def test_a_signal_to_run_ends_the_ranks_and_nothing_is_left(two, tmp_path):
    code = (
        f"import time, os; open({str(tmp_path / 'rank')!r} + os.environ['PMI_RANK'], 'w'); time.sleep(1000)"
    )
    command = ["-m", "jobs", "cluster", "run", "--name", two.name, "-n", "4", "--", *python("-c", code)]
    running = subprocess.Popen(python(*command), env=environment({}))
    until(lambda: len(list(tmp_path.glob("rank*"))) == 4)
    assert len(two.processes()) >= 4
    running.send_signal(signal.SIGTERM)
    assert running.wait(30) == 143
    assert not two.processes()


def test_what_a_rank_leaves_behind_ends_with_the_job_and_other_jobs_go_on(two, tmp_path):
    code = (
        "import subprocess\n"
        "subprocess.Popen(['sleep', '1000'], start_new_session=True, stdin=-3, stdout=-3, stderr=-3)\n"
        f"open({str(tmp_path / 'left')!r}, 'w')"
    )
    other = subprocess.Popen(two.command(2, ["sleep", "1000"]))
    try:
        until(lambda: two.processes() == [other.pid])
        assert two.run(python("-c", code), 2, 1, LIMIT_S).code == 0
        assert (tmp_path / "left").exists() and two.processes() == [other.pid]
    finally:
        other.kill()
        other.wait()


@pytest.mark.slow
def test_ranks_that_do_not_listen_are_killed(two, tmp_path):
    code = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"open({str(tmp_path / 'rank')!r} + os.environ['PMI_RANK'], 'w'); time.sleep(1000)"
    )
    with two.start(python("-c", code), 4) as job:
        until(lambda: len(list(tmp_path.glob("rank*"))) == 4)
        assert len(job.processes()) >= 4
    assert not job.processes() and not two.processes()


def test_a_cluster_that_was_damaged_is_told_and_can_be_taken_down():
    name = f"broken{os.getpid()}"
    try:
        assert jobs("up", "--quiet", "--name", name).stdout == ""
        [space] = [space for space in own(name) if space.endswith("-n2")]
        iproute.ip("netns", "del", space)
        status = jobs("status")
    finally:
        down = jobs("down", "--name", name)
    assert status.returncode == 1
    assert f"jobs: cluster: {name}: " in status.stderr and "was changed from outside" in status.stderr
    assert down.returncode == 0 and not own(name)


@pytest.fixture
def orphan():
    """The name of a cluster whose owner was killed while a job ran in it, and the processes of that job."""
    name = f"killed{os.getpid()}"
    code = (
        "from jobs.cluster import cluster\n"
        f"with cluster(2, '1gbit', {name!r}) as c: c.run(['sh', '-c', 'echo begun; sleep 1000'], 4)\n"
    )
    with subprocess.Popen(
        python("-c", code), env=environment({}), stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as owner:
        assert owner.stdout.readline() == "begun\n"
        pids = nodes.Cluster(registry.get(name)).processes()
        owner.kill()
    assert own(name) and len(pids) >= 4
    return name, pids


def test_what_a_killed_owner_leaves_is_swept_at_the_next_start(orphan):
    name, pids = orphan
    with cluster(1):
        assert not own(name)
        until(lambda: not [pid for pid in pids if Path(f"/proc/{pid}/exe").exists()])


def test_what_a_killed_owner_leaves_is_no_cluster_and_can_be_taken_down(orphan):
    name, _ = orphan
    assert name not in jobs("status").stdout
    assert jobs("run", "--name", name, "-n", 1, "--", "true").returncode == 2
    assert jobs("down", "--name", name).returncode == 0
    assert not own(name)
    assert jobs("down", "--name", name).returncode == 2


def test_a_namespace_without_a_record_is_swept_too():
    gone = subprocess.Popen(["true"])
    gone.wait()
    name = f"fpna-lost-{gone.pid}-1-n1"
    iproute.ip("netns", "add", name)
    with cluster(1):
        assert name not in iproute.namespaces()


def test_a_failure_while_nodes_are_made_leaves_nothing(monkeypatch):
    def fail(namespace, lines):
        raise ClusterError("tc is out of order")

    monkeypatch.setattr(iproute, "tc_batch", fail)
    name = f"failed{os.getpid()}"
    with pytest.raises(ClusterError, match="out of order"), cluster(2, "1gbit", name):
        pass
    assert not own(name)


def test_a_link_between_two_nodes_has_a_rate_of_its_own():
    def seconds(source, target, size):
        with subprocess.Popen(
            made.command(target, python("-c", PEERS, "take")), stdout=subprocess.PIPE, text=True
        ) as taking:
            assert taking.stdout.readline() == "ready\n"
            give = made.command(source, python("-c", PEERS, "give", f"10.77.0.{target}", size))
            return float(subprocess.run(give, check=True, capture_output=True, text=True).stdout)

    with cluster(3, ["200mbit", "1-2=20mbit", "3=100mbit"]) as made:
        size = 2_500_000  # 20 Mbit, of which 128 KiB pass at once
        limited = [seconds(1, 2, size), seconds(2, 1, size)]
        ports = [seconds(1, 3, size), seconds(3, 2, size)]
    assert min(limited) > 0.85 and min(ports) > 0.15  # of 20 and of 100 Mbit/s
    assert max(ports) < min(limited)


@pytest.mark.slow
def test_most_nodes_that_may_be_asked_for_can_be_made():
    with cluster(nodes.MOST_NODES) as made:
        assert len(made.counters()) == nodes.MOST_NODES
