"""DLRM, a recommendation model: embedding tables cut over all ranks, and two perceptrons on every rank.

    mpirun -n 4 python -m miniapps.dlrm --guarantee layout

Ranks send the rows of bags to the samples that look them up, and gradients back. Gradients of the perceptrons are added
over all ranks as in `miniapps.training`. See docs/explanation/dlrm.md.
"""

from miniapps.dlrm.config import DlrmConfig
from miniapps.runner.main import App

APP = App(
    name="dlrm",
    config=DlrmConfig,
    summary="recommendation with embedding tables cut over ranks",
)
