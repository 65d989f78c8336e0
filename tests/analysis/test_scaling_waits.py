"""Replay, efficiencies and critical path: traces whose times are known, and a second way to the same numbers."""

from itertools import pairwise

import networkx
import numpy as np
import pandas as pd
import pytest

from analysis.load.timeline import timeline
from analysis.waiting.communication import collectives, stragglers
from analysis.waiting.efficiency import efficiencies
from analysis.waiting.path import composition, critical_path, path_ranks, path_regions
from analysis.waiting.replay import replay, useful_times
from analysis.waiting.waits import BEFORE, OUTSIDE, Unmatched, waits
from tests.analysis.synthetic import MS, write_timed


def found_in(tmp_path, trees, partners=None):
    """The waits of a run in which rank r does `trees[r]`."""
    run = write_timed(tmp_path / "run", lambda rank, step: trees[rank], size=len(trees))
    return waits(timeline(run), len(trees), partners or {})


def on_path(delays):
    """{(rank, region): ms on the critical path}."""
    parts = composition(delays, critical_path(delays))
    return {(row.rank, row.name): row.path_ns / MS for row in parts.itertuples(index=False)}


@pytest.fixture
def late(tmp_path):
    """Rank 0 works 10 ms, rank 1 waits 6 ms for it; the all-reduce itself takes 1 ms; then rank 1 has more to do."""
    return found_in(
        tmp_path,
        [
            [("work", 10, []), ("allreduce.a", 1, []), ("more", 2, [])],
            [("work", 4, []), ("allreduce.a", 7, []), ("more", 3, [])],
        ],
    )


def test_the_path_jumps_to_the_rank_that_came_last(late):
    path = critical_path(late)
    assert path["rank"].tolist() == [0, 1]
    assert (path["end"] / MS).tolist() == [10, 14]
    assert on_path(late) == {(0, "work"): 10, (1, "allreduce.a"): 1, (1, "more"): 3}
    assert path_ranks(late, composition(late, path))["share"].tolist() == pytest.approx([10 / 14, 4 / 14])


def test_what_balance_would_gain_is_time_on_the_path_less_the_mean(late):
    table = path_regions(late, composition(late, critical_path(late))).set_index("name")
    assert table.loc["work", ["path_s", "mean_s", "gain_s"]].tolist() == pytest.approx([0.010, 0.007, 0.003])
    assert table.loc["allreduce.a", "gain_s"] == 0
    assert table["path_s"].sum() == pytest.approx(0.014)


def test_efficiencies_of_known_times(late):
    known = efficiencies(late)
    assert known["load_balance"] == pytest.approx(9.5 / 12)
    assert known["serialisation"] == pytest.approx(12 / 13)  # without the 1 ms rank 1 would end at 13
    assert known["transfer"] == pytest.approx(13 / 14)
    assert known["parallel"] == pytest.approx(9.5 / 14)
    product = known["load_balance"] * known["serialisation"] * known["transfer"]
    assert product == pytest.approx(known["parallel"])
    lost = known["lost_balance"] + known["lost_serialisation"] + known["lost_transfer"]
    assert lost + known["parallel"] == pytest.approx(1)


def test_time_in_a_collective_is_waiting_for_late_ranks_and_the_rest(late):
    row = collectives(late).iloc[0]
    assert (row["calls"], row["mean_s"], row["late_s"], row["rest_s"]) == pytest.approx(
        (1, 0.004, 0.003, 0.001)
    )
    assert row["share"] == pytest.approx(4 / 14)


def test_who_is_waited_for_and_what_it_did_before(late):
    table = stragglers(late)
    assert table["last"].tolist() == [1, 0]
    assert table["caused_s"].tolist() == pytest.approx([0.006, 0])
    assert table["waited_s"].tolist() == pytest.approx([0, 0.006])
    assert table["region"].tolist() == ["work", ""]
    assert table.loc[0, "region_share"] == 1


def test_an_exchange_waits_for_its_partners_alone(tmp_path):
    """Rank 2 is late, and nobody's partner but rank 1's."""
    trees = [
        [("work", 1, []), ("halo", 1, []), ("end", 1, [])],
        [("work", 2, []), ("halo", 8, []), ("end", 1, [])],
        [("work", 10, []), ("halo", 0, []), ("end", 0.5, [])],
    ]
    delays = found_in(tmp_path, trees, {"halo": {0: [1], 1: [0, 2], 2: [1]}})
    assert (delays.table["who"].tolist(), (delays.table["late"] / MS).tolist()) == ([1, 2, 2], [1, 8, 0])
    assert (replay(delays) / MS).tolist() == [3, 11, 10.5]
    assert on_path(delays) == {(2, "work"): 10, (1, "end"): 1}


