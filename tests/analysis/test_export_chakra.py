"""Chakra execution traces, decoded here from the wire format by the numbers of et_def.proto."""

import pytest

from analysis.export import chakra
from tests.analysis.export_runs import (
    HOSTILE,
    IN_A_STEP,
    STEPS,
    events_of,
    hostile_run,
    part_of,
    solver_run,
    traced_run,
)
from tests.analysis.synthetic import MS, region

pytest.importorskip("google.protobuf", reason="the package protobuf is not installed: pip install protobuf")

COMP, SEND, RECV, COLLECTIVE = 4, 5, 6, 7  # NodeType
VARINT, LENGTH = 0, 2  # types on the wire
VALUES = {7: "int32", 9: "int64", 27: "bool", 29: "string"}  # of AttributeProto


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at


def fields(data):
    """[(number, value)] of one message; integers, and bytes of what has a length."""
    pairs, at = [], 0
    while at < len(data):
        key, at = varint(data, at)
        value, at = varint(data, at)
        if key & 7 == LENGTH:
            value, at = data[at : at + value], at + value
        else:
            assert key & 7 == VARINT
        pairs.append((key >> 3, value))
    return pairs


def attribute(data):
    """(name, (type, value))."""
    (_, name), (number, value) = sorted(fields(data))
    return name.decode(), (VALUES[number], value.decode() if isinstance(value, bytes) else value)


def packed(data):
    """The integers of a packed field."""
    integers, at = [], 0
    while at < len(data):
        value, at = varint(data, at)
        integers.append(value)
    return integers


NODE = {1: ("id", int), 2: ("name", bytes.decode), 3: ("type", int), 5: ("deps", packed), 6: ("start", int),
        7: ("duration", int)}  # fmt: skip


def node(data):
    """A node as a dict; what is 0 or empty is not in the file."""
    entry = {"id": 0, "start": 0, "duration": 0, "deps": [], "attributes": {}}
    for number, value in fields(data):
        if number == 10:
            entry["attributes"] |= [attribute(value)]
        else:
            name, decoded = NODE[number]
            entry[name] = decoded(value)
    return entry


def read(path):
    """(version, nodes) of a file: GlobalMetadata, then Nodes, each after its length."""
    data, messages, at = path.read_bytes(), [], 0
    while at < len(data):
        size, at = varint(data, at)
        messages.append(data[at : at + size])
        at += size
    return dict(fields(messages[0]))[1].decode(), [node(message) for message in messages[1:]]


def value(node, name):
    return node["attributes"][name][1]


@pytest.fixture
def solver(tmp_path):
    """The part and the nodes of each of three ranks of the solver, which exchange in a ring, 1,001 bytes at a time."""
    sizes = {"halo": 1_001, "allreduce.cg": 96, "allreduce.budget": 96}
    part = part_of(solver_run(tmp_path / "run", size=3, sizes=sizes))
    for rank, attributes in part.attributes.items():
        attributes["partners"] = {"halo": sorted({(rank - 1) % 3, (rank + 1) % 3})}
    files = chakra.write(part, tmp_path / "out")
    assert [file.name for file in files] == ["out.0.et", "out.1.et", "out.2.et"]
    return part, [read(file)[1] for file in files]


def test_nodes_tile_the_time_of_each_rank_to_the_nanosecond(solver):
    part, ranks = solver
    for (_, own), nodes in zip(part.ranks(), ranks, strict=True):
        now = own["start"].min()
        for i, one in enumerate(nodes):
            if one["type"] == RECV or (one["type"] == SEND and nodes[i - 1]["type"] == RECV):
                continue  # beside the first message of the same exchange
            assert value(one, "start_ns") == now
            now += value(one, "duration_ns")
        assert now == own["end"].max()


