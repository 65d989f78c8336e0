"""Redoes a published study of classes that flip with the order of sums, with what a CPU can show.

    python -m benchmarks.apps.robustness --json benchmarks/results/robustness.json

Shanmugavelu et al. 2025, "Robustness of deep learning classification to adversarial input on GPUs" (arXiv 2503.17173).

published  their linear classifier: 5 weights (4, -1, -1, -1, -1) / sqrt(20) and inputs (1 + t 1e-6) / 5, t = 0 ... 9,
           in float32: the outputs of their permutations and of all 120 orders of addition, the threshold from which on
           all agree, and how many of their perturbed inputs differ from the inputs
learnt     the gradient of their learnable permutation, relative to that of one term, in float32 and float64; and
           whether the permutation that their assignment takes follows what was learnt
graph      GraphSAGE on Cora (2 layers, means, 32 hidden): test accuracy, and classes that change when edges are added
           up in drawn orders; and accuracy where the ends of edges are renumbered and the features are not, as in
           their networks of graphs
margins    a linear classifier and a perceptron with 128 hidden neurons on digits, of which the last layer adds up in
           any order. Test inputs inside the bound of all orders, by type. And at inputs moved onto the boundary between
           their two classes, and from there by small steps, in float32: the largest margin at which drawn orders, and
           the worst that a search finds (`kernels.sums.worst`), flip a class. Margins are relative to the sum of the
           magnitudes of all terms of both classes
"""

from __future__ import annotations

import argparse
import math
from itertools import permutations

import numpy as np

from benchmarks.harness.results import parts_parser, row, run_parts
from kernels.progress import Progress
from kernels.sums import worst
from kernels.tree import unit_roundoff
from miniapps.learning.samples.images import CLASSES, load
from miniapps.training.graphs import cora

DIMS, INPUTS, STEP, THRESHOLDS = 5, 10, 1e-12, 20_000  # they scan 3,333 thresholds
TYPES = ("float64", "float32", "bfloat16")
MARGINS = np.logspace(-9, -6, 25)  # relative, from the boundary on
DRAWN = 1000  # orders of each input
GRAPHS = 20  # orders of edges, and renumberings of nodes
HIDDEN, EPOCHS, RATE = 128, 60, 0.05


def in_order(terms: np.ndarray) -> np.ndarray:
    """Sums along the last axis of many orders at once: term by term, each rounded to the type of `terms`."""
    return np.add.accumulate(terms, axis=-1)[..., -1]


def published(options: argparse.Namespace) -> list[dict]:
    """The published linear classifier."""
    weights = (np.array([DIMS - 1, *[-1] * (DIMS - 1)]) / math.sqrt(DIMS * (DIMS - 1))).astype(np.float32)
    inputs = [np.full(DIMS, (1.0 + t / 1e6) / DIMS, np.float32) for t in range(INPUTS)]
    swaps = []
    for k in range(DIMS):
        order = np.arange(DIMS)
        order[[0, k]] = order[[k, 0]]
        swaps.append(order)
    theirs = np.array([[in_order(weights[order] * x) for order in swaps] for x in inputs])
    every = np.array(
        [[in_order((weights * x)[list(order)]) for order in permutations(range(DIMS))] for x in inputs]
    )
    unit = float(np.spacing(np.float32(weights[0] * inputs[0][0] / (DIMS - 1))))
    moved = [(x + np.float32(STEP) * weights).tobytes() != x.tobytes() for x in inputs]
    apart = [
        k for k in range(THRESHOLDS) if 0 < np.count_nonzero(theirs >= np.float32(k * STEP)) < theirs.size
    ]
    rows = {
        "outputs of their permutations, different": len(np.unique(theirs)),
        "outputs of all orders, different": len(np.unique(every)),
        "largest output of their permutations": float(np.abs(theirs).max()),
        "largest output of all orders": float(np.abs(every).max()),
        "distance of two float32 numbers near the smaller terms": unit,
        "largest threshold with both classes": STEP * max(apart, default=0),
        "perturbed inputs that differ from the input": f"{sum(moved)} of {len(moved)}",
    }
    return [row("published", what, figure) for what, figure in rows.items()]


