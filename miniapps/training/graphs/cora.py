"""Cora: papers that cite each other, their words and classes, from a file that is verified by SHA-256."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace

import numpy as np

from miniapps.learning.samples.images import Labelled
from miniapps.learning.samples.source import REPAIR, SHIPPED, Source, contents

CLASSES = 7  # of papers
COUNTS = (140, 1000)  # numbers of training and test papers
NODES, EDGES, WORDS = 2708, 10556, 1433


@dataclass(frozen=True)
class Graph:
    """Nodes with features float32 (nodes, features); the neighbours of node v, ascending, are neighbours[starts[v]:
    starts[v + 1]]."""

    features: np.ndarray
    starts: np.ndarray  # int32 (nodes + 1,)
    neighbours: np.ndarray  # int32


@dataclass(frozen=True)
class Papers(Labelled):
    """Numbers of nodes, int32 (n,), in the place of images, and the arrays of a `Graph`."""

    features: np.ndarray
    starts: np.ndarray
    neighbours: np.ndarray

    @property
    def graph(self) -> Graph:
        """All nodes."""
        return Graph(self.features, self.starts, self.neighbours)


def load(directory: str, features: str = "raw") -> Papers:
    """Loads Cora from the file in `directory`; `features`: `normalised` divides the words of each paper by their sum.
    Raises UsageError as `images.load` does."""
    papers: Papers = SOURCE.read(contents("cora", SOURCE, directory))
    if features == "raw":
        return papers
    rows = papers.features
    return replace(papers, features=rows / np.maximum(rows.sum(1, keepdims=True), 1))


def _of_files(contents: dict[str, bytes]) -> Papers:
    """The citation graph and the public split of Planetoid (Yang et al. 2016): 20 training papers per class, 1,000 test
    papers. Features are words, each 0 or 1."""
    (content,) = contents.values()
    with np.load(io.BytesIO(content), allow_pickle=False) as held:
        arrays = {name: held[name] for name in held.files}
    nodes, words = arrays["feat_shape"].tolist()
    features = np.zeros((nodes, words), np.float32)
    places = np.repeat(np.arange(nodes), np.diff(arrays["feat_indptr"])), arrays["feat_indices"]
    features[places] = arrays["feat_data"]
    source, target = arrays["edge_index"]
    order = np.lexsort((source, target))
    starts = np.searchsorted(target[order], np.arange(nodes + 1)).astype(np.int32)
    labels, learned, tested = arrays["labels"], arrays["train_index"], arrays["test_index"]
    return Papers(
        1,
        learned.astype(np.int32),
        labels[learned].astype(np.uint8),
        tested.astype(np.int32),
        labels[tested].astype(np.uint8),
        features,
        starts,
        source[order].astype(np.int32),
    )


SOURCE = Source(
    {"cora.npz": "9d1fe4ffac6b35933ef4ed899338058e9d2ff77c8175032afa7f3629be23295a"},
    SHIPPED,
    "miniapps",
    REPAIR,
    _of_files,
    gzipped=False,
    instead="--data blobs --model mlp",
)
