"""Networks that answer requests of changing size: does an answer depend on the other images of its request?

    mpirun -n 2 python -m miniapps.inference --data blobs --backend static

The same images appear in requests of other sizes, at other places, on other ranks. The trace records every answer and
every time. See docs/explanation/inference.md.
"""

from miniapps.inference.config import InferenceConfig
from miniapps.runner.main import App

APP = App(
    name="inference",
    config=InferenceConfig,
    serves=("processor",),
    summary="networks that answer requests: does an answer depend on the rest of its request",
)
