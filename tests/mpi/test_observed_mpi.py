"""`fpna run`: programs of other languages and other people, as they are, with known answers."""

import contextlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import xxhash

from analysis.__main__ import main
from analysis.divergence.calls import by_call
from analysis.divergence.cause import cause
from analysis.divergence.compare import compare
from analysis.headline import headline
from analysis.load.frames import load
from analysis.verdict import DIFFERS, judge
from benchmarks.harness.launching import LIBRARIES
from kernels.sizes import COLUMNS
from miniapps.trace import read_run
from miniapps.trace.records import ADDED, GLOBAL, RECEIVED, SENT, SOURCE
from tests.launch import environment, home, launcher, run_command, run_mpi

HERE = Path(__file__).parent / "preload"
DEBIAN = "/usr/bin/mpicxx.openmpi"  # Debian's Open MPI, which has Fortran
FPNA = ["-m", "fpna", "run"]


def compiler_of(library, name="mpicxx"):
    """A compiler of the MPI library that `run_mpi` starts."""
    command, _ = launcher(library)
    path = Path(command[0]).parent / name
    if not path.exists() or not (shutil.which("g++") and shutil.which("gcc")):
        pytest.skip(f"no {path}, or no gcc")
    return path


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """built(library, "wildcard.c"): the program, compiled once."""
    folder, done = tmp_path_factory.mktemp("programs"), {}

    def build(library, source):
        if (library, source) not in done:
            compiler = compiler_of(library, "mpicc" if source.endswith(".c") else "mpicxx")
            target = folder / f"{library}-{Path(source).stem}"
            path = {"PATH": f"{compiler.parent}{os.pathsep}{os.environ['PATH']}"}
            command = [compiler, "-g", "-O1", "-o", target, HERE / source, "-lm"]
            subprocess.run(command, check=True, env=os.environ | path, capture_output=True)
            needed = subprocess.run(["ldd", target], capture_output=True, text=True).stdout
            found = [Path(line.split()[2]).resolve() for line in needed.splitlines() if "libmpi." in line]
            assert found and all(at.is_relative_to(home(library)) for at in found), found
            done[library, source] = target
        return done[library, source]

    return build


def observed(ranks, library, out, command, *options, code=0, env=None):
    """Run `command` under observation; what was printed."""
    compiler = compiler_of(library)
    path = {"PATH": f"{compiler.parent}{os.pathsep}{os.environ['PATH']}", "OPAL_PREFIX": None} | (env or {})
    argv = [*FPNA, "--mpicxx", compiler, "--out", out, *options, "--", *command]
    run = run_mpi(ranks, list(map(str, argv)), library, env=path, timeout=200)
    assert run.returncode == code, run.stdout + run.stderr
    return run.stdout + run.stderr


def compared(a, b):
    frames = load([a, b])
    comparison = compare(frames, (a.name, 0), (b.name, 0))
    return frames, comparison


BOTH = [pytest.param(name, marks=[pytest.mark.slow] * (name != "mpich")) for name in LIBRARIES]


@pytest.mark.parametrize("library", BOTH)
@pytest.mark.parametrize("guarantee", ["run", "exact"])
def test_sums_that_end_later_have_the_bits_of_blocking_ones(guarantee, library, built, tmp_path):
    for ranks in (1, 2, 4):
        command = [built(library, "later.c")]
        printed = observed(ranks, library, tmp_path / str(ranks), command, "--guarantee", guarantee)
        assert re.search(r"^\d\d compared, 0 differ$", printed, re.MULTILINE), printed
        assert "kept the library's order" not in printed
    (trace,) = read_run(tmp_path / "4", ranks=[0])
    sums = [facts for facts in trace.attributes["reductions"].values() if facts["operation"] == "sum"]
    assert {facts["guarantee"] for facts in sums} == {guarantee}


@pytest.mark.parametrize("library", BOTH)
def test_every_collective_in_every_form_has_the_hashes_of_what_went_in_and_came_out(library, tmp_path):
    out = tmp_path / "run"
    python = Path(sys.executable)
    observed(3, library, out, [python, HERE / "collectives.py", tmp_path])
    for rank in range(3):
        expected = json.loads((tmp_path / f"expected-{rank}.json").read_text())
        (trace,) = read_run(out, ranks=[rank])
        calls = [trace.names[name].partition(" at ")[0] for name in trace.tables["events"]["name"]]
        assert calls == [name for name, *_ in expected]
        table = trace.tables["fingerprints"]
        recorded = {}
        for name, after, hi, lo in zip(table["name"], table["after"], table["hi"], table["lo"], strict=True):
            prefix = trace.names[name].partition(":")[0] + ":"
            if prefix == GLOBAL:
                continue
            recorded[int(after) - 1, prefix in (ADDED, SENT)] = f"{hi:016x}{lo:016x}"
        for i, (name, given, got) in enumerate(expected):
            assert recorded.get((i, True)) == given, (rank, i, name)
            if rank == 0 or name.endswith(
                ("gather", "gatherv", "alltoall", "bcast")
            ):  # a shared total is recorded once
                assert recorded.get((i, False)) == got, (rank, i, name)


