"""Training keeps its guarantees under real MPI, and says what is wrong when something is."""

import json
import re

import h5py
import numpy as np
import pytest

from analysis.divergence.compare import compare
from analysis.load.frames import load
from analysis.studies.learning.runs import trainings
from miniapps.trace import read
from tests.launch import run_mpi, run_python
from tests.mpi.sectioned import layouts
from tests.ranks import on_ranks

SMALL = ["--data", "blobs", "--set", "model.hidden=32", "--batch", "128",
         "--set", "training.micro=16", "--set", "training.bucket=4096", "--steps", "6", "--no-progress"]  # fmt: skip
LAYOUT = ["--guarantee", "layout"]
MORE = (["--threads", "2"], ["--check-ranks"])  # which change no bit either
MODELS = {
    "mlp": ["--model", "mlp"],
    "cnn": ["--model", "cnn", "--set", "model.channels=4", "--set", "model.channels=8"],
}


def training(n, *options, out, library="mpich", by=on_ranks):
    """Run the small problem on n ranks; fails the test unless it ends with 0. Returns (fingerprints, result)."""
    argv = ["-m", "miniapps.training", *SMALL, *options, "--out", str(out)]
    run = by(n, argv, library, timeout=240)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "VERIFICATION: PASS" in run.stdout
    return re.findall(r"FINGERPRINT state=(\w+)", run.stdout), json.loads((out / "result.json").read_text())


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Fingerprint on one rank under `layout`, by model."""
    known = {}

    def of(model):
        if model not in known:
            out = tmp_path_factory.mktemp("reference") / "run"
            known[model] = training(1, *LAYOUT, *MODELS[model], out=out)[0][0]
        return known[model]

    return of


@pytest.mark.parametrize("model", MODELS)
@layouts(3, slow=(2, 8), others=(), slow_others=(3,))
def test_one_hash_for_any_number_of_ranks(tmp_path, reference, library, size, model):
    prints, _ = training(size, *LAYOUT, *MODELS[model], out=tmp_path / "run", library=library)
    assert prints == [reference(model)]


@pytest.mark.parametrize(
    "options", [["--record", "messages"], ["--duplicate", "0.5"]], ids=["recorded", "duplicated"]
)
def test_calls_for_single_micro_batches_have_the_hash_of_calls_for_many(tmp_path, reference, options):
    prints, _ = training(3, *LAYOUT, *MODELS["mlp"], *options, out=tmp_path / "run")
    assert prints == [reference("mlp")]


@pytest.mark.parametrize("aggregate", ["sorted", "emulated"])
def test_a_graph_has_one_hash_and_one_answer_for_any_number_of_ranks(tmp_path, aggregate):
    prints = set()
    for n in (1, 3):
        argv = ["-m", "miniapps.training", "--deck", "graphsage", *LAYOUT]
        argv += [
            "--aggregate",
            aggregate,
            "--set",
            "model.hidden=8",
            "--steps",
            "2",
            "--out",
            str(tmp_path / f"{n}"),
        ]
        run = on_ranks(n, argv, "mpich", timeout=240)
        assert run.returncode == 0, run.stdout + run.stderr
        prints |= set(re.findall(r"FINGERPRINT state=(\w+)", run.stdout))
    assert len(prints) == 1
    assert compare(load([tmp_path / "1", tmp_path / "3"]), ("1", 0), ("3", 0)).equal


@pytest.mark.parametrize(
    "options",
    [["--shuffle-blocks", "3"], ["--no-overlap"], *(pytest.param(x, marks=pytest.mark.slow) for x in MORE)],
)
def test_one_hash_for_any_ownership_overlap_and_number_of_threads(tmp_path, reference, options):
    prints, _ = training(2, *LAYOUT, *MODELS["cnn"], *options, out=tmp_path / "run")
    assert prints == [reference("cnn")]


@pytest.mark.parametrize(
    "means",
    [
        ["--allreduce", "block-tree"],
        pytest.param(["--allreduce", "direct", "--accumulate", "exact"], marks=pytest.mark.slow),
    ],
    ids=["tree", "exact"],
)
def test_buckets_change_no_bit_where_sums_do_not_depend_on_the_vector(tmp_path, means):
    prints = set()
    for number, (ranks, more) in enumerate(
        [(1, []), (3, ["--shuffle-blocks", "5"])],
    ):
        for bucket in (1024, 2**20):
            out = tmp_path / f"{number}-{bucket}"
            options = [*LAYOUT, *means, *more, "--set", f"training.bucket={bucket}"]
            prints |= set(training(ranks, *options, out=out)[0])
    assert len(prints) == 1


def test_without_a_guarantee_the_number_of_ranks_shows(tmp_path):
    """Else the guarantee would not matter here, and the tests above would prove nothing."""
    prints = {training(n, out=tmp_path / str(n))[0][0] for n in (1, 2, 3)}
    assert len(prints) == 3


WIRES = {  # on so many ranks
    "fp8": (3,),
    "table:n=4,feedback=on": (2,),
    "int4:rotate=on": (4,),
    "int4:rotate=on,inner=int8,group=2": (3,),
}
MORE_WIRES = (
    "float16",
    "bfloat16",
    "e4m3:scale=tensor",
    "e5m2",
    "int8",
    "int16",
    "table:n=2",
    "sign:feedback=on",
)


@pytest.mark.parametrize(
    ("wire", "ranks"),
    [*WIRES.items(), *(pytest.param(wire, (3, 8), marks=pytest.mark.slow) for wire in MORE_WIRES)],
)
def test_one_hash_over_a_wire_that_loses_something_which_is_another(tmp_path, reference, wire, ranks):
    prints = set(training(1, *LAYOUT, "--wire", wire, out=tmp_path / "1")[0])
    for size in ranks:
        for n, more in enumerate((["--shuffle-blocks", "3"], ["--no-overlap"])[: len(ranks)]):
            prints |= set(training(size, *LAYOUT, "--wire", wire, *more, out=tmp_path / f"{size}-{n}")[0])
    assert len(prints) == 1 and prints != {reference("mlp")}


@pytest.mark.slow
@pytest.mark.parametrize("wire", ["fp8", "sign:feedback=on"])
def test_both_mpi_libraries_have_one_hash_over_a_wire(tmp_path, wire):
    prints = set()
    for library in ("mpich", "openmpi"):
        prints |= set(training(3, *LAYOUT, "--wire", wire, out=tmp_path / library, library=library)[0])
    assert len(prints) == 1


def test_dividing_by_a_power_of_two_moves_no_bit_but_where_a_wire_ends(tmp_path, reference):
    """At 128 images nothing is rounded; divided, gradients are below the least number of fp8."""
    before = [*LAYOUT, "--divide", "before"]
    assert training(2, *before, out=tmp_path / "plain")[0] == [reference("mlp")]
    prints = [
        training(2, *more, "--wire", "fp8", out=tmp_path / str(n))[0]
        for n, more in enumerate((before, LAYOUT))
    ]
    assert prints[0] != prints[1]


# ---- policies

TIMED = ["--steps", "400", "--evaluate-every", "0", "--policy", "cautious"]


def decided(run):
    """[(step, name, block, choice)] of a run."""
    trace = read(run / "rank-00000.h5")
    table = trace.tables["choices"]
    columns = [table[key].tolist() for key in ("step", "name", "block", "choice")]
    return [(step, trace.names[n], block, trace.names[c]) for step, n, block, c in zip(*columns, strict=True)]


def measured(run, prefix):
    """{(step, name, block): value} of those values whose name begins so."""
    trace = read(run / "rank-00000.h5")
    table = trace.tables["values"]
    columns = [table[key].tolist() for key in ("step", "name", "block", "value")]
    rows = ((step, trace.names[n], block, value) for step, n, block, value in zip(*columns, strict=True))
    return {row[:3]: row[3] for row in rows if row[1].startswith(prefix)}


@pytest.mark.parametrize(
    "options",
    [
        ["--policy", "fastest"],
        [*TIMED, "--seconds", "0.6", "--candidates", "float32 sign:feedback=on fp8"],
        pytest.param([*TIMED[:-1], "adaprec", "--seconds", "0.6"], marks=pytest.mark.slow),
        ["--seconds", "0.3", "--steps", "100000", "--wire", "fp8"],
    ],
    ids=["fastest", "cautious", "adaprec", "seconds"],
)
def test_what_a_clock_decided_is_replayed_bit_for_bit(tmp_path, options):
    recorded, again = tmp_path / "recorded", tmp_path / "again"
    prints, _ = training(2, *options, out=recorded)
    assert training(2, *options, "--replay", str(recorded), out=again)[0] == prints
    assert decided(recorded) == decided(again) != []
    assert compare(load([recorded, again]), ("recorded", 0), ("again", 0)).equal


def test_a_policy_tries_every_wire_from_one_state_and_goes_on_from_a_trial(tmp_path):
    training(2, *TIMED, "--seconds", "2", "--candidates", "float32 fp8", out=tmp_path / "run")
    chosen = [(name, choice) for _, name, _, choice in decided(tmp_path / "run") if name != "task"]
    assert chosen[:6] == [
        ("begin", "beginning"), ("wire", "float32"), ("end", "trial float32"),
        ("begin", "beginning"), ("wire", "fp8"), ("end", "trial fp8"),
    ]  # fmt: skip
    assert chosen[6][1].removeprefix("trial ") == chosen[7][1]
    assert chosen[-1] == ("wire", "nothing")
    assert trainings(load([tmp_path / "run"])).runs["line"].tolist() == ["cautious"]
    trace = read(tmp_path / "run" / "rank-00000.h5")
    trials = {
        step for step, name, _, choice in decided(tmp_path / "run") if name == "end" and "trial" in choice
    }
    events = trace.tables["events"]
    speculated = events["step"][events["name"] == trace.names.index("speculate")].tolist()
    assert len(speculated) >= len(trials) and {step + 1 for step in trials} <= set(speculated)


def test_a_policy_steps_back_from_a_gradient_that_is_no_number(tmp_path):
    struck = [*TIMED, "--seconds", "2", "--candidates", "float32 fp8", "--fault", "nan@step=1,block=2"]
    _, result = training(2, *struck, out=tmp_path / "run")
    assert result["fom"]["accuracy"]["value"] > 0.3
    begins = [choice for _, name, _, choice in decided(tmp_path / "run") if name == "begin"]
    assert begins[2] == "trial fp8"


def test_the_wires_of_lgreco_keep_the_guarantee(tmp_path):
    options = [*LAYOUT, "--policy", "lgreco", "--wire", "table:n=4"]
    prints, choices = set(), []
    for ranks, more in ((1, []), (3, ["--shuffle-blocks", "3"])):
        prints |= set(training(ranks, *options, *more, out=tmp_path / str(ranks))[0])
        choices.append(decided(tmp_path / str(ranks)))
    assert len(prints) == 1 and choices[0] == choices[1]
    assert [row[:3] for row in choices[0]] == [(0, "lgreco", 0), (0, "lgreco", 2)]


def test_what_a_wire_does_to_gradients_does_not_depend_on_the_number_of_ranks(tmp_path):
    seen = []
    for ranks, more in ((1, []), (3, ["--shuffle-blocks", "3"])):
        out = tmp_path / str(ranks)
        training(ranks, *LAYOUT, "--wire", "table:n=2", "--evaluate-every", "3", *more, out=out)
        seen.append(measured(out, "wire_"))
    assert seen[0] == seen[1] and {step for step, _, _ in seen[0]} == {3, 7}
    assert 0.2 < seen[0][7, "wire_error", 0] < 1 > seen[0][7, "wire_cosine", 0] > 0.7
    assert seen[0][7, "wire_error", 1] == 0 and seen[0][7, "wire_length", 1] == 1  # a bias is as it was


def test_under_run_repeats_on_one_layout_agree(tmp_path):
    prints, _ = training(3, "--guarantee", "run", "--repeats", "2", out=tmp_path / "run")
    assert len(prints) == 2 and len(set(prints)) == 1


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_restarted_run_ends_with_the_bits_of_the_straight_one(tmp_path, ranks):
    dropping = [*LAYOUT, "--set", "model.dropout=0.25"]
    straight = tmp_path / "straight"
    expected, _ = training(2, *dropping, "--checkpoint-every", "3", out=straight)
    checkpoint = straight / "checkpoints" / "repeat-0-step-000003.h5"
    options = ["--restart", str(checkpoint), "--log-all-ranks"]
    prints, _ = training(ranks, *dropping, *options, out=tmp_path / "restarted")
    assert prints == expected
    log = (tmp_path / "restarted" / "rank-00000.log").read_text()
    assert f"{checkpoint}: complete, and equal to the trace of {straight} (6 fingerprints)" in log
    assert compare(load([straight, tmp_path / "restarted"]), ("straight", 0), ("restarted", 0)).equal


@pytest.mark.parametrize("ranks", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_what_feedback_keeps_goes_through_a_checkpoint_to_any_number_of_ranks(tmp_path, ranks):
    wire = [*LAYOUT, "--wire", "sign:feedback=on"]
    straight = tmp_path / "straight"
    expected, _ = training(2, *wire, "--shuffle-blocks", "3", "--checkpoint-every", "3", out=straight)
    checkpoint = straight / "checkpoints" / "repeat-0-step-000003.h5"
    assert training(ranks, *wire, "--restart", str(checkpoint), out=tmp_path / "rest")[0] == expected
    with h5py.File(checkpoint) as file:
        lost, of_total = (file[f"{name}hidden1.weight"][...] for name in ("lost.", "lost of total."))
    assert lost.shape == (8, 32, 64) and of_total.shape == (32, 64)
    assert all(np.any(row) for row in lost) and np.any(of_total)


def test_what_each_rank_keeps_is_refused_on_other_ranks_and_over_another_wire(tmp_path):
    run = ["--guarantee", "run", "--checkpoint-every", "3"]
    training(2, *run, "--wire", "sign:feedback=on", out=tmp_path / "run")
    checkpoint = tmp_path / "run" / "checkpoints" / "repeat-0-step-000003.h5"
    for ranks, wire, reason in (
        (1, "sign:feedback=on", "feedback.rows = 2 there, 1 here"),
        (2, "fp8:feedback=on", "feedback.wire = sign:feedback=on there, fp8:feedback=on here"),
        (2, "fp8", "feedback.rows"),
    ):
        options = [*SMALL, *run, "--wire", wire, "--restart", str(checkpoint), "--out", str(tmp_path / "no")]
        refused = on_ranks(ranks, ["-m", "miniapps.training", *options])
        assert refused.returncode == 2 and reason in refused.stderr, refused.stderr


def test_a_run_until_a_step_is_continued_from_there(tmp_path, reference):
    part = tmp_path / "part"
    training(2, *LAYOUT, "--until", "4", "--checkpoint-every", "4", out=part)
    rest = ["--restart", str(part / "checkpoints" / "repeat-0-step-000004.h5")]
    assert training(3, *LAYOUT, *rest, out=tmp_path / "rest")[0] == [reference("mlp")]


def test_a_recorded_order_of_arrival_is_replayed_bit_for_bit(tmp_path):
    recorded, _ = training(4, "--allreduce", "arrival", out=tmp_path / "recorded")
    assert training(4, "--replay", str(tmp_path / "recorded"), out=tmp_path / "again")[0] == recorded


def test_a_flipped_bit_is_found_in_the_tensor_it_struck(tmp_path):
    training(2, *LAYOUT, out=tmp_path / "good")
    training(3, *LAYOUT, "--fault", "bitflip@step=4,block=2,bit=20", out=tmp_path / "bad")
    run = run_python(["-m", "analysis", "divergence", str(tmp_path / "good"), str(tmp_path / "bad")])
    assert run.returncode == 3 and "first at step 4, weights, block 2" in run.stdout, run.stdout + run.stderr


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_gradient_that_is_not_finite_ends_the_run_and_is_named(tmp_path, ranks):
    options = [*LAYOUT, "--fault", "nan@step=4,block=2", "--out", str(tmp_path / "run")]
    run = run_mpi(ranks, ["-m", "miniapps.training", *SMALL, *options])
    assert run.returncode == 1
    assert re.search(
        r"step 4: the gradient of output\.bias in micro-batch 0 \(rank 0\) is not finite", run.stderr
    ), run.stderr
    trace = read(tmp_path / "run" / "rank-00000.h5")
    assert not trace.complete and trace.tables["fingerprints"]["step"].max() == 4


def test_more_ranks_than_micro_batches_are_refused_in_one_sentence(tmp_path):
    options = ["--data", "blobs", "--batch", "64", "--out", str(tmp_path / "run")]
    run = on_ranks(3, ["-m", "miniapps.training", *options])
    assert run.returncode == 2 and "3 ranks for 2 micro-batches of 32 samples" in run.stderr, run.stderr
    assert not (tmp_path / "run").exists()


def test_every_region_of_a_step_is_in_the_trace(tmp_path):
    training(2, *LAYOUT, "--evaluate-every", "3", out=tmp_path / "run", by=run_mpi)
    trace = read(tmp_path / "run" / "rank-00000.h5")
    assert {"gradient", "update", "evaluate", "allreduce.bucket0", "allreduce.bucket1"} <= set(trace.names)
    values = trace.tables["values"]
    steps = {
        name: values["step"][values["name"] == trace.names.index(name)].tolist()
        for name in ("loss", "accuracy")
    }
    assert steps == {"loss": [1, 2, 3, 4, 5, 6], "accuracy": [3, 7]}


# ---- workers that learn alone

LOCAL = [*LAYOUT, *MODELS["mlp"], "--local-steps", "3", "--steps", "7", "--wire", "int4:rotate=on"]


@layouts(3, slow=(2, 4, 8), others=(2,), slow_others=())
def test_workers_have_one_hash_on_any_number_of_ranks(tmp_path, library, size):
    alone, result = training(1, *LOCAL, out=tmp_path / "alone")
    prints, other = training(size, *LOCAL, "--shuffle-blocks", "2", out=tmp_path / "run", library=library)
    assert prints == alone and other["fom"]["accuracy"] == result["fom"]["accuracy"]
