"""`identify` on simulated libraries: with a known schedule, an unknown one, random order, or another per rank."""

from __future__ import annotations

import json
import re
from argparse import Namespace
from dataclasses import asdict
from functools import reduce

import numpy as np
import pytest

from kernels.allreduce.catalog import get
from kernels.allreduce.instruments import backends, recognition
from kernels.allreduce.instruments.candidates import (
    candidates,
    classes,
    classes_over_nodes,
    evaluate,
    members,
    short_name,
)
from kernels.allreduce.instruments.dependence import Dependence
from kernels.allreduce.instruments.forced import forced
from kernels.allreduce.instruments.libraries import Way, numbers, of_mpi
from kernels.allreduce.instruments.recognition import Finding
from kernels.allreduce.links import digest_of
from kernels.allreduce.simulator import simulate_schedule
from kernels.commands.certificates import SCHEMA, changes, read_certificate, require_same_question
from kernels.commands.findings import conclusion, dependence_table, report
from kernels.guarantees import ChoiceError
from kernels.registry import get as variant
from kernels.sums.black_box import black_box


class Library:
    """The communicator as rank 0 sees it; `add(vectors, call)` sums the rows of (p, n).

    What the other ranks contribute is what rank 0 has sent them last or, before that, what they draw themselves.
    """

    rank = 0

    def __init__(self, size, add, others=None):
        self.size, self.add, self.others = size, add, others
        self.sent, self.calls = None, 0

    def bcast(self, x):
        if isinstance(x, np.ndarray):
            self.sent = x
        return x

    def allgather(self, mine):
        return [mine] * (self.size - 1) + [mine if self.others is None else self.others]

    def Allreduce(self, send, receive):
        n = len(send)
        if self.sent is None:
            seed = self.calls // 2  # each is used twice
            vectors = np.array([numbers(seed, rank, n, send.dtype) for rank in range(self.size)])
        else:
            vectors = self.sent if self.sent.ndim == 2 else np.repeat(self.sent[:, None], n, axis=1)
        receive[:] = self.add(vectors, self.calls)
        self.calls += 1


def identify(comm, n, dtype="float64", **more):
    return recognition.identify(of_mpi(comm), n, dtype, **more)


def by_schedule(name):
    return lambda vectors, call: simulate_schedule(get(name).schedule(len(vectors)), [[v] for v in vectors])[
        0
    ]


def left_to_right(vectors, order):
    return reduce(np.add, [vectors[rank] for rank in order])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "name, n",
    [
        ("recursive-doubling", 1),
        ("reverse", 2),
        ("ring", 13),
        ("ring:start=1,cut=full", 13),
        ("rabenseifner:k=4", 100),
        ("k-nomial:k=3,tree=depth", 7),
        ("recursive-multiplying:k=3", 1),
    ],
)
def test_a_library_that_adds_by_a_schedule_is_recognised_and_its_trees_are_found(name, n, dtype):
    size = 5
    finding = identify(Library(size, by_schedule(name)), n, dtype, names=candidates(size), tree=True)
    assert name in finding.orderings
    same = next(names for names, _ in classes(candidates(size), size, n, {}) if name in names)
    assert finding.orderings == same and finding.repeats and finding.ranks_agree
    assert all(one.verified for one in finding.trees)
    assert sorted(i for one in finding.trees for a, b in one.elements for i in range(a, b + 1)) == list(
        range(n)
    )


def test_the_trees_of_a_ring_are_those_of_its_chunks():
    finding = identify(Library(4, by_schedule("ring")), 6, names=candidates(4), tree=True)
    assert [(one.elements, one.tree) for one in finding.trees] == [
        ([(0, 1)], "(((x[0] + x[1]) + x[2]) + x[3])"),
        ([(2, 3)], "(x[0] + ((x[1] + x[2]) + x[3]))"),
        ([(4, 4)], "((x[0] + (x[2] + x[3])) + x[1])"),
        ([(5, 5)], "(((x[0] + x[3]) + x[1]) + x[2])"),
    ]


