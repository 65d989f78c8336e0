"""Orderings, libraries and applications over several nodes: ranks in network namespaces, TCP between them.

Ranks are started once for each library and each way of placing them; all tests of that placement use them.
"""

import contextlib
import json
import re
from functools import cache
from pathlib import Path

import pytest

from jobs.cluster import cluster, iproute
from kernels.allreduce.instruments.properties import every
from miniapps.trace import read_run
from tests.launch import LIBRARIES, ROOT
from tests.properties_table import documented, rows
from tests.ranks import on_ranks, ranks_in

if reason := iproute.why_not():
    pytest.skip(f"no nodes here: {reason}", allow_module_level=True)

PROGRAM = Path(__file__).parent / "programs" / "over_nodes.py"
LIMIT_S = 200
APPLICATIONS = {
    "reductions": ["--size=10", "--size=5000", "--arrays=3", "--samples=3", "--set=problem.block=512"],
    "solver": [
        *("--nx=12", "--ny=10", "--nz=9", "--set=grid.bx=4", "--set=grid.by=4", "--set=grid.bz=4"),
        *("--right-side=random", "--preconditioner=multigrid"),
    ],
    "coupled": ["--steps=2", "--set=grid.nx=64", "--set=grid.ny=64", "--closure=physics"],
}


FAST = ("mpich", 2, 2)  # a library, nodes, ranks in each
EIGHT = [pytest.param((library, 4, 2), marks=pytest.mark.slow) for library in LIBRARIES]
THREE = [pytest.param((library, 2, 3), marks=pytest.mark.slow) for library in LIBRARIES]
# What the libraries run inside nodes and across them, for 13 numbers: of three ranks, which tell orderings apart.
INSIDE = {"mpich": {"binomial", "linear"}, "openmpi": {"reverse"}}


@pytest.fixture(scope="module")
def placed():
    """What starts ranks in nodes, once, by (library, nodes, ranks in each): what runs a program on them."""
    with contextlib.ExitStack() as stack:
        four = stack.enter_context(cluster(nodes=4, link="1gbit"))

        @cache
        def start(library, nodes, each):
            job = stack.enter_context(ranks_in(four, nodes * each, each, library))

            def run(*argv):
                done = job.run(nodes * each, [str(word) for word in argv], LIMIT_S, str(ROOT))
                assert done.returncode == 0, done.stdout + done.stderr
                return done.stdout

            return run

        yield start


@pytest.mark.parametrize("where", [FAST, *EIGHT], ids=str)
def test_orderings_have_the_bits_of_their_schedules(placed, where):
    failures = json.loads(placed(*where)(PROGRAM))
    assert len(failures) == 6 and set(map(tuple, failures.values())) == {()}, failures


@pytest.mark.parametrize("where", EIGHT[:1], ids=str)
def test_bits_depend_on_nothing_more_than_in_one_node(placed, where):
    """On communicators of which some nodes hold fewer ranks than others."""
    less = ("--ranks", "3,5", "--lengths", "5,1000", "--seeds", "1", "--dtype", "float64")
    table = rows(placed(*where)("-m", "kernels.allreduce", "properties", *less))
    expected = rows(documented(where[0]))
    assert list(table) == every()
    for name in table.keys() - {"library"}:
        shown, known = ({item for item in of[name].items() if item[1] != "no"} for of in (table, expected))
        assert shown == known, name


@pytest.mark.parametrize("where", THREE, ids=str)
def test_the_libraries_sum_inside_nodes_first_and_identify_names_how(placed, where, tmp_path):
    library = where[0]
    command = ("-m", "kernels.allreduce", "identify", "--json", tmp_path / "found.json", "--length", "13")
    text = placed(*where)(*command)
    [found] = json.loads((tmp_path / "found.json").read_text())["lengths"]
    [both] = found["over_nodes"]
    assert "nodes: 2" in text and "across nodes any ordering" in " ".join(text.split())
    assert (
        found["repeats"]
        and found["ranks_agree"]
        and not {"binomial", "recursive-doubling"} & {*found["orderings"]}
    )
    assert (
        INSIDE[library] <= {*both["inside"]} and {"linear", "reverse"} & {*both["inside"]} <= INSIDE[library]
    )


def under_layout(name, out):
    """The arguments that run an application under guarantee layout."""
    options = ("--guarantee=layout", "--no-progress", "--out", out)
    return ["-m", f"miniapps.{name}", *APPLICATIONS[name], *options]


def hashes(printed):
    """The states that a run ended with, once each."""
    assert "VERIFICATION: PASS" in printed
    return set(re.findall(r"FINGERPRINT state=(\w+)", printed))


@pytest.fixture(scope="module")
def in_one_node(tmp_path_factory):
    """The states of an application on one rank and on four ranks of one node, by its name."""

    @cache
    def run(name):
        out = tmp_path_factory.mktemp(name)
        return set().union(
            *(hashes(on_ranks(ranks, under_layout(name, out / str(ranks))).stdout) for ranks in (1, 4))
        )

    return run


@pytest.mark.parametrize("where", EIGHT, ids=str)
@pytest.mark.parametrize("name", APPLICATIONS)
def test_one_hash_on_one_rank_one_node_and_four(placed, in_one_node, where, name, tmp_path):
    states = in_one_node(name) | hashes(placed(*where)(*under_layout(name, tmp_path / "nodes")))
    assert len(states) == 1
    hosts = [trace.attributes["environment"]["node"] for trace in read_run(tmp_path / "nodes", ())]
    assert hosts == [f"n{1 + rank // 2}" for rank in range(8)]