@pytest.mark.parametrize(
    ("library", "trapping"),
    [
        ("mpich", True),
        *(pytest.param(*of, marks=pytest.mark.slow) for of in (("mpich", False), ("openmpi", True))),
    ],
)
def test_sizes_are_those_of_what_calls_carried_in_every_type(library, trapping, tmp_path):
    """Also where the program rounds upward and traps what is not finite, inexact results apart."""
    out, expected = tmp_path / "run", tmp_path / "expected.json"
    program = [sys.executable, HERE / "every_type.py", expected, "3", *["trapping"] * trapping]
    observed(3, library, out, program, env={"PYTHONPATH": str(HERE.parents[2])})
    (trace,) = read_run(out, ranks=[0])
    table, prints = trace.tables["sizes"], trace.tables["fingerprints"]
    for column in ("name", "block", "step", "after"):
        assert np.array_equal(table[column], prints[column])
    got = [i for i, name in enumerate(table["name"]) if trace.names[name].startswith(RECEIVED)]
    found = [
        [trace.names[table["dtype"][i]] if table["count"][i] else "", int(table["count"][i])]
        + [None if np.isnan(table[column][i]) else float(table[column][i]).hex() for column in COLUMNS]
        for i in got
    ]
    wanted = [
        [dtype if count else "", count, *rest] for dtype, count, *rest in json.loads(expected.read_text())
    ]
    assert found == wanted


@pytest.mark.parametrize("library", BOTH)
def test_sums_of_every_type_are_exact_or_named(library, tmp_path):
    """Those of C, C++ and Fortran, by kinds and by precision; long double keeps the library's order."""
    out, found = tmp_path / "run", tmp_path / "found.json"
    program = [sys.executable, HERE / "sums_of_types.py", found]
    printed = observed(4, library, out, program, "--guarantee", "exact")
    sums = json.loads(found.read_text())
    assert {name: parts for name, parts in sums.items() if set(parts) != {2.0}} == {}
    assert {"DOUBLE", "C_FLOAT_COMPLEX", "CXX_DOUBLE_COMPLEX", "real of 6 digits"} <= set(sums)
    assert f"1 of {len(sums) + 1} sums on rank 0 kept the library's order: type MPI_LONG_DOUBLE: 1" in printed
    (trace,) = read_run(out, ranks=[0])
    assert [of["why"] for of in trace.attributes["unreached"]] == ["type MPI_LONG_DOUBLE"]


# In the order of tests/mpi/preload/pairs.c: the name, and NumPy's types of value and index.
PAIRS = (
    ("MPI_DOUBLE_INT", "f8", "i4"), ("MPI_FLOAT_INT", "f4", "i4"), ("MPI_LONG_INT", "i8", "i4"),
    ("MPI_2INT", "i4", "i4"), ("MPI_SHORT_INT", "i2", "i4"), ("MPI_LONG_DOUBLE_INT", "g", "i4"),
    ("MPI_2REAL", "f4", "f4"), ("MPI_2DOUBLE_PRECISION", "f8", "f8"), ("MPI_2INTEGER", "i4", "i4"),
)  # fmt: skip
PAIR_CALLS = ("Allreduce", "Reduce", "Scan", "Exscan", "Iallreduce", "Allreduce_init", "Allreduce")


def hashed_pairs(value, index, pairs):
    """The hash of pairs without gaps, with zeros for the bytes of a long double that are no part of its number; and the
    sum of the sizes of the values."""
    content = b""
    for one, at in pairs:
        number = np.array([one], value).tobytes()
        content += (number[:10] + bytes(6) if value == "g" else number) + np.array([at], index).tobytes()
    return xxhash.xxh3_128_hexdigest(content), float(sum(abs(one) for one, _ in pairs))


def pairs_of(rank, ranks, value, index, largest):
    """(call, hash, sum of sizes) of each record of one type and operation in pairs.c."""
    rows = [[((r * 7 + i * 5) % 3, r * 10 + i) for i in range(3)] for r in range(ranks)]
    first = [
        [
            min((row[i] for row in rows[:upto]), key=lambda p: (-p[0] if largest else p[0], p[1]))
            for i in range(3)
        ]
        for upto in range(1, ranks + 1)
    ]
    gets = {"Scan": first[rank], "Exscan": first[rank - 1] if rank else None,
            "Reduce": first[-1] if rank == ranks - 1 else None}  # fmt: skip
    for call in PAIR_CALLS:
        yield f"{ADDED}MPI_{call}", *hashed_pairs(value, index, rows[rank])
        if got := gets.get(call, first[-1] if call not in gets and rank == 0 else None):
            yield f"total:MPI_{call}", *hashed_pairs(value, index, got)
    if rank == 0:
        yield f"{SENT}MPI_Bcast", *hashed_pairs(value, index, first[-1])
    yield f"{RECEIVED}MPI_Bcast", *hashed_pairs(value, index, first[-1])