def test_an_order_that_is_none_of_ours_is_shown_as_its_tree():
    order = (3, 0, 5, 1, 4, 2)
    finding = identify(Library(6, lambda v, call: left_to_right(v, order)), 4, names=candidates(6))
    assert finding.orderings == []
    text = report([finding], [], [0] * 6)
    assert "no known ordering" in text
    assert "all elements: (((((x[0] + x[3]) + x[5]) + x[1]) + x[4]) + x[2])" in text


def test_sums_that_change_from_call_to_call_are_told_and_have_no_tree():
    orders = ((0, 1, 2, 3), (3, 1, 0, 2))
    finding = identify(
        Library(4, lambda v, call: left_to_right(v, orders[call % 2])), 50, names=candidates(4)
    )
    assert not finding.repeats and finding.orderings == []
    text = report([finding], [], [0] * 4)
    assert "NO      agree   no ordering: the sums of the same numbers differ from call to call" in text
    assert re.search("all elements: no order: .*does not repeat", text)


def test_ranks_with_different_bits_are_told():
    library = Library(4, by_schedule("linear"), others=(True, b"other bits"))
    finding = identify(library, 50, names=candidates(4))
    assert not finding.ranks_agree
    assert "DIFFER  no ordering: each rank adds in another order, rank 0 in that of" in report(
        [finding], [], [0] * 4
    )


def test_a_correctly_rounded_sum_has_no_order():
    exact = black_box(variant("sum", "exact"))
    add = lambda v, call: np.array([exact(np.ascontiguousarray(column)) for column in v.T])  # noqa: E731
    finding = identify(Library(4, add), 3, names=candidates(4))
    assert finding.orderings == []
    assert [one.tree for one in finding.trees] == ["order-free, of 4 parts"]


def test_nothing_is_said_of_no_elements_and_two_ranks_have_one_sum():
    assert "nothing to add" in report([identify(Library(4, None), 0)], [], [0] * 4)
    two = identify(Library(2, by_schedule("ring")), 3, names=candidates(2))
    assert len(two.orderings) == len(candidates(2))
    assert "two ranks have only one possible sum" in report([two], [], [0] * 2)


@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_candidates_have_schedules_and_short_names_that_mean_the_same(size):
    names = candidates(size)
    assert len(set(names)) == len(names) and names == [short_name(name) for name in names]
    assert {"recursive-doubling", "ring", "rabenseifner", "linear"} <= set(names)
    assert not any(name.startswith(("permuted", "native", "exact")) for name in names)
    assert short_name("ring:start=0,cut=balanced") == "ring"
    assert short_name("ring:start=1,cut=balanced") == "ring:start=1"


@pytest.mark.parametrize("n", [1, 5, 13])
def test_a_class_evaluates_to_the_bits_of_each_of_its_schedules(n):
    size, rng = 6, np.random.default_rng(n)
    vectors = rng.standard_normal((size, n))
    listed = classes(candidates(size), size, n, {})
    assert len(listed) > 10 and sum(len(names) for names, _ in listed) == len(candidates(size))
    for names, pieces in listed:
        for name in names:
            total = simulate_schedule(get(name).schedule(size), [[v] for v in vectors])[0]
            assert evaluate(pieces, vectors).tobytes() == total.tobytes()


# What is forced


