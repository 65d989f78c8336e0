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
margins    a linear classifier, a perceptron with 128 hidden neurons, and a network with 8 channels of 3 x 3, on digits,
           of which the last layer adds up in any order. Test inputs inside the bound of all orders, by type.
           And at inputs moved onto the boundary between their two classes, and from there by small steps, in float32:
           the largest margin at which drawn orders, and the worst that a search finds (`kernels.sums.worst`), flip a
           class; and the order that their permutation takes after it learned, as published, to misclassify this input.
           Margins are relative to the sum of the magnitudes of all terms of both classes
layers     the perceptron, of which both layers add up in any order, at inputs between two test images: the largest
           margin at which drawn and worst orders give both classes. A worst order moves each hidden neuron to where
           the other class gains
"""

from __future__ import annotations

import argparse
import math
from itertools import permutations

import numpy as np

from benchmarks.apps.classifiers import CLASSIFIERS, DRAWN, MARGINS, in_order, of_classes, trained
from benchmarks.apps.robustness_layers import flipped_twice, logits
from benchmarks.harness.results import parts_parser, row, run_parts
from kernels.progress import Progress
from kernels.sums import worst
from kernels.tree import unit_roundoff
from miniapps.training.graphs import cora

DIMS, INPUTS, STEP, THRESHOLDS = 5, 10, 1e-12, 20_000  # they scan 3,333 thresholds
TYPES = ("float64", "float32", "bfloat16")
KINDS = ("drawn", "learnt", "worst")
GRAPHS = 20  # orders of edges, and renumberings of nodes
LAYERED = 10  # inputs, at most, of which all hidden neurons are searched
LEARNING, LEARNING_RATE = 100, 1e-3  # of their permutations, in maximize_loss_fixed_input


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
    for k, name in enumerate(CLASSIFIERS):
        classifier = trained(name)
        features, (weights, biases) = classifier.features, classifier.network[-1]
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
            progress.show((seed / options.inputs + k) / len(CLASSIFIERS), f"{name}, input {seed}")
            flips.append(flipped(x, weights, biases, seed))
        bound = (terms[0].shape[1] - 1) * unit_roundoff("float32")
        found = {kind: max(one[kind] for one in flips) for kind in KINDS}
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


def flipped(x: np.ndarray, weights: np.ndarray, biases: np.ndarray, seed: int) -> dict[str, float]:
    """The largest margins at which orders of KINDS flip the class of inputs near x, on the straight line to its
    boundary; 0 if none does."""
    rng = np.random.default_rng(seed)
    exact = [math.fsum(row.tolist()) for row in of_classes(x, weights, biases)]
    top, second = np.argsort(exact)[[-1, -2]]
    across = (weights[top] - weights[second]).astype(np.float64)
    boundary = x - across * (exact[top] - exact[second]) / (across @ across)
    size = sum(math.fsum(np.abs(of_classes(x, weights, biases)[k]).tolist()) for k in (top, second))
    inputs = []
    for wanted in MARGINS:
        near = (boundary + across * (wanted * size / (across @ across))).astype(np.float32)
        label, other = top, second
        terms, others = of_classes(near, weights, biases)[[label, other]]
        margin = math.fsum([*terms.tolist(), *(-others).tolist()])
        if margin < 0:
            label, terms, others, margin = other, others, terms, -margin
        inputs.append((margin / math.fsum(np.abs([*terms, *others]).tolist()), near, label, terms, others))
    inputs.sort(key=lambda each: -each[0])

    def drawn(near, label, terms, others):
        orders = rng.permuted(np.tile(np.arange(len(terms)), (DRAWN, 1)), axis=1)
        return (in_order(terms[orders]) < in_order(others[orders[::-1]])).any()

    def learnt(near, label, terms, others):
        order = np.append(learnt_order(near, weights, biases, label, seed), len(near))
        return in_order(terms[order]) < in_order(others[order])

    def searched(near, label, terms, others):
        return worst.search(terms, seed=seed).lowest.value < worst.search(others, seed=seed).highest.value

    kinds = zip(KINDS, (drawn, learnt, searched), strict=True)
    return {kind: next((margin for margin, *of in inputs if flips(*of)), 0.0) for kind, flips in kinds}


def learnt_order(x: np.ndarray, weights: np.ndarray, biases: np.ndarray, label: int, seed: int) -> np.ndarray:
    """The order of the n terms of an input (n,) that their learnable permutation takes after LEARNING steps that
    increase the loss of its class; the bias is added last."""
    import torch
    from scipy.optimize import linear_sum_assignment

    generator = torch.Generator().manual_seed(seed)
    terms, bias = torch.from_numpy(x * weights), torch.from_numpy(biases)
    logits = torch.eye(len(x), requires_grad=True)
    steps = torch.optim.SGD([logits], lr=LEARNING_RATE)
    for _ in range(LEARNING):
        noise = -torch.log(-torch.log(torch.rand(logits.shape, generator=generator)))
        totals = (terms @ torch.softmax(logits + noise, dim=-1)).sum(dim=1) + bias
        steps.zero_grad()
        (-torch.nn.functional.cross_entropy(totals[None], torch.tensor([label]))).backward()
        steps.step()
    _, columns = linear_sum_assignment(-logits.detach().numpy(), maximize=True)
    return np.argsort(columns)


def layers(options: argparse.Namespace) -> list[dict]:
    """Orders of the sums of both layers of the perceptron."""
    perceptron = trained("perceptron")
    images, network = perceptron.images, perceptron.network
    progress, found = Progress("benchmark", quiet=options.quiet), []
    count = min(options.inputs, LAYERED)
    classes = [int(np.argmax(logits(x, network)[0])) for x in images]
    for seed in range(count):
        progress.show(seed / count, f"both layers, input {seed}")
        other = next(k for k in range(seed + 1, len(images)) if classes[k] != classes[seed])
        found.append(flipped_twice(images[seed], images[other], network, seed))
    progress.clear()
    most = {kind: max(one[kind] for one in found) for kind in ("drawn", "worst", "bound")}
    return [
        *(
            row("layers", f"largest margin that flips, {kind}", most[kind], [one[kind] for one in found])
            for kind in ("drawn", "worst")
        ),
        row("layers", "bound of all orders, largest", most["bound"], [one["bound"] for one in found]),
        row("layers", "worst / drawn", most["worst"] / most["drawn"]),
    ]


PARTS = {"published": published, "learnt": learnt, "graph": graph, "margins": margins, "layers": layers}


def main(argv: list[str] | None = None) -> None:
    """Measures the requested parts."""
    parser = parts_parser("apps.robustness", __doc__, PARTS, rounds=1)
    parser.add_argument(
        "--inputs", type=int, default=40, help="moved inputs of each classifier (default %(default)s)"
    )
    run_parts("robustness", parser, PARTS, argv)


if __name__ == "__main__":
    main()
