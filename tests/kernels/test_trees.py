"""Packed trees: the rates of linear programmes, their schedules, and the checks of files."""

import itertools
import json
import os
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.allreduce import links as files
from kernels.allreduce.catalog import get
from kernels.allreduce.cost import cost
from kernels.allreduce.instruments.pack import carried, pack
from kernels.allreduce.links import Linked, Links, Port, read, read_packing, read_plain, write
from kernels.allreduce.packing import ROOT, Packing, SpanningTree, decode, equal
from kernels.allreduce.reduction import Reduction
from kernels.allreduce.schedule import transfers
from kernels.allreduce.simulator import simulate_schedule
from kernels.allreduce.tree import trees
from kernels.commands.allreduce import main
from kernels.guarantees import ChoiceError
from kernels.tree import expression, leaves

# NVLinks between the eight V100 of a DGX-1, each of 25 GB/s in either direction: NVIDIA DGX-1 with Tesla V100 System
# Architecture (white paper WP-08437-002); as NCCL reads them from the machine: github.com/NVIDIA/nccl, issue 671.
NVLINK = 25e9
DGX1 = Path(__file__).parents[2] / "docs" / "examples" / "dgx-1.json"


def table(capacity):
    return tuple(tuple(map(float, row)) for row in np.asarray(capacity).tolist())


def switched(count, rate=1.0, **slow):
    """Nodes at a switch: ports of one rate, and links as fast; `slow` such as n1n2=0.1, counted from 1."""
    capacity = rate * (1 - np.eye(count))
    for name, part in slow.items():
        u, v = (int(number) - 1 for number in name[1:].split("n"))
        capacity[u, v] = capacity[v, u] = part * rate
    return Links(table(capacity), tuple(Port((v,), rate) for v in range(count)), of="nodes")


def drawn(rng, count, density=0.6):
    """A random symmetric matrix that joins all vertices."""
    capacity = np.triu(rng.integers(1, 10, (count, count)) * (rng.random((count, count)) < density), 1)
    for v in range(1, count):
        capacity[rng.integers(v), v] += 1
    return capacity + capacity.T


def partitions(vertices):
    """All ways to part a list."""
    if not vertices:
        yield []
        return
    first, *rest = vertices
    for parts in partitions(rest):
        yield [[first], *parts]
        for i in range(len(parts)):
            yield [*parts[:i], [first, *parts[i]], *parts[i + 1 :]]


def strength(capacity):
    """The least capacity between the parts of a partition, over their number less one (Tutte, Nash-Williams 1961)."""
    least = np.inf
    for parts in partitions(list(range(len(capacity)))):
        if len(parts) > 1:
            of = {v: i for i, part in enumerate(parts) for v in part}
            between = sum(capacity[u][v] for u in of for v in of if u < v and of[u] != of[v])
            least = min(least, between / (len(parts) - 1))
    return least


def used(packing, links):
    """The parts of edges and ports that a vector takes which is reduced in one second, of all in bytes of it."""
    whole = sum(tree.share for tree in packing.trees)
    edges, ports = {}, [0.0] * len(links.ports)
    for tree in packing.trees:
        for u, v in tree.edges:
            edges[u, v] = edges.get((u, v), 0.0) + tree.share / whole
            for i, port in enumerate(links.ports):
                ports[i] += tree.share / whole * ((u in port.vertices) != (v in port.vertices))
    return edges, ports


# Packings


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6])
def test_trees_reach_the_bound_of_tutte_and_nash_williams(count):
    rng = np.random.default_rng(count)
    for _ in range(8):
        capacity = drawn(rng, count)
        links = Links(table(capacity))
        linked = pack(links, slack=0)
        assert linked.bound == pytest.approx(strength(capacity), rel=2e-5)
        assert linked.rate == pytest.approx(strength(capacity), rel=1e-4)
        edges, _ = used(linked.packing, links)
        assert all(linked.rate * part <= capacity[u][v] * (1 + 1e-4) for (u, v), part in edges.items())


@pytest.mark.parametrize("count", [2, 3, 4, 7, 12])
def test_equal_ports_are_used_as_little_as_any_all_reduce_must(count):
    links = switched(count, 5.0)
    linked = pack(links)
    assert linked.rate == pytest.approx(5.0 * count / (2 * (count - 1)), rel=1e-4)
    assert {tree.height for tree in linked.packing.trees} == {1}
    assert sorted(tree.root for tree in linked.packing.trees) == list(range(count)) or count == 2


