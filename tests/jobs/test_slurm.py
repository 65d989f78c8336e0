"""The rendered batch script is what a user would have written, and runs the application they asked for."""

import os
import subprocess
import sys

import pytest

from jobs.__main__ import main
from jobs.slurm import JobError, render

JOB = dict(account="lab_g", nodes=4, ntasks_per_node=8, time="00:30:00", deck="M", environment="/opt/env")
ARGUMENTS = ["render", "--account", "lab", "--nodes", "2", "--ntasks-per-node", "4", "--time", "10"]


def directives(script):
    """The options of the #SBATCH lines, which Slurm reads up to the first command."""
    head = script.split("set -euo pipefail")[0].splitlines()
    return dict(line.removeprefix("#SBATCH --").split("=") for line in head if line.startswith("#SBATCH"))


def test_directives_carry_what_was_asked():
    assert directives(render(**JOB, cpus_per_task=2, name="weak")) == {
        "job-name": "weak",
        "account": "lab_g",
        "nodes": "4",
        "ntasks-per-node": "8",
        "cpus-per-task": "2",
        "time": "00:30:00",
        "output": "%x_%j.out",
    }


@pytest.mark.parametrize("arguments", [[], ["--set", "flow.name=two words; $(rm)"]])
def test_the_script_is_valid_bash(arguments):
    script = render(**JOB, mpi="pmi2", arguments=arguments)
    check = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True)
    assert (check.returncode, check.stderr) == (0, "")


def test_running_the_script_starts_the_application_through_srun(tmp_path):
    """A stand-in for srun and for python shows what they would have got; srun's exit code is the job's."""
    tools = tmp_path / "an environment" / "bin"
    tools.mkdir(parents=True)
    (tools / "activate").write_text(f'PATH="{tools}:$PATH"\n')
    for name, body in (
        ("python", "echo python: $*; exit 1"),
        ("srun", 'for a in "$@"; do echo "srun: <$a>"; done; exit 3'),
    ):
        (tools / name).write_text(f"#!/bin/sh\n{body}\n")
        (tools / name).chmod(0o755)
    script = render(
        **JOB | {"environment": tools.parent, "out": tmp_path / "my runs"},
        mpi="pmi2",
        arguments=["--seed", "a b"],
    )
    slurm = dict(
        SLURM_JOB_NAME="coupled", SLURM_JOB_ID="77", SLURM_CPUS_PER_TASK="5", SLURM_JOB_NODELIST="n[1-4]"
    )
    run = subprocess.run(["bash"], input=script, text=True, capture_output=True, env={**os.environ, **slurm})
    given = [line[7:-1] for line in run.stdout.splitlines() if line.startswith("srun: ")]
    assert given == [
        *(
            "--mpi=pmi2",
            "--cpus-per-task=5",
            "python",
            "-m",
            "miniapps.coupled",
            "--deck",
            "M",
        ),
        *("--threads", "5", "--out", f"{tmp_path}/my runs/coupled-77-0", "--seed", "a b"),
    ]
    assert run.stdout.splitlines()[:2] == ["nodes: n[1-4]", "python: -m miniapps doctor"]
    assert run.returncode == 3, (
        "a doctor that complains does not stop the job, the application's code is its own"
    )


def test_the_command_line_prints_the_script_with_this_environment(capsys):
    main([*ARGUMENTS, "--", "--guarantee", "layout"])
    script = capsys.readouterr().out
    assert f". {sys.prefix}/bin/activate" in script
    assert script.endswith(' --deck S --threads "$SLURM_CPUS_PER_TASK" --out "$out" --guarantee layout\n')
    assert directives(script)["nodes"] == "2"


@pytest.mark.parametrize("time", ["90", "90:00", "1:30:00", "1-12", "1-12:30", "1-12:30:00"])
def test_time_limits_that_slurm_takes(time):
    assert directives(render(**JOB | {"time": time}))["time"] == time


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"nodes": 0}, "--nodes 0: at least 1"),
        ({"ntasks_per_node": -2}, "--ntasks-per-node -2: at least 1"),
        ({"time": "2 hours"}, "--time '2 hours': minutes"),
        ({"environment": None}, "--environment is needed"),
        ({"account": "a b"}, "--account 'a b': letters"),
        ({"account": "x\n#SBATCH --nodes=99"}, "--account"),
    ],
)
def test_a_job_that_cannot_be_described_is_refused(wrong, message):
    with pytest.raises(JobError, match=message):
        render(**JOB | wrong)


def test_usage_errors_end_with_code_2_and_name_the_option(capsys):
    with pytest.raises(SystemExit) as exit:
        main([*ARGUMENTS, "--time", "soon"])
    assert exit.value.code == 2
    assert "--time 'soon'" in capsys.readouterr().err
