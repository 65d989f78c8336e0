"""The reductions app keeps its guarantees under real MPI, records what it says, and refuses what it cannot do."""

import json
import re
from math import fsum

import h5py
import numpy as np
import pytest

from kernels import registry
from miniapps.reductions import data
from miniapps.reductions.choice import choose
from miniapps.reductions.config import Problem
from miniapps.reductions.parts import Parts
from miniapps.runner.policy import resolve
from miniapps.system.environment import no_cuda
from miniapps.trace import rank_files, read
from tests.launch import libraries, run_mpi
from tests.mpi.sectioned import layouts
from tests.ranks import on_ranks

# All that are registered and run here, but torch, which takes longer to import than all else in these tests.
VARIANTS = [
    f"--variant={v.name}@{v.backend}"
    for v in choose("sum", (), None, resolve("run", None, None), "cpu")
    if v.backend != "torch"
]
SMALL = [
    *("--size=10", "--size=5000", "--arrays=3", "--samples=3", "--distribution=centred"),
    *("--set=problem.block=512", "--no-progress"),
]


def reductions(n, *options, out, library="mpich", timeout=120, small=SMALL, by=on_ranks):
    """Run the small problem on n ranks; fails the test unless it ends with 0. Returns (fingerprint, result)."""
    run = by(n, ["-m", "miniapps.reductions", *small, *options, "--out", str(out)], library, timeout=timeout)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "VERIFICATION: PASS" in run.stdout
    (state,) = set(re.findall(r"FINGERPRINT state=(\w+)", run.stdout))
    return state, json.loads((out / "result.json").read_text())


def values(out, pattern=""):
    """{(name, array): values by sample} as rank 0 recorded them."""
    trace = read(rank_files(out)[0])
    table = trace.tables["values"]
    samples = {}
    for name, array, sample, value in zip(
        *(table[column].tolist() for column in ("name", "block", "step", "value")), strict=True
    ):
        if re.match(pattern, trace.names[name]):
            series = samples.setdefault((trace.names[name], array), [])
            assert sample == len(series)
            series.append(value)
    return samples


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """(fingerprint, values) of the small problem on one rank, by guarantee."""
    known = {}

    def of(guarantee):
        if guarantee not in known:
            out = tmp_path_factory.mktemp("reference") / "run"
            options = ["--guarantee", guarantee, *(VARIANTS if guarantee == "layout" else [])]
            known[guarantee] = (reductions(1, *options, out=out)[0], values(out))
        return known[guarantee]

    return of


@layouts(1, 3, slow=(2, 8))
@pytest.mark.parametrize("guarantee", ["layout", "exact"])
def test_one_hash_for_any_number_of_ranks(tmp_path, reference, library, size, guarantee):
    options = ["--guarantee", guarantee, *(VARIANTS if guarantee == "layout" else [])]
    by = run_mpi if (size, guarantee) == (3, "layout") else on_ranks
    state, _ = reductions(size, *options, out=tmp_path / "run", library=library, by=by)
    assert (state, values(tmp_path / "run")) == reference(guarantee)


@pytest.mark.slow
def test_the_sum_of_torch_over_blocks_depends_on_neither_ranks_nor_threads(tmp_path):
    pytest.importorskip("torch")
    options = ["--guarantee=layout", "--variant=torch", "--size=300000", "--set=problem.block=100000"]
    runs = {
        reductions(n, *options, f"--threads={threads}", out=tmp_path / f"{n}-{threads}")[0]
        for n, threads in ((1, 1), (1, 3), (2, 2))
    }
    assert len(runs) == 1


@pytest.mark.parametrize(
    "options",
    [
        ["--shuffle-blocks=3"],
        ["--threads=2"],
        ["--check-ranks"],
        ["--trace=off"],
        ["--split=arrays"],
        ["--repeats=2"],
    ],
)
def test_one_hash_for_any_ownership_split_and_number_of_threads(tmp_path, reference, options):
    state, _ = reductions(2, "--guarantee=layout", *VARIANTS, *options, out=tmp_path / "run")
    assert state == reference("layout")[0]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sums_of_narrow_types_are_correctly_rounded_for_any_number_of_ranks(tmp_path, dtype):
    options = ["--guarantee=exact", f"--dtype={dtype}"]
    states = {reductions(n, *options, out=tmp_path / str(n))[0] for n in (1, 3)}
    assert len(states) == 1
    for (name, array), series in values(tmp_path / "3", "sum:exact").items():
        (truth,) = values(tmp_path / "3")[name.replace("sum", "truth"), array]
        assert series == [truth] * 3 and truth == np.float32(truth)


