"""A fault that has nothing to strike is refused before a run creates anything, by every application."""

import pytest
from mpi4py import MPI

from jobs import applications
from miniapps.runner.main import main

COUPLED = "--closure none --steps 2 --set grid.nx=16 --set grid.ny=16 --set grid.bx=8 --set grid.by=8"
SOLVER = "--nx 8 --ny 8 --nz 8 --set grid.bx=4 --set grid.by=4 --set grid.bz=4 --right-side random --max-iterations 40"
TRAINING = "--data blobs --model mlp --steps 2 --batch 64 --set training.micro=16 --set training.calls=block"
DLRM = "--data zipf --steps 2 --batch 64 --set training.micro=16 --tables 2 --rows 64"
MESH = "--data blobs --model mlp --mesh data=1 --steps 2 --batch 32 --set training.micro=8"
REDUCTIONS = "--size 1000 --size 20000 --set problem.block=4096 --set problem.arrays=2 --set method.samples=2"

# Of each application the last place of each kind of fault: (arguments, fault with {} as the block, blocks).
LAST = {
    "coupled": (COUPLED, [("bitflip@step=2,block={},index=63,bit=63", 4), ("kernel-bit@step=1,block={}", 4),
                          ("seed@block={}", 4)]),
    "coupled members": (f"{COUPLED} --ensemble 2", [("bitflip@step=1,block={}", 8), ("kernel-bit@step=1,block={}", 8),
                                                    ("seed@block={}", 8)]),
    "solver": (SOLVER, [("bitflip@step=1,block={},index=63,bit=5", 8), ("kernel-bit@step=1,block={}", 8),
                        ("seed@block={}", 8)]),
    "training": (TRAINING, [("bitflip@step=2,block={},index=1", 6), ("kernel-bit@step=1,block={},call=5", 4)]),
    "dlrm": (DLRM, [("bitflip@step=2,block={}", 10)]),
    "mesh": (MESH, [("bitflip@step=2,block={},index=1", 6)]),
    "reductions": (REDUCTIONS, [("bitflip@step=2,block={},index=999", 1), ("bitflip@step=4,block={}", 5)]),
}  # fmt: skip


def check(name, arguments, fault, ranks=1):
    """What the application says of the fault before a run."""
    applications.check(name.split()[0], [*arguments.split(), "--fault", fault], ranks)


SLOW = ("mesh",)  # which torch exports


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in LAST])
def test_the_last_place_is_struck_and_one_more_is_refused(name, tmp_path, capsys):
    arguments, faults = LAST[name]
    argv = [*arguments.split(), "--out", str(tmp_path / "run"), "--no-progress"]
    for fault, count in faults:
        argv += ["--fault", fault.format(count - 1)]
        with pytest.raises(
            applications.Refusal, match=rf"no rank has a block {count}; the run has {count}, from 0 on"
        ):
            check(name, arguments, fault.format(count))
    app = applications.app(name.split()[0])
    assert main(app, argv, MPI.COMM_SELF) in (0, 3)  # a sum, or a solution, that is no number fails its check
    printed = capsys.readouterr().err
    assert "never struck" not in printed and "--fault" not in printed


@pytest.mark.parametrize(
    ("name", "arguments", "fault", "said"),
    [
        ("coupled", COUPLED, "nan@step=3,block=0", "the run has no step 3; its steps are 1 to 2"),
        ("coupled", COUPLED, "kill@step=0,rank=0", "the run has no step 0; its steps are 1 to 2"),
        ("coupled", COUPLED, "swap-order@step=4,rank=0,other=1", "the run has no step 4"),
        ("coupled", COUPLED, "nan@step=1,block=0,index=64", "index 64: block 0 has 64 elements, from 0 on"),
        ("coupled", COUPLED, "bitflip@step=1,block=0,bit=64", "bit 64: its numbers have the bits 0 to 63"),
        ("coupled", f"{COUPLED} --set flow.initial=decaying --set flow.forcing=0 --set flow.drag=0", "seed@block=0",
         "coupled has no block that seed could strike"),
        ("solver", SOLVER, "slow@step=41,rank=1,factor=2", "the run has no step 41; its steps are 0 to 40"),
        ("solver", f"{SOLVER} --dtype float32", "bitflip@step=1,block=0,bit=32", "the bits 0 to 31"),
        ("solver", SOLVER.replace("random", "ones"), "seed@block=0", "solver has no block that seed could strike"),
        ("training", TRAINING, "seed@block=0", "training has no block that seed could strike"),
        ("training", TRAINING, "kernel-bit@step=1,block=0,call=6", "training has no block that kernel-bit"),
        ("training", TRAINING, "lost-halo@step=1,rank=0", "training exchanges no halos; choose another kind of fault"),
        ("reductions", REDUCTIONS, "bitflip@step=1,block=1", "no rank has a block 1; the run has 1, from 0 on"),
        ("reductions", REDUCTIONS, "raise@step=5,rank=1", "the run has no step 5; its steps are 1 to 4"),
        ("inference", "--data blobs --requests 5", "nan@step=1,block=0", "inference has no block that nan"),
        ("inference", "--data blobs --requests 5", "raise@step=4,rank=0", "its steps are 1 to 3"),
        ("operations", "", "seed@block=0", "operations has no block that seed"),
        ("calibrate", "", "kernel-bit@step=1,block=0", "calibrate has no block that kernel-bit"),
        ("calibrate", "", "raise@step=0,rank=0", "the run has no step 0; its steps are from 1 on"),
        ("coupled", COUPLED, "kill@step=1,rank=2", "rank 2 of a run with 2 ranks"),
        ("coupled", COUPLED, "kill@step=1,rank=0,repeat=1", "repeat 1 of a run with 1 repeats"),
    ],
)  # fmt: skip
def test_what_the_run_has_not_is_refused_in_one_sentence(name, arguments, fault, said):
    with pytest.raises(applications.Refusal) as refused:
        check(name, arguments, fault, 2)
    assert str(refused.value).startswith(f"--fault {fault}: ") and said in str(refused.value)


@pytest.mark.parametrize("fault", ["nan@step=1,block=99", "raise@step=99,rank=0"])
def test_nothing_is_created(fault, tmp_path, capsys):
    argv = [*COUPLED.split(), "--out", str(tmp_path / "run"), "--fault", fault]
    assert main(applications.app("coupled"), argv, MPI.COMM_SELF) == 2
    assert "99" in capsys.readouterr().err and not (tmp_path / "run").exists()


def test_trials_of_wires_may_take_more_steps_than_the_problem_has():
    argv = f"{TRAINING} --policy cautious --seconds 5"
    check("training", argv, "raise@step=3,rank=0")
