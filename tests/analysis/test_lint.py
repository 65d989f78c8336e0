"""The rules of careful benchmarking: each fires where it should, and is silent where it should be."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from analysis.__main__ import main
from analysis.limits import SEVERITIES
from analysis.lint import sampling
from analysis.lint.experiment import Experiment
from analysis.lint.rules import RULES, lint, name_of
from analysis.lint.timing import contiguous_by_chance, gap
from analysis.load.frames import EXCLUDED, RUNS, load
from analysis.overview import Overview
from analysis.report.build import build
from analysis.studies.solves.rules import extrapolated
from tests.analysis.stated import options
from tests.analysis.synthetic import flip_bit, write_run

MACHINE = {
    "node": "n1",
    "cpu": "A",
    "cores": "8",
    "affinity": "0-7",
    "threads": "1",
    "frequency": "performance 1-2",
}


def run(
    name="r",
    repeat=0,
    wall=1.0,
    size=1,
    guarantee="none",
    ordering="native",
    method=None,
    machine=None,
    **more,
):
    """A row of the frame of runs."""
    row = {
        "run": name, "repeat": repeat, "path": name, "run_id": name, "allocation_id": "", "app": "coupled",
        "problem": "p0", "size": size, "guarantee": guarantee, "ordering": ordering, "seed": 1, "complete": True,
        "last_step": 5, "state": "", "wall_s": wall, "events": 0, "tracing_s": 0.0,
        "started": f"2026-01-01T00:00:{int(re.sub(r'[^0-9]', '', name) or 0):02d}+00:00",
        "method": json.dumps(method or {}), "config": "{}",
        "environment": json.dumps(MACHINE | (machine or {})), "promises": "{}", "problem_options": "{}",
        "options": json.dumps(options(method or {}, {})), "regions": "{}", "reductions": "{}",
    }  # fmt: skip
    return row | more


def repeats(count, name="r", walls=None, **more):
    walls = [1.0] * count if walls is None else walls
    return [run(name, repeat, wall, **more) for repeat, wall in zip(range(count), walls, strict=True)]


@pytest.fixture(scope="module", autouse=True)
def recorded(tmp_path_factory):
    """Tables of a run that no rule looks into, for `frames_of`."""
    frames_of.recorded = load([write_run(tmp_path_factory.mktemp("any") / "run", steps=1)])


def frames_of(rows, excluded=()):
    runs = pd.DataFrame(rows, columns=list(RUNS)).astype(RUNS)
    left_out = pd.DataFrame(list(excluded), columns=list(EXCLUDED)).astype("str")
    return replace(frames_of.recorded, runs=runs, excluded=left_out)


def findings(rule, rows, excluded=()):
    """The findings of one rule on runs."""
    look = {name_of(known): known for known in RULES}[rule]
    return [f"{f.where}: {f.fact}" for f in look(Experiment(Overview(frames_of(rows, excluded))))]


def fires(rule, rows, *words, excluded=()):
    lines = findings(rule, rows, excluded)
    assert len(lines) == 1, (rule, lines)
    for word in words:
        assert word in lines[0], lines


def silent(rule, rows, excluded=()):
    assert findings(rule, rows, excluded) == []


def test_a_run_that_nothing_repeats_is_said_to_prove_nothing():
    fires("only-one-sample", [run()], "coupled none/native on 1 rank")
    silent("only-one-sample", repeats(2))
    fires("only-one-sample", [run(complete=False)], "nothing can be concluded")


def test_how_many_equal_runs_exclude_a_share():
    n = sampling.runs_for(0.05)
    assert 0.95**n <= 0.05 < 0.95 ** (n - 1)


def test_a_speedup_needs_one_rank():
    fires("missing-base-case", [run("a1", size=2), run("a2", size=4)], "2, 4 ranks, never on 1")
    silent("missing-base-case", [run("a1", size=1), run("a2", size=4)])
    silent("missing-base-case", [run("a1", size=4)])


def test_six_times_are_needed_for_an_interval():
    fires("few-repeats", repeats(5), "5 times each")
    silent("few-repeats", repeats(6))


def test_an_interval_wider_than_a_percent_is_said_with_how_many_repeats_narrow_it():
    fires("wide-interval", repeats(6, walls=[1.0, 1.0, 1.0, 1.0, 1.0, 1.1]), "± 5.0% with 6")
    remedy = lint(Overview(frames_of(repeats(6, walls=[1.0, 1.0, 1.0, 1.0, 1.0, 1.1]))))
    assert remedy.loc[remedy["rule"] == "wide-interval", "remedy"].iloc[0].startswith("about 150 repeats")
    silent("wide-interval", repeats(6, walls=[1.0, 1.001, 1.0, 1.002, 1.001, 1.0]))


def test_a_growth_that_is_used_beyond_its_fit_is_an_extrapolation():
    def limits(predicted):
        rows = {"family": "f", "case": "c", "first": [5.0], "last": [20.0], "predicted": [predicted]}
        return list(extrapolated(SimpleNamespace(growth=pd.DataFrame(rows))))

    (limit,) = limits(31.0)
    assert "iterations 5 to 20 predicts iteration 31" in limit.fact
    assert limits(20.0) == limits(np.nan) == []


def test_a_mean_of_ratios_is_named_where_elements_differ(tmp_path):
    def change(repeat, step, field):
        if repeat:
            flip_bit(field, 3)

    write_run(tmp_path / "a", repeats=2)
    assert "mean-of-ratios" not in set(lint(Overview(load([tmp_path / "a"])))["rule"])
    write_run(tmp_path / "b", repeats=2, change=change)
    rules = lint(Overview(load([tmp_path / "b"]))).set_index("rule")
    assert rules.loc["mean-of-ratios", "where"] == "sample"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("packages.numpy", "2.0"),
        ("mpi", "Open MPI 5"),
        ("cpu", "B"),
        ("sources", "1234"),
        ("frequency", "powersave 1-2"),
    ],
)
def test_launches_on_other_machines_or_libraries_are_named(key, value):
    fires("mixed-environments", [run("a1"), run("a2", machine={key: value})], key, value)
    silent("mixed-environments", [run("a1", machine={key: value}), run("a2", machine={key: value})])
    silent("mixed-environments", [run("a1", problem="p1"), run("a2", machine={key: value})])  # never compared


def test_another_node_is_no_other_environment_but_another_number_of_nodes_is():
    one, other, two = ({"node": node} for node in ("n1", "n2", "n1 | n2"))
    silent("mixed-environments", [run("a1", machine=one), run("a2", machine=other)])
    silent("mixed-nodes", [run("a1", size=2, machine=one), run("a2", size=2, machine=other)])
    fires("mixed-nodes", [run("a1", size=2, machine=one), run("a2", size=2, machine=two)], "1, 2 nodes")
    many = {"node": "9 values over the ranks"}
    fires("mixed-nodes", [run("a1", size=9, machine=two), run("a2", size=9, machine=many)], "2, 9 nodes")


def test_one_allocation_does_not_sample_the_placement():
    fires("one-allocation", [run("a1", allocation_id="17"), run("a2", allocation_id="17")], "allocation 17")
    fires("one-allocation", [run("a1")], "no batch allocation")
    silent("one-allocation", [run("a1", allocation_id="17"), run("a2", allocation_id="18")])


@pytest.mark.parametrize("key", ["threads", "frequency", "cpu"])
def test_what_times_depend_on_must_be_recorded(key):
    fires("not-recorded", [run(machine={key: ""})], "is not recorded")
    silent("not-recorded", [run()])


def test_more_threads_than_cores_are_named():
    two = {"cores": "2", "affinity": "0-1"}
    fires("oversubscribed", [run(size=4, machine=two)], "4 threads on 2 cores")
    fires("oversubscribed", [run(size=2, machine=two | {"threads": "2"})], "4 threads on 2 cores")
    fires("oversubscribed", [run(size=4, machine=two | {"affinity": ""})], "unless each rank is bound")
    silent("oversubscribed", [run(size=2, machine=two)])
    silent("oversubscribed", [run(size=4, machine=two | {"node": "n1 | n2"})])
    bound = {"cores": "1", "affinity": "0 | 1 | 2 | 3"}
    silent("oversubscribed", [run(size=4, machine=bound)])
    silent("oversubscribed", [run(size=64, machine={"cores": "1", "affinity": "64 values over the ranks"})])
    fires("oversubscribed", [run(size=4, machine=bound | {"threads": "2"})], "2 threads on 1 cores")


def test_a_slow_first_repeat_is_a_warm_up():
    fires("warm-up-included", repeats(4, walls=[1.5, 1.0, 1.01, 0.99]), "1.50 times the others")
    silent("warm-up-included", repeats(4, walls=[1.05, 1.0, 1.01, 0.99]))
    silent("warm-up-included", repeats(4, walls=[1.5, 1.0, 1.6, 0.99]))
    silent("warm-up-included", repeats(2, walls=[1.5, 1.0]))


def test_times_that_scatter_are_named():
    fires("unstable-times", repeats(8, walls=np.linspace(1.0, 1.5, 8)), "half of the times")
    silent("unstable-times", repeats(8, walls=np.linspace(1.0, 1.05, 8)))
    silent("unstable-times", repeats(8, walls=[1.0] * 7 + [5.0]))  # one outlier


def test_two_clusters_of_times_are_named():
    two = [1.0, 1.01, 1.02, 1.0, 1.01, 2.0, 2.01, 2.02, 2.0, 2.01]
    fires("several-clusters", repeats(10, walls=two), "none between 1.02 s and 2 s")
    silent("several-clusters", repeats(10, walls=np.linspace(1.0, 2.0, 10)))
    silent("several-clusters", repeats(10, walls=[1.0] * 9 + [2.0]))  # one outlier
    silent("several-clusters", repeats(9, walls=two[:9]))


def test_uniform_times_seldom_look_like_two_clusters():
    drawn = np.random.default_rng(5).uniform(1.0, 2.0, size=(2000, 10))
    assert np.mean([gap(x) is not None for x in drawn]) < 0.05


def test_launches_in_blocks_are_not_shuffled():
    def launches(order):
        return [run(f"r{i}", guarantee=level) for i, level in enumerate(order)]

    none, layout = ["none"] * 4, ["layout"] * 4
    fires("order-not-shuffled", launches(none + layout), "8 launches of 2 configurations")
    silent("order-not-shuffled", launches(["none", "layout"] * 4))
    silent("order-not-shuffled", launches(["none", "layout"]))  # in any order they lie together
    silent("order-not-shuffled", launches(none))


def test_the_chance_of_lying_together_is_that_of_random_orders():
    rng = np.random.default_rng(2)
    counts = [2, 3, 2]
    drawn = [rng.permutation(np.repeat([0, 1, 2], counts)) for _ in range(20_000)]
    share = np.mean([(np.diff(order) != 0).sum() == 2 for order in drawn])
    assert share == pytest.approx(contiguous_by_chance(counts), abs=4 * np.sqrt(share / len(drawn)))


def test_tracing_above_one_percent_of_a_launch_is_named():
    fires("tracing-overhead", repeats(2, tracing_s=0.05), "r (2.5%)")
    silent("tracing-overhead", repeats(2, tracing_s=0.019))


def test_faulty_incomplete_and_untimed_runs_and_clocks_are_named():
    fault = {"run.fault": ["nan@step=2"]}
    fires("faults-counted", [run("a1"), run("a2", method=fault)], "a2:0")
    silent("faults-counted", [run("a1"), run("a2", complete=False, method=fault)])
    fires("incomplete-runs", [run("a1"), run("a2", complete=False)], "1 of 2 runs")
    silent("incomplete-runs", [run("a1"), run("a2")])
    jumped = [("a1", "clock", "a1/rank-00000.h5", "the clock of the node jumped", "all other events")]
    fires("clock-problems", [run("a1")], "a1", excluded=jumped)
    silent("clock-problems", [run("a1")], excluded=[("a1", "incomplete", "a1", "", "")])
    fires("no-times", [run("a1"), run("a2", wall=np.nan)], "a2:0")
    silent("no-times", [run("a1", wall=np.nan), run("a2", wall=np.nan)])


@pytest.mark.usefixtures("undrawn")
def test_the_gravest_come_first_and_every_finding_concerns_a_section(tmp_path):
    write_run(tmp_path / "a", size=2, method={"run.fault": ["nan@step=2"]})
    write_run(tmp_path / "b", size=2, stop={1: 3}, result=False)
    frames = load([tmp_path])
    every = lint(Overview(frames))
    weight = every["severity"].map(SEVERITIES.index).tolist()
    assert weight == sorted(weight) and weight[0] == 0
    html = build(frames).html
    ids = re.findall(r'<section id="(.*?)">', html)
    assert len(set(ids)) == len(ids)
    for row in every.itertuples():
        assert row.section in ids
        section = html[html.index(f'<section id="{row.section}">') :].split("</section>")[0]
        assert re.search(rf"Limited by .*\d+ {row.severity}", section)


def test_the_command_prints_findings_and_succeeds(tmp_path, capsys):
    write_run(tmp_path / "a")
    assert main(["lint", str(tmp_path / "a"), "--csv", str(tmp_path / "csv")]) == 0
    output = capsys.readouterr().out
    assert "few-repeats" in output and f"of {len(RULES)} rules." in output
    assert "few-repeats" in (tmp_path / "csv" / "findings.csv").read_text()
    assert main(["lint", str(tmp_path / "a"), "--csv", str(tmp_path / "a" / "result.json")]) == 2
