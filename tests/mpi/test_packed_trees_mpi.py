"""Packed trees under real MPI libraries, in runs that are replayed, and over nodes with links of different rates."""

import itertools
import json
import sys

import pytest

from jobs.cluster import cluster, iproute
from kernels.allreduce.instruments.pack import pack
from kernels.allreduce.links import Links, read, write
from miniapps.runner.replay import read as recorded
from miniapps.trace import rank_files
from miniapps.trace import read as trace_of
from tests.launch import environment, launcher
from tests.mpi.sectioned import layouts, reported, sections
from tests.ranks import on_ranks

PROGRAM = "packed_trees.py"


@layouts(1, 4, slow=(2, 8))
@pytest.mark.parametrize("section", sections(PROGRAM))
def test_section(section, library, size):
    assert reported(PROGRAM, library, size)[section] == []


def chain(file, order):
    """Links of four ranks in a row, packed."""
    rates = [[0.0] * 4 for _ in range(4)]
    for u, v in itertools.pairwise(order):
        rates[u][v] = rates[v][u] = 1e9
    write(str(file), pack(Links(tuple(map(tuple, rates)))))


def test_a_run_is_replayed_after_its_file_of_links_has_changed(tmp_path):
    file = tmp_path / "links.json"
    small = ["-m", "miniapps.coupled", "--steps", "2", "--set", "grid.nx=64", "--set", "grid.ny=64",
             "--set", "grid.bx=16", "--set", "grid.by=16", "--guarantee", "run", "--no-progress"]  # fmt: skip

    def run(name, *options):
        done = on_ranks(4, [*small, *options, "--out", tmp_path / name])
        assert done.returncode == 0, done.stdout + done.stderr
        trace = trace_of(rank_files(tmp_path / name)[0])
        return (
            next(line for line in done.stdout.splitlines() if line.startswith("FINGERPRINT")),
            {
                each["ordering"]
                for each in trace.attributes["reductions"].values()
                if each["decided"] == "option"
            },
        )

    chain(file, (0, 1, 2, 3))
    first = run("a", "--allreduce", f"trees:links={file},segments=2")
    (ordering,) = first[1]
    assert recorded(str(tmp_path / "a")).trees == ordering and str(file) not in ordering
    chain(file, (2, 0, 3, 1))
    other = run("b", "--allreduce", f"trees:links={file},segments=2")
    assert other[0] != first[0] and other[1] != first[1]
    file.unlink()
    assert run("replayed", "--replay", tmp_path / "a") == first
    for options, message in (
        (["--replay", tmp_path / "a", "--allreduce", "ring"], "leave --allreduce out"),
        (["--allreduce", f"trees:links={file}"], "No such file"),
    ):
        refused = on_ranks(4, [*small, *options, "--out", tmp_path / "none"])
        assert refused.returncode == 2 and message in refused.stderr and not (tmp_path / "none").exists()


@pytest.mark.skipif(bool(iproute.why_not()), reason=f"no nodes here: {iproute.why_not()}")
@pytest.mark.parametrize("library", ["mpich", pytest.param("openmpi", marks=pytest.mark.slow)])
def test_links_of_nodes_are_measured_and_trees_go_around_a_slow_one(tmp_path, library):
    command, extra = launcher(library)
    file = tmp_path / "links.json"
    with cluster(nodes=3, link=["200mbit", "1-2=20mbit"]) as nodes, (tmp_path / "out").open("w") as out:
        words = [
            sys.executable,
            "-m",
            "kernels.allreduce",
            "links",
            "--repeats",
            "3",
            "--json",
            "--write",
            str(file),
        ]
        ended = nodes.run(
            words, 6, 2, 100, mpi=library, mpirun=command[0], environment=environment(extra), stdout=out
        )
    assert ended.code == 0
    linked = read(str(file))
    links = linked.links
    assert links.of == "nodes" and links.hosts == ("n1", "n2", "n3")
    for u, v, mbit in ((0, 1, 20), (0, 2, 200), (1, 2, 200)):
        # A bucket lets 128 KiB of 2.5 MB pass at once; how much less is seen depends on what else the machine does.
        assert links.capacity(u, v) / 1e6 < 1.1 * mbit / 8
    assert links.capacity(0, 1) < 0.5 * min(links.capacity(0, 2), links.capacity(1, 2))
    assert all(port.rate / 1e6 < 1.1 * 25 for port in links.ports) and len(links.ports) == 3
    shares = {tree.edges: tree.share for tree in linked.packing.trees}
    slow = sum(share for edges, share in shares.items() if (0, 1) in edges)
    assert slow < 0.3 * sum(shares.values())
    assert json.loads((tmp_path / "out").read_text())["rates"] == [list(row) for row in links.rates]
