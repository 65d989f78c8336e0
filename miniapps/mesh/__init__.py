"""Training over a mesh of ranks: models that are written for one device, cut along samples, heads, rows or experts.

    mpirun -n 4 python -m miniapps.mesh --model gpt --recipe dp+tp --mesh data=2,model=2

A step of any model of `miniapps.partition` is planned once, whatever the mesh; under `layout` its bits are too. See
docs/explanation/partition.md.
"""

from miniapps.mesh.config import MeshConfig
from miniapps.runner.main import App

APP = App(
    name="mesh",
    config=MeshConfig,
    summary="training of models cut over a mesh of ranks",
)
