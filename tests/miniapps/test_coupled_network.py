"""The network of the closure under `layout`: the bits of a block are its own, forward and backward."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

from miniapps.coupled.convolution import conv  # noqa: E402
from miniapps.coupled.surrogate import Surrogate  # noqa: E402

CHANNELS, LIMIT, SCALE = 5, 0.2, 8.0


def surrogate(threads=1):
    return Surrogate(CHANNELS, LIMIT, SCALE, 0.01, 3, "block", threads=threads)


def blocks(count, edge):
    """Inputs, coefficients of the physics and strain rates of blocks."""
    rng = np.random.default_rng(edge)
    inputs = torch.from_numpy(rng.standard_normal((count, 2, edge + 6, edge + 7), np.float32))
    target, weight = rng.uniform(0.0, 0.1, (2, count, edge + 2, edge + 3))
    return inputs, target, weight * 100.0


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("count", "edge"), [(9, 4), (8, 16), (30, 32)])
def test_a_block_has_the_same_bits_alone_and_in_any_batch(count, edge, threads):
    """30 blocks of 32 take two calls; 7 x 7 points, and their vectors, begin at odd places."""
    inputs, target, weight = blocks(count, edge)
    alone = [surrogate().coefficient(inputs[k : k + 1]).numpy() for k in range(count)]
    given = [(inputs[k : k + 1], target[k : k + 1], weight[k : k + 1]) for k in range(count)]
    gradients = [surrogate().gradients(*each) for each in given]
    rng = np.random.default_rng(0)
    for most in range(1, count + 1):
        some = rng.permutation(count)[:most]
        network = surrogate(threads)
        found = network.coefficient(inputs[some]).numpy()
        assert found.tobytes() == np.concatenate([alone[k] for k in some]).tobytes()
        found = network.gradients(inputs[some], target[some], weight[some])
        assert found.tobytes() == np.concatenate([gradients[k] for k in some]).tobytes()


def test_gradients_of_blocks_are_those_of_the_squared_error():
    inputs, target, weight = blocks(6, 9)
    network = surrogate()
    theta = torch.from_numpy(network.parameters().astype(np.float64)).requires_grad_()
    parts = torch.split(theta, np.diff(network.bounds).tolist())
    w1, b1, w2, b2, w3, b3 = (part.view(shape) for part, shape in zip(parts, network.shapes, strict=True))
    x = F.relu(F.conv2d(F.relu(F.conv2d(inputs.double(), w1, b1)), w2, b2))
    error = (LIMIT * torch.sigmoid(F.conv2d(x, w3, b3))[:, 0] - torch.from_numpy(target)) * (
        torch.from_numpy(weight) / SCALE
    )
    losses = (error * error).mean(dim=(1, 2))
    expected = torch.stack(
        [torch.autograd.grad(loss, theta, retain_graph=True)[0] for loss in losses]
    ).numpy()
    found = network.gradients(inputs, target, weight)
    assert found.dtype == np.float32 and found.shape == expected.shape
    scale = np.abs(expected).max(axis=1, keepdims=True)
    assert (np.abs(found - expected) < 1e-5 * scale).all() and (scale > 0.0).all()


def test_a_convolution_gives_each_block_its_gradient():
    """Integers, so that every sum is exact."""
    rng = np.random.default_rng(1)
    x, w, b = (
        torch.from_numpy(rng.integers(-4, 5, shape).astype(np.float32)).requires_grad_()
        for shape in ((3, 2, 6, 5), (4, 2, 3, 2), (4,))
    )
    copies = [y.detach().expand(3, *y.shape).requires_grad_() for y in (w, b)]
    y, expected = conv(x, *copies), F.conv2d(x, w, b)
    assert torch.equal(y, expected)
    seed = torch.from_numpy(rng.integers(-4, 5, y.shape).astype(np.float32))
    of_x, of_w, of_b = torch.autograd.grad(y, [x, *copies], seed)
    assert torch.equal(of_x, torch.autograd.grad(expected, x, seed)[0])
    for k in range(3):
        alone = torch.autograd.grad(F.conv2d(x[k : k + 1], w, b), [w, b], seed[k : k + 1])
        assert torch.equal(of_w[k], alone[0]) and torch.equal(of_b[k], alone[1])
