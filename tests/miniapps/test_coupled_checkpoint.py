"""A checkpoint is believed only if every byte of it, and the trace beside it, say what was written."""

import logging
import os
import shutil
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from mpi4py import MPI

from analysis.divergence.compare import compare
from analysis.load.frames import load
from miniapps.checkpoints.file import read as read_checkpoint
from miniapps.checkpoints.restart import compare_with_trace
from miniapps.coupled import APP, restart
from miniapps.coupled.checkpoint import KIND, Shapes, save_checkpoint, weights
from miniapps.coupled.physics import HALO
from miniapps.coupled.state import State, problem_of
from miniapps.errors import RunError, UsageError
from miniapps.layout import fields
from miniapps.layout.blocks import Blocks
from miniapps.runner.main import main
from miniapps.untrusted import Refused
from miniapps.untrusted.sealed import write_sealed
from tests.miniapps.coupled_model import configured

GRID = {"grid.nx": 24, "grid.ny": 16, "grid.bx": 8, "grid.by": 8, "closure.channels": 2}
SEED, STEP = 1, 2


class Network:
    """What a checkpoint needs of the surrogate, without torch."""

    def state(self):
        arrays = {name: np.full(79, 0.5, np.float32) for name in ("theta", "first_moment", "second_moment")}
        return arrays | {"steps": np.array([1])}


def config_of(**more):
    return configured(GRID | {"closure.kind": "surrogate"} | more)


@pytest.fixture
def checkpoint(tmp_path):
    """A checkpoint of step 2 with fields drawn at random, in a directory without a trace."""
    blocks = Blocks(16, 24, 8, 8)
    state = State.at_rest(blocks)
    rng = np.random.default_rng(1)
    for field in (state.zeta, state.psi, state.slope, state.curvature):
        field[...] = rng.standard_normal(field.shape)
    state.step, state.time, state.last_dt = STEP, 0.25, 0.125
    ctx = SimpleNamespace(
        comm=MPI.COMM_SELF, rank=0, config=config_of(), seed=SEED, repeat=0, out=tmp_path / "run", tracer=None
    )
    ctx.out.mkdir()
    ctx.directory = lambda: ctx.out
    ctx.extend_chain = lambda hashed: ""
    save_checkpoint(ctx, blocks, state, Network())
    return ctx.out / "checkpoints" / "repeat-0-step-000002.h5"


def rewritten(path, change, name="changed.h5"):
    """A copy of the checkpoint beside it, `change(h5py.File)` made to it, sealed again."""
    target = path.with_name(name)
    with h5py.File(path) as source:
        attributes = dict(source.attrs)
        arrays = {key: dataset[...] for key, dataset in source.items()}

    def fill(file):
        file.attrs.update(attributes)
        for key, array in arrays.items():
            file[key] = array
        change(file)

    write_sealed(target, fill)
    return target


def anew(file):
    """Make the stored fingerprint that of the arrays, as someone who knows the format would."""
    arrays = {key: dataset[...] for key, dataset in file.items()}
    kind = "surrogate" if "surrogate.theta" in arrays else "none"
    print_ = KIND.fingerprint(Shapes(nx=24, ny=16, bx=8, by=8, kind=kind, channels=2), arrays)
    file.attrs["fingerprint"] = np.bytes_(print_.encode())


def refused(path, config=None, seed=SEED):
    """The one sentence with which `path` is refused by --restart."""
    with pytest.raises(UsageError) as caught:
        restart.verify(str(path), config or config_of(), seed)
    sentence = str(caught.value)
    assert sentence.startswith("--restart ") and str(path) in sentence and "\n" not in sentence
    return sentence


# ---- the file


def test_what_was_written_is_read(checkpoint):
    contents = restart.verify(str(checkpoint), config_of(), SEED)
    assert (contents.head.step, contents.head.time, contents.head.last_dt) == (STEP, 0.25, 0.125)
    assert contents.options == problem_of(config_of())
    assert sorted(weights(contents)) == ["first_moment", "second_moment", "steps", "theta"]
    with h5py.File(checkpoint) as file:
        assert file["zeta"][...].tobytes() == contents.arrays["zeta"].tobytes()


