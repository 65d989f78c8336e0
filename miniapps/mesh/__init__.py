"""Training over a mesh of ranks: cuts models written for one device along samples, heads, rows or experts.

    mpirun -n 4 python -m miniapps.mesh --model gpt --recipe dp+tp --mesh data=2,model=2

Any model of `miniapps.partition` trains over any mesh; under `layout` the bits do not depend on the mesh. See
docs/explanation/partition.md.
"""

from miniapps.mesh.config import MeshConfig
from miniapps.runner.main import App

APP = App(
    name="mesh",
    config=MeshConfig,
    serves=("processor",),
    summary="training of models cut over a mesh of ranks",
)
