"""Placement of ranks, and bytes between nodes: by `nodes`, and in the report."""

import json

import numpy as np
import pytest

from analysis.__main__ import main
from analysis.load.frames import load
from analysis.overview import Overview
from analysis.studies.nodes.crossed import between_nodes
from analysis.studies.nodes.figures import link_matrix
from analysis.studies.nodes.study import STUDY, TITLE
from analysis.studies.nodes.words import size
from tests.analysis.nodes_runs import CALLS, HALO, LENGTH, SUMS, write_over_nodes

FOUR = ["n1", "n1", "n2", "n2", "n3", "n3", "n4", "n4"]
HALOS = CALLS * HALO
RING = SUMS * 8 * LENGTH * 2 * 7 // 8  # by one rank to the next, in all calls


@pytest.fixture
def over_four(tmp_path):
    return load([write_over_nodes(tmp_path / "run", FOUR)])


def test_placement_and_traffic_are_what_the_run_states(over_four):
    made = vars(between_nodes(over_four))
    assert made["nodes"][["node", "ranks", "count"]].to_numpy().tolist() == [
        ["n1", "0-1", 2], ["n2", "2-3", 2], ["n3", "4-5", 2], ["n4", "6-7", 2],
    ]  # fmt: skip
    sent = made["nodes"][["sent", "received", "inside"]].to_numpy().tolist()
    assert sent == [[RING + 2 * HALOS] * 2 + [RING + 2 * HALOS]] * 4
    links = {(row[1], row[2]): row.bytes for row in made["traffic"].itertuples(index=False)}
    assert links["n1", "n2"] == RING + HALOS and links["n2", "n1"] == HALOS and ("n1", "n3") not in links
    regions = made["regions"].set_index("region")
    assert regions["between"].to_dict() == {"allreduce.sum": 4 * RING, "halo": 8 * HALOS}
    assert regions["inside"].to_dict() == {"allreduce.sum": 4 * RING, "halo": 8 * HALOS}
    assert regions["calls"].to_dict() == {"allreduce.sum": SUMS, "halo": CALLS}


def test_the_rate_of_a_link_is_its_bytes_over_the_time_of_the_slowest_rank(over_four):
    links = between_nodes(over_four).traffic
    events = over_four.events
    took = {
        name: own.groupby("rank")["total_ns"].sum().max()
        for name, own in events.groupby("name", observed=True)
    }
    links = links.set_index(["from", "to"])
    assert links["fastest"]["n1", "n2"] == "allreduce.sum"
    assert links["mb_per_s"]["n1", "n2"] == pytest.approx(RING / took["allreduce.sum"] * 1e3)
    assert np.isnan(links["mb_per_s"]["n2", "n1"])  # halos alone, too short to say anything of a link


def test_ranks_of_a_node_need_not_follow_each_other(tmp_path):
    made = vars(between_nodes(load([write_over_nodes(tmp_path / "run", ["b", "a", "b", "b"])])))
    assert made["nodes"][["node", "ranks"]].to_numpy().tolist() == [["b", "0, 2-3"], ["a", "1"]]


def test_what_the_library_sends_by_itself_is_known_from_below(tmp_path, capsys):
    run = write_over_nodes(tmp_path / "run", ["n1", "n2"], ordering="library")
    assert main(["nodes", str(run), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    rows = {row["region"]: row for row in document["tables"]["regions"]}
    assert rows["allreduce.sum"]["known"] is False and rows["allreduce.sum"]["between"] is None
    assert rows["allreduce.sum"]["at_least"] == 2 * SUMS * 8 * LENGTH
    assert rows["halo"]["between"] == 2 * HALOS  # each has the other once: its only neighbour on both sides
    [sentence] = document["sentences"]
    assert "2 ranks on 2 nodes: n1 0; n2 1. 20 kB crossed between nodes in halo." in sentence
    assert "Between unknown nodes, at least 384 kB crossed (allreduce.sum)." in sentence


def test_a_trace_without_bytes_by_partner_says_so(tmp_path, capsys):
    run = write_over_nodes(tmp_path / "run", ["n1", "n1", "n2"], stated=False)
    assert main(["nodes", str(run)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Between unknown nodes, at least 20 kB crossed (halo)." in text


def test_runs_on_one_node_are_counted_and_cross_nothing(tmp_path, capsys):
    for name in ("a", "b"):
        write_over_nodes(tmp_path / name, ["here"] * 3)
    assert main(["nodes", str(tmp_path)]) == 0
    assert "2 runs on one node: nothing crossed a network." in capsys.readouterr().out
    [section] = STUDY.sections(STUDY.read(Overview(load([tmp_path])), None))
    assert section.title == TITLE and "nothing crossed a network" in section.nothing


def test_the_report_shows_at_once_what_crossed(over_four):
    [section] = STUDY.sections(STUDY.read(Overview(over_four), None))
    assert section.opened
    assert "8 ranks on 4 nodes: n1 0-1; n2 2-3; n3 4-5; n4 6-7." in section.intro
    assert "1.42 MB crossed between nodes, 1.34 MB of it in allreduce.sum." in section.intro
    [figure] = section.figures
    assert len(figure.data) == 8 and "346 kB" in figure.svg
    assert [title for title, _ in section.tables] == [
        "Nodes of run",
        "Traffic by region in run",
        "From node to node in run",
    ]


def test_a_matrix_of_many_nodes_has_no_numbers_in_its_cells(tmp_path):
    studied = between_nodes(load([write_over_nodes(tmp_path / "run", [f"n{i}" for i in range(40)])]))
    [of] = studied.runs
    [figure] = link_matrix(of, "links", studied.traffic)
    assert "kB</text>" not in figure.svg and "n38" not in figure.svg and "n0" in figure.svg
    assert np.count_nonzero(of.pairs) == 80


@pytest.mark.parametrize(
    ("nbytes", "shown"),
    [(0, "0 B"), (999, "999 B"), (999_600, "1 MB"), (12_582_912, "12.6 MB"), (3e12, "3 TB")],
)
def test_sizes_are_short(nbytes, shown):
    assert size(nbytes) == shown
