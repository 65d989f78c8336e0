"""Pipelines: one hash on any number of ranks along the stages, under every schedule; no schedule blocks."""

import re

import pytest

from tests.launch import LIBRARIES
from tests.mpi.test_partition_mpi import PROGRAM, hashes
from tests.ranks import on_ranks

GPT = "batch,heads,ff,stage/layers=4,samples=8,batch=2,micro_batches=4,tokens=8,width=16,feedforward=16"
SAME = GPT.replace(",stage/", "/")  # the same problem without stages
BERT = "batch,stage/layers=3,samples=12,batch=2,micro_batches=3,tokens=8,width=16,feedforward=16"
MLP = "batch,hidden,stage/samples=12,batch=2,micro_batches=3"
SCHEDULES = ("gpipe", "1f1b", "circular")
STAGES = ["s=1:stage", *(f"s={p}:stage//{schedule}" for p in (2, 3, 4) for schedule in SCHEDULES)]
WITH = [
    "d=2:batch,s=2:stage",
    "s=2:stage,m=2:heads+ff//circular",
    "s=4:stage/3/gpipe",
    "s=3:stage/5/circular",
]


def found(name, problem, meshes, level="layout", ranks=4, **options):
    """The hashes of a problem on some meshes."""
    return set(hashes(name, meshes, level, ranks=ranks, axes=problem, **options).values())


def test_gpt_has_one_hash_on_any_number_of_ranks_under_every_schedule():
    """Also with data and model axes, with stages of shuffled owners, and without stages."""
    one = found("gpt", GPT, [*STAGES, *WITH])
    assert len(one) == 1
    assert found("gpt", SAME, ["d=1:batch", "d=2:batch,m=2:heads+ff"]) == one


@pytest.mark.parametrize(
    "name, problem, meshes",
    [("bert", BERT, ["s=1:stage", "d=2:batch,s=2:stage", "s=3:stage//circular"]),
     ("mlp", MLP, ["s=1:stage", "s=3:stage//gpipe", "d=2:batch,s=2:stage", "s=2:stage,h=2:hidden"])],
)  # fmt: skip
def test_other_models_have_one_hash(name, problem, meshes):
    assert len(found(name, problem, meshes)) == 1


def test_cut_norms_have_one_hash_on_any_number_of_stages():
    problem = GPT.replace("stage", "norms,stage")
    meshes = [
        "s=1:stage",
        "m=2:heads+ff+norms,s=2:stage",
        "m=3:heads+ff+norms/5",
        "s=3:stage,d=1:batch//gpipe",
    ]
    assert len(found("gpt", problem, meshes)) == 1
    assert (
        len(found("gpt", problem, ["m=2:heads+ff+norms,s=2:stage//circular", "s=2:stage"], library="openmpi"))
        == 1
    )


def test_the_other_library_has_the_same_hash():
    meshes = ["s=1:stage", "s=3:stage", "s=2:stage//circular", "s=2:stage//gpipe"]
    by = [found("mlp", MLP, meshes, ranks=3, library=library) for library in LIBRARIES]
    assert len(set.union(*by)) == 1


@pytest.mark.slow
def test_three_axes_at_once_with_both_libraries():
    meshes = [
        "d=2:batch,m=2:heads+ff,s=2:stage",
        "s=4:stage,d=2:batch/4/circular",
        "m=4:heads+ff,s=2:stage//gpipe",
    ]
    assert found("gpt", GPT, meshes, ranks=8) == found("gpt", GPT, ["s=1:stage"])
    few = ["s=3:stage", "s=2:stage//circular"]
    assert found("gpt", GPT, few, ranks=3, library=LIBRARIES[1]) == found("gpt", GPT, ["s=1:stage"])


def test_exact_has_one_hash_and_padding_does_not_show():
    assert len(found("mlp", MLP, ["s=1:stage", "d=2:batch,s=2:stage", "s=3:stage"], "exact")) == 1
    padded = found("mlp", MLP, ["s=2:stage,h=2:hidden", "d=2:batch,s=2:stage"], shapes="padded")
    assert padded == found("mlp", MLP, ["s=1:stage"])


@pytest.mark.parametrize("level", ["none", "run"])
def test_stages_change_no_bit_without_a_guarantee_of_layout(level):
    """Stages move whole operations, so they change bits under no guarantee; cutting samples does."""
    assert len(found("mlp", MLP, ["s=1:stage", "s=3:stage", "s=2:stage//circular"], level)) == 1
    assert len(found("mlp", MLP, ["s=1:stage", "d=2:batch,s=2:stage"], level)) == 2


@pytest.mark.parametrize("micro", [1, 2, *(pytest.param(n, marks=pytest.mark.slow) for n in (5, 7))])
def test_no_schedule_blocks_whatever_the_micro_batches(micro):
    """Fewer and more micro-batches than ranks, and numbers that the ranks do not divide."""
    problem = f"stage/layers=4,samples={2 * micro},micro_batches={micro},tokens=4,width=8,feedforward=8,ff=4,batch=1"
    meshes = [
        f"s={p}:stage/{seed}/{how}"
        for p in (2, 3, 4)
        for seed in (0, 7)
        for how in ("gpipe", "1f1b", "circular")
    ]
    assert len(found("gpt", problem, meshes, timeout=120)) == 1


