"""Training on a graph: fields hold what logits take, blocks add up to the whole, and what does not fit is refused."""

import json

import numpy as np
import pytest
import torch
from mpi4py import MPI

from miniapps.learning.gradients.network import aligned
from miniapps.learning.weights import initial
from miniapps.runner.main import main
from miniapps.trace import read
from miniapps.training import APP
from miniapps.training.config import Model
from miniapps.training.graphs import cora
from miniapps.training.graphs.fields import GraphNetwork, Use
from miniapps.training.graphs.neighbours import Neighbours
from miniapps.training.models import graphsage

NODES, FEATURES, HIDDEN = 40, 12, 6


def graph(seed=1):
    """Nodes with 0 to 5 neighbours; node 7 has none."""
    rng = np.random.default_rng(seed)
    near = [np.sort(rng.choice(NODES, rng.integers(0, 6), replace=False)) for _ in range(NODES)]
    near[7] = near[7][:0]
    starts = np.concatenate([[0], np.cumsum([len(n) for n in near])]).astype(np.int32)
    features = rng.standard_normal((NODES, FEATURES)).astype(np.float32)
    return cora.Graph(features, starts, np.concatenate(near).astype(np.int32))


def sage(given, aggregate="sorted", seed=1):
    shapes = graphsage.MODEL.shapes(Model(hidden=HIDDEN), FEATURES)
    weights = [aligned(shape, np.float32) for shape in shapes.values()]
    for array, drawn in zip(weights, initial(shapes, 3), strict=True):
        array[...] = drawn + np.float32(
            0.1
        )  # no bias of 0, or a node of which all is dropped has no direction
    return GraphNetwork(graphsage.forward, weights, NODES, given, aggregate, seed), weights


def logits(network, weights, nodes):
    with torch.inference_mode():
        field = network.field(nodes, Use.INFERENCE)
        return graphsage.forward([torch.from_numpy(w) for w in weights], field).numpy()


def by_dense_matrices(given, weights):
    """The definition in float64."""
    adjacent = np.zeros((NODES, NODES))
    for v in range(NODES):
        near = given.neighbours[given.starts[v] : given.starts[v + 1]]
        adjacent[v, near] = 1 / max(len(near), 1)

    def layer(x, of_neighbours, of_own, bias):
        y = adjacent @ x @ of_neighbours.T + bias + x @ of_own.T
        return y / np.maximum(np.linalg.norm(y, axis=1, keepdims=True), 1e-12)

    wide = [w.astype(float) for w in weights]
    return layer(np.maximum(layer(given.features.astype(float), *wide[:3]), 0), *wide[3:])


@pytest.mark.parametrize("aggregate", ["sorted", "exact", "atomic", "emulated"])
def test_logits_are_those_of_the_definition_for_any_nodes(aggregate):
    given = graph()
    network, weights = sage(given, aggregate)
    expected = by_dense_matrices(given, weights)
    for nodes in (np.arange(NODES), np.array([9, 3, 7]), np.array([7])):
        np.testing.assert_allclose(logits(network, weights, nodes), expected[nodes], rtol=0, atol=3e-6)


def test_gradients_of_blocks_add_up_to_that_of_all_nodes():
    network, weights = sage(graph())
    nodes, labels = np.arange(0, NODES, 2), np.arange(0, NODES, 2) % 7
    mask = (np.random.default_rng(1).random((NODES, HIDDEN)) < 0.5).astype(np.float32) * 2

    def gradient(part):
        taken = {}
        network.loss(nodes[part], labels[part], mask, lambda t, g: taken.update({t: g.astype(float)}))
        return [taken[t] for t in range(len(weights))]

    whole, parts = gradient(slice(None)), [gradient(slice(k, k + 5)) for k in range(0, 20, 5)]
    for tensor, expected in enumerate(whole):
        np.testing.assert_allclose(sum(part[tensor] for part in parts), expected, rtol=0, atol=2e-5)


def test_an_order_of_arrival_is_that_of_seed_step_and_block():
    given = graph()
    results = {}
    for seed, step, block in ((1, 1, 0), (1, 1, 0), (2, 1, 0), (1, 2, 0), (1, 1, 1)):
        network, _ = sage(given, "emulated", seed)
        network.begin(step, block)
        field = network.field(np.arange(NODES), Use.LEARNING)
        results.setdefault((seed, step, block), set()).add((field.first.order, field.second.order))
        assert field.first.order != field.second.order
    assert [len(orders) for orders in results.values()] == [1, 1, 1, 1]
    assert len(set.union(*results.values())) == 4


