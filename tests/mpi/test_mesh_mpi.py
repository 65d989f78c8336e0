"""Training over a mesh: one hash whatever the mesh, checkpoints for any mesh, faults named by node and block."""

import json
import re

import pytest

from analysis.divergence.compare import compare
from analysis.load.frames import load
from analysis.runs import ids
from miniapps.trace import read_run
from miniapps.trace.head import label_of
from miniapps.untrusted.program import read_program
from tests.launch import either_library, run_python
from tests.mpi.sectioned import PROGRAMS
from tests.ranks import on_ranks

GPT = ["--model", "gpt", "--data", "text", "--axes", "batch,heads,ff", "--batch", "8", "--set", "training.micro=2",
       "--set", "model.tokens=16", "--set", "model.hidden=16", "--set", "model.layers=1", "--optimiser", "adam",
       "--rate", "0.001", "--steps", "4"]  # fmt: skip
BLOBS = ["--data", "blobs", "--batch", "32", "--set", "training.micro=4", "--rate", "0.01", "--steps", "3"]  # fmt: skip
UNET = ["--model", "unet", "--axes", "batch,rows,columns", *BLOBS, "--set", "model.channels=4"]
MOE = ["--model", "moe", "--axes", "batch,experts", *BLOBS, "--set", "model.hidden=16"]
MLP = ["--model", "mlp", "--axes", "batch,hidden", *BLOBS, "--set", "model.hidden=16"]