@given(st.integers(2, 9), st.integers(0, 10**6), st.sampled_from([0.0, 0.03, 0.3]))
def test_no_edge_and_no_port_is_overloaded_and_no_more_is_given_up_than_was_said(count, seed, slack):
    rng = np.random.default_rng(seed)
    capacity = drawn(rng, count)
    whole = [sum(row) for row in capacity]
    ports = [Port((v,), float(rng.uniform(0.3, 1.2) * whole[v])) for v in range(count)]
    ports += [Port((0, 1), float(0.7 * (whole[0] + whole[1])))] if count > 2 else []
    links = Links(table(capacity), tuple(ports))
    linked = pack(links, slack)
    assert (1 - slack) * linked.bound * (1 - 1e-4) <= linked.rate <= linked.bound
    edges, loads = used(linked.packing, links)
    assert all(linked.rate * part <= capacity[u][v] * (1 + 1e-5) for (u, v), part in edges.items())
    assert all(linked.rate * load <= port.rate * (1 + 1e-5) for load, port in zip(loads, ports, strict=True))
    assert carried(links, linked.packing) == pytest.approx(linked.rate, rel=1e-5)
    assert decode(linked.packing.encode()) == linked.packing


def test_a_link_of_a_tenth_costs_nothing_where_trees_can_go_around_it():
    links = switched(4, n1n2=0.1)
    linked = pack(links, slack=0)
    assert linked.rate == pytest.approx(4 / 6, rel=1e-4)
    assert carried(links, equal(4)) == pytest.approx(0.1 / 0.5)  # what `direct` sends over it


def test_noise_of_a_measurement_does_not_make_trees_high():
    rng = np.random.default_rng(5)
    capacity = 1e8 * rng.uniform(0.98, 1.02, (4, 4)) * (1 - np.eye(4))
    ports = tuple(Port((v,), float(1e8 * rng.uniform(0.98, 1.02))) for v in range(4))
    linked = pack(Links(table(capacity), ports))
    assert {tree.height for tree in linked.packing.trees} == {1} and len(linked.packing.trees) == 4


def test_a_dgx_1_reaches_the_bus_bandwidth_of_its_six_links():
    links = read_plain(str(DGX1))
    wires = np.array(links.rates) / NVLINK
    assert (wires == wires.T).all() and set(wires.sum(0)) == {6}
    # A broadcast cannot bring a GPU more than its links carry, and it could (Edmonds 1973: the least cut).
    parts = (set(p) for size in range(1, 8) for p in itertools.combinations(range(8), size))
    assert min(sum(wires[u, v] for u in part for v in range(8) if v not in part) for part in parts) == 6
    linked = pack(links, slack=0)
    # Of an all-reduce each GPU sends and receives at least 2 * 7 / 8 of the vector.
    assert linked.rate == pytest.approx(6 * NVLINK * 8 / 14, rel=1e-4)
    assert linked.rate * 2 * 7 / 8 == pytest.approx(6 * NVLINK, rel=1e-4)
    n = 1 << 20
    schedule = Reduction("trees:segments=1", n, packing=placed(linked.packing)).schedule(8)
    sent = np.zeros((8, 8))
    for rank, rounds in enumerate(schedule.ranks()):
        for t in (t for r in rounds for t in transfers(r.sends, lambda chunk: schedule.bounds(n, chunk))):
            sent[rank, t.peer] += t.stop - t.start
    assert not sent[wires == 0].any()
    longest = (sent[wires > 0] / (wires[wires > 0] * NVLINK)).max()
    assert n / longest == pytest.approx(linked.rate, rel=1e-3)


# Schedules


def placed(packing, each=1, order=None):
    """The packing with so many ranks on each vertex."""
    places = [v for v in range(packing.vertices) for _ in range(each)]
    return Packing(packing.trees, tuple(places if order is None else [places[i] for i in order]))


@st.composite
def packings(draw):
    """Any trees, and ranks on their vertices in any order."""
    count = draw(st.integers(1, 6))
    rng = random.Random(draw(st.integers(0, 10**6)))
    made = []
    for _ in range(draw(st.integers(1, 4))):
        order = rng.sample(range(count), count)
        parents = [ROOT] * count
        for i in range(1, count):
            parents[order[i]] = order[rng.randrange(i)]
        made.append(SpanningTree(tuple(parents), rng.randint(1, 9)))
    places = [*range(count), *(rng.randrange(count) for _ in range(rng.randint(0, 10)))]
    rng.shuffle(places)
    return Packing(tuple(made), tuple(places))


def along(packing, rank_sums):
    """The expression by which a tree adds what its vertices hold."""

    def below(tree, vertex):
        parts = sorted([(vertex, rank_sums[vertex]), *((v, below(tree, v)) for v in tree.children[vertex])])
        text = parts[0][1]
        for _, part in parts[1:]:
            text = f"({text} + {part})"
        return text

    return {below(tree, tree.root) for tree in packing.trees}