@pytest.mark.parametrize(
    "library, call, environment, ordering",
    [
        ("MPICH", "blocking", {"MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": "ring"}, "ring:start=1,cut=full"),
        ("MPICH", "blocking", {"MPICH_ALLREDUCE_INTRA_ALGORITHM": "tree"}, "k-nomial:k=2,tree=depth"),
        (
            "MPICH",
            "blocking",
            {
                "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": "tree",
                "MPIR_CVAR_ALLREDUCE_TREE_TYPE": "kary",
                "MPIR_CVAR_ALLREDUCE_TREE_KVAL": "3",
            },
            "k-nomial:k=3,tree=heap",
        ),
        (
            "MPICH",
            "blocking",
            {"MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": "recexch", "MPIR_CVAR_ALLREDUCE_RECEXCH_KVAL": "4"},
            "recursive-multiplying:k=4,fold=neighbours",
        ),
        (
            "MPICH",
            "persistent",
            {"MPIR_CVAR_IALLREDUCE_INTRA_ALGORITHM": "tsp_tree"},
            "k-nomial:k=2,tree=heap",
        ),
        ("MPICH", "blocking", {"MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": "auto"}, None),
        (
            "Open MPI",
            "blocking",
            {
                "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
                "OMPI_MCA_coll_tuned_allreduce_algorithm": "basic_linear",
            },
            "reverse",
        ),
        ("Open MPI", "blocking", {"OMPI_MCA_coll_tuned_allreduce_algorithm": "4"}, None),
        ("Open MPI", "persistent", {"OMPI_MCA_coll_libnbc_iallreduce_algorithm": "1"}, "ring:start=-1"),
        ("Open MPI", "nonblocking", {"OMPI_MCA_coll_libnbc_iallreduce_algorithm": "1"}, "ring:start=-1"),
        (
            "MPICH",
            "nonblocking",
            {"MPIR_CVAR_IALLREDUCE_INTRA_ALGORITHM": "tsp_ring"},
            "ring:start=1,cut=full",
        ),
    ],
)
def test_variables_are_read_as_the_libraries_read_them(library, call, environment, ordering):
    (what,) = forced(library, call, environment)
    assert what.ordering == ordering and bool(what.remark) == (ordering is None)
    if ordering:
        assert get(ordering).schedule(4)


def test_variables_of_another_library_or_call_force_nothing():
    ring = {"MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": "ring"}
    assert forced("Open MPI", "blocking", ring) == []
    assert forced("MPICH", "persistent", ring) == []
    assert forced("some other", "blocking", ring) == []
    assert forced("MPICH", "blocking", {}) == []


def test_a_silent_fallback_is_called_by_its_name():
    (what,) = forced("MPICH", "blocking", {"MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": "ring"})
    fell_back = identify(Library(5, by_schedule("recursive-doubling")), 4, names=candidates(5))
    heeded = identify(Library(5, by_schedule("ring:start=1,cut=full")), 4, names=candidates(5))
    assert (fell_back.as_forced(what), heeded.as_forced(what)) == (False, True)
    assert "NOT AS FORCED, ring:start=1,cut=full: " in report([fell_back], [what], [0] * 5)
    assert "as forced: ring:start=1,cut=full" in report([heeded], [what], [0] * 5)


# Over nodes

PLACED = [0, 0, 0, 3, 3, 3, 3]  # three ranks of one node, four of another


def over_nodes(inside, across, vectors, nodes=PLACED):
    """The sum that a library makes inside each node, and across their first ranks."""
    sums = [by_schedule(inside)(vectors[ranks], 0) for ranks in members(nodes)]
    return by_schedule(across)(np.array(sums), 0)


def identified_over_nodes(add, n, nodes=PLACED, **more):
    size = len(nodes)
    return identify(Library(size, add), n, names=candidates(size), context={"nodes": nodes}, **more)


