"""The rendered batch script is what a user would have written, and runs the application they asked for."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from jobs.__main__ import main
from jobs.job import Job, JobError
from jobs.render import render
from jobs.sites import site

JOB = Job(
    name="weak",
    nodes=4,
    ranks_per_node=8,
    threads=2,
    seconds=1800,
    account="lab_g",
    queue=None,
    environment="/opt/env",
    commands=("echo first", "echo second"),
)
ARGUMENTS = ["render", "--app", "coupled", "--account", "lab", "--nodes", "2", "--ranks-per-node", "4"]


def test_running_the_script_starts_the_application_through_srun(tmp_path, capsys):
    """A stand-in for srun and for python shows what they would have got; srun's exit code is the job's."""
    tools = tmp_path / "an environment" / "bin"
    tools.mkdir(parents=True)
    (tools / "activate").write_text(f'PATH="{tools}:$PATH"\n')
    (tools / "srun").write_text('#!/bin/sh\nfor a in "$@"; do echo "<$a>"; done\nexit 3\n')
    (tools / "srun").chmod(0o755)
    main([*ARGUMENTS, "--environment", str(tools.parent), "--out", "my runs", "--", "--seed", "a b; $(rm)"])
    slurm = dict(SLURM_JOB_ID="77", SLURM_RESTART_COUNT="1", SLURM_JOB_NODELIST="n[1-4]")
    run = subprocess.run(
        ["bash"], input=capsys.readouterr().out, text=True, capture_output=True, env={**os.environ, **slurm}
    )
    nodes, *given = run.stdout.splitlines()
    assert nodes == "nodes: n[1-4]"
    launch = ["<--nodes=2>", "<--ntasks=8>", "<--ntasks-per-node=4>", "<--cpus-per-task=1>"]
    application = ["<python>", "<-m>", "<miniapps.coupled>", "<--deck>", "<S>", "<--threads>", "<1>"]
    arguments = ["<--out>", "<my runs/coupled-77.1>", "<--seed>", "<a b; $(rm)>"]
    assert given[-15:] == [*launch, *application, *arguments]
    assert given[:-15] == [
        *("<--nodes=1>", "<--ntasks=1>", "<--ntasks-per-node=1>", "<--cpus-per-task=1>"),
        *("<python>", "<-m>", "<miniapps>", "<doctor>"),
    ]
    assert run.returncode == 3, (
        "a doctor that complains does not stop the job, the application's code is its own"
    )


def test_the_command_line_prints_the_script_with_this_environment(capsys):
    main([*ARGUMENTS, "--", "--guarantee", "layout"])
    assert f". {sys.prefix}/bin/activate" in capsys.readouterr().out


def test_commands_come_last_and_in_their_order():
    assert render(JOB, site("generic-slurm")).endswith("echo first\necho second\n")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"nodes": 0}, "nodes 0: a whole number, at least 1"),
        ({"ranks_per_node": -2}, "ranks_per_node -2"),
        ({"seconds": 1.5}, "seconds 1.5"),
        ({"gpus_per_node": -1}, "gpus_per_node -1: a whole number, at least 0"),
        ({"environment": None}, "environment: none is given"),
        ({"account": "a b"}, "account 'a b': letters"),
        ({"account": "x\n#SBATCH --nodes=99"}, "account"),
        ({"name": ""}, "name ''"),
        ({"queue": "-q"}, "queue '-q'"),
        ({"environment": "/opt\nrm"}, "environment"),
        ({"output": "my output"}, "output 'my output'"),
        ({"commands": ()}, "commands: none"),
    ],
)
def test_a_job_that_cannot_be_described_is_refused(wrong, message):
    with pytest.raises(JobError, match=message):
        replace(JOB, **wrong)


def test_usage_errors_end_with_code_2_and_name_the_option(capsys):
    with pytest.raises(SystemExit) as exit:
        main([*ARGUMENTS, "--time", "soon"])
    assert exit.value.code == 2
    assert "--time 'soon'" in capsys.readouterr().err
