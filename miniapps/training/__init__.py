"""Data-parallel training of small networks: gradients of logical micro-batches, summed over all ranks.

    mpirun -n 4 python -m miniapps.training --guarantee layout

Every step adds the gradients of all micro-batches of a batch, in buckets that are sent while earlier layers still
compute. This is where distributed learning loses reproducibility. See docs/explanation/training.md.
"""

from miniapps.runner.main import App
from miniapps.training.config import TrainingConfig

APP = App(
    name="training",
    config=TrainingConfig,
    serves=("duplicate", "processor"),
    summary="data-parallel training of small networks, on images and graphs",
)