@pytest.mark.parametrize("operation", ["minloc", "maxloc"])
@pytest.mark.parametrize("library", BOTH)
def test_pairs_of_value_and_index_have_the_hashes_of_both_without_their_gaps(
    library, operation, built, tmp_path
):
    ranks, command = 3, [built(library, "pairs.c"), operation]
    for gap in (0, 165):
        observed(ranks, library, tmp_path / f"gap{gap}", command, env={"GAP": str(gap)})
    assert main(["divergence", str(tmp_path / "gap0"), str(tmp_path / "gap165")]) == 0
    for rank in range(ranks):
        (trace,) = read_run(tmp_path / "gap165", ranks=[rank])
        prints, sizes = trace.tables["fingerprints"], trace.tables["sizes"]
        columns = (prints["name"], prints["hi"], prints["lo"], sizes["dtype"], sizes["l1"])
        found = [
            (trace.names[name].partition(" at ")[0], f"{hi:016x}{lo:016x}", trace.names[dtype], float(l1))
            for name, hi, lo, dtype, l1 in zip(*columns, strict=True)
        ]
        types = {dtype for *_, dtype, _ in found}
        assert types >= {name for name, *_ in PAIRS[:6]}
        has_init = any("_init" in call for call, *_ in found)  # MPI 4
        assert found == [
            (call, digest, name, l1)
            for name, value, index in PAIRS
            for call, digest, l1 in pairs_of(rank, ranks, value, index, operation == "maxloc")
            if name in types and (has_init or "_init" not in call)
        ]
        facts = trace.attributes["reductions"].values()
        assert {(own["operation"], own["dtype"]) for own in facts} == {(operation, name) for name in types}


def test_a_nan_lets_the_library_choose_a_pair_and_nobody_calls_it_an_order_of_additions(built, tmp_path):
    """Two algorithms of MPICH, with one NaN among the values, take other pairs."""
    runs = []
    for algorithm in ("recursive_doubling", "tree"):
        env = {
            "MPIR_CVAR_ALLREDUCE_COMPOSITION": "2",
            "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": algorithm,
            "ODD": "nan",
        }
        observed(4, "mpich", tmp_path / algorithm, [built("mpich", "pairs.c"), "maxloc"], env=env)
        runs.append(tmp_path / algorithm)
    judged = cause(*compared(*runs))
    assert judged.kind == "collective" and "MPI_Allreduce at reduce (pairs.c" in judged.name
    assert judged.rounding.verdict == "open"
    assert "MPI does not say which pair the maxloc of MPI_DOUBLE_INT then takes" in judged.rounding.why
    assert "the order of its comparisons" in judged.why[-1]


def test_what_all_ranks_hold_is_compared_over_rank_counts_and_a_bug_is_no_rounding(built, tmp_path):
    """A program that computes every point by its local index, and one that does not."""
    program = built("mpich", "local_index.c")
    said = {}
    for bug in "01":
        for ranks in (1, 2):
            observed(ranks, "mpich", tmp_path / f"{bug}on{ranks}", [program, bug])
        frames, comparison = compared(tmp_path / f"{bug}on1", tmp_path / f"{bug}on2")
        said[bug] = comparison.first and cause(frames, comparison)
    assert (
        said["0"] is None
    )  # all that can be compared is equal: points, their square sum in one order, a maximum
    assert said["1"].at.name.startswith(f"{GLOBAL}MPI_Allgather at ") and said["1"].at.name.endswith(
        ", 64 float64"
    )
    assert said["1"].rounding.verdict == "open" and "fpna cause" in said["1"].next


def contributions(ranks):
    return [0.1 / (1 + r) + (1e9 if r % 4 == 1 else -1e9 if r % 4 == 2 else 0) for r in range(ranks)]


def tree(values):
    """A balanced binary tree over the ranks."""
    values, step = list(values), 1
    while step < len(values):
        for r in range(0, len(values) - step, 2 * step):
            values[r] += values[r + step]
        step *= 2
    return values[0]


def totals(printed):
    """`short 0x1p0 long 0x1p0 ...` as a dict of floats."""
    words = next(line for line in printed.splitlines() if line.startswith("short")).split()
    return {name: float.fromhex(value) for name, value in zip(words[::2], words[1::2], strict=True)}