@pytest.mark.parametrize(
    "inside, across", [("reverse", "ring"), ("binomial", "linear"), ("ring:start=1,cut=full", "binomial")]
)
def test_an_ordering_inside_nodes_and_one_across_are_told(inside, across):
    nodes = [rank // 4 for rank in range(12)]
    finding = identified_over_nodes(lambda v, call: over_nodes(inside, across, v, nodes), 13, nodes)
    [found] = finding.over_nodes
    assert inside in found.inside and across in found.across
    assert finding.recognised and not finding.trees
    text = " ".join(report([finding], [], nodes).split())
    assert f"inside nodes {found.inside[0]}" in text and f"across nodes {found.across[0]}" in text


def test_nodes_of_different_sizes_and_ranks_that_do_not_follow_each_other():
    nodes = [5, 7, 5, 5, 7, 7, 7]
    finding = identified_over_nodes(lambda v, call: over_nodes("reverse", "ring", v, nodes), 5, nodes)
    assert any("reverse" in each.inside for each in finding.over_nodes)
    assert not any("linear" in each.inside for each in finding.over_nodes)
    assert "across nodes any ordering" in report([finding], [], nodes)


@pytest.mark.parametrize("nodes", [(), [0] * 4, [0, 1, 2, 3]])
def test_one_node_or_one_rank_in_each_leave_nothing_to_compose(nodes):
    assert classes_over_nodes(10, nodes) == []


def test_segments_that_are_summed_in_other_orders_are_named_each():
    def add(vectors, call):
        return np.concatenate(
            [
                over_nodes("binomial", "linear", vectors[:, :60]),
                over_nodes("reverse", "linear", vectors[:, 60:]),
            ]
        )

    finding = identified_over_nodes(add, 70)
    assert not finding.recognised and [one.elements for one in finding.trees] == [[(0, 59)], [(60, 69)]]
    assert ["reverse" in one.over_nodes[0].inside for one in finding.trees] == [False, True]
    text = report([finding], [], PLACED)
    assert "one ordering for some elements, another for others" in text
    assert "elements 60 ... 69: inside nodes reverse" in text


def test_an_algorithm_that_is_forced_may_be_the_one_across_nodes():
    (what,) = forced("MPICH", "blocking", {"MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": "ring"})
    nodes = [rank // 3 for rank in range(9)]
    finding = identified_over_nodes(
        lambda v, call: over_nodes("binomial", "ring:start=1,cut=full", v, nodes), 13, nodes
    )
    assert finding.as_forced(what) is False and finding.across_as_forced(what)
    assert "as forced across nodes: ring:start=1,cut=full" in report([finding], [what], nodes)


def test_what_was_found_is_concluded_in_one_line():
    known = [Finding(length, orderings=["ring", "linear"]) for length in (1, 1000)]
    said = conclusion(known, [0] * 4)
    assert "fixed order on 4 ranks: ring for 1 to 1000 elements" in said and "Start 5 or 6 ranks" in said
    assert "Start" not in conclusion(known, [0] * 6)
    assert "only one possible sum" in conclusion(known, [0, 0])
    assert "no fixed order" in conclusion([*known, Finding(9, repeats=False)], [0] * 4)
    assert "different bits" in conclusion([Finding(9, ranks_agree=False)], [0] * 4)
    assert "without a name here" in conclusion([Finding(9)], [0] * 4)


def test_orderings_with_the_same_bits_are_all_listed_and_once():
    names = [f"ordering-{i}" for i in range(26)]
    text = report([Finding(length, orderings=names) for length in (1, 3)], [], [0] * 3)
    assert all(text.count(name + " ") + text.count(name + "\n") == 1 for name in names)
    assert "as length 1" in text and "more" not in text


QUESTION = Namespace(dtype="float64", call="blocking", backend=None)


def certificate(tmp_path, finding, **more):
    content = {"schema": SCHEMA, "library": "A 1.0", "backend": "mpi library", "ranks": 4, "dtype": "float64",
               "call": "blocking", "forced": [], "lengths": [asdict(finding)]} | more  # fmt: skip
    (tmp_path / "before.json").write_text(json.dumps(content | {"seal": digest_of(content)}))
    return str(tmp_path / "before.json")


def test_a_certificate_tells_whether_the_bits_are_still_the_same(tmp_path):
    ring, other = (
        identify(Library(4, by_schedule(name)), 8, names=candidates(4)) for name in ("ring", "reverse")
    )
    before = read_certificate(certificate(tmp_path, ring))
    require_same_question(before, QUESTION, 4)
    assert changes(before, [ring]) == []
    (line,) = changes(before, [other])
    assert line.startswith("length 8: OTHER BITS than with A 1.0: ring") and "reverse" in line
    (line,) = changes(before, [identify(Library(4, by_schedule("ring")), 9, names=candidates(4))])
    assert line.startswith("length 9: not in the certificate")


@pytest.mark.parametrize(
    "wrong, said",
    [
        ("absent", "No such file"), ("text", "is no JSON"), ("other", "no certificate of this version"),
        ("changed", "was changed after identify wrote it"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_certificate_is_refused(wrong, said, tmp_path):
    path = tmp_path / "before.json"
    if wrong == "text":
        path.write_text("{")
    elif wrong == "other":
        path.write_text("[]")
    elif wrong == "changed":
        certificate(tmp_path, Finding(8))
        path.write_text(path.read_text().replace("A 1.0", "B 2.0"))
    with pytest.raises(ChoiceError, match=said):
        read_certificate(str(path))


@pytest.mark.parametrize(
    "key, value", [("ranks", 5), ("dtype", "float32"), ("call", "persistent"), ("backend", "gloo")]
)
def test_a_certificate_of_another_question_is_refused(key, value, tmp_path):
    before = read_certificate(certificate(tmp_path, Finding(8), **{key: value}))
    with pytest.raises(ChoiceError, match=f"its {key} is {value}"):
        require_same_question(before, QUESTION, 4)


def test_a_backend_on_devices_is_asked_on_them(monkeypatch):
    """NCCL by a stand-in of its interface: tensors go to the device of the process and come back; each call and each
    copy is waited for; groups are NCCL's, and their other processes are not asked."""
    torch = pytest.importorskip("torch")
    asked, waited = [], []

    class Call:
        def wait(self):
            asked.append("wait")

    class Dist:
        @staticmethod
        def all_reduce(tensor, group=None, async_op=False):
            asked.append((group, async_op))
            tensor.mul_(3)
            return Call() if async_op else None

        @staticmethod
        def new_group(ranks, backend):
            asked.append((ranks, backend))
            return "group"

        @staticmethod
        def destroy_process_group(group):
            asked.append(f"no {group}")

    class Cuda:
        @staticmethod
        def device_count():
            return 2

        @staticmethod
        def synchronize(place):
            waited.append(place)

    monkeypatch.setenv("LOCAL_RANK", "3")
    assert backends.device(Namespace(cuda=Cuda), "nccl") == "cuda:1"
    assert backends.device(torch, "gloo") == "cpu"
    backends.settle(Namespace(cuda=Cuda), "cuda:1")
    backends.settle(Namespace(cuda=Cuda), "cpu")
    assert waited == ["cuda:1"]
    nccl = backends.library(Dist, "nccl", "torch 9, nccl", Namespace(rank=0), "cpu")
    given = np.array([1, 2], "float32")
    for way, expected in (
        (Way(), [(None, False)]),
        (Way("nonblocking", offset=1), [(None, True), "wait"]),
        (Way(ranks=(0, 2)), [([0, 2], "nccl"), ("group", False), "no group"]),
        (Way(ranks=(1, 2)), [([1, 2], "nccl")]),
    ):
        asked.clear()
        opened = nccl.opens(2, "float32", way)
        total = opened.total(given)
        opened.free()
        assert asked == expected and given.tolist() == [1, 2] and total.dtype == np.float32
        assert total.tolist() == ([1, 2] if way.ranks == (1, 2) else [3, 6])


def test_a_dependence_that_came_or_went_is_told(tmp_path):
    finding = Finding(8, orderings=["ring"], digest="a")
    then = [asdict(Dependence("alignment", 8, 256, 0)), asdict(Dependence("call in place", 8, 256, 9))]
    content = {"lengths": [asdict(finding) | {"depends": then}]}
    before = read_certificate(certificate(tmp_path, finding, **content))
    assert changes(before, [finding], [Dependence("call in place", 8, 256, 1)]) == []
    now = [Dependence("alignment", 8, 256, 3), Dependence("call in place", 8, 256, 0)]
    assert changes(before, [finding], now) == [
        "length 8: the bits follow the alignment now, and did not with A 1.0",
        "length 8: the bits do not follow the call in place now, and did with A 1.0",
    ]


def test_the_table_of_dependences_has_a_count_beside_every_no():
    found = [Dependence("alignment", 1, 256, 0), Dependence("place in the vector", 9, 2048, 512)]
    lines = dependence_table([*found, Dependence("alignment", 9, 2304, 0)]).splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["bits", "change", "with", "length", "1", "length", "9"],
        ["place", "in", "the", "vector", "-", "YES", "25", "%"],
        ["alignment", "no", "/", "256", "no", "/", "2,304"],
    ]
    assert dependence_table([]) == ""
