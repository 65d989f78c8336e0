"""Options of k-means."""

from __future__ import annotations

from dataclasses import dataclass

from miniapps.learning.course.options import Seeds, directory, samples
from miniapps.learning.samples.images import IMAGES
from miniapps.runner.config import INT32, option, section


@dataclass
class Points:
    """The points: training images, whose pixels have mean 0 and standard deviation 1."""

    name: str = samples(IMAGES)
    dir: str = directory()


@dataclass
class Clusters:
    """Lloyd's algorithm."""

    count: int = option(
        10,
        help="clusters, which begin at drawn points",
        minimum=1,
        maximum=1024,
        flag="--clusters",
        effect="size",
    )
    iterations: int = option(
        300,
        help="iterations, at most; it ends when no point changes its cluster",
        minimum=1,
        maximum=INT32 - 1,
        flag="--iterations",
    )
    dtype: str = option(
        "float32",
        help="type of points, centres and sums",
        choices=("float32", "float64"),
        role="method",
        flag="--dtype",
    )
    block: int = option(
        64,
        help="points of a block, whose sum is one contribution on any number of ranks",
        unit="points",
        minimum=1,
        maximum=2**20,
    )


@dataclass
class ClustersConfig:
    """All options of `python -m miniapps.clusters` beside the common ones."""

    data: Points = section(Points)
    clusters: Clusters = section(Clusters)
    seeds: Seeds = section(Seeds)
