"""Utilisation of runs over a mesh, and their plans in the report."""

import pytest

from analysis.__main__ import main
from analysis.divergence.compare import compare
from analysis.divergence.unlike import choices
from analysis.load.frames import load
from analysis.runs import ids
from analysis.studies.utilisation.plans import figure, plans
from analysis.studies.utilisation.runs import used
from analysis.studies.utilisation.study import sections, sentences, tables
from tests.analysis.mesh_runs import PLAN, write_mesh


def test_utilisation_is_the_median_of_all_steps_but_the_first(tmp_path):
    write_mesh(tmp_path / "a", [0.1, 0.4, 0.5, 0.8], threads=2)
    (row,) = used(load([tmp_path / "a"])).runs.to_dict("records")
    assert (row["utilisation"], row["least"], row["most"], row["steps"]) == (0.5, 0.4, 0.8, 4)
    # 4 GFLOP by two ranks of two threads at 1 GFLOP/s: 2 s at one half; 4 s of processor time in all.
    assert (row["seconds"], row["of_processor_time"]) == (2.0, 1.0)
    assert (row["family"], row["case"], row["guarantee"]) == ("", "layout/block-tree on 2 ranks", "layout")


def test_a_table_has_a_row_by_mesh_and_guarantee(tmp_path):
    write_mesh(tmp_path / "a", [0.5, 0.5])
    write_mesh(tmp_path / "b", [0.7, 0.7])
    write_mesh(tmp_path / "c", [0.2, 0.2], size=1)
    known = used(load([tmp_path]))
    ((_, table),) = tables(known)
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert [(row["case"], row["runs"], row["utilisation, %"]) for row in rows] == [
        ("layout/block-tree (mesh=data=1) on 1 rank", 1, "20.0"),
        ("layout/block-tree (mesh=data=2) on 2 ranks", 2, "60.0"),
    ]
    assert "70.0 %" in sentences(known)[0] and "mesh=data=1" in sentences(known)[1]


def test_the_plan_is_drawn_once_and_has_a_table(tmp_path):
    write_mesh(tmp_path / "a", [0.5])
    write_mesh(tmp_path / "b", [0.5])
    (shown,) = sections(used(load([tmp_path])))
    (drawn,), (_, (title, table)) = shown.figures, shown.tables
    assert "all-reduce over batch, 4.1 kB" in drawn.svg and "enter: a, b" in drawn.svg
    assert title == "The plan of layout/block-tree on 2 ranks, over data=2 in stages"
    assert table.rows[-1] == ("", "loss, 3 gradients", "", "", "all-reduce over batch, 4.1 kB")
    assert drawn.data["stage"].tolist() == [row[1] for row in table.rows]


@pytest.mark.parametrize("plan", [None, "", "[]", PLAN.encode()[:-9], '{"stages": 1}'])
def test_what_is_no_plan_is_not_drawn(tmp_path, plan):
    write_mesh(tmp_path / "a", [0.5], plan=plan)
    (shown,) = sections(used(load([tmp_path])))
    assert not shown.figures and len(shown.tables) == 1


def test_names_of_a_plan_cannot_leave_the_picture():
    import msgspec

    stage = msgspec.structs.replace(PLAN.stages[0], layer="</svg><script>alert(1)</script>")
    drawn = figure("plan0", "<b>", msgspec.structs.replace(PLAN, stages=(stage, PLAN.stages[1])))
    assert "<script" not in drawn.svg and "<b>" not in drawn.svg


def test_runs_without_a_mesh_or_with_a_strange_one_are_told_of(tmp_path, capsys):
    write_mesh(tmp_path / "odd", [0.0, 0.0], flops=0.0, cpu=0.0, config={"run": {"threads": None}})
    assert main(["utilisation", str(tmp_path / "odd")]) == 0
    write_mesh(tmp_path / "none", [])
    capsys.readouterr()
    assert main(["utilisation", str(tmp_path / "none")]) == 2
    assert "the utilisation of a mesh" in capsys.readouterr().err


def test_plans_of_two_meshes_are_no_choices_that_differ(tmp_path):
    write_mesh(tmp_path / "a", [0.5])
    write_mesh(tmp_path / "b", [0.5], size=1, plan="another")
    frames = load([tmp_path])
    a, b = ids(frames.runs)
    assert choices(frames, compare(frames, a, b)) == []
    assert len(plans(used(frames))) == 1