def test_every_flipped_byte_and_every_cut_is_refused(checkpoint):
    image, rng = checkpoint.read_bytes(), np.random.default_rng(2)
    target = checkpoint.with_name("flipped.h5")
    places = [*range(0, 110, 3), *rng.integers(0, len(image), 300).tolist()]
    for place in places:
        other = bytearray(image)
        other[place] ^= int(rng.integers(1, 256))
        target.write_bytes(other)
        with pytest.raises(Refused, match="damaged") as caught:
            read_checkpoint(target, KIND)
        assert str(target) in str(caught.value) and "\n" not in str(caught.value)
    for length in [0, 1, 12, 511, 512, 513, *rng.integers(0, len(image), 20).tolist()]:
        target.write_bytes(image[:length])
        with pytest.raises(Refused, match="damaged"):
            read_checkpoint(target, KIND)


def attribute(**values):
    def change(file):
        for key, value in values.items():
            if value is None:
                del file.attrs[key]
            else:
                file.attrs[key] = np.bytes_(value.encode()) if isinstance(value, str) else value

    return change


def in_a_heap(file):
    file.attrs["app"] = "coupled"  # text of variable length


def option(key, value):
    return attribute(**{f"config.{key}": value})


def replaced(name, make):
    def change(file):
        del file[name]
        make(file, name)

    return change


def number(name, place, value):
    def change(file):
        file[name][place] = value
        anew(file)

    return change


def external(file, name):
    file.create_dataset(name, (16, 24), "f8", external=[("/etc/hostname", 0, 8 * 16 * 24)])


def virtual(file, name):
    layout = h5py.VirtualLayout((16, 24), "f8")
    layout[...] = h5py.VirtualSource("outside.h5", "zeta", (16, 24))
    file.create_virtual_dataset(name, layout)


def sized(shape, dtype="f8", **more):
    return lambda file, name: file.create_dataset(name, shape, dtype, **more)