@given(packings(), st.integers(1, 5))
def test_any_packing_is_carried_out_long_and_short_alike(packing, segments):
    size = len(packing.places)
    sums = {}
    for rank, vertex in enumerate(packing.places):
        sums[vertex] = f"({sums[vertex]} + x[{rank}])" if vertex in sums else f"x[{rank}]"
    allowed = along(packing, sums)
    n = 3 * size + 1
    texts = []
    for short in (False, True):
        schedule = get(f"trees:segments={segments}").schedule(size, short, packing=packing)
        assert sum(b - a for a, b in (schedule.bounds(n, c) for c in range(schedule.chunks))) == n
        by_rank = {element: trees(schedule, element, n) for element in {0, n // 2, n - 1}}
        for first, *others in by_rank.values():
            assert sorted(leaves(first)) == list(range(size))
            assert {expression(other) for other in others} <= {expression(first)} <= allowed
        texts.append({element: expression(each[0]) for element, each in by_rank.items()})
        vectors = np.random.default_rng(size).standard_normal((size, n))
        total, *more = simulate_schedule(schedule, [[v] for v in vectors])
        assert all(other.tobytes() == total.tobytes() for other in more)
        for element, text in texts[-1].items():
            assert eval(text, {"x": vectors[:, element]}).tobytes() == total[element].tobytes()
    assert texts[0] == texts[1]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8, 16])
def test_equal_links_give_the_additions_and_the_bytes_of_direct(size):
    n = 16 * size * (size - 1) or 16
    ours, direct = get("trees").schedule(size), get("direct").schedule(size)
    for element in (0, n // 2, n - 1):
        assert {expression(t) for t in trees(ours, element, n)} == {expression(trees(direct, element, n)[0])}
    assert cost(ours, n, 4).bytes == cost(direct, n, 4).bytes
    assert cost(ours, n, 4).critical_bytes == cost(direct, n, 4).critical_bytes


@pytest.mark.parametrize("each", [1, 2, 4])
def test_the_port_of_a_node_carries_what_the_packing_says(each):
    packing = placed(pack(switched(4, n1n2=0.1), slack=0).packing, each)
    n = 1 << 16
    schedule = get("trees").schedule(4 * each, packing=packing)
    out, into = np.zeros(4), np.zeros(4)
    for rank, rounds in enumerate(schedule.ranks()):
        for m in (m for r in rounds for m in r.sends):
            start, stop = schedule.bounds(n, m.chunk)
            if packing.places[rank] != packing.places[m.peer]:
                out[packing.places[rank]] += stop - start
                into[packing.places[m.peer]] += stop - start
    assert out == pytest.approx(np.full(4, 1.5 * n), rel=1e-3)
    assert into == pytest.approx(np.full(4, 1.5 * n), rel=1e-3)


# Files


@pytest.fixture
def linked():
    return pack(switched(3, 1e8, n1n2=0.5))


@pytest.fixture
def file(tmp_path, linked):
    write(str(tmp_path / "links.json"), linked)
    return tmp_path / "links.json"


def test_what_is_written_is_read_and_packed_again_by_the_command(file, linked, tmp_path, capsys):
    assert read(str(file)) == linked
    assert read_packing(str(file), 3) == Packing(linked.packing.trees, (0, 1, 2))
    assert read_packing(str(file), 6, "aabbcc").places == (0, 0, 1, 1, 2, 2)
    assert os.listdir(tmp_path) == ["links.json"]
    again = tmp_path / "again.json"
    assert main(["pack", str(file), "--write", str(again)]) == 0
    assert read(str(again)) == linked and "packed: 75 MB/s" in capsys.readouterr().out
    plain = tmp_path / "plain.json"
    plain.write_text(json.dumps({"rates": [[0, 1e6], [1e6, 0]]}))
    assert main(["pack", str(plain), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rate"] == 1e6
    assert main(["tree", f"trees:links={file}", "-n", "3"]) == 0
    assert main(["cost", f"trees:links={file}", "-n", "3"]) == 0
    assert main(["draw", f"trees:links={file}", "-n", "3", "-o", str(tmp_path / "t.svg")]) == 0


def test_no_byte_can_be_changed_unnoticed(file):
    sound, whole = file.read_bytes(), read(str(file))
    rng = random.Random(1)
    for position in rng.sample(range(len(sound)), 150):
        damaged = bytearray(sound)
        damaged[position] ^= 1 << rng.randrange(8)
        file.write_bytes(damaged)
        try:
            assert read(str(file)) == whole  # white space
        except ChoiceError as error:
            assert str(file) in str(error)
    for length in (0, 1, len(sound) // 2, len(sound) - 3):
        file.write_bytes(sound[:length])
        with pytest.raises(ChoiceError, match=r"links\.json"):
            read(str(file))


def sealed(file, **changes):
    """The content of a file with changes, under a hash that is right."""
    content = json.loads(file.read_text()) | changes
    content.pop("digest")
    file.write_text(json.dumps(content | {"digest": files.digest_of(content)}))


TREE = {"parents": [-1, 0, 0], "share": 1}


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"schema": 2}, "schema 2"),
        ({"format": "other"}, "no file of links"),
        ({"links": 3}, "not sound"),
        ({"links": {"rates": [[0, 1]]}}, "no table"),
        ({"links": {"rates": [[0, -1], [1, 0]]}}, "not sound"),
        ({"links": {"rates": [[0, 1, 0], [1, 0, 0], [0, 0, 0]]}}, "no links join vertex 2"),
        ({"links": {"rates": [[0] * 300] * 300}}, "not sound"),
        ({"packing": {"trees": []}}, "not sound"),
        ({"packing": {"trees": [TREE | {"parents": [-1, 2, 1]}]}}, "not below the root"),
        ({"packing": {"trees": [TREE | {"parents": [-1, -1, 0]}]}}, "one root"),
        ({"packing": {"trees": [TREE | {"parents": [-1, 0, 7]}]}}, "one root"),
        ({"packing": {"trees": [TREE | {"parents": [-1, 0]}]}}, "2 vertices, its links 3"),
        ({"packing": {"trees": [TREE | {"share": 0}]}}, "not sound"),
        ({"packing": {"trees": [TREE | {"share": 1e300}]}}, "not sound"),
        ({"packing": None}, "not packed yet"),
    ],
)
def test_what_is_not_sound_is_refused_under_a_right_hash_too(file, changes, message):
    sealed(file, **changes)
    with pytest.raises(ChoiceError, match=message) as raised:
        read_packing(str(file), 3)
    assert str(file) in str(raised.value)


