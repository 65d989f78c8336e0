"""Answers: images with several results and times of requests, on terminal and page."""

import json
from itertools import pairwise

import pytest

from analysis.__main__ import main
from analysis.load.frames import load
from analysis.report.build import build
from analysis.studies.answers.runs import answers
from analysis.studies.answers.schedules import MOST, edges
from miniapps.untrusted.regular import Refused
from miniapps.untrusted.schedule import read_schedule
from tests.analysis.answers_runs import schedule, write_answers
from tests.analysis.synthetic import write_run


@pytest.fixture
def runs(tmp_path):
    write_answers(tmp_path / "eager", [1, 3, 2, 1], [1.0, 2.0, 9.0])
    write_answers(tmp_path / "static", [1, 1, 1, 1], [0.5, 0.5, 0.5], "static")
    return tmp_path


def test_images_with_several_results_and_times_of_requests_are_counted(runs):
    frame = answers(load([runs])).runs.set_index("case")
    assert frame["several"].tolist() == [2, 0] and frame["most"].tolist() == [3, 1]
    assert frame["requests"].tolist() == [3, 3] and frame["images"].tolist() == [4, 4]
    assert frame["seconds"].tolist() == pytest.approx([2e-3, 0.5e-3])


def test_the_verdict_needs_no_second_run(tmp_path, capsys):
    def verdict(name):
        assert main(["report", str(tmp_path / name), "-o", str(tmp_path / "report.html")]) == 0
        return capsys.readouterr().out.partition("\n")[0]

    write_answers(tmp_path / "eager", [1, 3, 2, 1], [1.0, 2.0, 9.0])
    write_answers(tmp_path / "static", [1, 1, 1, 1], [0.5, 0.5, 0.5], "static")
    assert verdict("eager").startswith("DIFFERS: 2 of 4 images got several results")
    assert verdict("static").startswith("IDENTICAL: Every image got one result in 3 requests")


def test_the_terminal_names_what_depends_on_the_request(runs, capsys):
    assert main(["answers", str(runs)]) == 0
    text = capsys.readouterr().out
    line = text.partition("\n")[0]
    assert line.startswith("2 ways to answer: 1 gave an image several results: no guarantee")
    assert line.endswith("backend=eager on 1 rank.")


def test_the_report_draws_bits_against_speed(runs):
    report = build(load([runs]))
    [figure] = [figure for figure in report.figures if figure.name == "inference"]
    assert "Inference: bits against speed" in report.html and figure.data["several"].tolist() == [2, 0]


def test_runs_without_answers_are_named(tmp_path, capsys):
    write_run(tmp_path / "other", size=1)
    assert main(["answers", str(tmp_path)]) == 2
    assert "recorded results of images" in capsys.readouterr().err


# ---- schedules


FIRST = json.dumps(schedule(0.9, 0.1)["buffers"][0])


def static(out, *shares):
    return write_answers(out, [1], [0.5], "static", schedule=schedule(*shares))


def test_the_report_draws_every_different_schedule_once(tmp_path):
    static(tmp_path / "a", 0.9, 0.1)
    static(tmp_path / "b", 0.9, 0.1)
    static(tmp_path / "c", 0.2, 0.3, 0.5)
    report = build(load([tmp_path]))
    figures = [figure for figure in report.figures if figure.name.startswith("schedule")]
    assert [figure.title for figure in figures] == ["Schedule of a", "Schedule of c"]
    assert "2 operations take as long as a byte" in figures[0].caption
    rows = figures[1].data.astype(object).where(figures[1].data.notna(), None)
    assert rows[rows["what"] == "buffer"][["first", "last", "offset", "bytes"]].values.tolist() == [
        [1, 2, 0, 4096], [2, 3, 4096, 4096],
    ]  # fmt: skip
    drawn = figures[1].svg
    assert all(
        text in drawn for text in ("1: linear 0", "sample after sample", "4 samples together", "50 %", "2→3")
    )


def test_the_shortest_kernel_is_seen_and_the_others_keep_their_proportion(tmp_path):
    at = edges(read_schedule(static(tmp_path / "a", 0.599, 0.4, 0.001) / "schedule.json"))
    widths = [after - before for before, after in pairwise(at)]
    assert at[0] == 0.0 and at[-1] == pytest.approx(1.0)
    assert widths[2] > 0.09 and widths[0] / widths[1] == pytest.approx(0.599 / 0.4)


@pytest.mark.parametrize("form", ["svg", "png"])
def test_a_schedule_is_drawn_into_a_file(tmp_path, capsys, form):
    file = tmp_path / f"picture.{form}"
    assert main(["answers", str(static(tmp_path / "a", 0.9, 0.1)), "--schedule", str(file)]) == 0
    assert f"Written: {file}" in capsys.readouterr().out
    assert (b"linear 1" if form == "svg" else b"PNG") in file.read_bytes()


def test_what_cannot_be_drawn_is_refused(tmp_path, capsys):
    def refusal(*runs, file="picture.svg"):
        assert main(["answers", *map(str, runs), "--schedule", str(tmp_path / file)]) == 2
        return capsys.readouterr().err

    one, other = static(tmp_path / "a", 0.9, 0.1), static(tmp_path / "b", 0.5, 0.5)
    without = write_answers(tmp_path / "eager", [1], [1.0])
    many = static(tmp_path / "many", *[0.01] * (MOST + 1))
    assert "2 different schedules, in a, b; name one run" in refusal(one, other)
    assert "no schedule" in refusal(without)
    assert f"more than {MOST} kernels" in refusal(many)
    assert ".svg or .png" in refusal(one, file="picture.pdf")
    assert "cannot be written" in refusal(one, file="nowhere/picture.svg")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda text: text[:-5], "is not what this program writes"),
        (lambda text: text.replace('"share": 0.1', '"share": 7'), "is not what this program writes"),
        (
            lambda text: text.replace('"buffers": [', '"buffers": [' + 2 * (FIRST + ", ")),
            "3 buffers, but only 2 kernels",
        ),
        (lambda text: text.replace('"last": 1', '"last": 9'), "b0 is kept from kernel 0 to 9 of 2"),
        (lambda text: text.replace('"read": 1', '"read": 0').replace('"written": 0', '"written": 1'), "b0 is kept"),
    ],
)  # fmt: skip
def test_a_damaged_schedule_is_refused(tmp_path, damage, reason):
    path = static(tmp_path / "a", 0.9, 0.1) / "schedule.json"
    path.write_text(damage(path.read_text()))
    with pytest.raises(Refused, match=reason):
        read_schedule(path)


def test_a_damaged_schedule_is_named_and_the_answers_are_used(tmp_path, capsys):
    (static(tmp_path / "a", 0.9, 0.1) / "schedule.json").write_text("{}")
    assert main(["answers", str(tmp_path)]) == 0
    assert "schedule.json" in capsys.readouterr().err
    report = build(load([tmp_path]))
    assert "No schedule could be drawn" in report.html and "schedule.json" in report.html