def test_training_and_inference_add_in_orders_of_their_own():
    given = graph()
    _, weights = sage(given)
    fixed_first = GraphNetwork(graphsage.forward, weights, NODES, given, "sorted", 1, inference="emulated")
    fixed_last = GraphNetwork(graphsage.forward, weights, NODES, given, "emulated", 1, inference="exact")
    both = GraphNetwork(graphsage.forward, weights, NODES, given, "emulated", 1)

    def orders(network, use):
        field = network.field(np.arange(NODES), use, (1, 0))
        return field.first.order, field.second.order

    for use in (Use.LEARNING, Use.JUDGING):
        assert orders(fixed_first, use) == ("sorted", "sorted")
        assert orders(fixed_last, use) == orders(both, use)
    assert orders(fixed_last, Use.INFERENCE) == ("exact", "exact")
    assert orders(fixed_first, Use.INFERENCE) == orders(both, Use.INFERENCE)
    drawn = [*orders(both, Use.LEARNING), *orders(both, Use.INFERENCE)]
    assert len(set(drawn)) == 4 and all(order.startswith("emulated:") for order in drawn)


def test_what_is_asked_of_a_network_decides_in_which_order_it_adds():
    """An order of an unknown name cannot be computed: what passes was added in the other one."""
    given, nodes, labels = graph(), np.arange(NODES), np.arange(NODES) % 7
    _, weights = sage(given)
    learns = GraphNetwork(graphsage.forward, weights, NODES, given, "sorted", 1, inference="nowhere")
    answers = GraphNetwork(graphsage.forward, weights, NODES, given, "nowhere", 1, inference="sorted")
    assert learns.loss(nodes, labels, None, lambda *_: None) > 0 and learns.loss_alone(nodes, labels) > 0
    for call in (lambda: learns.correct(nodes, labels), lambda: learns.outputs(nodes)):
        with pytest.raises(Exception, match="nowhere"):
            call()
    assert answers.correct(nodes, labels) >= 0 and len(answers.outputs(nodes)) == NODES
    for call in (lambda: answers.loss(nodes, labels, None, None), lambda: answers.loss_alone(nodes, labels)):
        with pytest.raises(Exception, match="nowhere"):
            call()


def test_outputs_are_logarithms_of_probabilities():
    given = graph()
    network, weights = sage(given)
    outputs, expected = network.outputs(np.arange(NODES)), by_dense_matrices(given, weights)
    assert outputs.dtype == np.float32
    np.testing.assert_allclose(np.exp(outputs.astype(float)).sum(1), 1, rtol=1e-6)
    np.testing.assert_allclose(outputs - outputs[:, :1], expected - expected[:, :1], rtol=0, atol=6e-6)


def run(tmp_path, *options, name="run"):
    return main(
        APP, ["--deck", "graphsage", "--quiet", "--out", str(tmp_path / name), *options], MPI.COMM_SELF
    )


def test_a_graph_without_its_network_or_its_file_is_refused_with_what_helps(tmp_path, capsys):
    assert run(tmp_path, "--model", "mlp") == 2
    assert "choose --model graphsage, or --data" in capsys.readouterr().err
    assert run(tmp_path, "--data", "blobs") == 2
    assert "choose --model cnn or --model mlp, or --data cora" in capsys.readouterr().err
    assert run(tmp_path, "--data-dir", str(tmp_path)) == 2
    assert "no cora.npz in" in capsys.readouterr().err
    (tmp_path / "cora.npz").write_bytes(b"PK")
    assert run(tmp_path, "--data-dir", str(tmp_path)) == 2
    assert "damaged, or another version" in capsys.readouterr().err
    assert run(tmp_path, "--aggregate", "atomic", "--guarantee", "layout") == 2
    assert "--aggregate atomic meets guarantee none" in capsys.readouterr().err
    assert run(tmp_path, "--aggregate-inference", "atomic", "--guarantee", "layout") == 2
    assert "--aggregate-inference atomic meets guarantee none" in capsys.readouterr().err


def test_cora_is_as_published():
    given = cora.load("")
    assert (len(given.images), len(given.test_images), given.graph.features.shape) == (
        140,
        1000,
        (2708, 1433),
    )
    assert np.bincount(given.labels).tolist() == [20] * 7
    assert np.diff(given.graph.starts).min() == 1 and len(given.graph.neighbours) == 10556
    assert set(np.unique(given.graph.features)) == {0.0, 1.0}
    normalised = cora.load("", "normalised").graph.features.sum(1)
    np.testing.assert_allclose(normalised, 1, rtol=1e-5)


def test_a_run_continues_from_a_checkpoint_with_its_bits(tmp_path, capsys):
    small = [
        "--guarantee",
        "layout",
        "--set",
        "model.hidden=8",
        "--steps",
        "3",
    ]
    small += ["--set", "evaluation.every=0"]
    prints = []
    for name, more in (
        ("whole", ["--checkpoint-every", "2"]),
        ("rest", ["--restart", str(tmp_path / "whole/checkpoints/repeat-0-step-000002.h5")]),
    ):
        assert run(tmp_path, *small, *more, name=name) == 0
        prints += [line for line in capsys.readouterr().out.splitlines() if line.startswith("FINGERPRINT")]
    assert len(prints) == 2 and prints[0] == prints[1]


# ---- neighbours that are drawn


def edges_of(given, kept):
    """{node: neighbours that are kept}."""
    return {v: given.neighbours[given.starts[v] : given.starts[v + 1]][kept[given.starts[v] : given.starts[v + 1]]]
            for v in range(NODES)}  # fmt: skip