def test_without_partners_an_exchange_waits_for_all(tmp_path):
    trees = [[("halo", 5, [])], [("work", 5, []), ("halo", 0, [])]]
    assert found_in(tmp_path, trees).table["who"].tolist() == [1, 1]


def test_messages_of_a_product_leave_when_it_begins(tmp_path):
    """Rank 1 waits for messages that rank 0 sent at 4 ms, though rank 0 itself enters its wait at 9 ms."""

    def product(inner, waiting, outer):
        return ("spmv", outer, [("inner", inner, []), ("halo", waiting, [])])

    trees = [[("work", 4, []), product(5, 0, 1)], [product(1, 3.5, 1)]]
    delays = found_in(tmp_path, trees, {"halo": {0: [1], 1: [0]}})
    of_1 = delays.table[delays.table["rank"] == 1].iloc[0]
    assert (of_1["posted"] / MS, of_1["last"] / MS, of_1["late"] / MS) == (0, 4, 3)
    assert (replay(delays) / MS).tolist() == [10, 5]
    assert (useful_times(delays) / MS).tolist() == [10, 2]


def test_work_inside_a_collective_is_useful(tmp_path):
    """Both ranks begin a sum and work meanwhile; then rank 1 waits 2 ms for rank 0, which had begun at 6 ms."""
    trees = [
        [("work", 6, []), ("allreduce.dots", 0.5, [("spmv", 3, [])])],
        [("allreduce.dots", 2.5, [("spmv", 4, [])]), ("end", 1, [])],
    ]
    delays = found_in(tmp_path, trees)
    assert (useful_times(delays) / MS).tolist() == [9, 5]
    assert ((delays.table["idle"] - delays.table["posted"]) / MS).tolist() == [3, 4]
    assert (delays.table["late"] / MS).tolist() == [0, 2]
    assert (delays.table["own"] / MS).tolist() == [0.5, 2.5]
    assert (replay(delays) / MS).tolist() == [9, 7]
    assert on_path(delays) == {(0, "work"): 6, (0, "allreduce.dots"): 0.5, (0, "spmv"): 3}


def test_an_exchange_inside_a_sum_under_way_is_no_work(tmp_path):
    tree = [("allreduce.dots", 1, [("spmv", 2, [("halo", 3, [])])])]
    delays = found_in(tmp_path, [tree, tree], {"halo": {0: [1], 1: [0]}})
    assert (useful_times(delays) / MS).tolist() == [2, 2]
    assert efficiencies(delays)["transfer"] == pytest.approx(2 / 6)


def test_time_in_no_region_is_named(tmp_path):
    run = write_timed(tmp_path / "run", lambda rank, step: [("work", 2, [])], size=2)
    events = timeline(run)
    second = (events["rank"] == 1).to_numpy()
    events.loc[second, ["start", "end"]] += 3 * MS
    again = events[second].assign(start=6 * MS, end=7 * MS)
    delays = waits(pd.concat([events, again], ignore_index=True), 2, {})
    assert on_path(delays) == {(1, BEFORE): 3, (1, "work"): 3, (1, OUTSIDE): 1}
    assert efficiencies(delays)["useful_s"] == pytest.approx(0.002 + 0.004)


def test_one_rank_loses_only_the_cost_of_its_collectives(tmp_path):
    known = efficiencies(found_in(tmp_path, [[("work", 9, []), ("allreduce.a", 1, [])]]))
    assert (known["load_balance"], known["serialisation"], known["transfer"]) == pytest.approx((1, 1, 0.9))


def test_ranks_that_never_wait(tmp_path):
    delays = found_in(tmp_path, [[("work", 2, [])], [("work", 4, [])]])
    assert efficiencies(delays)["parallel"] == pytest.approx(0.75)
    assert on_path(delays) == {(1, "work"): 4}
    assert collectives(delays).empty
    assert stragglers(delays)["caused_s"].tolist() == [0, 0]


def test_clocks_that_disagree_never_make_the_replay_longer_than_the_run(tmp_path):
    """By its clock rank 0 posts 1 ms after rank 1 has gone on."""
    trees = [
        [("work", 5, []), ("allreduce.a", 0.1, []), ("end", 1, [])],
        [("work", 3, []), ("allreduce.a", 1, []), ("end", 2, [])],
    ]
    delays = found_in(tmp_path, trees)
    known = efficiencies(delays)
    assert (known["acausal"], known["acausal_ns"]) == (1, MS)
    assert (replay(delays) <= delays.finish).all()
    assert sum(on_path(delays).values()) == pytest.approx(delays.wall / MS)