def test_microseconds_do_not_drift_from_the_nanoseconds(solver):
    for one in solver[1][0]:
        start, end = value(one, "start_ns"), value(one, "start_ns") + value(one, "duration_ns")
        assert (one["start"], one["start"] + one["duration"]) == (start // 1000, end // 1000)


def test_nodes_of_a_rank_follow_one_another(solver):
    for nodes in solver[1]:
        assert [one["id"] for one in nodes] == list(range(len(nodes)))
        stages = []  # ids of nodes that run side by side
        for one in nodes:
            if stages and one["deps"] == (stages[-2] if len(stages) > 1 else []):
                stages[-1].append(one["id"])
            else:
                assert one["deps"] == (stages[-1] if stages else [])
                stages.append([one["id"]])
        assert {len(stage) for stage in stages} == {1, 4}  # 4: to and from two partners


def test_all_reduces_are_collectives_as_the_feeder_reads_them(solver):
    calls = STEPS * (IN_A_STEP["allreduce.cg"] + IN_A_STEP["allreduce.budget"])
    for nodes in solver[1]:
        collectives = [one for one in nodes if one["type"] == COLLECTIVE]
        assert len(collectives) == calls
        for one in collectives:
            assert one["attributes"]["comm_type"] == ("int64", 0)  # ALL_REDUCE
            assert one["attributes"]["comm_size"] == ("int64", 96)
            assert one["attributes"]["is_cpu_op"] == ("bool", 0)
    orders = {tuple(one["name"] for one in nodes if one["type"] == COLLECTIVE) for nodes in solver[1]}
    assert len(orders) == 1


def test_each_message_sent_is_received_with_the_same_tag_and_size(solver):
    def messages(kind):
        return sorted(
            tuple(value(one, f"comm_{name}") for name in ("src", "dst", "tag", "size"))
            for nodes in solver[1] for one in nodes if one["type"] == kind
        )  # fmt: skip

    sent = messages(SEND)
    assert sent == messages(RECV)
    assert len(set(sent)) == len(sent) == STEPS * IN_A_STEP["halo"] * 6
    assert {size for *_, size in sent} == {500, 501}  # 1,001 bytes for two partners
    for rank, nodes in enumerate(solver[1]):
        assert {value(one, "comm_src") for one in nodes if one["type"] == SEND} == {rank}
        assert {value(one, "comm_dst") for one in nodes if one["type"] == RECV} == {rank}


def test_local_work_is_named_after_the_innermost_region(solver):
    [nodes, *_] = solver[1]
    work = {}
    for one in nodes:
        if one["type"] == COMP:
            work[one["name"]] = work.get(one["name"], 0) + value(one, "duration_ns")
            assert value(one, "is_cpu_op") == 1
    assert work == {"step": STEPS * 50_009, "solve": STEPS * 100_007}


def test_time_outside_regions_and_exchanges_without_partner_are_local_work(tmp_path):
    def act(tracer, clock):
        for name in ("halo", "allreduce.norm"):
            begin = clock.now
            clock.spend(1)
            tracer.event(region(tracer, name), begin)
            clock.spend(2)

    def shorter(tracer, clock):
        begin = clock.now
        clock.spend(1)
        tracer.event(region(tracer, "halo"), begin)

    chakra.write(part_of(traced_run(tmp_path / "run", act, shorter)), tmp_path / "out")
    version, nodes = read(tmp_path / "out.0.et")
    assert version == "0.0.4"
    assert [(one["name"], one["type"], value(one, "duration_ns") / MS) for one in nodes] == [
        ("halo", COMP, 1), (chakra.OUTSIDE, COMP, 2), ("allreduce.norm", COMP, 1),
    ]  # fmt: skip


def test_collectives_that_overlap_stand_beside_the_tiles(tmp_path):
    """Three that are started together and waited for in turn, as of a neural network whose gradients become ready."""

    def act(tracer, clock):
        begun = []
        for _ in range(3):
            begun.append(clock.now)
            clock.spend(1)
        for begin in begun:
            clock.spend(1)
            tracer.event(region(tracer, "allreduce.gradients"), begin)
        last = clock.now
        clock.spend(1)
        tracer.event(tracer.name("update"), last)

    part = part_of(traced_run(tmp_path / "run", act, act))
    assert sorted(events_of(part)["collective"]) == [-1, -1, 0, 0, 1, 1, 2, 2]
    for file in chakra.write(part, tmp_path / "out"):
        nodes = read(file)[1]
        collectives = [one for one in nodes if one["type"] == COLLECTIVE]
        spans = [(value(one, "start_ns"), value(one, "duration_ns")) for one in collectives]
        assert sorted(spans) == [(0, 4 * MS), (1 * MS, 4 * MS), (2 * MS, 4 * MS)]
        assert [one["deps"] for one in collectives] == [[], [], []], "none waits for another"
        assert [one["id"] for one in nodes] == list(range(len(nodes)))
        (update,) = (one for one in nodes if one["name"] == "update")
        (rest,) = (one for one in nodes if one["type"] == COMP and one is not update)
        beside = {one["id"] for one in collectives} - set(rest["deps"])
        assert len(rest["deps"]) == 1 and set(update["deps"]) == {rest["id"], *beside}, (
            "all have ended by then"
        )


def test_names_survive(tmp_path):
    chakra.write(part_of(hostile_run(tmp_path / "run")), tmp_path / "out")
    assert [one["name"] for one in read(tmp_path / "out.1.et")[1]] == list(HOSTILE)


def test_nothing_is_written_over_and_nothing_half_written_is_left(tmp_path, monkeypatch):
    part = part_of(solver_run(tmp_path / "run"))
    (tmp_path / "out.1.et").write_text("mine")
    assert chakra.existing(tmp_path / "out") == tmp_path / "out.1.et"
    assert chakra.existing(tmp_path / "ou") is None
    with pytest.raises(FileExistsError):
        chakra.write(part, tmp_path / "out")
    assert [path.name for path in tmp_path.glob("out*")] == ["out.1.et"]
    assert (tmp_path / "out.1.et").read_text() == "mine"
