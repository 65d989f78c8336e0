"""`python -m analysis`: exit codes, and messages that name the file and the remedy."""

import json
import shutil

import h5py
import pytest

from analysis.__main__ import main, parser
from miniapps.trace import Tracer
from tests.analysis.synthetic import attributes, flip_bit, write_run
from tests.launch import run_python
from tests.tampering import altered


def differ(repeat, step, field):
    """From step 3 on, one bit of block 5 is another."""
    if step >= 3:
        flip_bit(field, 5)


@pytest.fixture
def runs(tmp_path):
    """Directories of two equal runs and one that differs, on different rank counts."""
    write_run(tmp_path / "a", size=1)
    write_run(tmp_path / "b", size=3)
    write_run(tmp_path / "c", size=2, change=differ)
    return tmp_path


def call(*arguments):
    return main([str(argument) for argument in arguments])


def test_equal_runs_exit_with_0(runs, capsys):
    assert call("divergence", runs / "a", runs / "b") == 0
    assert "a:0 and b:0 are equal: the same bits in 222 fingerprints and values" in capsys.readouterr().out


def test_different_runs_exit_with_3_and_say_where(runs, capsys):
    assert call("divergence", runs / "a", runs / "c") == 3
    out = capsys.readouterr().out
    assert "a:0 and c:0 differ: first at step 3, vorticity, block 5." in out
    assert "owned by rank 0 of 1 in a:0, rank 0 of 2 in c:0" in out
    assert "1 ULP" in out


def test_the_first_run_is_compared_with_all_others(runs, capsys):
    assert call("divergence", runs / "b", runs / "a", runs / "c") == 3
    out = capsys.readouterr().out
    assert "b:0 and a:0 are equal" in out and "b:0 and c:0 differ" in out


def test_repeats_of_one_run_are_compared(tmp_path, capsys):
    def second_differs(repeat, step, field):
        if repeat == 1:
            differ(repeat, step, field)

    run = write_run(tmp_path / "r", repeats=3, change=second_differs)
    assert call("divergence", run) == 3
    out = capsys.readouterr().out
    assert "r:0 and r:1 differ" in out and "r:0 and r:2 are equal" in out
    assert call("divergence", f"{run}:0", f"{run}:2") == 0
    assert call("divergence", f"{run}:0", f"{run}:1") == 3
    assert call("divergence", f"{run}:0", f"{run}:7") == 2
    assert "no such repeat; there are: 0, 1, 2" in capsys.readouterr().err


def test_a_copy_of_a_run_can_be_compared_with_it(runs):
    shutil.copytree(runs / "a", runs / "copy")
    assert call("divergence", runs / "a", runs / "copy") == 0


def truncated(run):
    path = run / "rank-00001.h5"
    path.write_bytes(path.read_bytes()[:2000])


def foreign(run):
    (run / "rank-00001.h5").unlink()
    with h5py.File(run / "rank-00001.h5", "w") as file:
        file["x"] = 1


def newer(run):
    altered(run / "rank-00001.h5", lambda file: file.attrs.modify("schema", 7))


def missing(run):
    (run / "rank-00001.h5").unlink()


def emptied(run):
    shutil.rmtree(run)
    run.mkdir()


@pytest.mark.parametrize("harm, words", [
    (truncated, ["rank-00001.h5", "damaged", "copy it again"]),
    (foreign, ["rank-00001.h5", "not a trace", "leave it out"]),
    (newer, ["rank-00001.h5", "schema 7", "install"]),
    (missing, ["b", "3 ranks", "rank 1", "copy the whole directory again"]),
    (emptied, ["b", "no run here", "rank-00000.h5"]),
])  # fmt: skip
def test_traces_that_cannot_be_used_exit_with_2_and_a_remedy(runs, capsys, harm, words):
    harm(runs / "b")
    assert call("divergence", runs / "a", runs / "b") == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    for word in words:
        assert word in captured.err
    assert "Traceback" not in captured.err
    assert call("show", runs / "b") == (2 if harm is emptied else 0)  # what is left can be looked at


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("command", ["report", "variability"])
def test_a_bad_run_among_good_ones_is_reported_and_the_rest_used(runs, tmp_path, capsys, command):
    truncated(runs / "b")
    arguments = ["-o", tmp_path / "out.html"] if command == "report" else []
    assert call(command, runs, *arguments) == 0
    captured = capsys.readouterr()
    assert "rank-00001.h5" in captured.err and "missing ranks" in captured.err
    assert "; 1 run with damaged or missing files." in captured.out.splitlines()[0]


