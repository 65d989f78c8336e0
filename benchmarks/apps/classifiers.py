"""Small classifiers of digits, whose sums may be added in any order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from miniapps.learning.samples.images import CLASSES, load

CLASSIFIERS = ("linear", "perceptron", "convolutional")
HIDDEN, CHANNELS = 128, 8
EPOCHS, RATE = 60, 0.05
MARGINS = np.logspace(-9, -5, 33)  # relative, from the boundary between two classes on
DRAWN = 1000  # orders of each sum

# The weights (outputs, inputs) and biases (outputs,) of each linear layer, float32.
Network = list[tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Classifier:
    """Test images (n, pixels) of digits, the operands (n, k) of the last layer for each, the layers; all float32."""

    images: np.ndarray
    features: np.ndarray
    network: Network


def trained(name: str) -> Classifier:
    """One of CLASSIFIERS after gradient descent."""
    import torch
    from torch import nn

    torch.manual_seed(1)
    data = load("digits", "", 0)
    x, test = (
        torch.from_numpy(images.reshape(len(images), -1) / np.float32(data.largest))
        for images in (data.images, data.test_images)
    )
    labels = torch.from_numpy(data.labels.astype(np.int64))
    side = data.images.shape[1]
    below, inputs = {
        "linear": ([], x.shape[1]),
        "perceptron": ([nn.Linear(x.shape[1], HIDDEN), nn.ReLU()], HIDDEN),
        "convolutional": (
            [
                nn.Unflatten(1, (1, side, side)),
                nn.Conv2d(1, CHANNELS, 3),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Flatten(),
            ],
            CHANNELS * ((side - 2) // 2) ** 2,
        ),
    }[name]
    model = nn.Sequential(*below, nn.Linear(inputs, CLASSES))
    steps = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(x)).split(64):
            steps.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), labels[rows]).backward()
            steps.step()
    with torch.no_grad():
        features = model[:-1](test).numpy()
    linear = [layer for layer in model if isinstance(layer, nn.Linear)]
    return Classifier(
        test.numpy(),
        features,
        [(each.weight.detach().numpy(), each.bias.detach().numpy()) for each in linear],
    )


def of_classes(x: np.ndarray, weights: np.ndarray, biases: np.ndarray) -> np.ndarray:
    """The terms of the sum of each class, float32 (classes, n + 1): products, and the bias."""
    return np.concatenate([weights * x, biases[:, None]], axis=1)


def in_order(terms: np.ndarray) -> np.ndarray:
    """Sums along the last axis of many orders at once: term by term, each rounded to the type of `terms`."""
    return np.add.accumulate(terms, axis=-1)[..., -1]