CHANGES = {
    "step below zero": (attribute(step=-5), "step"),
    "step beyond every run": (attribute(step=10**9), "raise --steps"),
    "step beyond int32": (attribute(step=2**31), "step"),
    "step that is no integer": (attribute(step=2.0), "step"),
    "step 0 at a later time": (attribute(step=0), "is impossible"),
    "time not a number": (attribute(time=np.nan), "is impossible"),
    "time infinite": (attribute(time=np.inf), "is impossible"),
    "time below zero": (attribute(time=-1.0), "is impossible"),
    "dt longer than time": (attribute(last_dt=0.5), "is impossible"),
    "dt below zero": (attribute(last_dt=-0.5), "is impossible"),
    "no schema": (attribute(schema=None), "schema"),
    "older schema": (attribute(schema=1), "schema"),
    "newer schema": (attribute(schema=99), "newer version (schema 99, known up to 2)"),
    "another format": (attribute(format="fpna-snapshot"), "not a checkpoint of coupled"),
    "another app": (attribute(app="solver"), "not a checkpoint of coupled"),
    "no format": (attribute(format=None), "not a checkpoint of coupled"),
    "no seed": (attribute(seed=None), "seed"),
    "another seed": (attribute(seed=3), "seed = 3 there, 1 here"),
    "an attribute more": (attribute(more=1), "more"),
    "a fingerprint of another state": (attribute(fingerprint="0" * 32), "do not have the fingerprint"),
    "no fingerprint": (attribute(fingerprint="xyz"), "fingerprint"),
    "no such grid": (option("grid.nx", None), "grid.nx"),
    "grid of nothing": (option("grid.by", 0), "grid.by"),
    "grid as text": (option("grid.nx", "24"), "grid.nx"),
    "grid of another size": (option("grid.nx", 48), "zeta has shape (16, 24)"),
    "blocks that do not fit": (option("grid.bx", 7), "cannot be cut"),
    "a network of another size": (option("closure.channels", 3), "surrogate.theta has shape (79,)"),
    "an option as a list": (option("flow.drag", [0.1, 0.2]), "flow.drag"),
    "another option": (option("flow.drag", 0.1), "flow.drag = 0.1 there, 0.05 here"),
    "an unknown option": (option("flow.magic", 7), "flow.magic = 7 there, unknown here"),
    "an option less": (option("flow.drag", None), "flow.drag = unknown there"),
    "text that a terminal obeys": (option("flow.initial", "\x1b[31m"), "\\x1b[31m there"),
    "text in a heap": (in_a_heap, "app is text of variable length"),
    "a group more": (lambda file: file.create_group("extra"), "extra"),
    "a dataset more": (lambda file: file.create_dataset("extra", (2,), "f8"), "extra"),
    "a dataset less": (lambda file: file.__delitem__("psi"), "it holds curvature, slope"),
    "a group for a field": (replaced("psi", lambda file, name: file.create_group(name)), "damaged"),
    "a huge field": (replaced("psi", sized((2**20, 2**20), chunks=(16, 24))), "claims 8,796,093,022,208"),
    "another shape": (replaced("psi", sized((24, 16))), "psi has shape (24, 16)"),
    "another number of axes": (replaced("psi", sized((16 * 24,))), "1 axes"),
    "single precision": (replaced("psi", sized((16, 24), "f4")), "float32"),
    "another byte order": (replaced("psi", sized((16, 24), ">f8")), ">f8"),
    "text for numbers": (replaced("psi", sized((16, 24), "S8")), "plain numbers"),
    "another filter": (replaced("psi", sized((16, 24), compression="lzf")), "filter"),
    "external storage": (replaced("psi", external), "in another file"),
    "virtual dataset": (replaced("psi", virtual), "in another file"),
    "external link": (
        replaced("psi", lambda file, name: file.__setitem__(name, h5py.ExternalLink("/etc/x.h5", "psi"))),
        "is a link, which may lead to another file",
    ),
    "soft link": (
        replaced("psi", lambda file, name: file.__setitem__(name, h5py.SoftLink("/zeta"))),
        "is a link, which may lead to another file",
    ),
    "NaN in the vorticity": (number("zeta", (3, 4), np.nan), "zeta[3, 4] = nan is not finite"),
    "infinity in a derivative": (number("slope", (0, 1), np.inf), "slope[0, 1] = inf is not finite"),
    "NaN in the weights": (number("surrogate.theta", 5, np.nan), "surrogate.theta[5] = nan"),
    "a square below zero": (number("surrogate.second_moment", 7, -1), "no mean of squares"),
    "optimiser before its start": (number("surrogate.steps", 0, -1), "no number of steps"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_sealed_file_that_none_of_ours_could_be_is_refused(checkpoint, change):
    make, reason = CHANGES[change]
    assert reason in refused(rewritten(checkpoint, make))


def test_another_number_in_the_state_is_told_by_its_fingerprint(checkpoint):
    def change(file):
        file["psi"][7, 7] += 1e-16

    with h5py.File(checkpoint) as file:
        assert file["psi"][7, 7] + 1e-16 != file["psi"][7, 7]
    assert "do not have the fingerprint" in refused(rewritten(checkpoint, change))


@pytest.mark.parametrize("name", ["repeat-0-step-000003.h5", "repeat-1-step-000002.h5"])
def test_a_name_that_says_another_step_or_repeat_is_refused(checkpoint, name):
    shutil.copy(checkpoint, checkpoint.with_name(name))
    assert "which its name contradicts" in refused(checkpoint.with_name(name))


def sparse(path):
    with open(path, "wb") as file:
        file.truncate(40 * 2**30)


def without_seal(path):
    with h5py.File(path, "w") as file:
        file.attrs.update(format="fpna-checkpoint", schema=1, app="coupled")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (os.mkdir, "is a directory"),
        (os.mkfifo, "is a fifo"),
        (sparse, "42,949,672,960 bytes"),
        (without_seal, "without a seal, such as a checkpoint of schema 1"),
        (lambda path: path.write_text("no checkpoint"), "does not begin with the line `fpna-file 1"),
        (lambda path: path.symlink_to("/dev/zero"), "is a device"),
        (lambda path: path.symlink_to(path), "it cannot be read"),
        (lambda path: None, "it cannot be read: No such file or directory; give one of RUN/checkpoints/*.h5"),
    ],
)
def test_what_is_no_file_of_ours_is_refused_without_reading_it(tmp_path, make, reason):
    make(tmp_path / "given.h5")
    assert reason in refused(tmp_path / "given.h5")


def test_a_path_that_cannot_be_is_refused():
    with pytest.raises(UsageError, match="it cannot be read"):
        restart.verify("a\0b", config_of(), SEED)


def test_a_link_that_the_user_typed_is_followed(checkpoint, tmp_path):
    (tmp_path / "latest.h5").symlink_to(checkpoint)
    assert restart.verify(str(tmp_path / "latest.h5"), config_of(), SEED).head.step == STEP


def test_a_run_that_ends_before_the_checkpoint_is_refused(checkpoint):
    assert "raise --steps" in refused(checkpoint, config_of(**{"time.steps": 1}))
    restart.verify(
        str(checkpoint), config_of(**{"time.steps": STEP}), SEED
    )  # nothing to do, but the end is known


