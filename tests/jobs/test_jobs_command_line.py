"""`python -m jobs`: its commands, its output and its exit codes."""

import json
import signal
import subprocess
import sys
import time

import pytest

from jobs import __main__ as jobs_main
from jobs.campaign import read
from jobs.plan import plan
from jobs.state import FAILED, State
from kernels import __version__
from kernels.as_json import COMMON
from tests.declared import check
from tests.jobs.campaigns import MPIRUN, SMALL, STARTED_ALONE, wrapper, write
from tests.launch import environment

mpi = pytest.mark.skipif(not MPIRUN.exists(), reason="no mpirun beside the interpreter (pip install mpich)")


def main(argv):
    """The exit code of `python -m jobs ARGV`, however it comes."""
    try:
        return jobs_main.main(argv)
    except SystemExit as end:
        return end.code


def test_plan_shows_what_would_run_and_what_it_may_cost_and_creates_nothing(tmp_path, capsys):
    text = SMALL.replace("[defaults]", "[defaults]\nallocations = 2")
    assert main(["plan", str(write(tmp_path, text)), "--tasks"]) == 0
    printed = capsys.readouterr().out
    assert "campaign small on local: 4 tasks" in printed
    assert (
        "reductions  guarantee=layout      2        1      1      1            2        1  00:01:00     -   0/2"
        in printed
    )
    assert "         1      2     0      1  00:03:00        0.05" in printed
    assert "at most 0.10 node-hours in all" in printed
    assert printed.count("  left\n") == 4
    assert not (tmp_path / "out").exists()


def test_an_example_is_written_here_planned_and_never_written_over(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["example"]) == 0
    names = ["adaprec", "adaprec-short", "demo", "scaling"]
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == names
    for name in ("demo", "scaling.toml"):
        assert main(["example", name]) == 0
        file = f"{name.removesuffix('.toml')}.toml"
        assert capsys.readouterr().out == f"{file} is written; next: python -m jobs plan {file}\n"
    assert main(["plan", "demo.toml"]) == 0
    assert "campaign demo on local: 12 tasks, results in runs/demo\n" in capsys.readouterr().out
    assert main(["example", "demo"]) == 2
    assert "demo.toml exists already, and nothing is written over" in capsys.readouterr().err
    assert main(["example", "dmeo"]) == 2
    assert "example 'dmeo': not known; did you mean demo?" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["demo", "demo.toml", "jobs/examples/demo.toml"])
def test_an_example_that_is_not_here_is_answered_with_how_to_get_it(name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["plan", name]) == 2
    assert (error := capsys.readouterr().err).endswith(
        "`python -m jobs example demo` writes the example of that name here\n"
    )
    assert error.startswith(f"jobs: {name}: cannot be read: No such file or directory; ")


def test_a_campaign_with_a_mistake_ends_with_code_2_file_and_line(tmp_path, capsys):
    path = write(tmp_path, SMALL.replace('"method.samples"', '"method.sample"'))
    for command in ("plan", "local", "status", "collect"):
        assert main([command, str(path)]) == 2
        assert (
            f"jobs: {path}, line 11: reductions has no option method.sample; did you mean"
            in capsys.readouterr().err
        )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan", "FILE", "--site", "frontera"], "site 'frontera': not known"),
        (["render", "FILE", "--site", "generic-slurm"], "ranks_per_node"),
        (["render"], "name one CAMPAIGN.toml, or an application with --app"),
        (["run", "FILE", "--site", "local", "--allocation", "1"], "--allocation 1: .* has 0 to 0"),
        (["local", "FILE", "--mpirun", "absent-mpirun"], "'absent-mpirun' cannot be run"),
    ],
)
def test_bad_usage_ends_with_code_2_and_names_what_is_wrong(tmp_path, capsys, arguments, message):
    path = str(write(tmp_path))
    assert main([path if word == "FILE" else word for word in arguments]) == 2
    assert message.partition(".*")[2] in (error := capsys.readouterr().err)
    assert message.partition(".*")[0] in error


def test_a_campaign_beyond_its_budget_is_not_submitted(tmp_path, capsys):
    text = (
        "budget_node_hours = 0.01\n" + SMALL + "[sites.generic-slurm]\nranks_per_node = 2\naccount = 'lab'\n"
    )
    assert main(["submit", str(write(tmp_path, text)), "--site", "generic-slurm"]) == 2
    assert "budget_node_hours is 0.01" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_submit_without_yes_says_what_it_may_cost_and_creates_nothing(tmp_path, capsys):
    path = write(tmp_path, SMALL + "[sites.generic-slurm]\nranks_per_node = 2\naccount = 'lab'\n")
    assert main(["submit", str(path), "--site", "generic-slurm", "--environment", "/env"]) == 0
    printed = capsys.readouterr().out
    assert "small            1 x 1 nodes x 0.05 h = 0.05 node-hours" in printed
    assert "small-report" in printed and "nothing is submitted without --yes" in printed
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("account", "code"), [([], 2), (["--account", "m1234"], 0), (["--account", "m1234_g"], 0)]
)
def test_the_hint_of_a_site_on_accounts_comes_before_anything_is_submitted(account, code, tmp_path, capsys):
    path = write(tmp_path, SMALL + "[sites.perlmutter]\nranks_per_node = 2\n")
    command = ["submit", str(path), "--site", "perlmutter", "--environment", "/env", *account]
    assert main(command) == code
    printed = capsys.readouterr()
    assert ("for GPU nodes its name ends in _g" in printed.err) == ("m1234_g" not in account)
    assert ("nothing is submitted without --yes" in printed.out) == (code == 0)