@pytest.mark.parametrize(
    ("library", "ranks"),
    [("mpich", 3), *(pytest.param(*of, marks=pytest.mark.slow) for of in (("openmpi", 3), ("mpich", 8)))],
)
def test_sums_are_added_in_the_order_asked_for(library, ranks, built, tmp_path):
    program, own = built(library, "lengths.cpp"), contributions(ranks)
    floats = list(map(np.float32, own))
    narrow = {"run": tree(floats), "exact": np.float32(float(sum(map(Fraction, map(float, floats)))))}
    for guarantee, exact in (("run", tree(own)), ("exact", float(sum(map(Fraction, own))))):
        printed = totals(observed(ranks, library, tmp_path / guarantee, [program], "--guarantee", guarantee))
        assert {printed[name].hex() for name in ("short", "long", "scan", "share", "root")} == {exact.hex()}
        assert printed["float"] == narrow[guarantee]  # begun by MPI_Iallreduce
    for trace in read_run(tmp_path / "exact"):
        facts = trace.attributes["reductions"]
        kept = {
            name.partition(" at ")[0]: (own["accumulation"], own["guarantee"]) for name, own in facts.items()
        }
        assert set(kept.values()) == {("exact", "exact")}
        assert len(kept) == 5 and "MPI_Iallreduce" in kept


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the program writes MXCSR")
@pytest.mark.parametrize("library", ["mpich", pytest.param("openmpi", marks=pytest.mark.slow)])
def test_sums_do_not_depend_on_the_floating_point_environment(library, built, tmp_path):
    """Rounding modes, flushed subnormals and traps, drawn for each rank; known answers, and no flags raised."""
    program = built(library, "environments.c")
    command = [program, "7", "300"]
    answers = {
        "exact": ["inf", "0x1.1ccf385ebc8ap+1023", "0x0.0000000004p-1022", "0x0.0000000000003p-1022"],
        "run": ["inf", "inf", "0x0p+0", "0x0.0000000000003p-1022"],  # by a tree
    }
    for guarantee, totals in answers.items():
        printed = observed(3, library, tmp_path / guarantee, command, "--quiet", "--guarantee", guarantee)
        assert "300 cases, 0 differ, 0 changed, 0 flagged" in printed
        assert [line.split()[0] for line in printed.splitlines() if " flags 0" in line] == totals
    start, extra = launcher(library)
    plain = run_command([*start, "-n", "3", program, "7", "100", "library"], extra, 120, None)
    assert re.search(r"100 cases, [1-9][0-9]* differ, 0 changed, [1-9]", plain.stdout)


def test_exact_sums_of_floats_are_rounded_once(built, tmp_path):
    """The tree of four floats is wrong in most places; the correctly rounded sum is known."""
    source = tmp_path / "floats.c"
    source.write_text(
        "#include <mpi.h>\n#include <stdio.h>\n#include <stdlib.h>\n"
        "int main(int c, char **v) { int r, n = 50000; MPI_Init(&c, &v); MPI_Comm_rank(MPI_COMM_WORLD, &r);\n"
        'float *x = malloc(4 * n), *y = malloc(4 * n); FILE *f = fopen(v[1], "rb"); fseek(f, 4L * n * r, SEEK_SET);\n'
        "if (fread(x, 4, n, f) != (size_t)n) return 9; MPI_Allreduce(x, y, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);\n"
        'if (r == 2) { f = fopen(v[2], "wb"); fwrite(y, 4, n, f); fclose(f); } MPI_Finalize(); return 0; }\n'
    )
    compiler = compiler_of("mpich", "mpicc")
    subprocess.run([compiler, "-o", tmp_path / "floats", source], check=True, capture_output=True)
    generator = np.random.default_rng(3)
    x = (generator.standard_normal((5, 50000)) * 2.0 ** generator.integers(-40, 40, (5, 50000))).astype(
        np.float32
    )
    x[:, :6] = [[np.inf, 1, np.nan, -0.0, 3e38, 1e-45]] * 5
    x[1:3, 0], x[4, 1] = -np.inf, np.inf
    (tmp_path / "in").write_bytes(x.tobytes())
    command = [tmp_path / "floats", tmp_path / "in", tmp_path / "result"]
    observed(5, "mpich", tmp_path / "run", command, "--guarantee", "exact")
    got = np.frombuffer((tmp_path / "result").read_bytes(), np.float32)
    assert np.isnan(got[[0, 2]]).all() and np.isposinf(got[[1, 4]]).all()
    for i in [3, 5, *range(6, 50000, 7)]:
        exact = sum(map(Fraction, x[:, i].tolist()))
        near = np.float32(float(exact))  # at most one place off, for having been rounded twice
        candidates = [np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf))]
        best = min(candidates, key=lambda c: (abs(Fraction(float(c)) - exact), int(c.view(np.uint32)) & 1))
        assert got[i] == best, i


@pytest.mark.parametrize("library", BOTH)
def test_messages_from_any_source_are_the_cause_and_a_replay_repeats_them(library, built, tmp_path, capsys):
    program = [built(library, "wildcard.c"), 3]
    for name, order, options in (
        ("a", "123", ()), ("b", "321", ()), ("again", "321", ("--replay", tmp_path / "a")),
    ):  # fmt: skip
        observed(4, library, tmp_path / name, program, *options, env={"ORDER": order})
    frames, comparison = compared(tmp_path / "a", tmp_path / "b")
    judged = cause(frames, comparison)
    assert (judged.kind, judged.rank, judged.step) == ("message order", 0, 0)
    assert judged.name == "MPI_Recv at collect (wildcard.c:14) from main (wildcard.c:38)"
    calls = by_call(frames, comparison.a, comparison.b).set_index("call")
    # A busy machine may let a message come earlier than the program asks for.
    assert calls.loc[judged.name, "sources"] == 6 and 0 < calls.loc[judged.name, "sources_differing"] <= 6
    assert main(["divergence", str(tmp_path / "a"), str(tmp_path / "again")]) == 0
    capsys.readouterr()
    words = {group.verdict: str(headline([group], frames)) for group in judge(frames)}
    assert (
        "passed other numbers through its calls in 2 runs (no results were recorded) because"
        in words[DIFFERS]
    )
    assert str(headline(judge(load([tmp_path / "a", tmp_path / "again"])), frames)).startswith("IDENTICAL")
    (trace,) = read_run(tmp_path / "a", ranks=[0])
    sources = [v for v, n in zip(trace.tables["values"]["value"], trace.tables["values"]["name"], strict=True)
               if trace.names[n].startswith(SOURCE)]  # fmt: skip
    assert sources == [1, 2, 3] * 3