def test_ranks_that_wait_in_different_orders_are_refused(tmp_path):
    a, b = ("allreduce.a", 1, []), ("allreduce.b", 1, [])
    with pytest.raises(Unmatched, match="different orders"):
        found_in(tmp_path, [[a, b], [b, a]])


def test_a_rank_without_events_is_named(tmp_path):
    run = write_timed(tmp_path / "run", lambda rank, step: [("work", 1, [])] * (rank == 0), size=2)
    with pytest.raises(Unmatched, match="no event of rank 1"):
        waits(timeline(run), 2, {})


RING = {rank: [(rank - 1) % 5, (rank + 1) % 5] for rank in range(5)}


def program(seed, ranks=5, length=30):
    """(kinds of the waits, local ms (length, ranks) before each, cost of each wait in ms)."""
    rng = np.random.default_rng(seed)
    kinds = rng.choice(["allreduce.a", "halo", "spmv", "pipelined"], length)
    local = np.round(rng.exponential(2.0, (length + 1, ranks, 2)), 4) + 1e-4
    return kinds, local, np.round(rng.exponential(0.3, (length, ranks)), 4)


def graph(kinds, local, costs):
    """The program as a graph: nodes (i, rank, "post" or "end"); edges carry ms of work, or a wait for others."""
    dag, ranks = networkx.DiGraph(), range(local.shape[1])
    for rank in ranks:
        before = ("start", rank)
        for i, kind in enumerate(kinds):
            post, end = (i, rank, "post"), (i, rank, "end")
            inside = local[i, rank, 1] if kind in ("spmv", "pipelined") else 0.0
            dag.add_edge(before, post, ms=local[i, rank, 0])
            dag.add_edge(post, end, ms=inside + costs[i, rank])
            for other in RING[rank] if kind in ("halo", "spmv") else set(ranks) - {rank}:
                dag.add_edge((i, other, "post"), end, ms=costs[i, rank])
            before = end
        dag.add_edge(before, ("stop", rank), ms=local[len(kinds), rank, 0])
    return dag


def times(dag):
    """{node: ms} when each node of `dag` is reached."""
    reached = {}
    for node in networkx.topological_sort(dag):
        reached[node] = max((reached[u] + d["ms"] for u, _, d in dag.in_edges(node, data=True)), default=0.0)
    return reached


def tree_of(kinds, local, reached, rank):
    tree = []
    for i, kind in enumerate(kinds):
        tree.append(("work", local[i, rank, 0], []))
        waited = reached[i, rank, "end"] - reached[i, rank, "post"]
        inside = ("inside", local[i, rank, 1], [])
        idle = waited - local[i, rank, 1]
        tree.append({
            "spmv": ("spmv", 0, [inside, ("halo", idle, [])]), "pipelined": ("allreduce.b", idle, [inside]),
        }.get(kind, (kind, waited, [])))  # fmt: skip
    return [*tree, ("work", local[len(kinds), rank, 0], [])]


@pytest.mark.parametrize("seed", range(4))
def test_replay_is_the_longest_path_of_the_graph_without_costs(tmp_path, seed):
    kinds, local, costs = program(seed)
    reached = times(graph(kinds, local, costs))
    trees = [tree_of(kinds, local, reached, rank) for rank in range(5)]
    delays = found_in(tmp_path, trees, {"halo": RING})
    free = times(graph(kinds, local, 0 * costs))
    assert (replay(delays) / MS).tolist() == pytest.approx(
        [free["stop", rank] for rank in range(5)], abs=1e-3
    )
    assert delays.wall / MS == pytest.approx(max(reached["stop", rank] for rank in range(5)), abs=1e-3)
    assert (replay(delays) <= delays.finish).all()


@pytest.mark.parametrize("seed", range(4))
def test_the_critical_path_is_the_longest_path_of_the_graph(tmp_path, seed):
    kinds, local, costs = program(seed)
    dag = graph(kinds, local, costs)
    reached = times(dag)
    trees = [tree_of(kinds, local, reached, rank) for rank in range(5)]
    delays = found_in(tmp_path, trees, {"halo": RING})
    longest = networkx.dag_longest_path(dag, weight="ms")
    path = critical_path(delays)
    jumps = [(u[1], v[1]) for u, v in pairwise(longest) if u[1] != v[1]]
    assert list(pairwise(path["rank"])) == jumps
    assert path["begin"].tolist() == [0, *path["end"].tolist()[:-1]]
    assert (path["end"] - path["begin"]).sum() == delays.wall
    assert composition(delays, path)["path_ns"].sum() == delays.wall