@pytest.mark.parametrize("command", ["report", "variability", "show"])
def test_no_usable_run_exits_with_2(tmp_path, capsys, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bad = write_run(tmp_path / "bad", size=1)
    (bad / "rank-00000.h5").write_text("x")
    assert call(command, bad) == 2
    assert "rank-00000.h5: damaged" in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists()


def test_a_run_that_ended_early_is_no_verdict_but_a_difference_is(tmp_path, capsys):
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", stop={0: 5}, result=False)
    assert call("divergence", tmp_path / "a", tmp_path / "b") == 2
    assert "equal as far as recorded, but a run ended early" in capsys.readouterr().err
    write_run(tmp_path / "c", stop={0: 5}, change=differ, result=False)
    assert call("divergence", tmp_path / "a", tmp_path / "c") == 3


def test_ranks_of_one_run_that_disagree_are_not_equal(tmp_path, capsys):
    for name in "ab":
        (tmp_path / name).mkdir()
        for rank in range(2):
            given = attributes(rank, 2, "none", "arrival", run_id=name)
            with Tracer(tmp_path / name / f"rank-{rank:05d}.h5", given, size=2) as tracer:
                tracer.at(0, 0)
                tracer.value("dt", 0.5 if (name, rank) == ("b", 1) else 0.25)
    assert call("divergence", tmp_path / "a", tmp_path / "b") == 3
    assert "rank 1 recorded other bits than the lowest rank for the same dt" in capsys.readouterr().err


def test_one_repeat_alone_cannot_be_compared(runs, capsys):
    assert call("divergence", runs / "a") == 2
    assert "one repeat only, nothing to compare with; give a second run" in capsys.readouterr().err


def test_different_experiments_are_not_compared(runs, capsys):
    write_run(runs / "other", problem="p1", config={"grid": {"n": 256}})
    assert call("divergence", runs / "a", runs / "other") == 2
    err = capsys.readouterr().err
    assert "a:0 is coupled n=128" in err and "other:0 is coupled n=256" in err


def test_a_directory_of_runs_is_not_a_run(runs, capsys):
    assert call("divergence", runs, runs / "a") == 2
    assert "not a run itself" in capsys.readouterr().err


@pytest.mark.usefixtures("undrawn")
def test_report_writes_the_file_and_prints_verdict_and_groups(runs, tmp_path, capsys):
    out = tmp_path / "x.html"
    assert call("report", runs, "-o", out) == 0
    printed = capsys.readouterr().out
    first = printed.splitlines()[0]
    assert first.startswith("DIFFERS (")  # on 1, 2 and 3 ranks, between which nothing is promised
    assert "final state" in printed and f"Report: {out}" in printed
    page = out.read_text()
    assert page.startswith("<!doctype html>") and f"<title>{first}</title>" in page
    assert call("report", runs / "a", "-o", out) == 0  # another one over it
    assert out.read_text() != page


@pytest.mark.parametrize("place", [".", "nowhere/x.html"])
def test_a_report_that_cannot_be_written_exits_with_2_before_any_work(runs, capsys, place):
    assert call("report", runs, "-o", runs / place) == 2
    assert "must be a file in a directory that exists" in capsys.readouterr().err


def test_the_reference_can_be_named(runs, capsys):
    assert call("variability", runs, "--reference", f"{runs / 'c'}:0") == 0
    assert "c:0" in capsys.readouterr().out
    assert call("variability", runs, "--reference", runs / "c") == 0
    assert call("variability", runs, "--reference", runs / "nothing") == 2


def test_show_says_what_is_in_a_run(runs, capsys):
    assert call("show", runs / "a") == 0
    out = capsys.readouterr().out
    for word in ("guarantee", "arrival", "vorticity", "streamfunction", "energy", "whole", "step"):
        assert word in out


def test_show_says_what_was_not_recorded_and_which_sums_a_guarantee_did_not_reach(tmp_path, capsys):
    """Of all ranks; a run that lacks nothing says nothing of it."""
    (tmp_path / "a").mkdir()
    for rank, own in enumerate(({"MPI_Put": 3}, {"MPI_Put": 4, "MPI_File_write": 12})):
        sums = [{"call": f"MPI_Allreduce at {place} (cg.c:57)", "why": "user operation", "calls": 5 + rank}
                for place in ("dot", "norm")[: rank + 1]]  # fmt: skip
        given = attributes(rank, 2, "exact", "tree", run_id="a", unseen=own, unreached=sums)
        with Tracer(tmp_path / "a" / f"rank-{rank:05d}.h5", given, size=2) as tracer:
            tracer.value("dt", 0.5)
    assert call("show", tmp_path / "a") == 0
    out = capsys.readouterr().out
    _, _, lacking = out.partition("Calls that were not recorded")
    lines = [line.split() for line in lacking.splitlines()]
    assert ["MPI_File_write", "12"] in lines and ["MPI_Put", "7"] in lines
    assert ["MPI_Allreduce", "at", "dot", "(cg.c:57)", "user", "operation", "11"] in lines
    assert call("show", tmp_path / "a", "--json") == 0
    rows = json.loads(capsys.readouterr().out)["tables"]["lacking"]
    assert [(row["what"], row["call"].split()[-2], row["calls"]) for row in rows if row["why"]] == [
        ("not reached", "dot", 11), ("not reached", "norm", 6)
    ]  # fmt: skip
    write_run(tmp_path / "whole")
    assert call("show", tmp_path / "whole") == 0
    out = capsys.readouterr().out
    assert "not recorded" not in out and "not reach" not in out


@pytest.mark.parametrize("command", [[], ["report"], ["variability"], ["divergence"], ["show"]])
def test_help_documents_the_exit_codes(command, capsys):
    with pytest.raises(SystemExit) as end:
        parser().parse_args([*command, "--help"])
    assert end.value.code == 0
    out = capsys.readouterr().out
    assert "exit codes:" in out and "not equal" in out


@pytest.mark.parametrize(
    "arguments", [[], ["repot"], ["report"], ["divergence"], ["report", "x", "--frobnicate"]]
)
def test_usage_errors_are_one_line_and_exit_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("python -m analysis") and said.endswith("--help shows the usage")


def test_as_a_program_its_exit_code_is_that_of_the_comparison_and_it_imports_no_package_for_figures(runs):
    arguments = ["divergence", str(runs / "a"), str(runs / "c"), "--quiet"]
    done = run_python(["-X", "importtime", "-m", "analysis", *arguments])
    assert done.returncode == 3, done.stderr
    lines = done.stderr.splitlines()
    assert all(line.startswith("import time:") for line in lines)
    imported = {line.rpartition("|")[2].strip() for line in lines}
    assert "pandas" in imported and not imported & {"matplotlib", "jinja2"}
    assert "\x1b" not in done.stdout  # no terminal, no escape sequences


def test_a_missing_package_is_named_with_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr("analysis.__main__.find_spec", lambda name: None if name == "jinja2" else object())
    assert main(["report", "x"]) == 2
    assert "not installed: jinja2; pip install jinja2" in capsys.readouterr().err