def learnt(options: argparse.Namespace) -> list[dict]:
    """The gradient of a matrix whose rows are softmax: its sum over columns is 1, whatever the logits."""
    import torch
    from scipy.optimize import linear_sum_assignment

    rows = []
    for dtype in (torch.float32, torch.float64):
        generator = torch.Generator().manual_seed(1)
        terms = torch.randn(64, generator=generator, dtype=dtype)
        logits = torch.eye(64, dtype=dtype, requires_grad=True)
        noise = -torch.log(-torch.log(torch.rand(64, 64, generator=generator, dtype=dtype)))
        total = (terms @ torch.softmax(logits + noise, dim=-1)).sum()
        (slope,) = torch.autograd.grad(total, logits)
        # Of one entry of the matrix alone, the gradient would be a term.
        largest = float(slope.abs().max() / terms.abs().max())
        name = f"largest gradient over largest term, {str(dtype).removeprefix('torch.')}"
        rows.append(row("learnt", name, largest))
    # They minimise the logits: the assignment takes what was learnt to be unlikely.
    sure = np.eye(64)[np.random.default_rng(1).permutation(64)]
    _, taken = linear_sum_assignment(-sure, maximize=True)
    kept = int((taken == sure.argmax(1)).sum())
    return [
        *rows,
        row("learnt", "entries of a learnt permutation that the assignment takes", f"{kept} of 64"),
    ]


