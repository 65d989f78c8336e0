"""`python -m analysis scaling` and the sections of the report: what they say, and what they say for want of data."""

import re

import pandas as pd
import pytest

from analysis.__main__ import main
from analysis.groups import grouped
from analysis.load.frames import load
from analysis.overview import Overview
from analysis.page.sections import filled
from analysis.regions import cost_summary, costs
from analysis.report.build import build
from analysis.report.figures import cost_figures
from analysis.studies.scaling.known import OPENED, known_of, median_runs
from analysis.studies.scaling.study import STUDY
from analysis.studies.scaling.tables import efficiency_tables, fit_notes, fit_tables
from miniapps.trace import Tracer
from tests.analysis.synthetic import METHOD, attributes, write_run, write_timed


def tree(size, ms=64.0):
    """Even work, except that rank 0 does 1 ms more; the all-reduce costs 0.5 ms."""

    def regions(rank, step):
        late = size > 1
        return [
            ("step", 0, [("work", ms / size + (rank == 0), []), ("allreduce.a", 0.5 + late * (rank > 0), [])])
        ]

    return regions


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    root = tmp_path_factory.mktemp("campaign")
    for size in (1, 2, 4, 8):
        for i in range(2):
            write_timed(root / f"r{size}-{i}", tree(size, 64 + i), size=size)
    return root


@pytest.fixture(scope="module")
def frames(campaign):
    return load([campaign])


@pytest.fixture(scope="module")
def results(frames):
    return known_of(frames)


def sections(frames):
    return STUDY.sections(STUDY.read(Overview(frames), None))


def call(*arguments):
    return main([str(argument) for argument in arguments])


def test_the_command_prints_speedups_fits_efficiencies_and_the_path(campaign, capsys):
    assert call("scaling", campaign) == 0
    out = capsys.readouterr().out
    for words in ("Speedup", "ΔAICc", "load balance", "computation scaling", "allreduce.a", "Critical path"):
        assert words in out
    assert "amdahl" in out and "measured: 1 to 8 ranks" in out