def test_at_most_so_many_neighbours_are_drawn_by_seed_epoch_and_hop_without_repetition():
    given = graph()
    drawn = Neighbours(given, (2, 3), 5, steps=4)
    first = edges_of(given, drawn.kept(1, 0))
    for node, near in first.items():
        degree = given.starts[node + 1] - given.starts[node]
        assert len(near) == min(2, degree) == len(set(near.tolist()))
    assert drawn.kept(4, 0).tolist() == drawn.kept(1, 0).tolist() != drawn.kept(5, 0).tolist()
    assert Neighbours(given, (2, 3), 5, 4).kept(5, 1).tolist() == drawn.kept(5, 1).tolist()
    assert Neighbours(given, (2, 3), 6, 4).kept(1, 0).tolist() != drawn.kept(1, 0).tolist()


def test_every_neighbour_is_drawn_as_often_as_any_other():
    given = graph()
    drawn = Neighbours(given, (1, 1), 1, steps=1)
    counts = sum(drawn.kept(step, 0).astype(int) for step in range(1, 2001))
    degrees = np.repeat(np.diff(given.starts), np.diff(given.starts))
    expected = 2000 / degrees
    assert (np.abs(counts - expected) < 5 * np.sqrt(expected)).all()


def test_enough_neighbours_are_all_of_them_and_evaluations_take_all():
    given = graph()
    weights = sage(given)[1]
    every = GraphNetwork(graphsage.forward, weights, NODES, given, "sorted", 1)
    enough = GraphNetwork(
        graphsage.forward, weights, NODES, given, "sorted", 1, Neighbours(given, (9, 9), 1, 1)
    )
    few = GraphNetwork(graphsage.forward, weights, NODES, given, "sorted", 1, Neighbours(given, (1, 1), 1, 1))
    nodes, labels = np.arange(NODES), np.arange(NODES) % 7
    losses = [network.loss(nodes, labels, None, lambda *_: None) for network in (every, enough, few)]
    assert losses[0] == losses[1] != losses[2]
    assert few.correct(nodes, labels) == every.correct(nodes, labels)
    assert few.loss_alone(nodes, labels) == every.loss_alone(nodes, labels)


def test_fields_that_are_gathered_ahead_are_the_same(tmp_path):
    prints = set()
    for name, more in (("now", []), ("ahead", ["--set", "training.depth=3"])):
        argv = ["--deck", "graphsage", "--set", "model.hidden=8", "--steps", "4",
                "--set", "model.neighbours=25", "--set", "model.second_neighbours=10", "--set", "training.batch=70",
                "--no-progress",
                "--guarantee", "layout", "--evaluate-every", "0"]  # fmt: skip
        assert main(APP, [*argv, *more, "--out", str(tmp_path / name)], MPI.COMM_SELF) == 0
        prints.add(json.loads((tmp_path / name / "result.json").read_text())["fingerprints"][0])
    assert len(prints) == 1


# ---- outputs


def recorded(out):
    """({name: fingerprints of the last step}, {name: (blocks, values) of the last step}) of a run."""
    trace = read(out / "rank-00000.h5")
    prints, values = trace.tables["fingerprints"], trace.tables["values"]
    hashes, numbers = {}, {}
    for number, name in enumerate(trace.names):
        own = (prints["name"] == number) & (prints["step"] == prints["step"].max())
        hashes[name] = list(zip(*(prints[key][own].tolist() for key in ("block", "hi", "lo")), strict=True))
        own = (values["name"] == number) & (values["step"] == values["step"].max())
        numbers[name] = values["block"][own], values["value"][own]
    return hashes, numbers


def test_the_order_of_inference_changes_outputs_and_no_weights(tmp_path):
    runs = {}
    for name, more in (
        ("fixed", ["--set", "evaluation.outputs=all"]),
        ("drawn", ["--aggregate-inference", "emulated"]),
        ("again", ["--aggregate-inference", "emulated", "--set", "seeds.order=2"]),
    ):
        argv = ["--guarantee", "layout", "--set", "model.hidden=8", "--steps", "2",
                "--evaluate-every", "0"]  # fmt: skip
        assert run(tmp_path, *argv, *more, name=name) == 0
        runs[name] = recorded(tmp_path / name)
    assert len({tuple(hashes["weights"]) for hashes, _ in runs.values()}) == 1
    assert len({tuple(hashes["outputs"]) for hashes, _ in runs.values()}) == 3
    (places, every), (sample, some) = (runs[name][1]["outputs"] for name in ("fixed", "drawn"))
    assert places.tolist() == list(range(2708 * 7)) and len(sample) == 256
    np.testing.assert_allclose(some, every[sample], rtol=1e-5)
    nodes, predictions = runs["fixed"][1]["decision:class"]
    assert nodes.tolist() == list(range(2708))
    assert predictions.tolist() == every.reshape(2708, 7).argmax(1).tolist()