def test_what_is_no_file_of_this_kind_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "deep").write_text("[" * 100_000)
    (tmp_path / "large").write_bytes(b" " * (files.MOST_BYTES + 1))
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    (tmp_path / "nan").write_text('{"rates": [[0, NaN], [1, 0]]}')
    for name in ("fifo", "deep", "large", "binary", "nan", ".", "none", "zero\0"):
        for reader in (read, read_plain):
            with pytest.raises(ChoiceError):
                reader(str(tmp_path / name))
    for line in (["pack", str(tmp_path / "deep")], ["tree", f"trees:links={tmp_path / 'none'}"]):
        assert main(line) == 2


def test_links_of_other_ranks_nodes_or_hosts_are_refused(tmp_path, linked):
    file = str(tmp_path / "links.json")
    named = Links(linked.links.rates, linked.links.ports, hosts=("a", "b", "c"), of="nodes")
    write(file, Linked(named, linked.packing))
    assert read_packing(file, 4, (0, 1, 2, 2), ("b", "a", "c", "c")).places == (1, 0, 2, 2)
    for size, nodes, hosts, message in (
        (4, (0, 0, 1, 1), None, "3 nodes, and the ranks are on 2"),
        (3, (0, 1, 2), ("a", "b", "d"), "nodes on a, b, c, and this job runs on a, b, d"),
    ):
        with pytest.raises(ChoiceError, match=message):
            read_packing(file, size, nodes, hosts)
    write(file, Linked(Links(linked.links.rates), linked.packing))
    with pytest.raises(ChoiceError, match="3 ranks, and there are 4"):
        get(f"trees:links={file}").schedule(4)
    with pytest.raises(ChoiceError, match="no use for a packing"):
        Reduction("ring", packing=equal(3))
    with pytest.raises(ChoiceError, match="links: choose equal, or a file"):
        get("trees:links=")


def test_a_trace_is_told_the_digest_of_what_decides_and_not_a_name_of_a_file(linked):
    one, other = (placed(linked.packing, order=order) for order in ((0, 1, 2), (2, 1, 0)))
    stated = [Reduction("trees:links=a file,segments=2", packing=p).json() for p in (one, other)]
    assert stated[0]["ordering"] == f"trees:links={one.digest},segments=2"
    assert stated[0]["parameters"] == {"links": "a file", "segments": 2}
    assert stated[1]["ordering"] != stated[0]["ordering"]