@pytest.mark.parametrize("form", ["any", pytest.param("named", marks=pytest.mark.slow)])
def test_messages_that_probes_found_are_an_order_and_no_computation(form, tmp_path):
    """mpi4py's `recv` probes and receives what it found: the probe took another rank's message, so that what came next
    is another rank's, and no rank computed anything else."""
    for name, order, options in (
        ("a", "12", ()),
        ("b", "21", ()),
        ("again", "21", ("--replay", tmp_path / "a")),
    ):
        program = [Path(sys.executable), HERE / "probed.py", form]
        observed(3, "mpich", tmp_path / name, program, *options, env={"ORDER": order})
    judged = cause(*compared(tmp_path / "a", tmp_path / "b"))
    assert (judged.kind, judged.rank, judged.step) == ("message order", 0, 1)
    assert "MPI_Probe at" in judged.name if form == "named" else "MPI_Mprobe at" in judged.name
    assert any("came from rank 1 in one run, from rank 2 in the other" in why for why in judged.why), (
        judged.why
    )
    assert main(["divergence", str(tmp_path / "a"), str(tmp_path / "again")]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_another_number_of_ranks_is_seen_at_the_first_sum(library, built, tmp_path):
    for ranks in (2, 3):
        observed(ranks, library, tmp_path / f"on{ranks}", [built(library, "lengths.cpp")])
    frames, comparison = compared(tmp_path / "on2", tmp_path / "on3")
    judged = cause(frames, comparison)
    place = "total (lengths.cpp:10) from main (lengths.cpp:21)"
    # The third rank adds -1e9: other numbers, and no other grouping of the same.
    assert (judged.kind, judged.rounding.verdict) == ("local kernel", "not rounding"), judged
    assert judged.name == f"MPI_Allreduce at {place}"


@pytest.mark.slow
def test_a_replay_of_a_program_that_takes_another_path_says_why_it_waits(built, tmp_path):
    """Rank 3 sends nothing in the second run; the launcher of the test ends it."""
    program = built("mpich", "wildcard.c")
    observed(4, "mpich", tmp_path / "a", [program, 1], env={"ORDER": "312"})
    compiler = compiler_of("mpich")
    path = f"{compiler.parent}{os.pathsep}{os.environ['PATH']}"
    launch, extra = launcher("mpich")
    argv = [*launch, "-n", 4, sys.executable, *FPNA, "--mpicxx", compiler, "--out", tmp_path / "b",
            "--replay", tmp_path / "a", "--", program, 1]  # fmt: skip
    env = environment({**extra, "PATH": path, "ORDER": "12", "SILENT": "3", "FPNA_PATIENCE": "2"})
    told = "since a rank took another path, or is slower than that; from here on this rank runs free"
    said, end = tmp_path / "said", time.monotonic() + 60
    with said.open("w") as file, subprocess.Popen(list(map(str, argv)), env=env, stderr=file) as run:
        while told not in said.read_text() and run.poll() is None and time.monotonic() < end:
            time.sleep(0.1)
        run.terminate()
    assert run.returncode != 0
    assert told in said.read_text()


@pytest.mark.slow
def test_the_abi_of_the_standard_is_observed_too(tmp_path):
    """MPICH has a second library with the binary interface that MPI 5 states."""
    compilers = [compiler_of("mpich", name) for name in ("mpicc_abi", "mpicxx_abi")]
    subprocess.run(
        [compilers[0], "-g", "-o", tmp_path / "wild", HERE / "wildcard.c"], check=True, capture_output=True
    )
    argv = [*FPNA, "--mpicxx", compilers[1], "--out", tmp_path / "run", "--", tmp_path / "wild", 2]
    run = run_mpi(3, list(map(str, argv)))
    assert run.returncode == 0, run.stdout + run.stderr
    (trace,) = read_run(tmp_path / "run", ranks=[0])
    assert trace.tables["values"]["value"].tolist() == [1, 2] * 2
    other = [*FPNA, "--mpicxx", compiler_of("mpich"), "--out", tmp_path / "no", "--", tmp_path / "wild", 2]
    mismatched = run_mpi(2, list(map(str, other)))
    assert mismatched.returncode == 2
    assert "name the compiler of the program's MPI" in mismatched.stderr


def test_point_to_point_messages_are_recorded_where_asked_for(built, tmp_path):
    program = [built("mpich", "wildcard.c"), 2]
    printed = observed(3, "mpich", tmp_path / "run", program, "--point-to-point", "--verbose")
    assert "rank 1 of 3: 4 calls, by " in printed
    names = {name.partition(" at ")[0] for trace in read_run(tmp_path / "run") for name in trace.names}
    assert {f"{SENT}MPI_Send", f"{RECEIVED}MPI_Recv", f"{RECEIVED}MPI_Irecv", f"{RECEIVED}MPI_Bcast"} <= names


def test_programs_that_make_new_objects_in_every_step_keep_their_names(built, tmp_path):
    """More operations and types than numbers of 16 bits, and communicators of communicators of communicators."""
    times = 66_000
    observed(1, "mpich", tmp_path / "run", [built("mpich", "many.c"), times])
    (trace,) = read_run(tmp_path / "run")
    assert trace.complete and max(map(len, trace.names)) < 200
    operations = [(facts["operation"], facts["calls"]) for facts in trace.attributes["reductions"].values()]
    assert sorted(operations)[-2:] == [("sum", 1), ("user operation add (many.c:9)", times)]
    assert operations.count(("max", 1)) == 300  # a name for each communicator
    dtypes = {trace.names[dtype] for dtype in trace.tables["sizes"]["dtype"]}
    assert dtypes == {"float64", "float32", "", 'caf\xe9 \u2028"\ufffd'}


def test_what_is_refused_ends_all_ranks_with_2(built, tmp_path):
    program = built("mpich", "wildcard.c")
    observed(2, "mpich", tmp_path / "used", [program, 1])
    again = observed(2, "mpich", tmp_path / "used", [program, 1], code=2)
    assert "a run overwrites nothing" in again
    wrong = observed(3, "mpich", tmp_path / "new", [program, 1], "--replay", tmp_path / "used", code=2)
    assert wrong.count("recorded on 2 ranks, but this run has 3") == 1
    other = tmp_path / "other"
    other.symlink_to(program)
    strange = observed(2, "mpich", tmp_path / "new", [other, 1], "--replay", tmp_path / "used", code=2)
    assert strange.count("a run of mpich-wildcard, but this is other; give a run of other") == 1
    more = observed(
        2, "mpich", tmp_path / "more", [program, 2], "--replay", tmp_path / "used", "--same-but", 2
    )
    assert "used was recorded with the arguments 1: if the new arguments change the messages" in more
    unknown = observed(2, "mpich", tmp_path / "new", [program, 1], "--same-but", "log", code=2)
    assert unknown.count("--same-but log: the program has no such argument") == 1
    assert not (tmp_path / "new").exists() or not list((tmp_path / "new").iterdir())
    absent = observed(2, "mpich", tmp_path / "no", [tmp_path / "absent"], code=2)
    assert "no program" in absent


def test_processes_that_are_alone_are_refused_by_name_of_launcher_and_library(built, tmp_path):
    """As of an mpirun of another library, or an srun without --mpi: two processes, and each is rank 0 of 1."""
    compiler = compiler_of("mpich")
    path = {"PATH": f"{compiler.parent}{os.pathsep}{os.environ['PATH']}"}
    for name, variables in (("srun", ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID")),
                                ("Open MPI", ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"))):  # fmt: skip
        command = [
            sys.executable,
            *FPNA,
            "--mpicxx",
            compiler,
            "--out",
            tmp_path / name,
            "--",
            built("mpich", "wildcard.c"),
            1,
        ]
        env = environment({**path, **dict(zip(variables, ("2", "0"), strict=True))})
        ended = subprocess.run(list(map(str, command)), env=env, capture_output=True, text=True, timeout=100)
        assert ended.returncode == 2, ended.stderr
        assert f"the launcher ({name}) started 2 processes, but it does not belong" in ended.stderr
        assert "the MPI library of the program, MPICH " in ended.stderr
        assert "recorded nothing" not in ended.stderr
        assert not list((tmp_path / name).iterdir())


def test_runs_that_differ_in_names_of_outputs_are_compared_where_that_is_said(built, tmp_path, capsys):
    program = built("mpich", "wildcard.c")
    for name, options in (
        ("a", ()),
        ("b", ()),
        ("c", ("--same-but", "log.a")),
        ("d", ("--same-but", "log.b")),
    ):
        log = "log.a" if name in "ac" else "log.b"
        observed(1, "mpich", tmp_path / name, [program, 1, log], *options)
    paths = {name: str(tmp_path / name) for name in "abcd"}
    assert main(["divergence", paths["a"], paths["b"]]) == 2
    told = capsys.readouterr().err
    assert "1 log.a" in told and "1 log.b" in told and "fpna run --same-but ARG" in told
    assert main(["divergence", paths["c"], paths["d"]]) == 0
    capsys.readouterr()


PYTHON = """\
import ctypes, sys, threading
import numpy as np
from mpi4py import MPI

def dot(comm, x):
    total = np.empty(1)
    comm.Allreduce(np.array([x @ x]), total)
    return total[0]

def solve(n):
    return [dot(MPI.COMM_WORLD, np.ones(n)) for step in range(3)]

solve(4)
thread = threading.Thread(target=lambda: dot(MPI.COMM_WORLD, np.ones(2)))
thread.start(), thread.join()
ctypes.PyDLL(sys.argv[1]).norm()
"""
LIBRARY = """\
#include <mpi.h>
__attribute__((noinline)) static double allreduce(double x) {
    double y;
    MPI_Allreduce(&x, &y, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return y + 1;
}
void norm(void) {
    volatile double y = allreduce(1);
    (void)y;
}
"""


def test_calls_are_named_by_the_lines_of_python_and_the_functions_of_libraries(tmp_path):
    """On any number of ranks, from a thread, and from a library that keeps the interpreter's lock."""
    (tmp_path / "app.py").write_text(PYTHON)
    (tmp_path / "lib.c").write_text(LIBRARY)
    command = [
        compiler_of("mpich", "mpicc"),
        "-g",
        "-O1",
        "-shared",
        "-fPIC",
        "-o",
        tmp_path / "lib.so",
        tmp_path / "lib.c",
    ]
    subprocess.run(command, check=True, capture_output=True)
    for ranks in (1, 2):
        out = tmp_path / f"on{ranks}"
        observed(ranks, "mpich", out, [sys.executable, tmp_path / "app.py", tmp_path / "lib.so"])
        for trace in read_run(out):
            assert set(trace.attributes["regions"]) == {
                "MPI_Allreduce at dot (app.py:7) from <listcomp> (app.py:11)"
                if sys.version_info < (3, 12)
                else "MPI_Allreduce at dot (app.py:7) from solve (app.py:11)",
                "MPI_Allreduce at dot (app.py:7) from <lambda> (app.py:14)",
                "MPI_Allreduce at allreduce (lib.c:4) from norm (lib.c:8) from app.py:16",
            }


def working_on(run):
    """Processes whose command line names the directory `run`, as `fpna run --out` has it."""
    named = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # one that has just ended
            if os.fsencode(run) in path.read_bytes().split(b"\0"):
                named.append(path.parent.name)
    return named


def test_a_program_that_is_killed_leaves_its_calls(tmp_path, capsys):
    source = tmp_path / "dies.c"
    source.write_text(
        "#include <mpi.h>\n#include <signal.h>\nint main(int c, char **v) { double x = 1, y; MPI_Init(&c, &v);\n"
        "for (int i = 0; i < 1000; ++i) { MPI_Allreduce(&x, &y, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); x = y / 2;\n"
        "if (i == 700) raise(SIGKILL); } MPI_Finalize(); return 0; }\n"
    )
    subprocess.run(
        [compiler_of("mpich", "mpicc"), "-o", tmp_path / "dies", source], check=True, capture_output=True
    )
    compiler = compiler_of("mpich")
    argv = [*FPNA, "--mpicxx", compiler, "--out", tmp_path / "run", "--", tmp_path / "dies"]
    run = run_mpi(2, list(map(str, argv)), env={"PATH": f"{compiler.parent}{os.pathsep}{os.environ['PATH']}"})
    assert run.returncode != 0
    while working_on(tmp_path / "run"):  # launchers that mpirun did not kill still write
        time.sleep(0.2)
    if list((tmp_path / "run").glob("raw-*.log")):
        some = any((tmp_path / "run").glob("rank-*.h5"))  # a launcher that was not killed wrote its rank's
        assert main(["show", str(tmp_path / "run")]) == (0 if some else 2)
        assert f"fpna run --recover {tmp_path / 'run'}" in capsys.readouterr().err
        recovered = subprocess.run([sys.executable, *FPNA, "--recover", tmp_path / "run"])
        assert recovered.returncode == 0
    traces = list(read_run(tmp_path / "run"))
    assert [trace.complete for trace in traces] == [False, False]
    assert {len(trace.tables["events"]["start"]) for trace in traces} <= {700, 701}


PAIRS_IN_FORTRAN = """\
program pairs
  use mpi
  implicit none
  integer :: ierr, rank, k(2), l(2)
  real :: x(2), y(2)
  double precision :: a(2), b(2)
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  x = [1.5, real(rank)]
  a = [2.5d0, dble(rank)]
  k = [7, rank]
  call MPI_Allreduce(x, y, 1, MPI_2REAL, MPI_MINLOC, MPI_COMM_WORLD, ierr)
  call MPI_Allreduce(a, b, 1, MPI_2DOUBLE_PRECISION, MPI_MAXLOC, MPI_COMM_WORLD, ierr)
  call MPI_Allreduce(k, l, 1, MPI_2INTEGER, MPI_MINLOC, MPI_COMM_WORLD, ierr)
  call MPI_Finalize(ierr)
end program
"""


@pytest.mark.slow
def test_pairs_of_fortran_are_recorded_with_their_values(tmp_path):
    """All ranks have the same value: the smallest index wins."""
    (tmp_path / "pairs.f90").write_text(PAIRS_IN_FORTRAN)
    command = ["mpif90.openmpi", "-g", "-o", tmp_path / "pairs", tmp_path / "pairs.f90"]
    subprocess.run(command, check=True, env=debian(), capture_output=True)
    under_debian(3, tmp_path / "run", [tmp_path / "pairs"])
    (trace,) = read_run(tmp_path / "run", ranks=[0])
    facts = [(own["operation"], own["dtype"]) for own in trace.attributes["reductions"].values()]
    types = [("minloc", "MPI_2REAL"), ("maxloc", "MPI_2DOUBLE_PRECISION"), ("minloc", "MPI_2INTEGER")]
    assert sorted(facts) == sorted(types)
    table = trace.tables["fingerprints"]
    totals = [
        f"{hi:016x}{lo:016x}" for name, hi, lo in zip(table["name"], table["hi"], table["lo"], strict=True)
        if not trace.names[name].startswith(ADDED)
    ]  # fmt: skip
    won = [np.array([1.5, 0], np.float32), np.array([2.5, 0]), np.array([7, 0], np.int32)]
    assert totals == [xxhash.xxh3_128_hexdigest(pair) for pair in won]
    assert trace.tables["sizes"]["l1"].tolist() == [1.5, 1.5, 2.5, 2.5, 7, 7]


def debian():
    """The environment for Debian's Open MPI, or skip."""
    if not Path(DEBIAN).exists():
        pytest.skip("no Open MPI of Debian (apt-get install hpcc gfortran libopenmpi-dev)")
    return {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_mpi_yield_when_idle": "1", "PYTHONPATH": str(Path(__file__).parents[2]),
            "PATH": f"/usr/bin{os.pathsep}{os.environ['PATH']}"}  # fmt: skip


def under_debian(ranks, out, command, *options, cwd=None):
    argv = [
        "mpirun.openmpi",
        "--oversubscribe",
        "-n",
        ranks,
        sys.executable,
        *FPNA,
        "--mpicxx",
        DEBIAN,
        "--out",
        out,
    ]
    argv = [str(word) for word in (*argv, *options, "--", *command)]
    run = subprocess.run(argv, env=debian(), cwd=cwd, capture_output=True, text=True, timeout=200)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


@pytest.mark.slow
@pytest.mark.parametrize("module", ["mpi", "mpi_f08"])
def test_a_fortran_program_is_observed_at_its_own_lines(module, tmp_path):
    env = debian()
    if not shutil.which("mpif90.openmpi") or not shutil.which("gfortran"):
        pytest.skip("no gfortran")
    text = (HERE / "dot.f90").read_text()
    if module == "mpi_f08":
        text = text.replace("use mpi\n", "use mpi_f08\n").replace(
            "ierr, request, k, status(MPI_STATUS_SIZE)", "ierr, k"
        )
        types = "  type(MPI_Request) :: request\n  type(MPI_Status) :: status\n"
        text = text.replace("  double precision", f"{types}  double precision", 1)
        text = text.replace("status(MPI_SOURCE)", "status%MPI_SOURCE")
    (tmp_path / "dot.f90").write_text(text)
    command = ["mpif90.openmpi", "-g", "-o", tmp_path / "dot", tmp_path / "dot.f90"]
    subprocess.run(command, check=True, env=env, capture_output=True)
    own = [1 / (r + 3) + 1e3 * (r % 2) for r in range(4)]
    exact = np.float64(float(sum(map(Fraction, own)))).view(np.uint64)
    printed = under_debian(4, tmp_path / "run", [tmp_path / "dot"], "--guarantee", "exact")
    assert f"{exact:016X}" in printed.split()[:2]
    (trace,) = read_run(tmp_path / "run", ranks=[0])
    calls = [trace.names[name].split(" (")[0] for name in trace.tables["events"]["name"]]
    assert calls == ["MPI_Allreduce at MAIN__"] * 2 + ["MPI_Iallreduce at MAIN__"] + [
        "MPI_Recv at MAIN__"
    ] * 3 + ["MPI_Bcast at MAIN__"]
    sources = trace.tables["values"]["value"].tolist()
    assert sorted(sources) == [1, 2, 3]
    table = trace.tables["fingerprints"]
    digests = [
        f"{hi:016x}{lo:016x}" for name, hi, lo in zip(table["name"], table["hi"], table["lo"], strict=True)
        if trace.names[name].startswith(ADDED)
    ]  # fmt: skip
    total = float(sum(map(Fraction, own)))
    assert digests == [xxhash.xxh3_128_hexdigest(np.array(x)) for x in ([own[0]], [own[0], total], [own[0]])]


@pytest.mark.slow
def test_hpcc_runs_as_it_is_and_names_where_its_bits_part(tmp_path):
    debian()
    if not shutil.which("hpcc"):
        pytest.skip("no hpcc (apt-get install hpcc)")
    deck = Path("/usr/share/doc/hpcc/examples/_hpccinf.txt").read_text()
    for name in ("a", "b"):
        (tmp_path / f"in-{name}").mkdir()
        (tmp_path / f"in-{name}" / "hpccinf.txt").write_text(
            deck.replace("1000         Ns", "100         Ns")
        )
        under_debian(4, tmp_path / name, ["hpcc"], cwd=tmp_path / f"in-{name}")
        assert "Success=1" in (tmp_path / f"in-{name}" / "hpccoutf.txt").read_text()
    frames, comparison = compared(tmp_path / "a", tmp_path / "b")
    assert comparison.compared > 1000
    assert comparison.differs  # it measures times, and RandomAccess takes updates as they come
    calls = by_call(frames, comparison.a, comparison.b)
    assert {"MPI_Alltoall", "MPI_Reduce", "MPI_Irecv"} <= {call.partition(" ")[0] for call in calls["call"]}
    assert (calls["step"] >= 0).any() and (calls["step"] < 0).any()
