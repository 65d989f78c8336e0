"""Small classifiers of digits, whose sums may be added in any order."""

from __future__ import annotations

import numpy as np

from miniapps.learning.samples.images import CLASSES, load

EPOCHS, RATE = 60, 0.05
MARGINS = np.logspace(-9, -5, 33)  # relative, from the boundary between two classes on
DRAWN = 1000  # orders of each sum

# The weights (outputs, inputs) and biases (outputs,) of each layer, float32.
Network = list[tuple[np.ndarray, np.ndarray]]


def trained(hidden: int) -> tuple[np.ndarray, Network]:
    """(the test images of digits, (n, pixels) float32; the network after gradient descent), with so many `hidden`
    neurons, or none."""
    import torch

    torch.manual_seed(1)
    data = load("digits", "", 0)
    x, test = (
        torch.from_numpy(images.reshape(len(images), -1) / np.float32(data.largest))
        for images in (data.images, data.test_images)
    )
    labels = torch.from_numpy(data.labels.astype(np.int64))
    below = [torch.nn.Linear(x.shape[1], hidden), torch.nn.ReLU()] if hidden else []
    model = torch.nn.Sequential(*below, torch.nn.Linear(hidden or x.shape[1], CLASSES))
    steps = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(x)).split(64):
            steps.zero_grad()
            torch.nn.functional.cross_entropy(model(x[rows]), labels[rows]).backward()
            steps.step()
    network = [
        (layer.weight.detach().numpy(), layer.bias.detach().numpy())
        for layer in model
        if hasattr(layer, "weight")
    ]
    return test.numpy(), network


def features_of(images: np.ndarray, network: Network) -> np.ndarray:
    """The operands of the last layer for each image, float32."""
    for weights, biases in network[:-1]:
        images = np.maximum(images @ weights.T + biases, 0)
    return images


def of_classes(x: np.ndarray, weights: np.ndarray, biases: np.ndarray) -> np.ndarray:
    """The terms of the sum of each class, float32 (classes, n + 1): products, and the bias."""
    return np.concatenate([weights * x, biases[:, None]], axis=1)


def in_order(terms: np.ndarray) -> np.ndarray:
    """Sums along the last axis of many orders at once: term by term, each rounded to the type of `terms`."""
    return np.add.accumulate(terms, axis=-1)[..., -1]
