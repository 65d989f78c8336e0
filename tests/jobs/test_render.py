"""The rendered batch script is one that a user would write, and runs the requested application."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from jobs.__main__ import main
from jobs.job import Job, JobError
from jobs.render import render
from jobs.sites import names, site
from tests.jobs import golden
from tests.jobs.campaigns import SMALL, write

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
    main([*ARGUMENTS, "--environment", str(tools.parent), "--out", "my runs", "--", "--replay", "a b; $(rm)"])
    slurm = dict(SLURM_JOB_ID="77", SLURM_RESTART_COUNT="1", SLURM_JOB_NODELIST="n[1-4]")
    run = subprocess.run(
        ["bash"], input=capsys.readouterr().out, text=True, capture_output=True, env={**os.environ, **slurm}
    )
    nodes, *given = run.stdout.splitlines()
    assert nodes == "nodes: n[1-4]"
    launch = ["<--nodes=2>", "<--ntasks=8>", "<--ntasks-per-node=4>", "<--cpus-per-task=1>"]
    application = ["<python>", "<-m>", "<miniapps.coupled>", "<--deck>", "<S>", "<--threads>", "<1>"]
    arguments = ["<--out>", "<my runs/coupled-77.1>", "<--replay>", "<a b; $(rm)>"]
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
        ({"account": "a b"}, "account 'a b': at most 200 letters"),
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--time", "soon"], "--time 'soon' is not HH:MM:SS"),
        (["--app", "copled"], "'copled': not known; did you mean coupled?"),
        (["--site", "fronteer"], "did you mean frontier?"),
        (["--nodes", "0"], "nodes 0: a whole number, at least 1"),
        (["--site", "frontier", "--threads", "15"], "4 x threads 15 are 60 cores"),
        (["campaign.toml"], "campaign.toml and --app: one of them"),
        (["--", "--guarantee", "al"], "coupled on 8 ranks: option --guarantee: run.guarantee cannot be 'al'"),
        (["--", "--gurantee", "layout"], "unknown argument --gurantee; did you mean --guarantee?"),
        (["--", "--guarantee", "layout", "--allreduce", "ring"], "less than the 'layout'"),
        (["--nodes", "99999", "--ranks-per-node", "1"], "coupled on 99999 ranks: "),
        (["--deck", "XL"], "unknown deck XL"),
        (["--", "--guarantee", "layout", "--help"], "--help prints and runs nothing; leave it out"),
    ],
)
def test_usage_errors_end_with_code_2_and_name_the_option(arguments, message, capsys):
    with pytest.raises(SystemExit) as exit:
        main([*ARGUMENTS, *arguments])
    assert exit.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name one CAMPAIGN.toml, or an application with --app"),
        (["a.toml", "b.toml"], "name one CAMPAIGN.toml"),
        (
            ["a.toml", "--ranks-per-node", "2"],
            "--ranks-per-node is for --app; a campaign says this in its file",
        ),
    ],
)
def test_a_campaign_or_an_application(arguments, message, capsys):
    with pytest.raises(SystemExit) as exit:
        main(["render", *arguments])
    assert exit.value.code == 2
    assert message in capsys.readouterr().err


def test_scripts_are_written_and_never_over_another(tmp_path, capsys):
    main([*ARGUMENTS, "--output", str(tmp_path / "new")])
    file = tmp_path / "new" / "coupled.sh"
    assert capsys.readouterr().out == f"{file}\n"
    assert file.read_text().startswith("#!/usr/bin/env bash\n# coupled, on generic-slurm: 2 nodes x 4 ranks")
    with pytest.raises(SystemExit):
        main([*ARGUMENTS, "--output", str(tmp_path / "new")])
    assert "coupled.sh exists already" in capsys.readouterr().err


def test_options_that_cannot_be_checked_here_are_said_to_be_unchecked(monkeypatch, capsys):
    """A login node without an MPI library cannot import an application."""

    def absent(*_):
        raise RuntimeError("cannot load MPI library")

    monkeypatch.setattr("jobs.applications.check", absent)
    assert main([*ARGUMENTS, "--", "--guarantee", "layout"]) == 0
    printed = capsys.readouterr()
    assert "--guarantee layout" in printed.out
    assert printed.err == (
        "jobs: the options of coupled are not checked, for it cannot be imported here: cannot load MPI library\n"
    )


def test_a_device_that_a_login_node_lacks_is_no_mistake(monkeypatch, capsys):
    monkeypatch.setattr("jobs.applications.no_cuda", lambda: "no CUDA here")
    assert main([*ARGUMENTS, "--", "--device", "cuda"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("site_name", "account"), [("perlmutter", "m1234"), ("perlmutter-cpu", "m1234_g")])
def test_an_account_that_looks_wrong_is_warned_of_with_the_sites_hint(site_name, account, capsys):
    arguments = ["render", "--app", "coupled", "--site", site_name, "--account"]
    assert main([*arguments, account]) == 0
    printed = capsys.readouterr()
    assert f"#SBATCH --account={account}\n" in printed.out
    assert printed.err.startswith(f"jobs: account {account} does not look like one of {site_name}: for ")
    assert main([*arguments, "m1234_g" if account == "m1234" else "m1234"]) == 0
    assert capsys.readouterr().err == ""


# --- the directory of the scheduler's output ---


def test_where_scripts_are_written_the_directory_of_the_output_is_made(tmp_path, capsys):
    path = write(tmp_path, SMALL + "[sites.generic-slurm]\nranks_per_node = 2\n")
    command = ["render", str(path), "--environment", "/env"]
    assert main(command) == 0
    script, logs = capsys.readouterr().out, tmp_path / "out/logs"
    assert f"Before you submit:\n#     mkdir -p {logs}\n" in script
    assert f"#SBATCH --output={logs}/small" in script.replace("%x", "small")
    assert not logs.exists(), "printing makes nothing"
    assert main([*command, "--output", str(tmp_path / "scripts")]) == 0
    assert logs.is_dir()
    assert main([*command, "--output", str(tmp_path / "again")]) == 0, "it may be there"


def test_a_directory_of_the_output_that_is_on_another_machine_is_told(tmp_path, capsys):
    (tmp_path / "out").write_text("a file, where no directory can be made")
    path = write(tmp_path, SMALL + "[sites.generic-slurm]\nranks_per_node = 2\n")
    assert main(["render", str(path), "--environment", "/env", "--output", str(tmp_path / "scripts")]) == 0
    assert f"{tmp_path}/out/logs cannot be made here: Not a directory" in capsys.readouterr().err


def test_nothing_is_made_through_a_link(tmp_path, capsys):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/logs").symlink_to(tmp_path / "elsewhere")
    path = write(tmp_path, SMALL + "[sites.generic-slurm]\nranks_per_node = 2\n")
    with pytest.raises(SystemExit) as exit:
        main(["render", str(path), "--environment", "/env", "--output", str(tmp_path / "scripts")])
    assert exit.value.code == 2
    assert "out/logs: is a symbolic link" in capsys.readouterr().err
    assert not (tmp_path / "scripts").exists()


# --- what the scripts do, with stand-ins for what a machine has: launchers, modules, staging ---

HERE = {  # what each scheduler tells element 2 of job 77, of which there are 3
    "slurm": {"SLURM_JOB_ID": "79", "SLURM_ARRAY_TASK_ID": "2", "SLURM_JOB_NODELIST": "n[1-2]"},
    "pbs": {
        "PBS_JOBID": "77[2].server",
        "PBS_ARRAY_INDEX": "2",
        "PBS_NODEFILE": "nodes",
        "PBS_O_WORKDIR": ".",
    },
    "pjm": {"PJM_JOBID": "77", "PJM_BULKNUM": "2", "PJM_O_NODEINF": "nodes", "PJM_LOCALTMP": "local"},
    "sge": {"JOB_ID": "77", "SGE_TASK_ID": "3", "PE_HOSTFILE": "nodes"},
    "local": {},
}
ALONE = {
    "slurm": {"SLURM_JOB_ID": "77", "SLURM_JOB_NODELIST": "n1"},
    "pbs": {"PBS_JOBID": "77.server", "PBS_NODEFILE": "nodes", "PBS_O_WORKDIR": "."},
    "pjm": {"PJM_JOBID": "77", "PJM_O_NODEINF": "nodes", "PJM_LOCALTMP": "local"},
    "sge": {"JOB_ID": "77", "SGE_TASK_ID": "undefined", "PE_HOSTFILE": "nodes"},
    "local": {},
}
LAUNCHER = """\
while :; do case "$1" in -n|--map-by) shift 2;; --bind-to) shift 2;; -*) shift;; *) break;; esac; done
exec "$@"
"""


@pytest.fixture
def machine(tmp_path):
    """Runs a script where launchers start one process, and Python says from where it was started."""
    tools, environment = tmp_path / "tools", tmp_path / "environment"

    def program(path, body):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    for launcher in ("srun", "mpirun", "mpiexec"):
        program(tools / launcher, LAUNCHER)
    for name in ("module", "llio_transfer"):
        program(tools / name, ":")
    program(tools / "sbcast", 'cp "$2" "$3"')
    program(environment / "bin/python", f'echo "$0: $*" >> {tmp_path}/pythons')
    (environment / "bin/activate").write_text(f'PATH="{environment}/bin:$PATH"\n')
    (tmp_path / "modules.sh").write_text("")
    (tmp_path / "nodes").write_text("n1 4\nn2 4\n")
    (tmp_path / "bb/me").mkdir(parents=True)
    (tmp_path / "local").mkdir()

    def run(text, variables):
        text = text.replace("/etc/profile.d/modules.sh", "./modules.sh").replace("/mnt/bb", f"{tmp_path}/bb")
        env = {"PATH": f"{tools}:/usr/bin:/bin", "USER": "me", **variables}
        return subprocess.run(["bash"], input=text, text=True, capture_output=True, env=env, cwd=tmp_path)

    return run


def say_variables(name, place, **changes):
    commands = ('echo "here: $FPNA_ALLOCATION_ID $FPNA_ARRAY_INDEX"',)
    job = golden.job(name, commands=commands, environment=str(place / "environment"), **changes)
    return render(job, site(name))


@pytest.mark.parametrize("name", names())
def test_an_element_of_an_array_knows_its_number_and_has_a_name_of_its_own(name, machine, tmp_path):
    scheduler = site(name).scheduler
    run = machine(say_variables(name, tmp_path), HERE[scheduler])
    assert (run.returncode, run.stderr) == (0, "")
    elements = [line.split()[1:] for line in run.stdout.splitlines() if line.startswith("here: ")]
    if scheduler == "local":
        assert [index for _, index in elements] == ["0", "1", "2"]
        assert len({name for name, _ in elements}) == 3
    else:
        assert elements == [["79" if scheduler == "slurm" else "77_3" if scheduler == "sge" else "77_2", "2"]]
    assert run.stdout.startswith("nodes: ")
    assert (tmp_path / "pythons").read_text() == f"{tmp_path}/environment/bin/python: -m miniapps doctor\n"


@pytest.mark.parametrize("name", [name for name in names() if name != "local"])
def test_a_job_alone_is_element_0(name, machine, tmp_path):
    run = machine(say_variables(name, tmp_path, array=1), ALONE[site(name).scheduler])
    assert (run.returncode, run.stderr) == (0, "")
    assert "here: 77 0\n" in run.stdout


@pytest.mark.parametrize(("name", "place"), [("frontier", "bb/me"), ("fugaku", "local")])
def test_a_packed_environment_is_started_from_the_nodes_own_disks(name, place, machine, tmp_path):
    packing = ["tar", "-czf", tmp_path / "environment.tar.gz", "-C", tmp_path / "environment", "."]
    subprocess.run(packing, check=True)
    run = machine(say_variables(name, tmp_path), HERE[site(name).scheduler])
    assert (run.returncode, run.stderr) == (0, "")
    assert (tmp_path / "pythons").read_text().startswith(f"{tmp_path / place}/environment/bin/python: ".replace(
        str(tmp_path / "local"), "local"))  # fmt: skip


@pytest.mark.parametrize("name", ["frontier", "fugaku"])
def test_a_broken_archive_ends_the_job_before_anything_runs(name, machine, tmp_path):
    (tmp_path / "environment.tar.gz").write_bytes(b"half of it")
    run = machine(say_variables(name, tmp_path), HERE[site(name).scheduler])
    assert run.returncode != 0
    assert "here: " not in run.stdout
    assert not (tmp_path / "pythons").exists()
