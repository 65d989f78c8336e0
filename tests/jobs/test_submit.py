"""The rendered script is the submitted one; its cost is known before, its id after."""

import sys
from pathlib import Path

import pytest

from jobs.job import Job, JobError
from jobs.render import render
from jobs.sites import site
from jobs.submit import ByHand, budget, node_hours, states, submissions, submit

psij = pytest.importorskip("psij", reason="the extra `jobs`: pip install psij-python")

JOB = Job(
    name="demo",
    nodes=3,
    ranks_per_node=2,
    threads=1,
    seconds=1200,
    account="lab",
    queue=None,
    environment=sys.prefix,
    commands=("echo {{mustache}} '@{at}' $HOME",),
)
PBS = """
scheduler = "pbs"
page = "https://example.org"
date = 2025-01-01
launch = ["mpiexec -n {ranks}", "it is the one there is"]
"""


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """A directory that is all of PATH, and a function that puts a program into it."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def put(name, body):
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)

    return put


@pytest.fixture
def pbs(tmp_path):
    file = tmp_path / "cluster.toml"
    file.write_text(PBS)
    return site(str(file))


def test_the_script_that_psij_submits_is_the_rendered_one_to_the_last_byte(tmp_path, tools):
    tools("sbatch", f'/bin/cat "$1" > {tmp_path}/given; echo Submitted batch job 41')
    submission = submit(JOB, site("generic-slurm"), tmp_path / "jobs")
    assert (tmp_path / "given").read_text() == render(JOB, site("generic-slurm"))
    assert submission.id == "41"
    assert Path(submission.script).read_text() == render(JOB, site("generic-slurm"))
    assert Path(submission.script).name == "demo-41.sh"


def test_the_report_waits_for_the_end_of_the_runs(tmp_path, tools):
    tools("sbatch", f'/bin/cat "$1" > {tmp_path}/given; echo Submitted batch job 41')
    generic = site("generic-slurm")
    runs = submit(JOB, generic, tmp_path / "jobs")
    submit(JOB, generic, tmp_path / "jobs", after=runs)
    first, second, *rest = (tmp_path / "given").read_text().splitlines()
    assert second == "#SBATCH --dependency=afterany:41"
    assert [first, *rest] == render(JOB, generic).splitlines()


def test_pbs_is_submitted_to_and_asked_through_psij(tmp_path, tools, pbs):
    tools("qsub", f'/bin/cat "$1" >> {tmp_path}/given; echo 7[].head')
    tools("qstat", """echo '{"Jobs": {"7[].head": {"job_state": "Q", "comment": "no free nodes"}}}'""")
    runs = submit(JOB, pbs, tmp_path / "jobs")
    submit(JOB, pbs, tmp_path / "jobs", after=runs)
    assert (tmp_path / "given").read_text().count("#PBS -W depend=afterany:7[].head\n") == 1
    assert [(s.id, s.state, s.message) for s in states(tmp_path / "jobs")] == 2 * [
        ("7[].head", "QUEUED", "no free nodes")
    ]


@pytest.mark.parametrize(("scheduler", "command"), [("pjm", "pjsub"), ("sge", "qsub")])
def test_where_psij_knows_no_executor_the_command_to_type_is_given(tmp_path, tools, scheduler, command):
    file = tmp_path / "cluster.toml"
    file.write_text(PBS.replace("pbs", scheduler))
    cluster = site(str(file))
    with pytest.raises(ByHand, match=r"PSI/J has no executor for .* nothing was submitted") as answer:
        submit(JOB, cluster, tmp_path / "jobs")
    assert answer.value.script.read_text() == render(JOB, cluster)
    assert answer.value.command == f"{command} {answer.value.script}"
    assert submissions(tmp_path / "jobs") == []


def test_no_scheduler_is_an_error_that_says_what_was_looked_for(tmp_path, tools, pbs):
    with pytest.raises(JobError, match=r"no scheduler found: generic-slurm .* no sbatch is on PATH"):
        submit(JOB, site("generic-slurm"), tmp_path / "jobs")
    with pytest.raises(JobError, match=r"no scheduler found: cluster .* no qsub is on PATH"):
        submit(JOB, pbs, tmp_path / "jobs")
    with pytest.raises(JobError, match="has no scheduler: `python -m jobs local"):
        submit(JOB, site("local"), tmp_path / "jobs")
    assert not (tmp_path / "jobs").exists()


def test_without_psij_the_error_names_the_package(tmp_path, tools, monkeypatch):
    tools("sbatch", "echo Submitted batch job 41")
    monkeypatch.setitem(sys.modules, "psij", None)
    monkeypatch.delitem(sys.modules, "jobs.executors", raising=False)
    monkeypatch.delattr("jobs.executors", raising=False)
    with pytest.raises(JobError, match="psij is missing: pip install psij-python"):
        submit(JOB, site("generic-slurm"), tmp_path / "jobs")


def test_a_refusal_carries_the_schedulers_own_words(tmp_path, tools):
    tools("sbatch", "echo 'sbatch: error: Invalid account' >&2; exit 1")
    with pytest.raises(JobError, match="sbatch refuses demo: sbatch: error: Invalid account"):
        submit(JOB, site("generic-slurm"), tmp_path / "jobs")
    assert submissions(tmp_path / "jobs") == []


def test_a_scheduler_that_does_not_answer_is_an_error_with_its_words(tmp_path, tools):
    tools("sbatch", "echo Submitted batch job 41")
    submit(JOB, site("generic-slurm"), tmp_path / "jobs")
    tools("squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(JobError, match=r"slurm does not tell .*Unable to contact slurm controller"):
        states(tmp_path / "jobs")
    (tmp_path / "tools/squeue").unlink()
    with pytest.raises(JobError, match="no scheduler found: squeue is not on PATH"):
        states(tmp_path / "jobs")


def test_a_job_that_the_scheduler_forgot_is_unknown_not_finished(tmp_path, tools):
    tools("sbatch", "echo Submitted batch job 4")
    tools("squeue", "echo '41_0|R|RUNNING|None'")
    submit(JOB, site("generic-slurm"), tmp_path / "jobs")
    assert [(s.id, s.state) for s in states(tmp_path / "jobs")] == [("4", "UNKNOWN")]


def test_a_job_that_cannot_be_noted_is_not_submitted(tmp_path, tools):
    tools("sbatch", f"echo x >> {tmp_path}/asked; echo Submitted batch job 41")
    (tmp_path / "jobs").write_text("a file in the way")
    with pytest.raises(
        JobError, match=r"jobs: is a file, where only a directory may be.*nothing was submitted"
    ):
        submit(JOB, site("generic-slurm"), tmp_path / "jobs")
    assert not (tmp_path / "asked").exists()


def test_a_damaged_register_is_named_with_its_line(tmp_path, tools):
    tools("sbatch", "echo Submitted batch job 41")
    submit(JOB, site("generic-slurm"), tmp_path / "jobs")
    register = tmp_path / "jobs/submitted.jsonl"
    register.write_text(register.read_text() + '{"id": "4')
    with pytest.raises(JobError, match=r"submitted.jsonl, line 2: .*truncated"):
        submissions(tmp_path / "jobs")


@pytest.mark.parametrize("name", ["jobs", "jobs/slurm", "jobs/submitted.jsonl"])
@pytest.mark.parametrize("kind", ["directory", "file", "nothing"])
def test_nothing_is_written_through_a_link_and_then_nothing_is_submitted(tmp_path, tools, name, kind):
    tools("sbatch", f"echo x >> {tmp_path}/asked; echo Submitted batch job 41")
    outside, place = tmp_path / "outside", tmp_path / name
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(outside)
    if kind == "directory":
        outside.mkdir()
    elif kind == "file":
        outside.write_text("mine")
    with pytest.raises(JobError, match=rf"{place}: is a symbolic link, .*nothing was submitted"):
        submit(JOB, site("generic-slurm"), tmp_path / "jobs")
    assert not (tmp_path / "asked").exists()
    assert not list(outside.iterdir()) if kind == "directory" else outside.exists() == (kind == "file")
    assert kind != "file" or outside.read_text() == "mine"


def test_a_script_is_never_written_over_though_ids_come_again(tmp_path, tools):
    tools("sbatch", "echo Submitted batch job 41")
    first, second = (submit(JOB, site("generic-slurm"), tmp_path / "jobs") for _ in range(2))
    assert [Path(one.script).name for one in (first, second)] == ["demo-41.sh", "demo-41.sh+"]
    assert Path(first.script).is_file() and Path(second.script).is_file()


@pytest.mark.parametrize(
    "answer", ["", "Submitted batch job ../../x", "Submitted batch job -x", r"a\\033[2Jb"]
)
def test_an_answer_that_is_no_id_is_told_and_not_noted(tmp_path, tools, answer):
    tools("sbatch", f"echo '{answer}'")
    with pytest.raises(
        JobError, match=r"sbatch took demo and answered .*look \(squeue --me --name=demo\)"
    ) as error:
        submit(JOB, site("generic-slurm"), tmp_path / "jobs")
    assert str(error.value).isprintable()
    assert submissions(tmp_path / "jobs") == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["jobs", "tools"]


def test_a_register_whose_last_line_was_cut_off_takes_the_next_on_a_line_of_its_own(tmp_path, tools):
    tools("sbatch", "echo Submitted batch job 41")
    register = tmp_path / "jobs/submitted.jsonl"
    register.parent.mkdir()
    register.write_text('{"id": "4')
    submit(JOB, site("generic-slurm"), tmp_path / "jobs")
    assert len(register.read_text().splitlines()) == 2
    with pytest.raises(JobError, match=r"submitted.jsonl, line 1: "):
        submissions(tmp_path / "jobs")


@pytest.mark.parametrize("answer", ["", "{", "[]", "{}", '{"Jobs": 7}', '{"Jobs": {"7": {"job_state": []}}}'])
def test_an_answer_of_the_scheduler_that_cannot_be_read_is_an_error_and_no_traceback(
    tmp_path, tools, pbs, answer
):
    tools("qsub", "echo 7.head")
    tools("qstat", f"echo '{answer}'")
    submit(JOB, pbs, tmp_path / "jobs")
    with pytest.raises(JobError, match=r"pbs does not tell the state of the jobs: "):
        states(tmp_path / "jobs")


@pytest.mark.parametrize(
    "words",
    [
        "Batch job submission failed: Socket timed out on send/recv operation",
        "Batch job submission failed: Zero Bytes were transmitted or received",
        "Batch job submission failed: Transport endpoint is not connected: Connection reset by peer",
    ],
)
def test_a_job_whose_answer_was_lost_may_be_queued(tmp_path, tools, words):
    tools("sbatch", f"echo 'sbatch: error: {words}' >&2; exit 1")
    with pytest.raises(
        JobError, match=r"does not say whether it took demo: .*look \(squeue --me --name=demo\)"
    ) as error:
        submit(JOB, site("generic-slurm"), tmp_path / "jobs")
    assert "refuses" not in str(error.value) and words in str(error.value)
    assert submissions(tmp_path / "jobs") == []


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        ("Invalid job array specification", "MaxArraySize is 1001"),
        ("Resource temporarily unavailable", "MaxJobCount is 10000"),
        ("Job violates accounting/QOS policy (job submit limit, ...)", "MaxJobCount is 10000"),
    ],
)
def test_a_limit_of_the_site_is_named_with_its_value_and_what_to_do(tmp_path, tools, words, limit):
    tools("sbatch", f"printf 'sbatch: error: Batch job submission failed:\\n{words}\\n' >&2; exit 1")
    tools("scontrol", "echo 'MaxArraySize            = 1001'; echo 'MaxJobCount             = 10000'")
    with pytest.raises(JobError, match=rf"{limit} there: .*fewer allocations") as error:
        submit(JOB, site("generic-slurm"), tmp_path / "jobs")
    assert "\\x0a" not in str(error.value) and "This job has 1 element" in str(error.value)
    tools("scontrol", "exit 1")
    with pytest.raises(JobError, match=r"see Max.* in `scontrol show config`"):
        submit(JOB, site("generic-slurm"), tmp_path / "jobs")


def test_a_directory_has_letters_of_any_script_and_no_meaning_for_the_scheduler(tmp_path, pbs):
    from dataclasses import replace

    assert "--output=läufe/1/%x_%j.out" in render(replace(JOB, output="läufe/1"), site("generic-slurm"))
    assert "-o läufe/1/" in render(replace(JOB, output="läufe/1"), pbs)
    with pytest.raises(JobError, match=r"output 'a b': .* letters, digits .* and not ' '"):
        replace(JOB, output="a b")
    with pytest.raises(JobError, match="output 'a:b': cluster takes what is before ':' for a host"):
        render(replace(JOB, output="a:b"), pbs)
    assert "--output=a:b/" in render(replace(JOB, output="a:b"), site("generic-slurm"))


def test_node_hours_count_every_element_at_its_limit():
    from dataclasses import replace

    array = replace(JOB, array=5)
    assert node_hours([array, JOB]) == 5 * 3 * 1200 / 3600 + 3 * 1200 / 3600
    assert budget([array, JOB]).splitlines() == [
        "demo     5 x 3 nodes x 0.33 h = 5.00 node-hours",
        "demo     1 x 3 nodes x 0.33 h = 1.00 node-hours",
        "at most 6.00 node-hours",
    ]