def test_weights_are_taken_from_another_flow_but_not_from_a_damaged_file(checkpoint):
    other = {"grid.nx": 64, "flow.drag": 0.5, "closure.weights": str(checkpoint)}
    assert weights(restart.verify_weights(config_of(**other)))["theta"].shape == (79,)
    with pytest.raises(UsageError, match=r"closure\.channels = 2 there, 3 here"):
        restart.verify_weights(config_of(**other, **{"closure.channels": 3}))
    image = bytearray(checkpoint.read_bytes())
    image[-1] ^= 1
    checkpoint.write_bytes(image)
    with pytest.raises(UsageError, match=r"--weights .*damaged"):
        restart.verify_weights(config_of(**other))


# ---- writing


def arrays():
    return {"zeta": np.zeros((2, 2))}


def test_files_are_written_only_into_the_directory_of_the_run(tmp_path):
    run, outside = tmp_path / "run", tmp_path / "outside"
    with pytest.raises(RunError, match=r"checkpoints/x\.h5: cannot be written: No such file or directory"):
        fields.save(run, "checkpoints/x.h5", {}, arrays())
    assert not run.exists()
    run.mkdir(), outside.mkdir()
    (run / "checkpoints").symlink_to(outside)
    with pytest.raises(RunError, match="checkpoints is a symbolic link"):
        fields.save(run, "checkpoints/x.h5", {}, arrays())
    assert not list(outside.iterdir())


def test_a_link_in_place_of_a_file_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "outside").write_text("mine")
    for name in ("x.h5", "x.h5.partial"):
        (tmp_path / name).symlink_to(tmp_path / "outside")
    fields.save(tmp_path, "x.h5", {"format": "fpna-solution"}, arrays())
    assert (tmp_path / "outside").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside", "x.h5"]
    with h5py.File(tmp_path / "x.h5") as file:
        assert file["zeta"].shape == (2, 2) and file.attrs["format"] == b"fpna-solution"


# ---- the trace beside it


OPTIONS = [f"--set={key}={value}" for key, value in GRID.items()] + [
    "--steps=3", "--closure=none", "--no-progress"
]  # fmt: skip


def launched(out, *more):
    """The exit code of a run in this process."""
    return main(APP, [*OPTIONS, f"--out={out}", *more], MPI.COMM_SELF)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """RUN, whole, with checkpoints of steps 1, 2 and 3; not to be changed."""
    out = tmp_path_factory.mktemp("recorded") / "run"
    assert launched(out, "--checkpoint-every=1") == 0
    return out


@pytest.fixture
def run(recorded, tmp_path):
    """A copy of it."""
    return shutil.copytree(recorded, tmp_path / "run")


def compared(path):
    return compare_with_trace(str(path), read_checkpoint(path, KIND))


def at(run, step):
    return run / "checkpoints" / f"repeat-0-step-{step:06d}.h5"


def test_a_restart_is_compared_with_the_trace_and_ends_as_the_straight_run(run, tmp_path, capsys):
    assert launched(tmp_path / "straight") == 0
    straight = capsys.readouterr().out
    assert launched(tmp_path / "restarted", f"--restart={at(run, 2)}") == 0
    streams = capsys.readouterr()
    lines = [
        [x for x in text.splitlines() if x.startswith("FINGERPRINT")] for text in (straight, streams.out)
    ]
    assert lines[0] == lines[1] and len(lines[0]) == 1
    assert (
        f"restart from {at(run, 2)}: complete, and equal to the trace of {run} (12 fingerprints)"
        in streams.err
    )
    assert lines[0] == [f"FINGERPRINT state={read_checkpoint(at(run, 3), KIND).head.fingerprint}"]
    frames = load([tmp_path / "straight", tmp_path / "restarted"])
    assert compare(frames, ("straight", 0), ("restarted", 0)).equal
    iterations = frames.values[
        (frames.values["name"] == "decision:cg_iterations") & (frames.values["step"] == 3)
    ]
    first, second = (same["value"].tolist() for _, same in iterations.groupby("run", observed=True))
    assert first == second and len(first) == 3