def test_a_run_records_every_sum_once_and_every_timed_call(tmp_path):
    _, result = reductions(2, "--variant=numpy", "--variant=lanes", "--reference=exact", out=tmp_path / "run")
    samples = values(tmp_path / "run")
    labels = ["sum:exact:native", "sum:numpy:numpy", "sum:lanes:native"]
    assert {name for name, _ in samples} == {
        f"{label}:{n}" for label in (*labels, "truth:exact:native") for n in (10, 5000)
    }
    assert {len(series) for (name, _), series in samples.items() if name.startswith("sum")} == {3}
    traces = [read(path) for path in rank_files(tmp_path / "run")]
    assert len(traces[1].tables["values"]["value"]) == 0
    for trace in traces:
        assert trace.attributes["promises"] == dict(zip(labels, ("exact", "run", "run"), strict=True))
        events = trace.tables["events"]
        for label in labels:
            # 10 elements are one block, which rank 0 owns
            for n, calls in ((10, 9 if trace.attributes["rank"] == 0 else 0), (5000, 9)):
                name = f"{label}:{n}"
                rows = events["name"] == (trace.names.index(name) if name in trace.names else -1)
                assert rows.sum() == calls
                assert set(events["step"][rows].tolist()) <= {0, 1, 2}
        assert (events["end"] >= events["start"]).all()
    assert set(result["fom"]) == {"reference_rate"}


def test_emulated_orders_of_arrival_are_those_of_the_samples_and_have_no_time(tmp_path):
    emulated = [
        "--variant=ao",
        "--variant=spa",
        "--size=5000",
        "--set=launch.block=32",
        "--set=launch.items=1",
    ]
    _, result = reductions(1, *emulated, "--samples=50", out=tmp_path / "run")
    (x,) = data.vectors(Problem(distribution="centred", block=512), 1, 2, Parts(5000, 512))
    samples = values(tmp_path / "run")
    shape = {"block": 32, "items": 1}
    for name, parameters in (("ao", {}), ("spa", shape)):
        variant = registry.get("sum", name, "emulated")
        expected = [float(variant(x, seed=sample, **parameters)) for sample in range(50)]
        assert samples[f"sum:{name}:emulated:5000", 2] == expected and len(set(expected)) > 5
    assert (
        samples["sum:sptr:native:5000", 2] == [float(registry.get("sum", "sptr", "native")(x, **shape))] * 50
    )
    trace = read(rank_files(tmp_path / "run")[0])
    timed = {trace.names[name] for name in trace.tables["events"]["name"].tolist()}
    assert "emulate" in timed and not any(":emulated:" in name for name in timed)
    assert result["fom"]["max_abs_vs"]["value"] > 0


def test_truth_is_the_correctly_rounded_sum_and_layout_does_not_depend_on_the_ordering(tmp_path):
    layout = ["--guarantee=layout", "--variant=lanes"]
    reductions(3, *layout, "--allreduce=ring", "--accumulate=exact", out=tmp_path / "run")
    for n in (10, 5000):
        for array in range(3):
            (x,) = data.vectors(Problem(distribution="centred", block=512), 1, array, Parts(n, 512))
            assert values(tmp_path / "run")[f"truth:exact:native:{n}", array] == [fsum(x)]


@pytest.mark.parametrize("guarantee, states", [("layout", 1), ("none", 2)])
def test_sums_over_blocks_depend_on_the_ranks_only_where_blocks_are_theirs(tmp_path, guarantee, states):
    options = ["--variant=lanes", "--arrays=20", f"--guarantee={guarantee}", "--allreduce=block-tree"]
    fingerprints = {
        reductions(n, *options, f"--shuffle-blocks={n - 2}", out=tmp_path / str(n))[0] for n in (2, 4)
    }
    assert len(fingerprints) == states


IN_EXACT = ["--allreduce", "direct", "--accumulate", "exact"]


def test_orderings_differ_where_nothing_is_promised(tmp_path):
    """Else the orderings would not matter here, and the tests of guarantees would prove nothing."""
    states = {
        reductions(4, "--variant=lanes", "--arrays=20", *options, out=tmp_path / options[-1])[0]
        for options in (["--allreduce", "linear"], ["--allreduce", "recursive-doubling"], IN_EXACT)
    }
    assert len(states) == 3


def test_a_recorded_order_of_arrival_is_replayed_bit_for_bit(tmp_path):
    reductions(4, "--variant=lanes", "--allreduce=arrival", out=tmp_path / "recorded")
    reductions(4, "--variant=lanes", "--replay", str(tmp_path / "recorded"), out=tmp_path / "again")
    assert values(tmp_path / "recorded", "sum:lanes") == values(tmp_path / "again", "sum:lanes")


