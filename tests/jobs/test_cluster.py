"""Several nodes on one machine: options, refusals and traces; no test here creates a node."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from jobs import __main__ as jobs_main
from jobs.cluster import iproute, nodes, registry, traffic
from jobs.cluster.errors import ClusterError, Usage
from jobs.cluster.launch import launch, library, spread
from jobs.cluster.links import LEAST, MOST, Links, parse_links, parse_rate, show_rate
from jobs.cluster.nodes import Counters
from jobs.cluster.registry import Record
from jobs.cluster.traffic import Crossed, Stated
from jobs.processes import identity
from kernels.allreduce.packing import Packing, SpanningTree
from miniapps.trace.reader import RankTrace


def main(*argv):
    """The exit code of `python -m jobs cluster ARGV`, however it comes."""
    try:
        return jobs_main.main(["cluster", *map(str, argv)])
    except SystemExit as end:
        return end.code


@pytest.fixture
def nothing_made(monkeypatch, tmp_path):
    """A machine without clusters, on which every command of the system fails the test."""

    def never(*command, **more):
        pytest.fail(f"{command} was started")

    monkeypatch.setattr(registry, "DIRECTORY", tmp_path / "clusters")
    monkeypatch.setattr(iproute, "why_not", lambda: "")
    monkeypatch.setattr(iproute, "output", never)
    yield
    assert not (tmp_path / "clusters").exists()


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["up", "--nodes", "0"], "--nodes 0: choose 1 to 64"),
        (["up", "--nodes", "1000000"], "--nodes 1000000: choose 1 to 64"),
        (["up", "--link", "fast"], "--link 'fast': 'fast' is no rate: write a number and kbit, mbit, gbit"),
        (["up", "--link", "1gbit", "--link", "2gbit"], "--link '2gbit': this link has a rate already"),
        (["up", "--link", "2-1=1gbit", "--link", "1-2=2gbit"], "--link '1-2=2gbit': this link has a rate already"),
        (["up", "--link", "3=1gbit"], "--link '3=1gbit': there is no node 3; they are 1 to 2"),
        (["up", "--link", "1-1=1gbit"], "a link is between two nodes"),
        (["up", "--link", "1kbit"], "1kbit is outside of 1mbit to 100gbit"),
        (["up", "--name", "../x"], "'../x' is no name of a cluster: a small letter, then"),
        (["up", "--name", "a\x1b[2J"], "is no name of a cluster"),
        (["up", "--name", ""], "'' is no name of a cluster"),
        (["run", "-n", "2", "--", "true"], "there is no cluster 'cluster'; `python -m jobs cluster up` makes one"),
        (["cut", "1", "--name", "other"], "there is no cluster 'other'"),
        (["restore", "1", "--name", "A"], "'A' is no name of a cluster"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_one_line_with_code_2_before_anything_is_made(
    argv, said, nothing_made, capsys
):
    assert main(*argv) == 2
    error = capsys.readouterr().err
    assert said in error and error.startswith("jobs: cluster: ")
    assert error.count("\n") == 1 and "\x1b" not in error


@pytest.mark.parametrize(
    "argv", [["up", "--nodes", "many"], ["run", "--", "true"], ["run", "-n", "2"], ["cut"], []]
)
def test_an_incomplete_command_line_is_answered_in_one_line(argv, nothing_made, capsys):
    assert main(*argv) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("python -m jobs cluster") and line.endswith("--help shows the usage")


@pytest.mark.parametrize(
    "argv", [["up"], ["run", "-n", "2", "--", "true"], ["status"], ["down"], ["cut", "1"]]
)
def test_without_root_it_says_so(argv, monkeypatch, capsys):
    monkeypatch.setattr(iproute.os, "geteuid", lambda: 1000)
    assert main(*argv) == 1
    assert "network namespaces are root's to make" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("missing", "package"), [("ip", "iproute2"), ("tc", "iproute2"), ("unshare", "util-linux")]
)
def test_a_program_that_is_absent_is_named_with_its_package(missing, package, monkeypatch):
    monkeypatch.setattr(iproute.os, "geteuid", lambda: 0)
    monkeypatch.setattr(iproute.shutil, "which", lambda name: None if name == missing else f"/sbin/{name}")
    assert iproute.why_not() == f"there is no program {missing} on PATH: install {package}"


def test_where_root_may_make_no_namespaces_it_says_what_would_help(monkeypatch, tmp_path):
    refusing = tmp_path / "unshare"
    refusing.write_text("#!/bin/sh\necho unshare failed: Operation not permitted >&2\nexit 1\n")
    refusing.chmod(0o755)
    for other in ("ip", "tc", "mount"):
        (tmp_path / other).symlink_to(refusing)
    monkeypatch.setattr(iproute.os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "may not make namespaces here (unshare failed: Operation not permitted)" in iproute.why_not()
    with pytest.raises(ClusterError, match="`ip netns add x` failed: unshare failed"):
        iproute.ip("netns", "add", "x")


def test_help_says_what_it_is_and_what_it_is_not(capsys):
    assert main("--help") == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "no machine to time computation or latency on: all nodes share the cores" in printed
    assert main("--version") == 0


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("1gbit", 10**9),
        ("2.5gbit", 2_500_000_000),
        ("100mbit", 10**8),
        ("1000kbit", 10**6),
        ("0.001gbit", 10**6),
    ],
)
def test_a_rate_is_a_number_and_a_unit(text, rate):
    assert parse_rate(text) == rate


@given(st.integers(LEAST, MOST).map(lambda rate: rate // 1000 * 1000))
def test_a_rate_is_read_as_it_is_shown(rate):
    assert parse_rate(show_rate(rate)) == rate


@given(st.text() | st.from_regex(r"[0-9.e+_-]{0,9}[kmgt]?bit", fullmatch=True))
@example("١gbit")
@example("1gbit\n")
@example("9" * 5000 + "gbit")
@example("1e400gbit")
@example("1gbit; reboot")
def test_any_text_is_a_rate_in_range_or_refused_in_one_line(text):
    try:
        assert LEAST <= parse_rate(text) <= MOST
    except Usage as error:
        assert len(str(error)) < 300 and str(error).isprintable()


@given(
    st.lists(
        st.text(max_size=20) | st.from_regex(r"[0-9]{0,3}-?[0-9]{0,3}=?[0-9]{1,4}[km]?bit", fullmatch=True)
    )
)
@example(["1=2=3mbit"])
@example(["-1=1mbit"])
@example(["=1mbit"])
def test_any_links_are_of_nodes_that_are_there_or_refused_in_one_line(texts):
    try:
        links = parse_links(texts, 4)
    except Usage as error:
        assert len(str(error)) < 500 and str(error).isprintable()
        return
    assert set(links.ports) <= {1, 2, 3, 4}
    assert all(1 <= a < b <= 4 for a, b in links.pairs)


def test_links_of_ports_and_of_pairs():
    links = parse_links(["1gbit", "3=100mbit", "4-2=10mbit"], 4)
    assert links == Links(10**9, {3: 10**8}, {(2, 4): 10**7})
    assert [links.port(node) for node in (1, 3)] == [10**9, 10**8]
    assert links.between(2) == {4: 10**7} and links.between(4) == {2: 10**7} and not links.between(1)


def test_ranks_fill_the_first_node_then_the_next():
    assert spread(8, 2, 4) == [2, 2, 2, 2]
    assert spread(3, 2, 4) == [2, 1]
    assert spread(6, None, 4) == [2, 2, 2]
    for ranks, each in ((9, 2), (0, None), (2, 0), (10**6, None)):
        with pytest.raises(Usage):
            spread(ranks, each, 4)


def test_a_transport_that_the_user_asks_for_is_left_alone():
    folder = Path("/x")
    assert launch(folder, [2, 1], ["a"], "mpich", "mpirun", {}).environment["UCX_TLS"] == "tcp,self"
    assert "UCX_TLS" not in launch(folder, [2, 1], ["a"], "mpich", "mpirun", {"UCX_TLS": "all"}).environment
    planned = launch(folder, [2, 1], ["a"], "openmpi", "mpirun", {"OMPI_MCA_pml": "ucx"})
    assert planned.environment["OMPI_MCA_btl"] == "tcp,sm,self" and "OMPI_MCA_pml" not in planned.environment
    command = planned.command
    assert command[:3] == ["/x/enter", "1", "mpirun"] and "10.77.0.1:2,10.77.0.2:1" in command
    with pytest.raises(Usage, match="choose mpich or openmpi"):
        library("lam")
    with pytest.raises(Usage, match="--mpirun '/x/mpirun': there is no such program"):
        library("mpich", "/x/mpirun")


def test_a_launcher_of_the_other_library_is_refused(tmp_path):
    mpirun = tmp_path / "mpirun"
    mpirun.write_text("#!/bin/sh\necho 'mpirun (Open MPI) 5.0.11'\n")
    mpirun.chmod(0o755)
    with pytest.raises(Usage, match="it is not of mpich; for openmpi give --mpi openmpi too"):
        library("mpich", str(mpirun))
    assert library("openmpi", str(mpirun)) == (str(mpirun), {})


def test_a_cluster_is_wanted_until_down_or_while_its_maker_lives_and_never_after_a_boot():
    here = identity(os.getpid())
    gone = replace(here, start=(here.start or 0) + 1)
    other_boot = replace(here, boot="another")
    for owner, kept, expected in (
        (here, False, True), (here, True, True), (gone, False, False), (gone, True, True),
        (other_boot, False, False), (other_boot, True, False),
    ):  # fmt: skip
        record = Record(name="a", nodes=2, every=None, limits=[], kept=kept, owner=owner)
        assert registry.wanted(record) is expected


def test_a_failure_while_nodes_are_made_leaves_no_record(monkeypatch, tmp_path):
    said = []

    def fail(command, given=None):
        said.append(command)
        if command[:3] == ["ip", "netns", "list"]:
            return ""
        raise ClusterError("no more room")

    monkeypatch.setattr(registry, "DIRECTORY", tmp_path / "clusters")
    monkeypatch.setattr(iproute, "why_not", lambda: "")
    monkeypatch.setattr(iproute, "output", fail)
    with pytest.raises(ClusterError, match="no more room"):
        nodes.up(2, [], "a")
    assert said[-2][:3] == ["ip", "netns", "add"] and not list((tmp_path / "clusters").iterdir())


def test_a_directory_that_others_could_write_to_is_not_used(monkeypatch, tmp_path):
    monkeypatch.setattr(registry, "DIRECTORY", tmp_path)
    tmp_path.chmod(0o777)
    with pytest.raises(ClusterError, match="not a directory of this user alone"):
        registry.known()


# What traces state

HOSTS = ("n1", "n1", "n2", "n2")
BYTES = 4000 * 8  # of a contribution


def trace(rank, host, **attributes):
    """The trace of a rank that called `sum` three times, and exchanged 100 bytes five times."""
    names = np.array([0] * 3 + [1] * 5)
    events = {"name": names, "bytes": np.where(names == 0, BYTES, 100)}
    common = {
        "rank": rank,
        "size": 4,
        "environment": {"node": host},
        "partners": {},
        "reductions": {},
        "regions": {},
    }
    return RankTrace(Path("x"), common | attributes, ["allreduce.sum", "halo"], {"events": events})


def reduction(ordering, accumulation="working", **more):
    return {
        "sum": {
            "region": "allreduce.sum", "ordering": ordering, "accumulation": accumulation, "collective": "allreduce",
            "operation": "sum", "shape": [4000], "dtype": "float64", "ranks": 4,
        } | more
    }  # fmt: skip


@pytest.mark.parametrize(
    ("described", "least", "most"),
    [
        (reduction("ring"), 3 * 1.5 * BYTES, 3 * 1.5 * BYTES),  # 2 (p - 1) / p, by one rank of each node
        # a quarter to each of two others and back from them, by two ranks
        (reduction("direct"), 3 * 2 * BYTES, 3 * 2 * BYTES),
        (reduction("two-level"), 3 * BYTES, 3 * BYTES),
        # pairs while they are partial sums, totals as they are
        (reduction("ring", "compensated"), 3 * 2.25 * BYTES, 3 * 2.25 * BYTES),
        (reduction("ring", wire="packed"), 3 * BYTES, None),
        (reduction("library"), 3 * BYTES, None),
        (reduction("direct", "exact"), 3 * BYTES, None),
        (reduction("library", collective="reduce"), 0, None),
        (reduction("library", dtype="of the program"), 0, None),
        (reduction("tree over ranks"), 3 * BYTES, None),
        (reduction("ring", ranks=2), 0, None),
    ],
)
def test_what_an_all_reduce_must_send_between_two_nodes(described, least, most):
    traces = [trace(rank, host, reductions=described) for rank, host in enumerate(HOSTS)]
    assert traffic.sent_by_nodes(traces, 3) == [Stated(least, most)] * 2 + [Stated()]


@pytest.mark.parametrize("known", [True, False])
def test_what_goes_along_trees_is_known_where_the_trace_has_them(known):
    packing = Packing((SpanningTree((-1, 0), 3),), (0, 0, 1, 1))
    described = reduction(f"trees:links={packing.digest}")
    traces = [trace(rank, host, reductions=described) for rank, host in enumerate(HOSTS)]
    if known:
        traces[0].names.extend(["packing:sum", packing.encode()])
        traces[0].tables["choices"] = {"name": np.array([2]), "choice": np.array([3])}
    # The sum of a node up the tree, or the total down it.
    assert traffic.sent_by_nodes(traces, 2) == [Stated(3 * BYTES, 3 * BYTES if known else None)] * 2


def test_ranks_of_one_node_send_nothing_to_others():
    traces = [trace(rank, "n2", reductions=reduction("ring")) for rank in range(4)]
    assert traffic.sent_by_nodes(traces, 2) == [Stated(), Stated()]


def test_a_halo_leaves_the_node_where_all_partners_are_elsewhere_and_may_where_some_are():
    partners = ([1], [0, 2], [1, 3], [0])  # the last one's is in the other node
    traces = [
        trace(rank, host, partners={"halo": others}, regions={"halo": "exchange"})
        for rank, (host, others) in enumerate(zip(HOSTS, partners, strict=True))
    ]
    assert traffic.sent_by_nodes(traces, 2) == [Stated(0, 500), Stated(500, 1000)]


def test_planned_messages_count_to_the_byte_by_partner_and_plan():
    partners = ({1: 100}, {0: 100, 2: 30}, {1: 30, 3: 7}, {2: 7})
    traces = [
        trace(
            rank, host, partners={"halo": list(sent)}, regions={"halo": "wait"},
            messages={"halo": [{"ranks": [*sent], "bytes": [*sent.values()], "calls": 5},
                               {"ranks": [3 - rank], "bytes": [1000], "calls": 2}]},
        )
        for rank, (host, sent) in enumerate(zip(HOSTS, partners, strict=True))
    ]  # fmt: skip
    assert traffic.sent_by_nodes(traces, 2) == [Stated(4150, 4150)] * 2


def test_of_a_collective_that_states_no_messages_no_limit_is_known():
    traces = [trace(rank, host, regions={"halo": "collective"}) for rank, host in enumerate(HOSTS)]
    assert traffic.sent_by_nodes(traces, 3) == [Stated(0, None)] * 2 + [Stated()]


def test_ranks_that_ran_elsewhere_are_no_ranks_of_these_nodes():
    with pytest.raises(ClusterError, match="rank 3 of this trace ran on 'laptop', which is no node"):
        traffic.sent_by_nodes([trace(rank, host) for rank, host in enumerate((*HOSTS[:3], "laptop"))], 2)


def test_headers_are_subtracted_packet_by_packet():
    assert traffic.payload(Counters(1000 + 66 * 3, 3, 0, 0)) == 1000
    assert traffic.payload(Counters(42, 1, 0, 0)) == 0  # ARP has no TCP in it


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (1e7, ""),
        (0.96e7, ""),
        (1.04e7 + 2**18, ""),
        (0.94e7, "messages went around the network: by its trace node n1 sent at least 10,000,000 bytes"),
        (3000, "and 3,000 left its interface"),
        (1.06e7 + 2**18, "more left n1 than the trace states"),
    ],
)
def test_five_percent_less_than_stated_has_gone_around(sent, said):
    told = traffic.verdict([Crossed(1, Stated(1e7, 1e7), sent), Crossed(2, Stated(1e7, None), 1e7)])
    assert said in told if said else not told


@pytest.mark.parametrize("least", [0, 4000, traffic.STARTING - 1])
def test_a_trace_that_states_less_than_a_launcher_sends_shows_nothing(least):
    told = traffic.verdict([Crossed(1, Stated(), 500), Crossed(2, Stated(least, None), 10**9)])
    assert told.startswith(
        f"nothing is shown: of what the trace states, {least:,} bytes must have left a node"
    )