def graph(options: argparse.Namespace) -> list[dict]:
    """Orders of edges, and edges between other nodes."""
    import torch

    torch.manual_seed(1)
    papers = cora.load("")
    target = torch.from_numpy(np.repeat(np.arange(cora.NODES), np.diff(papers.starts)))
    source = torch.from_numpy(papers.neighbours.astype(np.int64))
    x = torch.from_numpy(papers.features)
    learned, tested = (torch.from_numpy(n.astype(np.int64)) for n in (papers.images, papers.test_images))
    labels, answers = (torch.from_numpy(n.astype(np.int64)) for n in (papers.labels, papers.test_labels))
    layers = torch.nn.ModuleList(
        [torch.nn.Linear(2 * n, m) for n, m in ((cora.WORDS, 32), (32, cora.CLASSES))]
    )
    degree = torch.bincount(target, minlength=cora.NODES).clamp(min=1)[:, None]

    def logits(source, target, chance=0.0):
        h = x
        for k, layer in enumerate(layers):
            h = torch.nn.functional.dropout(h, chance)
            mean = torch.zeros(cora.NODES, h.shape[1]).index_add(0, target, h[source]) / degree
            h = layer(torch.cat([h, mean], dim=1))
            h = torch.relu(h) if k == 0 else h
        return h

    steps = torch.optim.Adam(layers.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(100):
        steps.zero_grad()
        torch.nn.functional.cross_entropy(logits(source, target, 0.5)[learned], labels).backward()
        steps.step()
    with torch.no_grad():
        own = logits(source, target)
        changed, accuracies, bits = [], [], set()
        for _ in range(GRAPHS):
            order = torch.randperm(len(source))
            again = logits(source[order], target[order])
            bits.add(again.numpy().tobytes())
            changed.append(int((again.argmax(1) != own.argmax(1)).sum()))
            other = torch.randperm(cora.NODES)
            accuracies.append(
                float((logits(other[source], other[target])[tested].argmax(1) == answers).double().mean())
            )
    rows = {
        "accuracy": float((own[tested].argmax(1) == answers).double().mean()),
        f"different outputs of {GRAPHS} orders of edges": len(bits),
        "classes of 2,708 nodes that an order changes, most": max(changed),
        "accuracy with renumbered ends of edges, mean": float(np.mean(accuracies)),
    }
    return [row("graph", what, figure) for what, figure in rows.items()]


def margins(options: argparse.Namespace) -> list[dict]:
    """Margins of classes against all orders of the last sum."""
    rows, progress = [], Progress("benchmark", quiet=options.quiet)
    for name, hidden in (("linear", 0), ("perceptron", HIDDEN)):
        features, weights, biases = trained(hidden)
        terms = [of_classes(x, weights, biases) for x in features]
        inside = dict.fromkeys(TYPES, 0)
        for each in terms:
            top, second = np.argsort([math.fsum(row.tolist()) for row in each])[[-1, -2]]
            margin = math.fsum([*each[top].tolist(), *(-each[second]).tolist()])
            size = sum(math.fsum(np.abs(each[k]).tolist()) for k in (top, second))
            for dtype in TYPES:
                inside[dtype] += margin <= (each.shape[1] - 1) * unit_roundoff(dtype) * size
        for dtype, count in inside.items():
            rows.append(
                row("margins", f"{name}, {dtype}: test inputs inside the bound", f"{count} of {len(terms)}")
            )
        flips = []
        for seed, x in enumerate(features[: options.inputs]):
            progress.show((seed / options.inputs + (hidden > 0)) / 2, f"{name}, input {seed}")
            flips.append(flipped(x, weights, biases, seed))
        bound = (terms[0].shape[1] - 1) * unit_roundoff("float32")
        found = {kind: max(one[kind] for one in flips) for kind in ("drawn", "worst")}
        for kind, largest in found.items():
            rows.append(
                row(
                    "margins",
                    f"{name}: largest margin that flips, {kind}",
                    largest,
                    [one[kind] for one in flips],
                )
            )
        rows.append(row("margins", f"{name}: bound of all orders", bound))
        rows.append(row("margins", f"{name}: worst / drawn", found["worst"] / found["drawn"]))
        rows.append(row("margins", f"{name}: bound / worst", bound / found["worst"]))
    progress.clear()
    return rows


def trained(hidden: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(the operands of the last layer for each test image of digits, its weights, its biases), float32, after gradient
    descent."""
    import torch

    torch.manual_seed(1)
    data = load("digits", "", 0)
    x, test = (
        torch.from_numpy(images.reshape(len(images), -1) / np.float32(data.largest))
        for images in (data.images, data.test_images)
    )
    labels = torch.from_numpy(data.labels.astype(np.int64))
    below = [torch.nn.Linear(x.shape[1], hidden), torch.nn.ReLU()] if hidden else []
    last = torch.nn.Linear(hidden or x.shape[1], CLASSES)
    model = torch.nn.Sequential(*below, last)
    steps = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(x)).split(64):
            steps.zero_grad()
            torch.nn.functional.cross_entropy(model(x[rows]), labels[rows]).backward()
            steps.step()
    with torch.no_grad():
        features = torch.nn.Sequential(*below)(test) if hidden else test
    return features.numpy(), last.weight.detach().numpy(), last.bias.detach().numpy()


def of_classes(x: np.ndarray, weights: np.ndarray, biases: np.ndarray) -> np.ndarray:
    """The terms of the sum of each class, float32 (classes, n + 1): products, and the bias."""
    return np.concatenate([weights * x, biases[:, None]], axis=1)


def flipped(x: np.ndarray, weights: np.ndarray, biases: np.ndarray, seed: int) -> dict[str, float]:
    """The largest margins at which drawn and worst orders flip the class of inputs near x, on the straight line to its
    boundary; 0 if none does."""
    rng, largest = np.random.default_rng(seed), {"drawn": 0.0, "worst": 0.0}
    exact = [math.fsum(row.tolist()) for row in of_classes(x, weights, biases)]
    top, second = np.argsort(exact)[[-1, -2]]
    across = (weights[top] - weights[second]).astype(np.float64)
    boundary = x - across * (exact[top] - exact[second]) / (across @ across)
    size = sum(math.fsum(np.abs(of_classes(x, weights, biases)[k]).tolist()) for k in (top, second))
    for wanted in MARGINS:
        near = (boundary + across * (wanted * size / (across @ across))).astype(np.float32)
        first, other = of_classes(near, weights, biases)[[top, second]]
        margin = math.fsum([*first.tolist(), *(-other).tolist()])
        if margin < 0:
            first, other, margin = other, first, -margin
        margin /= math.fsum(np.abs([*first, *other]).tolist())
        orders = rng.permuted(np.tile(np.arange(len(first)), (DRAWN, 1)), axis=1)
        if margin > largest["drawn"] and (in_order(first[orders]) < in_order(other[orders[::-1]])).any():
            largest["drawn"] = margin
        if margin > largest["worst"]:
            low = worst.search(first, seed=seed).lowest.value
            if low < worst.search(other, seed=seed).highest.value:
                largest["worst"] = margin
    return largest


PARTS = {"published": published, "learnt": learnt, "graph": graph, "margins": margins}


def main(argv: list[str] | None = None) -> None:
    """Measures the requested parts."""
    parser = parts_parser("apps.robustness", __doc__, PARTS, rounds=1)
    parser.add_argument(
        "--inputs", type=int, default=40, help="moved inputs of each classifier (default %(default)s)"
    )
    run_parts("robustness", parser, PARTS, argv)


if __name__ == "__main__":
    main()