def test_csv_holds_every_table(campaign, tmp_path, capsys):
    assert call("scaling", campaign, "--csv", tmp_path) == 0
    names = (
        "points",
        "speedups",
        "fits",
        "efficiencies",
        "collectives",
        "stragglers",
        "links",
        "path_regions",
        "path_ranks",
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(f"{name}.csv" for name in names)
    path = pd.read_csv(tmp_path / "path_regions.csv")
    walls = pd.read_csv(tmp_path / "efficiencies.csv").set_index("size")["wall_s"]
    assert path.groupby("size")["path_s"].sum().to_dict() == pytest.approx(walls.to_dict())


def test_the_trace_of_the_median_run_is_replayed(results):
    assert median_runs(results.points)["run"].tolist() == ["r1-0", "r2-0", "r4-0", "r8-0"]
    efficiencies = results.traced["efficiencies"].set_index("size")
    for size in (2, 4, 8):
        mean, most = 64 / size + 1 / size, 64 / size + 1
        assert efficiencies.loc[size, "load_balance"] == pytest.approx(mean / most)
        assert efficiencies.loc[size, "transfer"] == pytest.approx(most / (most + 0.5))
        assert efficiencies.loc[size, "computation"] == pytest.approx(1)
    assert efficiencies.loc[1, ["global", "computation"]].tolist() == pytest.approx([65 / 65.5, 1])


def test_what_would_take_too_long_is_left_out_and_said(frames):
    results = known_of(frames, events=12)  # 3 of each rank
    assert results.traced["efficiencies"]["size"].tolist() == [1, 2, 4]
    assert results.notes == ["the traces of 1 run with more than 12 events were not replayed"]
    results = known_of(frames, in_all=10 + 3 * OPENED)  # 3 events of 1 rank, 6 of 2
    assert results.traced["efficiencies"]["size"].tolist() == [1, 2]
    assert results.notes[0].startswith("the traces of 2 runs were not replayed, to keep the report quick")


def test_the_table_of_efficiencies_has_a_column_for_each_rank_count(results):
    ((title, table),) = efficiency_tables(results)
    assert title == "Efficiencies: coupled none/arrival"
    assert table.columns == ("ranks", "1", "2", "4", "8")
    assert table.rows[1][0].strip() == "parallel efficiency"


def test_the_report_has_figures_and_tables_of_the_scaling(frames):
    made = sections(frames)
    assert [figure.title for section in made for figure in section.figures] == [
        "Speedup, strong scaling", "Efficiency, strong scaling", "Communication by collective",
        "Ranks that others wait for", "Critical path by region",
    ]  # fmt: skip
    assert all(section.intro and section.tables for section in made)
    html = build(frames).html
    assert all(f"<h2>{section.title}</h2>" in html for section in made)


def test_one_run_has_efficiencies_and_no_speedup(tmp_path, capsys):
    run = write_timed(tmp_path / "r", tree(2), size=2)
    assert call("scaling", run) == 0
    out = capsys.readouterr().out
    assert "no speedup is known" in out and "load balance" in out
    assert "no scaling is known" in sections(load([run]))[0].nothing


def test_without_times_the_command_says_what_to_do(tmp_path, capsys):
    (tmp_path / "r").mkdir()
    given = attributes(0, 1, "none", "native", run_id="r")
    with Tracer(tmp_path / "r" / "rank-00000.h5", given, level="off") as tracer:
        tracer.at(0, 0)
        tracer.value("energy", 1.0)
    assert call("scaling", tmp_path) == 2
    assert "--trace off" in capsys.readouterr().err
    first, second, third = sections(load([tmp_path]))
    assert "No complete run was timed" in first.nothing
    assert "--trace off" in second.nothing
    assert third.nothing and not third.figures


def test_without_a_complete_run_there_is_a_sentence(tmp_path, capsys):
    write_run(tmp_path / "r", stop={0: 3}, result=False)
    assert call("scaling", tmp_path) == 2
    assert "ended early" in capsys.readouterr().err
    assert "No complete run was timed" in build(load([tmp_path])).html


def test_a_trace_whose_ranks_contradict_each_other_costs_one_sentence(tmp_path):
    a, b = ("allreduce.a", 1, []), ("allreduce.b", 1, [])
    write_timed(tmp_path / "r", lambda rank, step: [a, b] if rank else [b, a], size=2)
    results = known_of(load([tmp_path]))
    assert results.traced["efficiencies"].empty
    assert "the trace of r:0 was not replayed: its ranks went through" in results.notes[0]


def test_arrays_dealt_whole_have_no_collectives(tmp_path):
    alone = {"total": {"ordering": "native", "ranks": 1}}
    write_timed(tmp_path / "r", tree(2), size=2, app="reductions", reductions=alone)
    assert "never wait for each other" in known_of(load([tmp_path])).notes[0]


def priced(out, ms, guarantee, size=2, **method):
    write_timed(
        out, lambda rank, step: [("step", ms, [])], size=size, guarantee=guarantee,
        method=METHOD | {"solve.preconditioner": "jacobi", "solve.spmv": "csr", "closure.batch": "rank"} | method,
    )  # fmt: skip


def test_only_runs_that_agree_in_all_but_the_guarantee_are_priced_together(tmp_path):
    """The fastest run without a guarantee has another preconditioner, and is no base for the others."""
    priced(tmp_path / "a", 10, "none", **{"solve.preconditioner": "multigrid"})
    priced(tmp_path / "b", 40, "none")
    priced(tmp_path / "c", 60, "layout")
    summary = cost_summary(costs(load([tmp_path])))
    assert summary["relative"].tolist() == pytest.approx([1, 1.5])
    assert "jacobi" in summary["base"].iloc[0]


def test_what_a_guarantee_chooses_makes_no_other_experiment(tmp_path):
    priced(tmp_path / "a", 40, "none", **{"solve.spmv": "atomic"})
    priced(tmp_path / "b", 60, "layout", **{"closure.batch": "block"})
    assert cost_summary(costs(load([tmp_path])))["relative"].tolist() == pytest.approx([1, 1.5])


@pytest.mark.parametrize("other", [{"run.threads": 2}, {"tuning.restart": 50}, {"solve.dtype": "float32"}])
def test_other_factors_do(tmp_path, other):
    priced(tmp_path / "a", 40, "none", **other)
    priced(tmp_path / "b", 60, "layout")
    assert costs(load([tmp_path])).empty


def test_options_that_cost_time_do_too(tmp_path):
    for name, guarantee, every in (("a", "none", 1), ("b", "layout", 10)):
        config = {"run": {"seed": 1}, "record": {"every": every}}
        write_timed(tmp_path / name, tree(2), size=2, guarantee=guarantee, config=config)
    assert costs(load([tmp_path])).empty


def test_the_cost_of_a_guarantee_is_drawn_against_the_rank_count(tmp_path):
    for size in (1, 2):
        for i in range(6):
            priced(tmp_path / f"a{size}-{i}", 40 + i, "none", size)
            priced(tmp_path / f"b{size}-{i}", 60 + i, "layout", size)
    frames = load([tmp_path])
    points = costs(frames)
    summary = cost_summary(points)
    of_layout = summary[summary["group"] != summary["base"]]
    assert (of_layout["relative_low"] < of_layout["relative"]).all()
    assert (of_layout["relative"] < of_layout["relative_high"]).all()
    groups = list(dict.fromkeys(points["group"]))
    titles = [figure.title for figure in cost_figures(points, grouped(frames.runs), groups, set())]
    assert "What a guarantee costs, and the rank count" in titles


def test_that_no_law_fits_is_a_sentence_and_a_group_has_one_name(tmp_path):
    for size, ms in ((1, 64), (2, 20), (4, 90), (8, 5)):
        for i in range(2):
            write_timed(tmp_path / f"r{size}-{i}", tree(size, ms * size), size=size)
    for size in (2, 4):
        write_timed(tmp_path / f"run{size}", tree(size), size=size, guarantee="run", ordering="ring")
    known = known_of(load([tmp_path]))
    first, *others = fit_notes(known)
    (name,) = set(known.points.loc[known.points["guarantee"] == "none", "series"])
    assert first.startswith("not fitted: 2 rank counts, a fit needs 4: ")
    assert others[0].startswith(f"no law fits {name}: the best, ") and "above the limit of 10%" in others[0]
    assert not known.fits["chosen"].any()
    ((_, table),) = fit_tables(known)
    assert "chosen" not in filled(table).columns and {str(row[0]) for row in table.rows} == {name}
    html = build(load([tmp_path])).html
    section = html[html.index('<section id="scaling">') :].partition("</section>")[0]
    assert "No law fits" in section and "Not fitted" in section
    assert "none/" not in re.sub(r'href="[^"]*"', "", section)  # the words for the group, and no other name
