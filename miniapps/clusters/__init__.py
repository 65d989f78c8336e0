"""Data-parallel k-means: sums in another order move points to other clusters.

    mpirun -n 4 python -m miniapps.clusters --allreduce arrival

Lloyd's algorithm on images: each rank assigns its points, and all-reduces add the points of each cluster. Which cluster
a point gets, and after how many iterations nothing changes, are decisions, which the trace records with their margins.
See docs/explanation/decisions.md.
"""

from miniapps.clusters.config import ClustersConfig
from miniapps.runner.main import App

APP = App(
    name="clusters",
    config=ClustersConfig,
    serves=("processor",),
    summary="k-means over all ranks: the clusters that rounding decides",
)