@pytest.mark.parametrize("network", ["tied", "skipping"])
def test_layers_may_share_parameters_and_read_values_of_any_layer(network):
    """So several stages add their gradients of one parameter, and values pass to other stages than the next."""
    run = on_ranks(4, [PROGRAM.with_name("networks.py"), network])
    assert run.returncode == 0, run.stdout + run.stderr
    lines = [line.split() for line in run.stdout.splitlines()]
    assert len(lines) == 6 and len({digest for _, digest, _ in lines}) == 1
    assert all(float(error) < 1e-5 for *_, error in lines)


def test_a_step_sends_what_explain_counts():
    meshes = ["s=4:stage", "s=2:stage//circular", "d=2:batch,s=2:stage//gpipe"]
    run = on_ranks(4, [PROGRAM.with_name("partition_bytes.py"), "gpt", GPT, *meshes])
    assert run.returncode == 0, run.stderr
    lines = [line.split() for line in run.stdout.splitlines()]
    assert [mesh for mesh, *_ in lines] == meshes
    assert lines[0][1] == lines[0][2] and lines[1][1] == lines[1][2]  # without all-reduces
    assert all(int(sent) > 0 for _, _, sent in lines)


def test_micro_batches_share_the_memory_of_reductions():
    """Rank 0 prints the bytes of the buffers of its reductions."""
    sizes = "layers=2,batch=2,tokens=16,width=32,samples={},micro_batches={}"
    found = [
        on_ranks(2, [PROGRAM.with_name("reduction_buffers.py"), f"heads,ff/{sizes.format(4 * parts, parts)}"])
        for parts in (2, 6)
    ]
    assert all(run.returncode == 0 for run in found), found[0].stderr
    (two,), (six,) = (run.stdout.split() for run in found)
    assert int(two) == int(six) > 0


TRAINING = ["--model", "gpt", "--data", "text", "--axes", "batch,heads,ff,stage", "--batch", "8", "--optimiser", "adam",
            "--set", "training.micro=2", "--set", "model.tokens=16", "--set", "model.hidden=16", "--set",
            "model.layers=3", "--rate", "0.001", "--steps", "3", "--micro-batches", "2"]  # fmt: skip


def trained(n, *options, out):
    """The fingerprint of a run of the application `mesh`, and what it prints."""
    argv = [
        "-m",
        "miniapps.mesh",
        "--guarantee",
        "layout",
        "--no-progress",
        *TRAINING,
        *options,
        "--out",
        str(out),
    ]
    run = on_ranks(n, argv, timeout=240)
    assert run.returncode == 0, run.stdout + run.stderr
    return re.findall(r"FINGERPRINT state=(\w+)", run.stdout), run.stdout


def test_mesh_trains_a_pipeline_and_continues_it_on_another(tmp_path):
    alone, _ = trained(1, "--recipe", "dp", "--mesh", "data=1", "--checkpoint-every", "1", out=tmp_path / "a")
    first, printed = trained(
        2, "--recipe", "pp", "--mesh", "stage=2", "--checkpoint-every", "1", "--record", "messages",
        out=tmp_path / "b",
    )  # fmt: skip
    assert first == alone
    (measured,), (predicted,) = (
        re.findall(rf"FOM {name}=(\S+) %", printed) for name in ("bubble", "predicted_bubble")
    )
    assert (
        0 < float(measured) < 100 and 30 < float(predicted) < 40
    )  # one of three ranks' passes, and uneven stages
    checkpoint = tmp_path / "b" / "checkpoints" / "repeat-0-step-000001.h5"
    more = ["--restart", str(checkpoint), "--schedule", "circular", "--recipe", "dp+pp"]
    assert trained(4, *more, "--mesh", "data=2,stage=2", out=tmp_path / "c")[0] == alone
    back = ["--restart", str(tmp_path / "a" / "checkpoints" / checkpoint.name), "--recipe", "pp"]
    assert trained(3, *back, "--mesh", "stage=3", out=tmp_path / "d")[0] == alone


def test_wrong_pipelines_are_refused_in_a_sentence_on_all_ranks():
    for options, reason in (
        (["--mesh", "stage=2", "--blocks", "stage=4"], r"stage = 4: the model has 3 layers"),
        (["--mesh", "stage=2", "--blocks", "stage=1"], r"at most 1 ranks have work"),
        (["--mesh", "stage=2", "--micro-batches", "3"], r"not 3 micro-batches of whole blocks"),
        (["--mesh", "stage=2", "--schedule", "zigzag"], r"schedule"),
        (["--mesh", "data=2", "--map", "batch=data,stage=data"], r"data carries stage and batch"),
        (["--mesh", "stage=2", "--fault", "kernel-bit@step=1,block=0,call=3,bit=2"], r"different operations"),
        (["--model", "unet", "--data", "blobs", "--axes", "batch", "--mesh", "data=2"], r"all samples of a step at"),
    ):  # fmt: skip
        run = on_ranks(2, ["-m", "miniapps.mesh", *TRAINING, *options], timeout=100)
        assert run.returncode == 2, (options, run.stdout + run.stderr)
        assert re.search(reason, run.stderr + run.stdout), (options, run.stderr)
