"""Measurements for Extra-P, in its documented JSON Lines."""

import json

import pytest

from analysis.export.extrap import FEWEST, METRICS, NotOneExperiment, notes, write
from tests.analysis.export_runs import (
    HOSTILE,
    IN_A_STEP,
    INCLUSIVE_NS,
    OWN_NS,
    STEPS,
    hostile_run,
    part_of,
    solver_run,
    traced_run,
)
from tests.analysis.synthetic import CONFIG

PATHS = {  # of the solver: the path of each region
    "step": "step", "solve": "step->solve", "halo": "step->solve->halo", "allreduce.cg": "step->solve->allreduce.cg",
    "allreduce.budget": "allreduce.budget",
}  # fmt: skip


def measured(runs, out):
    """{(point, callpath, metric): values} of the file, as a reader of the format collects repetitions."""
    write([part_of(run) for run in runs], out)
    measurements = {}
    for line in out.read_text().splitlines():
        data = json.loads(line)
        assert data.keys() == {"params", "callpath", "metric", "value"}
        key = tuple(data["params"].items()), data["callpath"], data["metric"]
        measurements.setdefault(key, []).append(data["value"])
    return measurements


def test_times_visits_and_bytes_of_each_callpath_are_means_over_ranks(tmp_path):
    measurements = measured([solver_run(tmp_path / "run", size=3)], tmp_path / "out.jsonl")
    assert {path for _, path, _ in measurements} == set(PATHS.values())
    point = (("p", 3),)
    for name, path in PATHS.items():
        calls = STEPS * IN_A_STEP[name]
        assert measurements[point, path, "visits"] == [calls]
        assert measurements[point, path, "time"] == [calls * INCLUSIVE_NS[name] / 1e9]
        assert measurements[point, path, "exclusive time"] == [calls * OWN_NS[name] / 1e9]
        assert measurements[point, path, "bytes"] == [0]


def test_exclusive_times_add_up_to_those_of_the_outermost_regions(tmp_path):
    measurements = measured([solver_run(tmp_path / "run")], tmp_path / "out.jsonl")
    own = sum(value for (_, _, metric), [value] in measurements.items() if metric == "exclusive time")
    outermost = sum(
        value for (_, path, metric), [value] in measurements.items() if metric == "time" and "->" not in path
    )
    assert own == pytest.approx(outermost, rel=1e-12)


def test_runs_are_points_and_repeats_and_further_runs_are_repetitions(tmp_path):
    def twice(tracer, clock):
        for repeat in range(2):
            tracer.at(repeat, 0)
            begin = clock.now
            clock.spend(1 + repeat)
            tracer.event(tracer.name("work"), begin)

    runs = [traced_run(tmp_path / name, *[twice] * size) for name, size in (("a", 1), ("b", 2), ("c", 2))]
    measurements = measured(runs, tmp_path / "out.jsonl")
    assert measurements[(("p", 1),), "work", "time"] == [0.001, 0.002]
    assert measurements[(("p", 2),), "work", "time"] == [0.001, 0.002, 0.001, 0.002]


def test_every_callpath_is_at_every_point(tmp_path):
    def act(name):
        def record(tracer, clock):
            begin = clock.now
            clock.spend(1)
            tracer.event(tracer.name(name), begin)

        return record

    runs = [traced_run(tmp_path / "a", act("alone")), traced_run(tmp_path / "b", act("both"), act("both"))]
    measurements = measured(runs, tmp_path / "out.jsonl")
    for point in ((("p", 1),), (("p", 2),)):
        for path in ("alone", "both"):
            for metric in METRICS:
                assert len(measurements[point, path, metric]) == 1
    assert measurements[(("p", 2),), "alone", "time"] == [0.0]


def test_the_size_of_the_problem_is_a_parameter_where_it_differs(tmp_path):
    def sized(name, n):
        return solver_run(tmp_path / name, problem=f"p{n}", config={**CONFIG, "grid": {"n": n}})

    measurements = measured([sized("a", 64), sized("b", 128)], tmp_path / "out.jsonl")
    assert {point for point, _, _ in measurements} == {(("p", 2), ("n", 64)), (("p", 2), ("n", 128))}


def test_what_is_no_number_is_not_modelled(tmp_path):
    plain = solver_run(tmp_path / "plain")
    worded = solver_run(tmp_path / "worded", problem="p1", config={**CONFIG, "grid": {"n": "large"}})
    known = part_of(plain).attributes[0]["method"]
    other_method = solver_run(tmp_path / "method", method=known | {"run.threads": 2})
    other_app = solver_run(tmp_path / "app", app="solver")
    for other, words in (
        (worded, "differ in grid.n, which is no number: 128, \"large\""),
        (other_method, "differ in method: run.threads 1 / 2; give"),
        (other_app, "a run of coupled, .* of solver"),
    ):  # fmt: skip
        with pytest.raises(NotOneExperiment, match=words):
            measured([plain, other], tmp_path / "out.jsonl")
        assert not (tmp_path / "out.jsonl").exists()


def test_names_survive_and_an_arrow_in_one_does_not_split_it(tmp_path):
    measurements = measured([hostile_run(tmp_path / "run")], tmp_path / "out.jsonl")
    assert {path for _, path, _ in measurements} == {name.replace("->", "→") for name in HOSTILE}


def test_too_few_points_for_a_model_are_said(tmp_path):
    assert notes([{"p": p} for p in range(1, FEWEST + 1)]) == []
    assert notes([{"p": 1}, {"p": 2}]) == [
        "Extra-P wants 5 values of each parameter for a model; of p there are 2: 1, 2"
    ]
