"""Networks in torch: their capture, its refusals, and the backends of the registry."""

from __future__ import annotations

import gc
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

import kernels.inference  # noqa: E402, F401 - registers its variants
from kernels.guarantees import meets  # noqa: E402
from kernels.inference.capture import capture  # noqa: E402
from kernels.inference.graph import Unsupported  # noqa: E402
from kernels.inference.lower import plan  # noqa: E402
from kernels.inference.reference import evaluate  # noqa: E402
from kernels.inference.static import Static  # noqa: E402
from kernels.registry import get, variants  # noqa: E402

from .inference_cases import cnn, mlp, normal, same  # noqa: E402

BACKENDS = variants("inference")
HERE = [v for v in BACKENDS if v.unavailable() is None]


def graph_of(forward, sample, batched=True, **weights):
    return capture(forward, weights, sample, batched)


@cache
def training(name: str):
    """(forward, weights) of a network of `miniapps.training`."""
    from miniapps.training import models

    module = models.of_images()[name]
    shapes = module.shapes(
        SimpleNamespace(channels=8, hidden=64 if name == "cnn" else 128, hidden_layers=1), 28
    )
    return module.forward, {key: normal(*shape) * np.float32(0.1) for key, shape in shapes.items()}


# ---- graphs


@pytest.mark.parametrize("name, by_hand", [("mlp", mlp), ("cnn", cnn)])
def test_the_networks_of_training_are_those_of_the_other_tests(name, by_hand):
    graph = capture(*training(name), (28, 28))
    assert [(n.operation, n.shape, n.attributes) for n in graph.nodes] == [
        (n.operation, n.shape, n.attributes) for n in by_hand().nodes
    ]
    assert all("models" in node.where for node in graph.nodes)


def test_what_torch_computes_is_close_to_it():
    """One network with most operations; the definition and torch agree but for rounding."""

    def forward(tensors, x):
        w, v, c = tensors
        y = F.avg_pool2d(F.conv2d(x, w, stride=(1, 2), padding=1), 2)
        y = torch.cat([y, torch.tanh(y)], dim=1).flatten(2)
        y = F.softmax(y / 0.5, dim=-1) + F.log_softmax(y * 2 - 1, dim=-1)
        y = F.normalize(y, dim=-1) + y.mean(-1, keepdim=True)
        y = torch.matmul(y, v) * c + y.amax(-1).unsqueeze(-1)
        return (1 - torch.exp(-F.relu(y)).sum(-1)).sigmoid()

    weights = {"w": normal(4, 3, 3, 3), "v": normal(15, 6), "c": normal(6)}
    graph = capture(forward, weights, (3, 6, 20))
    x = normal(5, 3, 6, 20)
    y = Static(plan(graph))(x)
    assert same(y, evaluate(graph, x))
    truth = forward([torch.from_numpy(w).double() for w in weights.values()], torch.from_numpy(x).double())
    np.testing.assert_allclose(y, truth.numpy(), rtol=2e-5)


def test_views_of_weights_are_taken_once():
    """As the closure of `coupled` has them: one flat vector of parameters."""

    def forward(tensors, x):
        (theta,) = tensors
        return F.linear(x, theta[:12].view(3, 4), theta[12:].view(3))

    graph = graph_of(forward, (4,), theta=normal(15))
    assert [node.operation for node in graph.nodes] == ["linear"]
    x = normal(2, 4)
    assert same(Static(plan(graph))(x), evaluate(graph, x))


def test_a_layer_of_graphsage_without_a_batch():
    """normalise(W1 mean(neighbours) + W2 x), the whole graph as one sample."""
    nodes, features = 12, 9
    rng = np.random.default_rng(0)
    edges = rng.integers(0, nodes, (2, 40))
    degree = np.maximum(np.bincount(edges[1], minlength=nodes), 1).astype(np.float32)[:, None]

    def forward(tensors, x):
        w1, w2, start, to, degree = tensors
        mean = torch.zeros(nodes, features).index_add(0, to, x[start]) / degree
        return F.log_softmax(F.normalize(F.linear(mean, w1) + F.linear(x, w2), dim=1), dim=1)

    weights = {
        "w1": normal(7, features),
        "w2": normal(7, features, seed=1),
        "start": edges[0],
        "to": edges[1],
    }
    graph = capture(forward, weights | {"degree": degree}, (nodes, features), batched=False)
    x = normal(nodes, features)
    y = Static(plan(graph), threads=2)(x)
    assert same(y, evaluate(graph, x))
    tensors = [torch.from_numpy(w) for w in (*weights.values(), degree)]
    np.testing.assert_allclose(y, forward(tensors, torch.from_numpy(x)).numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    "view",
    [lambda x: x.view(x.shape[0], -1), lambda x: x.reshape(x.size(0), 24)],
)
def test_shapes_may_name_the_number_of_samples(view):
    weights, x = {"w": normal(5, 24)}, normal(3, 4, 6)
    graph = capture(lambda tensors, x: F.linear(view(x), tensors[0]), weights, (4, 6))
    flat = capture(lambda tensors, x: F.linear(x.flatten(1), tensors[0]), weights, (4, 6))
    assert same(Static(plan(graph))(x), evaluate(flat, x))