def training(n, *options, out, library="mpich", by=on_ranks):
    """Run on n ranks under `layout`; fails the test unless it ends with 0. The fingerprint."""
    argv = ["-m", "miniapps.mesh", "--guarantee", "layout", "--no-progress", *options, "--out", str(out)]
    run = by(n, argv, library, timeout=240)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "VERIFICATION: PASS" in run.stdout
    (found,) = re.findall(r"FINGERPRINT state=(\w+)", run.stdout)
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run of GPT on one rank, with checkpoints and all that passes: (fingerprint, directory)."""
    out = tmp_path_factory.mktemp("whole") / "run"
    return training(1, *GPT, "--record", "messages", "--checkpoint-every", "2", out=out), out


MESHES = [
    (3, "dp", "data=3", ()),
    (4, "dp+tp", "data=2,model=2", ("--shuffle-blocks", "5")),
    (2, "tp", "model=2", ("--threads", "2")),
    (4, "tp", "model=4", ("--no-fuse",)),
]


@pytest.mark.parametrize("n, recipe, mesh, more", MESHES)
def test_one_hash_on_every_mesh(tmp_path, whole, n, recipe, mesh, more):
    out = tmp_path / "run"
    assert training(n, *GPT, "--recipe", recipe, "--mesh", mesh, *more, out=out) == whole[0]


@either_library
def test_any_ordering_adds_exactly_and_is_the_one_of_the_plan(tmp_path, library):
    """Under `exact` bits follow neither ordering nor mesh; the trace has the reductions that were priced."""
    exact = ["--guarantee", "exact"]
    hashes = {
        training(n, *MLP, *exact, *how, out=tmp_path / f"{n}", library=library)
        for n, how in (
            (1, ()),
            (2, ("--allreduce", "ring", "--accumulate", "exact")),
            (4, ("--allreduce", "rabenseifner", "--accumulate", "exact", "--recipe", "dp+tp", "--mesh",
                 "data=2,model=2")),
        )
    }  # fmt: skip
    assert len(hashes) == 1
    saved = tmp_path / "plan.json"
    ring = [*MLP, "--guarantee", "run", "--allreduce", "ring"]
    training(2, *ring, out=tmp_path / "ring", library=library)
    told = on_ranks(2, ["-m", "miniapps.mesh", *ring, "--save-plan", str(saved)], library, timeout=240)
    assert told.returncode == 0, told.stdout + told.stderr
    (trace, *_) = read_run(tmp_path / "ring")
    ran = {label_of(each) for each in trace.attributes["reductions"].values()}
    assert (
        ran == {wait.label for wait in read_program(saved).classes[0].waits if wait.elements > 1} == {"ring"}
    )


def test_auto_is_the_mesh_that_is_priced_the_fastest_on_all_ranks(tmp_path):
    plans = "mlp features=64 width=16 samples=32 batch=8 classes=10 ranks=2 guarantee=layout"
    what = [word for part in ("programs", "collectives", "noise") for word in ("--what", part)]
    few = [
        "-m",
        "miniapps.calibrate",
        "--budget",
        "0",
        *what,
        "--plan",
        plans,
        "--programs",
        "40",
        "--no-progress",
    ]
    run = on_ranks(2, [*few, "--out", str(tmp_path / "cal")], timeout=240)
    assert run.returncode == 0, run.stdout + run.stderr
    one = ["--model", "mlp", *BLOBS, "--set", "model.hidden=16"]
    found = training(2, *one, "--mesh", "auto", "--calibration", str(tmp_path / "cal"), out=tmp_path / "auto")
    chosen = [trace.attributes["config"]["mesh"] for trace in read_run(tmp_path / "auto")]
    assert chosen[0] == chosen[1] and chosen[0]["mesh"].endswith("=2")
    again = ["--recipe", chosen[0]["recipe"], "--mesh", chosen[0]["mesh"]]
    assert training(2, *one, *again, out=tmp_path / "again") == found


WORDS = [*GPT, "--axes", "batch,heads,ff,tokens,vocabulary"]


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """The fingerprint of GPT with cut tokens and vocabulary, on one rank."""
    return training(1, *WORDS, out=tmp_path_factory.mktemp("words") / "run")


@pytest.mark.parametrize(
    "n, recipe, mesh, more",
    [
        (3, "sp", "sequence=3", ("--shuffle-blocks", "3")),
        (4, "dp+tp+vocabulary", "data=2,model=2", ()),
        pytest.param(2, "tp+vocabulary", "model=2", ("--threads", "2"), marks=pytest.mark.slow),
        pytest.param(
            4, "tp+sp", "model=2,sequence=2", ("--set", "mesh.shapes=padded"), marks=pytest.mark.slow
        ),
        pytest.param(4, "dp+sp", "data=2,sequence=2", ("--no-fuse",), marks=pytest.mark.slow),
    ],
)
def test_cut_tokens_and_vocabulary_have_one_hash(tmp_path, words, n, recipe, mesh, more):
    argv = [*WORDS, "--recipe", recipe, "--mesh", mesh, *more]
    assert training(n, *argv, out=tmp_path / "run") == words


@pytest.mark.slow
def test_cut_tokens_and_vocabulary_have_one_hash_by_the_other_library(tmp_path, words):
    argv = [*WORDS, "--recipe", "sp", "--mesh", "sequence=2"]
    assert training(2, *argv, out=tmp_path / "run", library="openmpi") == words


NORMS = [*GPT, "--axes", "batch,heads,ff,norms"]


@pytest.fixture(scope="module")
def norms(tmp_path_factory):
    """The fingerprint of GPT with tokens cut between its products, on one rank."""
    return training(1, *NORMS, out=tmp_path_factory.mktemp("norms") / "run")


@pytest.mark.parametrize(
    "n, recipe, mesh, library, more",
    [
        (2, "tp+norms", "model=2", "mpich", ("--overlap", "rings")),
        (4, "dp+tp+norms", "data=2,model=2", "mpich", ("--shuffle-blocks", "3")),
        pytest.param(3, "tp+norms", "model=3", "mpich", ("--no-fuse",), marks=pytest.mark.slow),
        pytest.param(4, "tp+norms", "model=4", "openmpi", (), marks=pytest.mark.slow),
    ],
)
def test_cut_norms_have_one_hash(tmp_path, norms, n, recipe, mesh, library, more):
    argv = [*NORMS, "--recipe", recipe, "--mesh", mesh, *more]
    assert training(n, *argv, out=tmp_path / "run", library=library) == norms


@pytest.mark.slow
def test_one_hash_by_the_other_library(tmp_path, whole):
    mesh = ["--recipe", "dp+tp", "--mesh", "data=3,model=1"]
    assert training(3, *GPT, *mesh, out=tmp_path / "run", library="openmpi") == whole[0]


@pytest.mark.parametrize(
    "model, recipe, mesh, one",
    [
        pytest.param(UNET, "spatial", "rows=2,columns=2", "rows=1,columns=1", marks=pytest.mark.slow),
        (MOE, "expert", "data=4", "data=1"),
        pytest.param(MLP, "dp+tp", "data=2,model=2", "data=1,model=1", marks=pytest.mark.slow),
    ],
    ids=["unet", "moe", "mlp"],
)
def test_every_model_has_one_hash(tmp_path, model, recipe, mesh, one):
    found = {
        training(n, *model, "--recipe", recipe, "--mesh", over, out=tmp_path / str(n))
        for n, over in ((1, one), (4, mesh))
    }
    assert len(found) == 1


def test_dropout_has_one_hash_on_every_mesh_and_after_a_restart(tmp_path):
    more = [*GPT, "--set", "model.dropout=0.1", "--set", "seeds.dropout=7"]
    mesh = ["--recipe", "dp+tp", "--mesh", "data=2,model=2"]
    alone = training(1, *more, "--checkpoint-every", "2", out=tmp_path / "1")
    assert training(3, *more, "--mesh", "data=3", out=tmp_path / "3") == alone
    assert training(2, *more, "--recipe", "tp", "--mesh", "model=2", out=tmp_path / "2") == alone
    checkpoint = tmp_path / "1" / "checkpoints" / "repeat-0-step-000002.h5"
    assert training(4, *more, *mesh, "--restart", str(checkpoint), out=tmp_path / "4") == alone
    other = [word.replace("seeds.dropout=7", "seeds.dropout=8") for word in more]
    assert training(4, *other, *mesh, out=tmp_path / "8") != alone


def test_dropped_tokens_are_counted_in_the_trace_on_every_mesh(tmp_path):
    """With the smallest queues, so that most tokens are dropped; second choices are drawn."""
    names = ("dropped_first", "dropped_second", "skipped_second")
    more = [*MOE, "--recipe", "expert", "--set", "model.capacity=0.5"]
    found = []
    for n in (1, 3):
        training(n, *more, "--mesh", f"data={n}", out=tmp_path / str(n))
        frames = load([tmp_path / str(n)])
        values = frames.of("values", *ids(frames.runs)[0])
        found.append([values[values["name"] == name].sort_values("step")["value"].tolist() for name in names])
    first, second, skipped = found[0]
    assert found[0] == found[1] and [len(each) for each in found[0]] == [3, 3, 3]
    assert all(0 < a < 32 and 0 < b <= 32 for a, b in zip(first, second, strict=True)) and sum(skipped) >= 0


@pytest.mark.parametrize("name", ["int8", "int4:inner=int8,group=3"])
def test_a_lossy_wire_has_one_hash_on_every_mesh(tmp_path, whole, name):
    wire = ["--wire", name]
    alone = training(1, *GPT, *wire, out=tmp_path / "1")
    assert alone != whole[0]
    for n, *more in (
        (2, "--recipe", "tp", "--mesh", "model=2", "--no-fuse"),
        (3, "--mesh", "data=3", "--shapes", "padded"),
        (4, "--recipe", "dp+tp", "--mesh", "data=2,model=2", "--shuffle-blocks", "5"),
    ):
        assert training(n, *GPT, *wire, *more, out=tmp_path / str(n)) == alone
    (trace,) = read_run(tmp_path / "3", ranks=[0])
    wires = {facts["wire"] for facts in trace.attributes["reductions"].values()}
    assert wires == {name, "as is"}  # the count of targets travels as it is


def test_utilisation_is_recorded_by_step(whole):
    from analysis.studies.utilisation.runs import used
    from analysis.studies.utilisation.study import sections, sentences, tables

    known = used(load([whole[1]]))
    (row,) = known.runs.to_dict("records")
    assert row["flops"] == int(on_ranks(1, [PROGRAMS / "model_flops.py"]).stdout)  # a rank has loaded torch
    assert 0 < row["least"] <= row["utilisation"] <= row["most"] and row["of_processor_time"] > 0
    assert (row["steps"], row["ranks"], row["guarantee"]) == (4, 1, "layout")
    assert "on 1 rank: utilisation" in sentences(known)[0]
    assert len(tables(known)) == 1
    (shown,) = sections(known)
    (figure,), (_, stages) = shown.figures, [table for _, table in shown.tables]
    assert figure.title.endswith(", over data=1") and "blocks.0" in figure.svg
    assert [row[1] for row in stages.rows][-1] == "loss, 21 gradients" and len(figure.data) == len(
        stages.rows
    )


def test_a_checkpoint_continues_on_another_mesh(tmp_path, whole):
    checkpoint = whole[1] / "checkpoints" / "repeat-0-step-000002.h5"
    mesh = ["--recipe", "dp+tp", "--mesh", "data=2,model=2", "--restart", str(checkpoint)]
    assert training(4, *GPT, *mesh, out=tmp_path / "run") == whole[0]


def test_running_means_continue_too_and_the_hash_stays(tmp_path):
    more = ["--recipe", "spatial", "--checkpoint-every", "1"]
    alone = training(1, *UNET, *more, "--mesh", "rows=1", out=tmp_path / "a")
    first, last = (tmp_path / "a" / "checkpoints" / f"repeat-0-step-00000{step}.h5" for step in (1, 3))
    assert training(3, *UNET, *more, "--mesh", "rows=3", "--restart", str(first), out=tmp_path / "b") == alone
    again = tmp_path / "b" / "checkpoints" / last.name
    run = run_python(["-c", _SAME_BUFFERS, str(last), str(again)])
    assert run.returncode == 0, run.stdout + run.stderr


_SAME_BUFFERS = """
import sys, h5py
a, b = (h5py.File(path) for path in sys.argv[1:])
names = []
a.visititems(lambda name, x: names.append(name) if isinstance(x, h5py.Dataset) and "buffer." in name else None)
assert len(names) == 12, names
assert all(a[name][()].tobytes() == b[name][()].tobytes() for name in names)
"""


def test_a_fault_in_a_node_is_named_across_meshes(tmp_path, whole):
    fault = ["--record", "messages", "--fault", "kernel-bit@step=3,block=2,call=7,bit=20"]
    training(2, *GPT, "--recipe", "dp", "--mesh", "data=2", *fault, out=tmp_path / "faulty")
    frames = load([whole[1], tmp_path / "faulty"])
    sound, faulty = ids(frames.runs)
    found = compare(frames, sound, faulty).fingerprint
    assert found is not None and found.name.startswith("node:")
    assert (found.step, found.block, found.rank_b) == (3, 2, 1)


def test_the_trace_has_regions_of_nodes_and_collectives(whole, tmp_path):
    training(2, *GPT, "--recipe", "tp", "--mesh", "model=2", out=tmp_path / "run")
    frames = load([tmp_path / "run"])
    (run,) = ids(frames.runs)
    regions = set(frames.of("events", *run)["name"])
    assert any(name.startswith("node.") for name in regions)
    assert any(name.startswith("allreduce.") for name in regions)


def test_wrong_meshes_are_refused_in_a_sentence():
    for options, reason in (
        (["--mesh", "data=3"], r"--mesh data=3: 3 ranks, but the run has 2"),
        (["--mesh", "data"], r"is not NAME=VALUE"),
        (["--recipe", "spatial"], r"recipe of gpt"),
        (["--axes", "rows"], r"axis"),
        (["--map", "batch=other"], r"no axis other"),
        (["--data", "blobs"], r"--model gpt cannot learn --data blobs"),
        (["--wire", "packed"], r"as is or over a lossy wire"),
        (["--guarantee", "layout", "--wire", "fp8:hops=every"], r"leave hops=every out"),
        (["--wire", "fp9"], r"wire"),
        (["--guarantee", "layout", "--policy", "fastest"], r"--policy fastest decides by a clock"),
        (["--set", "model.heads=3"], r"model.heads = 3"),
        (["--set", "training.micro=8"], r"at most 1 ranks have work"),
        (["--blocks", "batch=9"], r"cannot be cut into 9 blocks"),
    ):
        run = on_ranks(2, ["-m", "miniapps.mesh", *GPT, *options], "mpich", timeout=100)
        assert run.returncode == 2, (options, run.stdout + run.stderr)
        assert re.search(reason, run.stderr + run.stdout), (options, run.stderr)


def test_result_has_the_figures(whole):
    figures = json.loads((whole[1] / "result.json").read_text())
    assert "test_loss" in json.dumps(figures)
