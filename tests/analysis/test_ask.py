"""`ask`: the evidence decides the first command and its arguments."""

import functools
import json
import shlex
import unicodedata
from dataclasses import replace

import pytest

from analysis.__main__ import main
from analysis.ask import rank, templates
from analysis.ask.probes import evidence
from analysis.load.frames import load
from miniapps.untrusted.text import HIDDEN
from tests.analysis.synthetic import CONFIG, METHOD, flip_bit, owners, write_run, write_timed

PYTHON = "python -m analysis"
RESTART = {"output.restart": {"effect": "restart", "records": [], "of_ranks": False}}
OPTIONS = {
    f"run.{name}": {"effect": name, "records": [], "of_ranks": False}
    for name in ("device", "threads", "fault")
}


def at_step_3(repeat, step, field):
    """One bit of block 5 is another from step 3 on."""
    if step >= 3:
        flip_bit(field, 5)


def in_repeat_1(repeat, step, field):
    """The second repeat differs."""
    if repeat:
        flip_bit(field, 2, bit=3)


def of_cpu(name):
    return {"environment": {"cpu": name, "node": "n1", "variables": {}}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A clean run on 2 ranks, and others that differ from it in one way each."""
    root = tmp_path_factory.mktemp("runs")
    write_run(root / "clean", **of_cpu("a"))
    others = {
        "flipped": {}, "on-3": {"size": 3}, "blocked": {"method": {"solve.spmv": "blocked"}}, "elsewhere": of_cpu("b"),
        "continued": {"first_step": 2, "config": CONFIG | {"run": {"seed": 1}, "output": {"restart": "checkpoint.h5"}},
                      "options": OPTIONS | RESTART},
    }  # fmt: skip
    for name, other in others.items():
        write_run(root / name, **of_cpu("a") | other, change=at_step_3)
    write_run(root / "repeated", repeats=3, change=in_repeat_1)
    write_run(root / "ended", **of_cpu("a"), stop={0: 4, 1: 4})
    return root


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """A run in which the others wait for rank 1."""

    def regions(rank, step):
        work = 30 if rank == 1 else 10
        return [("step", 0, [("work", work, []), ("allreduce.a", 31 - work, [])])]

    return write_timed(tmp_path_factory.mktemp("slow") / "run", regions, size=3)


@functools.cache
def known_of(*paths):
    """What is in the runs at `paths`, read once for all words."""
    return evidence(load(paths, copies=True))


def asked(words, *paths):
    """The questions in their order."""
    return [question for question, _ in rank.ranked(known_of(*paths), words)]


@pytest.mark.parametrize(
    ("other", "template"),
    [
        ("flipped", "divergence of runs"), ("on-3", "divergence of rank counts"), ("blocked", "divergence of methods"),
        ("elsewhere", "divergence of environments"), ("continued", "divergence of a restart"),
    ],
)  # fmt: skip
def test_two_runs_are_compared_and_it_is_said_how_they_are_related_and_where_they_part(runs, other, template):
    first = asked("", runs / "clean", runs / other)[0]
    assert first.template == template
    assert first.command == f"{PYTHON} divergence {runs / 'clean'} {runs / other}"
    assert "first differ at step 3, vorticity, block 5" in first.because
    owner = int(owners(12, 3 if other == "on-3" else 2)[5])
    assert {key: first.slots[key] for key in ("step", "block", "rank")} == {
        "step": 3,
        "block": 5,
        "rank": owner,
    }


def test_repeats_of_one_launch_are_compared_by_its_name_alone(runs):
    first = asked("not reproducible", runs / "repeated")[0]
    assert first.command == f"{PYTHON} divergence {runs / 'repeated'}"
    assert first.slots["step"] == 0 and first.slots["block"] == 2


def test_a_run_that_ended_early_is_shown(runs):
    first = asked("", runs / "clean", runs / "ended")[0]
    assert first.command == f"{PYTHON} show {runs / 'ended'}"
    assert first.because == "ended: ended early, after step 3"


def test_the_rank_that_others_wait_for_is_named_and_exported(slow):
    questions = {question.template: question for question in asked("slow", slow)}
    assert next(iter(questions)) == "scaling"
    assert questions["scaling"].slots["rank"] == questions["export"].slots["rank"] == 1
    assert "rank 1 of run:0 works 3 times as long" in questions["scaling"].because
    assert "--ranks 0,1" in questions["export"].command


def test_that_a_fault_was_injected_is_no_evidence(tmp_path):
    stated = {
        "method": METHOD | {"run.guarantee": "none", "run.fault": ["bitflip@step=3"]},
        "options": OPTIONS,
    }
    write_run(tmp_path / "a/clean")
    write_run(tmp_path / "a/changed", change=at_step_3)
    write_run(tmp_path / "b/clean", options=OPTIONS)
    run = write_run(tmp_path / "b/changed", change=at_step_3, **stated)
    known = [evidence(load([tmp_path / name])) for name in "ab"]
    assert json.loads(load([run]).runs["method"].iloc[0])["run.fault"]
    assert known[0].facts == known[1].facts
    assert known[1].parted.relation == "same"


def test_three_commands_are_told_with_their_reasons(runs, capsys):
    assert main(["ask", "other results", str(runs / "clean"), str(runs / "flipped")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:2] for line in lines[::2]] == ["1.", "2.", "3."]
    assert all(line.startswith("   because: ") for line in lines[1::2])


def test_runs_without_a_cache_are_answered_as_with_one(runs, capsys):
    argv = ["ask", "", str(runs / "clean"), str(runs / "flipped")]
    answers = []
    for more in ([], ["--no-cache"]):
        assert main([*argv, *more]) == 0
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1]


def test_any_words_are_answered(runs, capsys):
    known = evidence(load([runs / "clean"]))
    words = [
        "",
        " \n\t",
        "a" * 10**6,
        "\x1b[31m\x07\u202e\ud800",
        "结果不同",
        "-" * 9,
        "{0} %s \\ ' \" [red]",
        "\udcff",
    ]
    assert {len(rank.ranked(known, each)) for each in words} == {len(rank.ranked(known, ""))}
    assert main(["ask", words[3], str(runs / "clean")]) == 0
    out = capsys.readouterr().out
    assert out.startswith("1. ") and not {c for c in out if unicodedata.category(c) in HIDDEN} - {"\n"}


def test_words_decide_where_evidence_does_not(runs, monkeypatch):
    used = rank.Weights(1.0, 1.0, {"show": {}, "lint": {}})
    monkeypatch.setattr(rank, "learned", lambda: used)
    places = {
        words: [q.template for q in asked(words, runs / "clean")] for words in ("was killed", "noisy timings")
    }
    assert places["was killed"].index("show") < places["was killed"].index("lint")
    assert places["noisy timings"].index("lint") < places["noisy timings"].index("show")


@pytest.mark.parametrize(
    ("words", "first"),
    [("why is it slow", "scaling"), ("where do they part", "divergence of runs"), ("is the timing noisy", "lint"),
     ("is it rounding or a bug of mine", "cause"), ("how do I view it in perfetto", "export")],
)  # fmt: skip
def test_other_questions_have_other_answers(runs, words, first):
    assert asked(words, runs / "clean", runs / "flipped")[0].template == first


@pytest.mark.parametrize("words", ["xyzzy", "?", "what is it", "a" * 40])
def test_words_that_say_nothing_are_told_so(runs, capsys, words):
    assert main(["ask", words, str(runs / "clean")]) == 0
    assert "no command answers to any of these words" in capsys.readouterr().out
    assert not rank.telling(words)


def test_an_empty_question_is_answered_by_evidence_and_says_so(runs, capsys):
    assert main(["ask", " ", str(runs / "clean")]) == 0
    assert "by what is in the runs alone" in capsys.readouterr().out


def test_ranks_of_which_no_work_was_recorded_are_not_compared(tmp_path):
    def regions(rank, step):
        work = [("work", 30, [])] if rank == 1 else []
        return [("step", 0, [*work, ("allreduce.a", 31 - 30 * bool(work), [])])]

    known = evidence(load([write_timed(tmp_path / "run", regions, size=3)]))
    assert known.late is None


def test_likeness_is_a_cosine():
    assert rank.likeness("restart", "restart") == pytest.approx(1)
    assert rank.likeness("restart", "qqqq") == rank.likeness("", "restart") == 0


def test_the_first_command_is_run_and_its_exit_code_is_told(runs, capsys):
    paths = [str(runs / "clean"), str(runs / "flipped")]
    assert main(["ask", "", *paths, "--run"]) == 3
    out = capsys.readouterr().out
    assert (
        out.startswith("1. ") and "clean:0 and flipped:0 differ: first at step 3, vorticity, block 5." in out
    )
    assert main(["ask", "", *paths, "--run", "--json"]) == 2


def test_only_commands_of_the_analysis_are_run(tmp_path, capsys, monkeypatch):
    write_run(tmp_path / "a", ordering="library")
    monkeypatch.setattr(rank, "learned", lambda: rank.Weights(0.0, 0.0, {"identify": {"prior": 9.0}}))
    assert asked("", tmp_path)[0].template == "identify"
    assert main(["ask", "", str(tmp_path), "--run"]) == 2
    assert "no command of the analysis" in capsys.readouterr().err


def test_names_of_runs_are_quoted_and_never_options(runs):
    frames = load([runs / "clean"])
    frames = replace(frames, runs=frames.runs.assign(path="-o x; echo"))
    for question in templates.questions(evidence(frames)):
        assert shlex.split(question.command) == list(question.argv)
        assert "./-o x; echo" in question.argv


def test_commands_that_are_not_there_are_not_named():
    before = dict(templates.TEMPLATES)
    templates.template("nothing", "analysis.commands.nothing")(lambda known: None)
    templates.template("nothing", "no_such_package.nothing")(lambda known: None)
    assert before == templates.TEMPLATES


def test_every_command_says_what_it_answers_and_the_table_knows_no_others():
    assert all(len(templates.description(name)) > 40 for name in templates.TEMPLATES)
    assert set(rank.learned().facts) <= set(templates.TEMPLATES)