def test_a_flipped_bit_in_the_data_shows_in_every_sum(tmp_path, reference):
    fault = "--fault=bitflip@step=5,block=9,bit=40"  # array 1 of the second size
    state, _ = reductions(2, "--guarantee=layout", *VARIANTS, fault, out=tmp_path / "run")
    assert state != reference("layout")[0]
    for key, series in values(tmp_path / "run").items():
        flipped = key[0].endswith(":5000") and key[1] == 1
        assert (series == reference("layout")[1][key]) == (not flipped)


def test_arrays_dealt_to_ranks_have_the_sums_of_one_rank_in_every_drawn_order(tmp_path):
    """More ranks than arrays in the last round, on the deck of the published study."""
    small = [
        "--deck=paper",
        "--size=10",
        "--size=1000",
        "--arrays=4",
        "--samples=5",
        "--worst",
        "--no-progress",
    ]
    states = {n: reductions(n, out=tmp_path / str(n), small=small)[0] for n in (1, 3)}
    assert states[1] == states[3]
    one, three = values(tmp_path / "1"), values(tmp_path / "3")
    assert (
        one == three and len(one) == 2 * 4 * 8
    )  # sizes, arrays; three variants, truth, two times lowest and highest
    assert len(set(one["sum:ao:emulated:1000", 3])) > 1


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("ranks", [16, 64])
def test_one_hash_for_many_ranks_of_which_some_have_nothing(tmp_path, ranks):
    small = [
        "--size=100",
        "--size=2000",
        "--arrays=2",
        "--samples=1",
        "--set=problem.block=64",
        "--no-progress",
    ]
    states = {
        reductions(n, "--guarantee=layout", *VARIANTS, out=tmp_path / str(n), small=small, timeout=500)[0]
        for n in (1, ranks)
    }
    assert len(states) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--variant=lames"], "unknown sum 'lames'"),
        (["--guarantee=layout", "--variant=omp-atomic"], "promises 'none'"),
        (["--size=0"], r"problem\.sizes must be from 1 to"),
        (["--size=ten"], r"problem\.sizes takes an integer"),
        (["--distribution=cauchy"], "uniform, centred"),
        (["--distribution=ill-conditioned", "--condition=1e300"], "cannot be built"),
        (["--distribution=file", "--file=nowhere.npy"], r"--file nowhere\.npy: cannot be read: No such file"),
        (["--distribution=file", "--file=README.md"], r"--file README\.md: cannot be read"),
        (["--worst", "--variant=ao"], "--worst needs whole arrays on a rank"),
        (
            ["--worst", "--variant=lanes", "--split=arrays"],
            "--worst searches the orders of arrival of ao and spa",
        ),
        (["--dtype=int32"], "float64, float32"),
        (["--operation=product"], "sum, dot"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_created(tmp_path, options, message):
    run = on_ranks(2, ["-m", "miniapps.reductions", *SMALL, *options, "--out", str(tmp_path / "run")])
    assert run.returncode == 2, run.stdout + run.stderr
    assert re.search(message, run.stderr), run.stderr
    assert not (tmp_path / "run").exists()


@libraries
def test_a_file_that_turns_out_to_be_damaged_ends_all_ranks(tmp_path, library):
    """Its header is whole, so that only the rank that reads the damaged part can tell."""
    path, x = tmp_path / "x.h5", np.random.default_rng(1).normal(size=30_000)
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=x, chunks=(1000,), compression="gzip")
        damaged = file["x"].id.get_chunk_info(25)
    with path.open("r+b") as file:
        file.seek(damaged.byte_offset)
        file.write(b"no gzip" * 10)
    options = ["--distribution=file", f"--file={path}:/x", "--variant=lanes", "--set=problem.block=1000"]
    run = run_mpi(3, ["-m", "miniapps.reductions", *options, "--out", str(tmp_path / "run")], library)
    assert run.returncode == 2, run.stdout + run.stderr
    assert re.search(rf"rank 2 of 3, .*--file {path}:/x: damaged: a chunk cannot be unpacked", run.stderr), (
        run.stderr
    )
    assert "VERIFICATION" not in run.stdout


def test_numbers_too_large_for_their_type_end_all_ranks(tmp_path):
    options = ["--distribution=lognormal", "--sigma=5", "--dtype=float16", "--variant=lanes"]
    run = run_mpi(3, ["-m", "miniapps.reductions", *SMALL, *options, "--out", str(tmp_path / "run")])
    assert run.returncode == 2 and "problem.sigma = 5" in run.stderr, run.stderr


@pytest.mark.skipif(not no_cuda(), reason="there is a device")
def test_without_a_device_the_option_is_refused(tmp_path):
    run = on_ranks(1, ["-m", "miniapps.reductions", "--device=cuda", "--out", str(tmp_path / "run")])
    assert run.returncode == 2 and "--device cuda: " in run.stderr, run.stderr
