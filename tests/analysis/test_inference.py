"""Answers: images with several results and times of requests, on terminal and page."""

import pytest

from analysis.__main__ import main
from analysis.inference.frames import answers
from analysis.load.frames import load
from analysis.report.build import build
from tests.analysis.inference_runs import write_answers
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


def test_the_terminal_names_what_depends_on_the_request(runs, capsys):
    assert main(["inference", str(runs)]) == 0
    text = capsys.readouterr().out
    line = text.partition("\n")[0]
    assert line.startswith("2 ways to answer: in 1 of them images got several results: no guarantee")
    assert line.endswith("backend=eager on 1 rank.")


def test_the_report_draws_bits_against_speed(runs):
    report = build(load([runs]))
    [figure] = [figure for figure in report.figures if figure.name == "inference"]
    assert "Inference: bits against speed" in report.html and figure.data["several"].tolist() == [2, 0]


def test_runs_without_answers_are_named(tmp_path, capsys):
    write_run(tmp_path / "other", size=1)
    assert main(["inference", str(tmp_path)]) == 2
    assert "recorded results of images" in capsys.readouterr().err
