"""Values nobody means: refused in one sentence, with what would be accepted, before anything is created."""

import os
import re
import resource

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from mpi4py import MPI

from miniapps import coupled, dlrm, mesh, reductions, solver, training
from miniapps.errors import UsageError
from miniapps.layout.blocks import MOST_BLOCKS
from miniapps.runner import commandline, config, listing, main
from miniapps.solver import files
from miniapps.system import resources
from tests.launch import run_mpi
from tests.miniapps import tiny

APPS = {
    app.name: app
    for app in (coupled.APP, solver.APP, reductions.APP, training.APP, dlrm.APP, mesh.APP, tiny.APP)
}
NINES = "9" * 5000


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """The one line with which an application refuses a command line, having created nothing."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def refused(name, *argv, **environ):
        for variable, value in environ.items():
            monkeypatch.setenv(variable, value)
        assert main.main(APPS[name], list(argv), MPI.COMM_SELF) == 2
        streams = capsys.readouterr()
        assert streams.out == "" and streams.err.count("\n") == 1 and streams.err.startswith(f"{name}: ")
        assert len(streams.err) < 1200 and os.listdir() == []
        return streams.err

    return refused


@pytest.mark.parametrize("app", APPS.values(), ids=list(APPS))
def test_every_number_has_a_range_which_holds_its_default_and_is_shown(app):
    numbers = [o for o in commandline.known_options(app) if o.type in (int, float)]
    assert numbers
    for o in numbers:
        assert re.fullmatch(r"\S+ to \S+", o.range), o.key
        assert o.default is None or config.convert(o, o.default, "here") == o.default
        for beyond in (
            o.minimum - 1,
            o.maximum * 2 + 1,
            10**400,
            "1e999",
            NINES,
            "-" + NINES,
            "nan",
            "0x10",
            "\n",
        ):
            with pytest.raises(UsageError, match=re.escape(o.range)):
                config.convert(o, [beyond] * max(1, o.count[0]) if o.many else beyond, "here")
    shown = " ".join(commandline.parser(app, numbers).format_help().split())
    assert all(f"[{o.range}" in shown for o in numbers if o.flag)
    values = config.effective(
        commandline.known_options(app), *(config.build(cls, {}) for cls in (commandline.Common, app.config))
    )
    listed = listing.listing(app, numbers, values)
    assert all(f"[{o.range}" in listed for o in numbers)


def test_a_number_without_a_range_is_a_mistake_of_the_program():
    class Section:
        n: int = config.option(1, help="", minimum=1)

    Section = config.dataclass(Section)

    class Whole:
        part: Section = config.section(Section)

    Whole.__annotations__["part"] = Section
    Section.__annotations__["n"] = int
    with pytest.raises(TypeError, match=r"Section\.n: a number needs its minimum and its maximum"):
        config.options(config.dataclass(Whole))


REFUSED = {
    "tiny --threads 1000000": "option --threads: run.threads must be from 1 to 1024, not '1000000'",
    "coupled --threads 1000000": "run.threads must be from 1 to 1024",
    "solver --threads 1000000": "run.threads must be from 1 to 1024",
    "reductions --threads 1000000": "run.threads must be from 1 to 1024",
    f"tiny --seed {2**64}": "run.seed must be from 0 to 9223372036854775807, not '18446744073709551616'",
    "tiny --seed=-1": "run.seed must be from 0 to 9223372036854775807, not '-1'",
    f"tiny --seed {NINES}": "run.seed takes an integer from 0 to 9223372036854775807, not '99",
    f"tiny --set run.seed={NINES}": "run.seed takes an integer from 0 to 9223372036854775807, not '99",
    "tiny --repeats 1000000000000": "run.repeats must be from 1 to 1000000, not '1000000000000'",
    f"tiny --shuffle-blocks {2**63}": "run.shuffle_blocks must be from 0 to",
    f"tiny --{NINES}": "unknown argument --99",
    f"tiny --set {NINES}=1": "no option 99",
    f"tiny --deck {NINES[:3000]}": "unknown deck 99",
    f"tiny --deck {NINES}.toml": "run.deck takes text of at most 4096 characters",
    f"tiny --deck {'x' * 300}.toml": "File name too long",
    f"tiny --allreduce {NINES}": "run.allreduce takes text of at most 4096 characters",
    f"tiny --allreduce permuted:seed={NINES[:3000]}": "choose a name of at most 1000 characters",
    "tiny --allreduce double-tree:segments=1000000000": "segments: choose 1 to 1024, not '1000000000'",
    "tiny --allreduce segmented-ring:segments=0": "segments: choose 1 to 1024, not '0'",
    "tiny --allreduce k-nomial:k=1000000000": "k: choose 2 to 65536, not '1000000000'",
    f"tiny --allreduce permuted:seed={2**64}": "seed: choose 0 to 9223372036854775807",
    f"tiny --fault nan@step={NINES[:3000]},block=0": "step takes a whole number from 0 to 2147483647, not '99",
    "tiny --fault nan@step=3000000000,block=0": "step takes a whole number from 0 to 2147483647, not '3000000000'",
    "reductions --set launch.block=4096": "launch.block must be from 32 to 1024",
    "reductions --set launch.items=99999999999": "launch.items must be from 1 to 2147483647",
    "reductions --set launch.grid=99999999999": "launch.grid must be from 1 to 2147483647",
    "reductions --set launch.resident=99999999999": "launch.resident must be from 1 to 2147483647",
    "reductions --samples 1000000000000": "method.samples must be from 1 to 1000000000",
    f"reductions --size {10**15}": "problem.sizes must be from 1 to 1099511627776",
    f"reductions --size {10**9} --set problem.block=1": f"all blocks, at most {MOST_BLOCKS}: set it to 60 or more",
    f"reductions --size {10**12} --set problem.block=1000000": "a rank needs about 7.3 TiB of memory",
    "reductions --sigma 1e300": "problem.sigma must be from 0 to 80",
    "solver --nx 1000000 --ny 1000 --nz 1000 --set grid.bx=1000 --set grid.by=1000": "of memory, and this node",
    "solver --nx 1000000 --ny 1000 --nz 1000": f"1953125000 blocks: every rank lists them all, at most {MOST_BLOCKS}",
    "solver --points-per-rank 16777216": "rows are numbered up to 9007199254740992",
    "solver --drift 10000 --nx 512 --ny 512 --nz 512": "--drift 10000: a rank needs about",
    "solver --set tuning.restart=1000000": "tuning.restart must be from 1 to 10000",
    "solver --method chebyshev --set tuning.lower=2 --set tuning.upper=1": "must be below tuning.upper = 1",
    "solver --method chebyshev --set tuning.upper=0": "choose them above 0, or none",
    "solver --method jacobi --set tuning.omega=0": "tuning.omega = 0",
    "solver --spread 1e9": "problem.spread must be from 0 to 50",
    "coupled --set grid.nx=1048576 --set grid.ny=1048576": f"every rank lists them all, at most {MOST_BLOCKS}",
    "coupled --set grid.nx=1000000000000": "grid.nx must be from 4 to 1048576",
    "coupled --set grid.nx=1048576 --set grid.ny=1048576 --set grid.bx=1024 --set grid.by=1024": "GiB free; choose at "
    "most about",
    "coupled --set closure.channels=100000000": "closure.channels must be from 1 to 1024",
    "coupled --set closure.filters=100000000": "closure.filters must be from 1 to 64",
    "coupled --steps 9999999999": "time.steps must be from 0 to 2147483646",
}


@pytest.mark.parametrize("line", REFUSED, ids=lambda line: line[:50])
def test_values_nobody_means_are_refused_with_what_is_accepted(refused, line):
    assert re.search(REFUSED[line], refused(*line.split())), line


def test_the_environment_passes_the_same_checks(refused):
    for variable, value, message in (
        (
            "FPNA_RUN_THREADS",
            "1000000",
            "environment variable FPNA_RUN_THREADS: run.threads must be from 1 to 1024",
        ),
        ("FPNA_RUN_SEED", NINES, "environment variable FPNA_RUN_SEED: run.seed takes an integer from 0 to"),
        ("FPNA_WORK_SCALE", "1e999", "environment variable FPNA_WORK_SCALE: work.scale takes a number from"),
        ("FPNA_RUN_OUT", "a\x1b[2Jb", "environment variable FPNA_RUN_OUT: run.out takes text of at most"),
        ("FPNA_RUN_FAULT", " ".join(["x"] * 2000), "run.fault takes 0 to 1000 values, not 2000"),
    ):
        assert message in refused("tiny", **{variable: value})
        os.environ.pop(variable)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"[run]\nseed = {NINES}", "a number of more than 400 digits in line 2"),
        (
            f"[work]\nscale = {'9' * 390}",
            "work.scale takes a number from -1e+09 to 1e+09, not a number of some 39",
        ),
        ("[work]\nlimit = " + "[" * 5000 + "]" * 5000, "brackets more than 64 deep"),
        ("a." * 5000 + "b = 1", "a key of more than 64 parts"),
        ("x = 1\n" * 300_000, "characters, and at most"),
        ('[run]\nout = "a\\u0000b"', "run.out takes text of at most 4096 characters"),
        ('["\\u001b[2J"]\nx = 1', "unknown section"),
        ("[run]\nfault = [" + '"x",' * 2000 + "]", "run.fault takes 0 to 1000 values, not 2000"),
        (b"\xff\xfe", "is not UTF-8 text"),
    ],
    ids=["digits", "float", "nested", "dotted", "long", "zero", "escape", "many", "bytes"],
)
def test_a_deck_is_bounded(refused, tmp_path, text, reason):
    path = tmp_path / "own.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    message = refused("tiny", "--deck", str(path))
    assert reason in message and "own.toml" in message


def odd_files(folder):
    """{what it is: path} of what is no file to be read."""
    os.mkfifo(folder / "fifo")
    with open(folder / "sparse", "wb") as file:
        file.truncate(40 * 10**9)
    (folder / "link").symlink_to("/dev/zero")
    return {
        "is a fifo": folder / "fifo",
        "is a directory": folder,
        "is a device": folder / "link",
        "": folder / "sparse",
    }


@pytest.mark.parametrize(
    "argv",
    [
        ("tiny", "--deck"),
        ("solver", "--matrix"),
        ("solver", "--right-side", "file", "--right-side-file"),
        ("reductions", "--distribution", "file", "--file"),
        ("reductions", "--distribution", "file", "--file", ":/x"),
    ],
    ids=" ".join,
)
def test_inputs_are_regular_files_of_bounded_size(refused, tmp_path, argv):
    argv, ending = (argv[:-1], argv[-1]) if argv[-1].startswith(":") else (argv, "")
    for what, path in odd_files(tmp_path).items():
        named = path if argv[0] != "tiny" or path == tmp_path else path.rename(path.with_suffix(".toml"))
        if argv[0] == "tiny" and named == tmp_path:
            named = tmp_path / "folder.toml"
            named.mkdir()
        assert what in refused(*argv, f"{named}{ending}")


def test_an_input_may_be_a_link(tmp_path):
    (tmp_path / "own.toml").write_text("[work]\nsteps = 3")
    (tmp_path / "link.toml").symlink_to(tmp_path / "own.toml")
    assert commandline.parse(tiny.APP, ["--deck", str(tmp_path / "link.toml")], {})[1].work.steps == 3


def test_a_right_side_of_another_length_is_refused_before_the_run(refused, tmp_path):
    np.save(tmp_path / "b.npy", np.ones(7))
    argv = ("solver", "--right-side", "file", "--right-side-file", str(tmp_path / "b.npy"))
    assert "7 elements for a matrix of 32768 rows" in refused(*argv)
    (tmp_path / "b.npy").write_bytes(
        (tmp_path / "b.npy").read_bytes().replace(b"(7,), }", b"(7000000,), }", 1)
    )
    assert "its header announces 56000000 bytes" in refused(*argv)


def test_a_file_of_too_many_arrays_is_refused(refused, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((100_001, 1)))
    message = refused("reductions", "--distribution", "file", "--file", str(tmp_path / "x.npy"))
    assert "holds 100001 arrays, but a run takes at most 100000" in message


def test_a_matrix_beyond_memory_is_refused(refused, tmp_path, monkeypatch):
    matrix = scipy.sparse.eye_array(1000, format="csr")
    scipy.sparse.save_npz(tmp_path / "a.npz", matrix)
    scipy.io.mmwrite(tmp_path / "a.mtx", matrix, symmetry="general")
    monkeypatch.setattr("miniapps.system.resources.free_memory", lambda root: 100_000)
    for name in ("a.npz", "a.mtx"):
        assert "needs about 20" in refused("solver", "--matrix", str(tmp_path / name))


def test_a_bomb_of_zeros_is_refused_before_it_is_unpacked(refused, tmp_path):
    entries = 2_000_000
    matrix = {"format": b"csr", "shape": [entries, entries], "data": np.zeros(entries)}
    matrix |= {"indices": np.zeros(entries, np.int8), "indptr": np.zeros(entries + 1, np.int8)}
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, **matrix)
    assert path.stat().st_size < 50_000
    begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "unpacked from a file of this size" in refused("solver", "--matrix", str(path))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - begin < 16 * 1024  # KiB


def test_a_matrix_that_packs_well_is_none(tmp_path):
    """Equal entries, in places that follow a rule."""
    n, path = 100_000, tmp_path / "a.npz"
    matrix = scipy.sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n), dtype="f8").tocoo()
    scipy.sparse.save_npz(path, matrix)
    assert 10 * path.stat().st_size < 16 * matrix.nnz
    assert files.header(path).entries == matrix.nnz


def test_on_several_ranks_a_refusal_is_one_line_and_no_rank_waits(tmp_path):
    argv = ["-m", "miniapps.solver", "--out", tmp_path / "run", "--threads", "1000000"]
    run = run_mpi(3, argv, env={"FPNA_RUN_SEED": "7"})
    ours = [line for line in run.stderr.splitlines() if line.startswith("solver:")]
    assert run.returncode == 2 and len(ours) == 1 and "1 to 1024" in ours[0], run.stderr
    assert not (tmp_path / "run").exists()


# What a node has


def node(root, available=None, **files):
    """A file system that says what a node has: MemAvailable in kB, and files by path."""
    if available is not None:
        files["proc/meminfo"] = f"MemTotal:  99999999 kB\nMemAvailable:   {available} kB\n"
    for path, text in files.items():
        path = root / path.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_free_memory_is_the_least_of_what_node_and_control_groups_leave(tmp_path):
    assert resources.free_memory(tmp_path / "nothing") is None
    assert resources.free_memory(node(tmp_path / "a", 1000)) == 1024_000
    group = {"proc/self/cgroup": "0::/job/step\n", "sys/fs/cgroup/job/memory.max": "500000\n"}
    usage = {"sys/fs/cgroup/job/memory.current": "200000\n", "sys/fs/cgroup/job/step/memory.max": "max\n"}
    cache = {"sys/fs/cgroup/job/memory.stat": "anon 1\ninactive_file 50000\nactive_file 7\n"}
    assert resources.free_memory(node(tmp_path / "b", 1000, **group, **usage, **cache)) == 350_000
    old = {
        "proc/self/cgroup": "4:memory,x:/job\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "900000\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "100000\n",
    }
    assert resources.free_memory(node(tmp_path / "c", 1000, **old)) == 800_000


def test_ranks_of_a_node_share_its_memory(tmp_path, monkeypatch):
    root = node(tmp_path, 1024 * 1024)
    need = resources.Need(300 * 2**20, "grid.nx = 7", lambda share: f"choose {share}")
    for variable in resources.LOCAL_SIZES:
        monkeypatch.delenv(variable, raising=False)
    resources.require_memory(need, 64, root)  # who knows on how many nodes
    monkeypatch.setenv("SLURM_STEP_TASKS_PER_NODE", "4(x2),3")
    resources.require_memory(need, 3, root)
    text = "grid.nx = 7: a rank needs about 300 MiB of memory, and this node has 1.0 GiB free, which 4 ranks share; "
    with pytest.raises(UsageError, match=re.escape(text + f"choose {2**28}")):
        resources.require_memory(need, 64, root)


def test_threads_beyond_the_limit_of_the_system_are_refused(tmp_path, monkeypatch):
    files = {
        "proc/sys/kernel/threads-max": "5000\n",
        "proc/self/cgroup": "0::/\n",
        "sys/fs/cgroup/pids.max": "100\n",
    }
    root = node(tmp_path, **files)
    monkeypatch.setenv("MPI_LOCALNRANKS", "8")
    resources.require_threads(12, 8, root)
    with pytest.raises(
        UsageError, match=r"8 ranks on a node would have 104 threads, .* allows 100 .* at most 12"
    ):
        resources.require_threads(13, 8, root)
    resources.require_threads(1, 1000, root)  # whether so many processes start is not ours to say


@pytest.mark.parametrize(
    ("nbytes", "words"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1.0 KiB"),
        (300 * 2**30, "300 GiB"),
        (2**70, "1048576 PiB"),
    ],
)
def test_bytes_in_words(nbytes, words):
    assert resources.in_words(nbytes) == words
