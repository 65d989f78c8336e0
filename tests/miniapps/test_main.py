"""What every application does for its user, shown on the smallest one: outputs, exit codes, failures, replay."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import miniapps.__main__
from kernels import VERSION
from miniapps import doctor
from miniapps.runner import main, policy
from miniapps.system import environment
from miniapps.trace import rank_files, read
from tests.launch import either_library, launcher, libraries, run_mpi, run_python
from tests.launch import environment as launch_environment
from tests.miniapps.tiny import APP
from tests.ranks import on_ranks

TINY = ["-m", "tests.miniapps.tiny"]


def lines(run, word):
    """The lines of stdout that begin with a word."""
    return [line for line in run.stdout.splitlines() if line.split()[:1] == [word]]


def states(run):
    """The fingerprints that a run printed."""
    return [line.split()[1].removeprefix("state=") for line in lines(run, "FINGERPRINT")]


def result(out):
    return json.loads((Path(out) / "result.json").read_text())


def refused(run, *parts):
    """It ended with code 2 and one line (of ours) that holds all of `parts`."""
    ours = [line for line in run.stderr.splitlines() if line.startswith("tiny:")]
    assert run.returncode == 2, run.stderr
    assert len(ours) == 1, run.stderr
    assert all(part in ours[0] for part in parts), ours[0]
    assert run.stdout == ""


@libraries
def test_a_run_prints_its_lines_and_writes_trace_and_result(library, tmp_path):
    out = tmp_path / "run"
    run = run_mpi(3, [*TINY, "--out", out, "--repeats", "2", "--guarantee", "layout"], library)
    assert run.returncode == 0, run.stderr
    assert len(lines(run, "FOM")) == 1
    assert [line.split()[-1] for line in lines(run, "FINGERPRINT")] == ["repeat=0", "repeat=1"]
    assert lines(run, "VERIFICATION:") == ["VERIFICATION: PASS"]
    assert lines(run, "RUN") == [f"RUN {out}"]
    outcome = result(out)
    assert (outcome["status"], outcome["exit_code"], outcome["size"], outcome["app"]) == (
        "done",
        0,
        3,
        "tiny",
    )
    assert outcome["fingerprints"] == states(run)
    assert outcome["config"]["work"]["steps"] == 6
    orderings = {
        name: (each["ordering"], each["accumulation"]) for name, each in outcome["reductions"].items()
    }
    assert orderings == {"total": ("direct", "exact")}
    assert len(outcome["fom"]["total"]["values"]) == 2
    traces = [read(path) for path in rank_files(out)]
    assert [trace.attributes["rank"] for trace in traces] == [0, 1, 2]
    for trace in traces:
        assert trace.complete
        assert trace.attributes["problem"] == outcome["problem"]
        assert trace.attributes["reductions"]["total"] == {
            "region": "allreduce.total", "ordering": "direct", "parameters": {}, "accumulation": "exact",
            "wire": "as is", "collective": "allreduce", "operation": "sum", "shape": [], "dtype": "float64",
            "guarantee": "exact", "ranks": 3, "decided": "guarantee", "contributions": 0,
            "calls": 2 * 6,
        }  # fmt: skip
        assert trace.attributes["options"]["run.shuffle_blocks"]["effect"] == "ownership"
        assert trace.attributes["run_id"] == outcome["run_id"]
        assert ("Open MPI" in trace.attributes["environment"]["mpi"]) == (library == "openmpi")
        events = trace.tables["events"]
        reductions = events["name"] == trace.names.index("allreduce.total")
        assert reductions.sum() == 12
        assert sorted(set(zip(events["repeat"].tolist(), events["step"].tolist(), strict=True))) == [
            (repeat, step) for repeat in range(2) for step in range(1, 7)
        ]


def test_a_guarantee_is_kept_over_rank_counts_ownership_and_tracing(tmp_path):
    runs = [
        on_ranks(n, [*TINY, "--out", tmp_path / f"{n}{extra[-1]}", "--guarantee", "layout", *extra])
        for n, extra in ((1, ["--check-ranks"]), (2, ["--shuffle-blocks", "7"]), (3, ["--trace", "off"]))
    ]
    assert [run.returncode for run in runs] == [0, 0, 0], [run.stderr for run in runs]
    assert len({state for run in runs for state in states(run)}) == 1
    assert (
        len(
            set(states(on_ranks(3, [*TINY, "--out", tmp_path / "other", "--seed", "2"])))
            & set(states(runs[0]))
        )
        == 0
    )


def test_a_quiet_run_prints_its_lines_alone_and_a_verbose_one_more(tmp_path):
    quiet = on_ranks(2, [*TINY, "--out", tmp_path / "quiet", "--quiet"])
    assert (quiet.returncode, quiet.stderr) == (0, "")
    assert lines(quiet, "VERIFICATION:") == ["VERIFICATION: PASS"]
    verbose = on_ranks(2, [*TINY, "--out", tmp_path / "verbose", "--verbose"])
    assert verbose.returncode == 0 and "rank 0 INFO" in verbose.stderr


def test_without_out_the_run_goes_below_runs(tmp_path):
    run = run_python(TINY, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    (directory,) = (tmp_path / "runs").iterdir()
    assert lines(run, "RUN") == [f"RUN runs/{directory.name}"]
    assert directory.name == result(directory)["run_id"]
    assert "rank 0 INFO" in run.stderr


@either_library
def test_a_failed_check_is_named_and_ends_with_3_on_all_ranks(library, tmp_path):
    run = on_ranks(2, [*TINY, "--out", tmp_path / "run", "--set", "work.limit=1"], library)
    assert run.returncode == 3, run.stderr
    assert [line for line in lines(run, "CHECK") if "exceeds work.limit = 1.0" in line]
    assert lines(run, "VERIFICATION:") == ["VERIFICATION: FAIL"]
    assert (result(tmp_path / "run")["status"], result(tmp_path / "run")["exit_code"]) == ("done", 3)
    assert read(tmp_path / "run" / "rank-00001.h5").complete


def test_repeats_that_differ_under_a_guarantee_fail_and_without_one_do_not(tmp_path):
    argv = [*TINY, "--repeats", "2", "--fault", "bitflip@step=2,block=1,bit=20,repeat=1"]
    run = on_ranks(2, [*argv, "--out", tmp_path / "run", "--guarantee", "run"])
    assert run.returncode == 3
    assert "CHECK FAIL repeats: 2 different states in 2 repeats under --guarantee run" in run.stdout
    assert lines(run, "NOTE") == []
    run = on_ranks(2, [*argv, "--out", tmp_path / "none"])
    assert run.returncode == 0
    assert len(set(states(run))) == 2
    *_, note, checks, verification, where = run.stdout.splitlines()
    assert checks.startswith("CHECKS ") and "to know whether another run has the same bits, compare" in checks
    assert [note, verification, where] == [
        "NOTE 2 repeats have 2 different states: --guarantee none promises nothing; "
        "--guarantee run promises equal repeats",
        "VERIFICATION: PASS",
        f"RUN {tmp_path / 'none'}",
    ]


@pytest.mark.parametrize(
    ("argv", "parts"),
    [
        (["--deck", "XL"], ["unknown deck XL", "There are: M, S"]),
        (["--allreduce", "rings"], ["did you mean ring?"]),
        (["--guarantee", "layout", "--allreduce", "ring"], ["ring", "layout", "accumulation exact"]),
        (["--allreduce", "k-nomial:j=3"], ["'j=3' is no parameter of k-nomial", "k=4"]),
        (["--accumulate", "float64"], ["'float64' needs an all-reduce ordering with a schedule", "direct"]),
        (
            ["--guarantee", "layout", "--allreduce", "ring", "--accumulate", "float64"],
            ["less than the 'layout'"],
        ),
        (["--guarantee", "all"], ["none, run, layout, exact"]),
        (["--fault", "kill@step=1,rank=3"], ["rank 3 of a run with 3 ranks"]),
        (["--set", "work.blocks=2"], ["3 ranks for 2 blocks"]),
        (["--set", "work.scale=0"], ["work.scale"]),
        (["--replay", "nowhere"], ["--replay nowhere", "no rank-*.h5"]),
    ],
)
def test_what_cannot_be_run_is_refused_once_and_nothing_is_created(argv, parts, tmp_path):
    refused(on_ranks(3, [*TINY, "--out", tmp_path / "run", *argv]), *parts)
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(environment.no_cuda() is None, reason="there is a CUDA device here")
def test_a_device_that_is_not_there_is_refused_with_the_reason(tmp_path):
    run = on_ranks(2, [*TINY, "--out", tmp_path / "run", "--device", "cuda"])
    refused(run, "--device cuda", environment.no_cuda(), "--device cpu")
    assert not (tmp_path / "run").exists()


@libraries
def test_bad_usage_is_told_once_under_either_library(library):
    refused(on_ranks(3, [*TINY, "--step", "1"], library), "--step", "did you mean --steps?")


def test_a_used_directory_is_refused_and_left_as_it_is(tmp_path):
    precious = tmp_path / "run" / "result.json"
    precious.parent.mkdir()
    precious.write_text("precious")
    refused(on_ranks(2, [*TINY, "--out", precious.parent]), "--out", "it has result.json", "choose a new")
    assert precious.read_text() == "precious"
    assert list(precious.parent.iterdir()) == [precious]


def test_a_directory_that_cannot_be_made_is_refused_and_an_empty_one_taken(tmp_path):
    (tmp_path / "file").write_text("precious")
    refused(on_ranks(2, [*TINY, "--out", tmp_path / "file" / "run"]), "--out", "Not a directory", "choose")
    assert (tmp_path / "file").read_text() == "precious"
    (tmp_path / "empty").mkdir()
    assert run_python([*TINY, "--out", tmp_path / "empty"]).returncode == 0


def test_help_and_list_end_well_on_any_number_of_ranks(tmp_path):
    shown = on_ranks(2, [*TINY, "--help"], cwd=tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.count("common options:") == 1
    version = on_ranks(2, [*TINY, "--version"], cwd=tmp_path)
    assert (version.returncode, version.stderr, version.stdout) == (0, "", f"{VERSION}\n")
    listed = on_ranks(2, [*TINY, "--list", "--steps", "9"], cwd=tmp_path)
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "recursive-doubling" in listed.stdout
    assert "superaccumulator" in listed.stdout
    (steps,) = [line.split() for line in listed.stdout.splitlines() if "work.steps" in line]
    assert steps[1] == "9"
    assert list(tmp_path.iterdir()) == []


@either_library
def test_one_rank_that_raises_ends_the_job_with_one_message(library, tmp_path):
    out = tmp_path / "run"
    run = run_mpi(3, [*TINY, "--out", out, "--fault", "raise@step=4,rank=1"], library)
    assert run.returncode == 1, run.stderr
    (message,) = [line for line in run.stderr.splitlines() if line.startswith("tiny:")]
    assert all(part in message for part in ("rank 1 of 3", "repeat 0, step 4", "InjectedFault"))
    assert f"trace: {out / 'rank-00001.h5'} (marked incomplete)" in run.stderr
    assert "Traceback" not in run.stderr
    assert "InjectedFault" in (out / "error-rank-00001.txt").read_text()
    outcome = result(out)
    assert (outcome["status"], outcome["exit_code"], outcome["failed_rank"]) == ("failed", 1, 1)
    assert outcome["error"] == message
    trace = read(out / "rank-00001.h5")
    assert not trace.complete
    assert max(trace.tables["events"]["step"]) == 3


def test_an_error_of_all_ranks_is_told_once_and_without_traceback(tmp_path):
    run = run_mpi(3, [*TINY, "--out", tmp_path / "run", "--set", "work.diverge=2"])
    assert run.returncode == 1
    (message,) = [line for line in run.stderr.splitlines() if line.startswith("tiny:")]
    assert "gave up in step 2" in message
    assert not list((tmp_path / "run").glob("error-*"))


def test_the_traceback_is_shown_where_debugging_is_asked_for(tmp_path):
    run = run_python([*TINY, "--out", tmp_path, "--fault", "raise@step=1,rank=0", "--log-level", "debug"])
    assert run.returncode == 1
    assert "Traceback" in run.stderr
    assert "MPI_Abort" not in run.stderr  # a rank that is alone ends as any program does


@either_library
def test_a_killed_rank_ends_the_job_and_leaves_readable_traces(library, tmp_path):
    out = tmp_path / "run"
    argv = [*TINY, "--out", out, "--set", "work.regions=20000", "--fault", "kill@step=5,rank=1"]
    run = run_mpi(3, argv, library, timeout=60)
    assert run.returncode not in (0, 2, 3)
    for path in rank_files(out):
        trace = read(path)
        assert not trace.complete
        assert len(trace.tables["events"]["step"]) > 16000
        assert trace.attributes["regions"] == {"allreduce.total": "collective", "region": "compute"}
        assert trace.attributes["reductions"]["total"]["calls"] > 0
    # The others wait in MPI; should one of them not have come to it, it says who died.
    assert not (out / "result.json").exists() or result(out)["failed_rank"] == 1


@either_library
def test_a_rank_out_of_disk_space_says_so_and_ends_the_job(library, tmp_path):
    out = tmp_path / "run"
    argv = [*TINY, "--out", out, "--set", "work.regions=20000", "--steps", "100"]
    run = run_mpi(3, [*argv, "--set", "work.file_limit=700000"], library, timeout=60)
    assert run.returncode == 1, run.stderr
    (message,) = [line for line in run.stderr.splitlines() if line.startswith("tiny:")]
    assert all(part in message for part in ("rank 2", "rank-00002.h5", "File too large", "--trace off"))
    assert result(out)["status"] == "failed"
    steps = read(out / "rank-00002.h5").tables["events"]["step"]
    assert 0 < max(steps) < 100


def test_a_rank_that_is_alone_and_out_of_disk_space_ends_with_1(tmp_path):
    argv = [*TINY, "--out", tmp_path / "run", "--set", "work.regions=20000", "--steps", "100"]
    run = run_python([*argv, "--set", "work.file_limit=700000"])
    assert run.returncode == 1, run.stderr
    assert "File too large" in run.stderr
    assert "Traceback" not in run.stderr


def started(argv, library, out):
    """A running job that writes to `out`, once all of its three ranks are in step 1 or later."""
    command, extra = launcher(library)
    job = subprocess.Popen(
        [*command, "-n", "3", sys.executable, *argv, "--out", str(out)],
        env=launch_environment(extra),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120  # starting is not what is tested
    while time.monotonic() < deadline and job.poll() is None:
        if len(list(out.glob("*.h5"))) == 3 and all(
            path.stat().st_size > 200_000 for path in out.glob("*.h5")
        ):
            break
        time.sleep(0.05)
    return job


@either_library
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_signal_to_mpirun_ends_the_job_with_its_traces_closed(library, number, tmp_path):
    out = tmp_path / "run"
    job = started([*TINY, "--set", "work.regions=20000", "--steps", "100000"], library, out)
    try:
        assert job.poll() is None
        os.kill(job.pid, number)
        assert job.wait(60) != 0
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    assert all(len(read(path).tables["events"]["step"]) > 0 for path in rank_files(out))
    if library == "mpich":  # Open MPI's mpirun follows with SIGKILL, so that there may be no time for more
        code, word = (143, "SIGTERM") if number == signal.SIGTERM else (130, "interrupted")
        assert job.returncode == code
        assert result(out)["exit_code"] == code
        assert word in result(out)["error"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_rank_that_is_alone_ends_with_the_code_of_the_signal(number, code, tmp_path):
    job = subprocess.Popen(
        [
            sys.executable,
            *TINY,
            "--out",
            tmp_path / "run",
            "--set",
            "work.regions=20000",
            "--steps",
            "100000",
        ],
        env=launch_environment({}),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert "guarantee none" in job.stderr.readline()
        time.sleep(0.2)
        job.send_signal(number)
        errors = job.communicate(timeout=60)[1]
    finally:
        job.kill()
        job.wait()
    assert job.returncode == code, errors
    assert "rank 0 of 1" in errors
    assert "Traceback" not in errors


def test_a_recorded_order_of_arrival_is_replayed_bit_for_bit(tmp_path):
    argv = [*TINY, "--repeats", "2", "--steps", "20"]
    recorded = on_ranks(4, [*argv, "--out", tmp_path / "recorded", "--allreduce", "arrival"])
    assert recorded.returncode == 0, recorded.stderr
    options = ["--repeats", "2", "--replay", tmp_path / "recorded"]  # its steps are those of the run
    replayed = on_ranks(4, [*TINY, *options, "--out", tmp_path / "replayed"])
    assert replayed.returncode == 0, replayed.stderr
    assert states(replayed) == states(recorded)
    orders = read(tmp_path / "recorded" / "rank-00000.h5").tables["order"]
    assert orders["ranks"].shape == (40, 4)
    assert sorted(set(orders["step"].tolist())) == list(range(1, 21))
    again = read(tmp_path / "replayed" / "rank-00000.h5").tables["order"]
    assert (again["ranks"] == orders["ranks"]).all()


def test_a_log_that_does_not_fit_is_refused(tmp_path):
    recorded = tmp_path / "recorded"
    assert on_ranks(2, [*TINY, "--out", recorded, "--allreduce", "arrival"]).returncode == 0
    native = tmp_path / "native"
    assert on_ranks(2, [*TINY, "--out", native]).returncode == 0
    out = ["--out", tmp_path / "run"]
    refused(on_ranks(3, [*TINY, *out, "--replay", recorded]), "it ran on 2 ranks, this run has 3")
    other = on_ranks(2, [*TINY, *out, "--replay", recorded, "--steps", "7"])
    refused(other, "it ran with --steps 6, this run has --steps 7; leave these options out")
    refused(on_ranks(2, [*TINY, *out, "--replay", native]), "no orders", "--allreduce arrival")
    refused(on_ranks(2, [*TINY, *out, "--replay", recorded, "--allreduce", "ring"]), "--allreduce ring")
    more = run_mpi(2, [*TINY, *out, "--replay", recorded, "--repeats", "2"])
    assert more.returncode == 2
    assert "no orders of reducer 'total' in repeat 1" in more.stderr
    assert "the same --repeats" in more.stderr


def test_a_fault_strikes_the_block_whoever_owns_it(tmp_path):
    argv = [*TINY, "--guarantee", "layout", "--fault", "bitflip@step=3,block=5,bit=40"]
    struck = [states(on_ranks(ranks, [*argv, "--out", tmp_path / str(ranks)])) for ranks in (1, 3)]
    assert struck[0] == struck[1]
    assert struck[0] != states(run_python([*TINY, "--guarantee", "layout", "--out", tmp_path / "sound"]))


def test_a_fault_that_never_strikes_is_told(tmp_path):
    run = run_python([*TINY, "--out", tmp_path / "run", "--fault", "nan@step=99,block=0"])
    assert run.returncode == 0
    assert "nan@step=99,block=0 never struck" in run.stderr


def test_a_nan_in_the_state_fails_the_check_and_result_is_still_strict_json(tmp_path):
    run = on_ranks(3, [*TINY, "--out", tmp_path / "run", "--fault", "nan@step=3,block=1"])
    assert run.returncode == 3
    assert "CHECK FAIL finite" in run.stdout

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    outcome = json.loads((tmp_path / "run" / "result.json").read_text(), parse_constant=refuse)
    assert outcome["fom"]["total"]["value"] == "nan"


def test_every_rank_can_write_its_own_log(tmp_path):
    run = on_ranks(2, [*TINY, "--out", tmp_path / "run", "--log-all-ranks", "--log-level", "debug"])
    assert run.returncode == 0
    for rank in range(2):
        assert f"rank {rank} INFO: 2 ranks" in (tmp_path / "run" / f"rank-0000{rank}.log").read_text()
    assert run.stderr.count("INFO: 2 ranks") == 1


@pytest.mark.slow
def test_the_launcher_of_another_library_is_noticed(tmp_path):
    mpirun, _ = launcher("mpich")
    _, openmpi = launcher("openmpi")
    libraries_at = str(Path(openmpi["MPI4PY_LIBMPI"]).parent)
    run = subprocess.run(
        [*mpirun, "-n", "2", sys.executable, *TINY, "--out", tmp_path / "run"],
        env=launch_environment({**openmpi, "LD_LIBRARY_PATH": libraries_at}),
        capture_output=True,
        text=True,
        timeout=60,
    )
    refused(run, "started 2 processes", "Open MPI", "miniapps doctor")
    mpirun, _ = launcher("openmpi")
    run = subprocess.run(
        [*mpirun, "-n", "2", sys.executable, *TINY, "--out", tmp_path / "run"],
        env=launch_environment({}),
        capture_output=True,
        text=True,
        timeout=60,
    )
    refused(run, "Open MPI", "started 2 processes", "MPICH", "miniapps doctor")
    assert not (tmp_path / "run").exists()


def test_an_mpi_library_that_cannot_be_loaded_is_bad_usage():
    run = run_python(TINY, env={"MPI4PY_MPIABI": "mpich", "MPI4PY_LIBMPI": "/nowhere/libmpi.so"})
    refused(run, "mpi4py cannot load an MPI library", "MPI4PY_LIBMPI")


def test_python_m_miniapps_lists_the_applications(capsys):
    assert miniapps.__main__.main([]) == 0
    assert "coupled" in capsys.readouterr().out
    assert miniapps.__main__.main(["docter"]) == 2
    assert "did you mean doctor?" in capsys.readouterr().err


def test_the_doctor_finds_this_environment_well_and_a_missing_mpi_not():
    own = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # the machine may have another mpirun
    well = run_python(["-m", "miniapps", "doctor"], env={"PATH": own}, timeout=120)
    assert well.returncode == 0, well.stdout
    assert "Ready" in well.stdout.splitlines()[-1]
    ill = run_python(
        ["-m", "miniapps", "doctor"],
        env={"MPI4PY_MPIABI": "mpich", "MPI4PY_LIBMPI": "/nowhere/libmpi.so"},
        timeout=120,
    )
    assert ill.returncode == 1
    assert "!! MPI library" in ill.stdout
    assert "1 to repair: MPI library" in ill.stdout


def test_the_doctor_speaks_to_programs_and_says_more_or_less(monkeypatch, capsys):
    def findings(tried):
        tried(["mpirun", "--version"], 0.25, "one\ntwo\n")
        yield doctor.Finding("python", "3")
        yield doctor.Finding("MPI library", "none", remedy="pip install mpich")

    monkeypatch.setattr(doctor, "findings_here", findings)
    assert doctor.main(["--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert list(document) == ["schema", "command", "version", "ready", "verdict", "tables"]
    assert (document["ready"], document["verdict"]) == (False, "1 to repair: MPI library")
    assert [row["what"] for row in document["tables"]["findings"]] == ["python", "MPI library"]
    assert doctor.main(["--quiet"]) == 1
    assert "python" not in (out := capsys.readouterr().out) and out.startswith("!! MPI library")
    assert doctor.main(["--verbose"]) == 1
    assert capsys.readouterr().err == "tried mpirun --version: 0.25 s\n  | one\n  | two\n"


@pytest.mark.slow
def test_the_doctor_started_by_a_launcher_does_not_start_one_itself():
    run = run_mpi(1, ["-m", "miniapps", "doctor"])
    assert "not tried: PMI" in run.stdout and "started this process" in run.stdout
    assert "Ready" in run.stdout.splitlines()[-1]


def test_the_application_of_these_tests_is_like_any_other():
    assert main.App("other", APP.config, "").package == "miniapps.other"
    assert policy.SCALARS == 16


def test_the_recorded_variables_hold_no_secrets(monkeypatch):
    for secret in ("AWS_SECRET_ACCESS_KEY", "SLURM_JWT"):
        monkeypatch.setenv(secret, "x")
    monkeypatch.setenv("OMP_PLACES", "cores")
    recorded = environment.own(1, "cpu")["variables"]
    assert recorded["OMP_PLACES"] == "cores"
    assert not {"AWS_SECRET_ACCESS_KEY", "SLURM_JWT"} & set(recorded)
    known = (*environment.VARIABLES, *environment.SETTINGS, *environment.THREADS)
    assert all(key.startswith(known) for key in recorded)


def test_the_doctor_tells_the_line_that_matters():
    assert doctor.gist("start\nan Error: no such thing\n------\n") == "an Error: no such thing"
    assert doctor.gist("") == "no output"