def test_a_submitted_campaign_is_an_array_and_a_report_that_waits_for_it(tmp_path, capsys, monkeypatch):
    """A stand-in for sbatch keeps what it is given and answers as Slurm does."""
    pytest.importorskip("psij", reason="the extra `jobs`: pip install psij-python")
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "sbatch").write_text(
        f'#!/bin/sh\nn=$(ls {tools} | wc -l)\ncp "$1" {tools}/given-$n\necho Submitted batch job $n\n'
    )
    (tools / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    text = SMALL.replace("[defaults]", "[defaults]\nallocations = 3")
    path = write(tmp_path, text + "[sites.generic-slurm]\nranks_per_node = 2\naccount = 'lab'\n")
    assert main(["submit", str(path), "--site", "generic-slurm", "--environment", "/env", "--yes"]) == 0
    assert "submitted small as job 1: " in (printed := capsys.readouterr().out)
    assert "submitted small-report as job 2: " in printed
    first, report = ((tools / f"given-{n}").read_text() for n in (1, 2))
    assert "#SBATCH --array=0-2%1\n" in first and "python -m jobs run" in first
    assert "#SBATCH --dependency=afterany:1\n" in report and f"python -m jobs collect {path}\n" in report
    command = ["submit", str(path), "--site", "generic-slurm", "--environment", "/env", "--yes", "--quiet"]
    assert main(command) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["submitted"] * 2


def test_render_prints_the_script_that_runs_one_allocation_per_element(tmp_path, capsys):
    path = write(tmp_path, SMALL + "[sites.generic-slurm]\nranks_per_node = 2\naccount = 'lab'\n")
    assert main(["render", str(path), "--site", "generic-slurm", "--environment", "/env"]) == 0
    script = capsys.readouterr().out
    assert f'python -m jobs run {path} --site generic-slurm --allocation "$FPNA_ARRAY_INDEX"' in script
    assert "#SBATCH --account=lab" in script


def object_of(capsys):
    """The JSON object that was printed, and nothing else."""
    printed = capsys.readouterr()
    assert printed.err == "" and printed.out.isascii()
    return json.loads(printed.out)


def test_a_plan_for_programs_holds_what_the_text_says(tmp_path, capsys):
    text = "budget_node_hours = 0.01\n" + SMALL.replace("[defaults]", "[defaults]\nallocations = 2")
    path = write(tmp_path, text)
    assert main(["plan", str(path), "--json"]) == 0
    planned = object_of(capsys)
    head = {key: planned.pop(key) for key in (*COMMON, "campaign", "file", "out", "site")}
    assert head == {
        "schema": 1,
        "command": "jobs plan",
        "version": __version__,
        "campaign": "small",
        "file": str(path),
        "out": str(tmp_path / "out"),
        "site": "local",
    }
    tasks, allocations = planned.pop("tasks"), planned.pop("allocations")
    assert planned == {
        "node_hours": pytest.approx(0.1),
        "budget_node_hours": 0.01,
        "within_budget": False,
        "mixed_nodes": "",
    }
    assert [(a["allocation"], a["tasks"], a["done"], a["nodes"], a["limit_s"]) for a in allocations] == [
        (0, 2, 0, 1, 180),
        (1, 2, 0, 1, 180),
    ]
    assert [task["allocation"] for task in tasks] == [0, 0, 1, 1]
    task = next(task for task in tasks if task["options"]["run.guarantee"] == "layout")
    assert task.pop("id").startswith("reductions-layout-2r-s1-a0-") and task.pop("line") == 9
    assert task.pop("options") == {
        "method.samples": 2,
        "method.variants": ["sptr"],
        "problem.arrays": 2,
        "problem.sizes": [100],
        "run.guarantee": "layout",
    }
    assert task == {
        **{"app": "reductions", "ranks": 2, "seed": 1, "allocation": 0, "threads": 1, "nodes": 1},
        **{"repeats": 1, "retries": 1, "limit_s": 60, "took_s": None, "predicted": None, "state": "left"},
    }
    assert not (tmp_path / "out").exists()


def test_a_status_for_programs_has_every_attempt(tmp_path, capsys):
    path = write(tmp_path)
    first, second = plan(read(path)).tasks
    state = State(tmp_path / "out", 0)
    state.create()
    state.begin(first, 1, "a")
    state.end(first, 1, FAILED, "exit code 9: \x1b[31m", code=9, seconds=1.5)
    assert main(["status", str(path), "--json"]) == 1
    status = object_of(capsys)
    assert status["states"] == {"to retry": 1, "left": 1}
    assert status["allocations"] == [{"allocation": 0, "tasks": 2, "states": status["states"]}]
    assert (status["jobs"], status["jobs_error"]) == ([], None)
    tried, left = status["tasks"]
    assert (tried["id"], left["id"]) == (first.id, second.id)
    assert (left["state"], left["reason"], left["attempts"]) == ("left", "", [])
    (attempt,) = tried["attempts"]
    assert attempt.pop("ended")
    assert attempt == {
        **{"attempt": 1, "outcome": "failed", "reason": "exit code 9: \\x1b[31m", "code": 9},
        **{"took_s": 1.5, "moved": ""},
    }


def test_a_status_for_programs_says_why_the_batch_system_was_not_asked(tmp_path, capsys):
    path = write(tmp_path)
    (tmp_path / "out/jobs").mkdir(parents=True)
    (tmp_path / "out/jobs/submitted.jsonl").write_text("no register\n")
    assert main(["status", str(path), "--json"]) == 1
    status = object_of(capsys)
    assert status["jobs"] == [] and "no submissions are known" in status["jobs_error"]


@pytest.mark.parametrize("command", ["plan", "status"])
def test_the_document_has_the_declared_keys(tmp_path, capsys, command):
    assert main([command, str(write(tmp_path)), "--json"]) == (command == "status"), "not all is done"
    check(object_of(capsys), f"jobs {command}")


@mpi
def test_quiet_says_what_goes_wrong_and_verbose_every_command(tmp_path, capfd):
    path = write(
        tmp_path,
        SMALL.replace('["none", "layout"]', '["layout"]')
        .replace("ranks = [2]", "ranks = [1]")
        .replace("[defaults]", "[defaults]\nretries = 0"),
    )
    fails = str(wrapper(tmp_path, f"{STARTED_ALONE}; exit 9"))
    assert main(["local", str(path), "--mpirun", fails, "--quiet"]) == 1
    failed, summary = capfd.readouterr().out.splitlines()
    assert "failed" in failed and "exit code 9" in failed
    assert summary == "not all done: 1 failed for good, 0 left"
    assert main(["local", str(path), "--retry-failed", "--verbose"]) == 0
    printed = capfd.readouterr().out
    assert ": attempt 2, log " in printed and f"\n$ {MPIRUN} " in printed
    assert main(["local", str(path), "--quiet"]) == 0
    assert main(["collect", str(path), "--quiet"]) == 0
    assert (tmp_path / "out/report.html").exists()
    printed = capfd.readouterr().out
    assert printed.startswith("attempts that did not finish: 1\n") and len(printed.splitlines()) == 2
    assert main(["local", str(path), "--quiet", "--verbose"]) == 2
    assert "not allowed with argument --quiet" in capfd.readouterr().err


def test_collect_of_a_campaign_that_never_ran_says_so(tmp_path, capsys):
    assert main(["collect", str(write(tmp_path))]) == 1
    assert "none of 2 tasks is finished; run the campaign first" in capsys.readouterr().err


@mpi
@pytest.mark.slow
def test_an_interrupted_campaign_goes_on_and_its_report_shows_groups_and_failed_attempts(tmp_path, capfd):
    """Ctrl-C in the first task; then both, of which the first fails once; then the report."""
    path = write(tmp_path)
    hang = wrapper(tmp_path, f"touch {tmp_path}/begun; exec sleep 600")
    runner = subprocess.Popen(
        [sys.executable, "-m", "jobs", "local", str(path), "--mpirun", str(hang)],
        env=environment({}), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    end = time.monotonic() + 120
    while not (tmp_path / "begun").exists() and time.monotonic() < end:
        time.sleep(0.02)
    assert main(["local", str(path)]) == 1, "two runners at once"
    assert f"process {runner.pid} on " in capfd.readouterr().err
    runner.send_signal(signal.SIGINT)
    _, error = runner.communicate(timeout=30)
    assert (runner.returncode, error) == (
        130,
        "jobs: interrupted; the same command goes on where this one stopped\n",
    )
    assert main(["status", str(path)]) == 1
    assert "interrupted: the runner was interrupted" in capfd.readouterr().out

    killed = f'{MPIRUN} "$@" --set run.fault=kill@step=1,rank=1'
    dies = f"[ -e {tmp_path}/died ] || {{ touch {tmp_path}/died; {killed}; exit 9; }}"
    assert main(["local", str(path), "--mpirun", str(wrapper(tmp_path, dies))]) == 0
    assert "[2/2]" in capfd.readouterr().out

    assert main(["collect", str(path), "--results", str(tmp_path / "results")]) == 0
    printed = capfd.readouterr().out
    assert "2 of 2 tasks finished\nattempts that did not finish: 2\n" in printed
    for group in ("reductions: no guarantee", "reductions: guaranteed on any number of ranks (layout)"):
        assert group in printed
    report = (tmp_path / "out/report.html").read_text()
    assert "reductions: guaranteed on any number of ranks (layout)" in report
    (failed,) = (d.name for d in (tmp_path / "out/failed").iterdir() if (d / "rank-00000.h5").exists())
    assert f"failed/{failed}" in report, "a failed attempt is named among what was left out"
    assert (tmp_path / "results").is_dir()
