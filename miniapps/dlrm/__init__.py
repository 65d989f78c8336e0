"""DLRM: tables of embeddings cut over all ranks, between two perceptrons that every rank holds.

    mpirun -n 4 python -m miniapps.dlrm --guarantee layout

Rows of bags travel to the samples that ask for them, and gradients back; those of the perceptrons are added over all
ranks as in `miniapps.training`. See docs/explanation/dlrm.md.
"""

from miniapps.dlrm.config import DlrmConfig
from miniapps.runner.main import App

APP = App(
    name="dlrm",
    config=DlrmConfig,
    summary="recommendation with tables of embeddings over ranks",
)