def test_a_run_until_a_step_is_part_of_the_whole_and_is_continued_from_there(run, tmp_path, capsys):
    assert launched(tmp_path / "part", "--until=2", "--checkpoint-every=2") == 0
    assert launched(tmp_path / "rest", f"--restart={at(tmp_path / 'part', 2)}") == 0
    frames = load([run, tmp_path / "part", tmp_path / "rest"])
    assert frames.runs["problem"].nunique() == 1
    assert frames.runs.set_index("run")["last_step"].to_dict() == {"part": 3, "rest": 4, "run": 4}
    divergence = compare(frames, ("run", 0), ("part", 0))
    assert divergence.equal and divergence.recordings == ("over steps 0..2",) and divergence.through == 3
    assert compare(frames, ("run", 0), ("rest", 0)).equal
    capsys.readouterr()
    for message, refused_ in (
        ("--until 4: this problem has 3 steps (time.steps); choose 0 to 3", ["--until=4"]),
        ("of step 2, and this run ends with step 1; raise --until", ["--until=1", f"--restart={at(run, 2)}"]),
    ):
        assert launched(tmp_path / "refused", *refused_) == 2
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("field", "place", "block", "name"), [("zeta", (9, 23), 5, "vorticity"), ("psi", (0, 8), 1, "streamfunction")]
)  # fmt: skip
def test_a_forged_checkpoint_contradicts_the_trace(run, tmp_path, capsys, field, place, block, name):
    def change(file):
        file[field][place] += 1.0
        anew(file)

    forged = rewritten(at(run, 2), change)
    os.replace(forged, at(run, 2))
    with pytest.raises(UsageError, match=rf"step 3, {name}, block {block} has other bits there \(1 of 12 "):
        compared(at(run, 2))
    assert launched(tmp_path / "second", f"--restart={at(run, 2)}") == 2
    message = capsys.readouterr().err
    assert message.count("contradicts the trace") == 1 and len(message.splitlines()) == 1
    assert not (tmp_path / "second").exists()


def test_a_checkpoint_of_another_run_contradicts_the_trace(run, tmp_path):
    other = tmp_path / "other"
    assert launched(other, "--checkpoint-every=1", "--fault=bitflip@step=1,block=4") == 0
    shutil.copy(at(other, 2), at(run, 2))
    with pytest.raises(UsageError, match="step 3, vorticity, block 0"):
        compared(at(run, 2))


def test_a_fault_that_was_injected_after_the_checkpoint_contradicts_nothing(tmp_path):
    assert launched(tmp_path / "run", "--checkpoint-every=1", "--fault=bitflip@step=3,block=4") == 0
    agreed, remark = compared(at(tmp_path / "run", 2))
    assert not agreed and "has injected faults" in remark and "only its own hashes" in remark
    agreed, remark = compared(at(tmp_path / "run", 1))
    assert agreed and "12 fingerprints" in remark


def test_without_a_trace_of_the_step_only_its_own_hashes_are_checked(run, tmp_path):
    shutil.copy(at(run, 2), tmp_path / "alone.h5")
    agreed, remark = compared(tmp_path / "alone.h5")
    assert agreed and "only its own hashes were checked" in remark and "not in RUN/checkpoints" in remark
    agreed, remark = compared(rewritten(at(run, 2), attribute(repeat=5)))
    assert agreed and "has no fingerprints of step 3" in remark
    (run / "rank-00000.h5").unlink()
    agreed, remark = compared(at(run, 2))
    assert not agreed and "only its own hashes were checked" in remark and "cannot be used" in remark


def test_a_damaged_trace_refuses_no_checkpoint(run, tmp_path, capsys):
    trace = run / "rank-00000.h5"
    trace.write_bytes(trace.read_bytes()[:-100])
    agreed, remark = compared(at(run, 2))
    assert not agreed and "cannot be used" in remark and "\n" not in remark
    assert launched(tmp_path / "second", f"--restart={at(run, 2)}") == 0
    assert "WARNING: restart from" in capsys.readouterr().err


def test_a_checkpoint_that_changes_after_it_was_checked_is_refused(run):
    config = configured(GRID | {"closure.kind": "none", "output.restart": str(at(run, 2))})
    restart.check_restart(config, SEED)
    image = bytearray(at(run, 2).read_bytes())
    image[-9] ^= 4
    at(run, 2).write_bytes(image)
    blocks = Blocks(16, 24, 8, 8)
    state = State.at_rest(blocks)
    ctx = SimpleNamespace(comm=MPI.COMM_SELF, rank=0, config=config, seed=SEED, log=logging.getLogger())
    with pytest.raises(UsageError, match="another hash"):
        restart.load_checkpoint(ctx, blocks, state, None)
    assert state.step == 0 and not state.zeta[:, HALO:, HALO:].any()