def chosen(tensors, x):
    if x.sum() > 0:  # the line that errors name
        return x
    return -x


def cumulated(tensors, x):
    return x.cumsum(1)  # the line that errors name


@pytest.mark.parametrize(
    "forward, message",
    [
        (
            cumulated,
            r"aten.cumsum.default \(node 'cumsum', .*test_inference_backends.py:\d+: return x.cumsum\(1\)",
        ),
        (
            cumulated,
            r"not an operation of `static`. `static` supports these of ATen: .*add, .*conv2d, .*softmax",
        ),
        (lambda tensors, x: x - x.mean(0, keepdim=True), "works along the batch"),
        (lambda tensors, x: torch.softmax(x, 0), "works along the batch"),
        (lambda tensors, x: torch.softmax(x, 1), "only the last one"),
        (lambda tensors, x: x.reshape(-1), "not the batch: samples are coupled"),
        (lambda tensors, x: F.dropout(x, 0.5, True), "dropout is for training"),
        (lambda tensors, x: x.double(), "aten"),
        (
            chosen,
            r"branches on the values of its input \(.*test_inference_backends.py:\d+: if x.sum\(\) > 0:",
        ),
        (
            lambda tensors, x: x / x.shape[0],
            r"aten.div.Tensor \(node 'div', .*test_inference_backends.py:\d+",
        ),
        (lambda tensors, x: x.view(2 * x.shape[0], 3, 6), "not the batch: samples are coupled"),
        (lambda tensors, x: x.max(1), r"aten.max.dim \(node 'max_1', .*test_inference_backends.py:\d+"),
        (
            lambda tensors, x: (x, x * 2),
            "forward returns a tensor and a tensor, but a static network has one result",
        ),
        (lambda tensors, x: (x, None), "forward returns a tensor and None"),
        (lambda tensors, x: None, "forward returns None"),
        (lambda tensors, x: {}, "forward returns nothing"),
        (lambda tensors, x: x * (tensors[0] + 1), "arithmetic on weights alone"),
        (lambda tensors, x: tensors[0] * 1.0, "aten|depend"),
        (lambda tensors, x: F.max_pool2d(x[:, None], 2, padding=1), "padding"),
        (
            lambda tensors, x: F.conv2d(x[:, None].expand(-1, 2, -1, -1), torch.ones(2, 1, 1, 1), groups=2),
            "aten",
        ),
    ],
)
def test_what_static_lacks_is_named_with_its_line(forward, message):
    with pytest.raises(Unsupported, match=message):
        graph_of(forward, (6, 6), w=normal(6))


# ---- backends


def test_every_backend_states_its_promise_and_what_it_lacks():
    names = ["eager", "onnxruntime", "openvino", "static"]
    assert [v.name for v in BACKENDS] == names
    assert [v.name for v in BACKENDS if meets(v.guarantee, "layout")] == ["static"]
    for v in BACKENDS:
        if (reason := v.unavailable()) is not None:
            assert reason.startswith("not installed: ")
            assert "pip install" in reason


@pytest.mark.parametrize("variant", HERE, ids=lambda v: v.name)
def test_backends_repeat_and_agree_but_for_rounding(variant):
    forward, weights = training("cnn")
    x = normal(5, 28, 28)
    network = variant(forward, weights, (28, 28), threads=2)
    y = network(x)
    assert y.shape == (5, 10) and y.dtype == np.float32
    assert same(network(x.copy()), y)
    double = [torch.from_numpy(w).double() for w in weights.values()]
    truth = forward(double, torch.from_numpy(x).double()).numpy()
    np.testing.assert_allclose(y, truth, rtol=0, atol=1e-5)
    np.testing.assert_allclose(network(x[1:3]), truth[1:3], rtol=0, atol=1e-5)
    gc.collect()  # what a program needs lives as long as the network
    assert same(network(x), y)


def test_bits_do_not_depend_on_what_the_thread_does_with_subnormals():
    network = get("inference", "static")(*training("mlp"), (28, 28), threads=2)
    x = normal(40, 28, 28) * np.float32(1e-40)
    expected = network(x)
    try:
        torch.set_flush_denormal(True)
        flushed = network(x)
        kept = (torch.tensor([1e-40]) * torch.ones(1)).item()  # as the thread wanted it
    finally:
        torch.set_flush_denormal(False)
    assert same(flushed, expected)
    assert kept == 0.0
