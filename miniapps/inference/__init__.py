"""Networks that answer requests of changing size: does an answer depend on what else is in the request?

    mpirun -n 2 python -m miniapps.inference --data blobs --backend static

The same images come again in requests of other sizes, at other places, on other ranks; every answer and every time goes
to the trace. See docs/explanation/inference.md.
"""

from miniapps.inference.config import InferenceConfig
from miniapps.runner.main import App

APP = App(
    name="inference",
    config=InferenceConfig,
    summary="networks that answer requests: does an answer depend on what else is asked",
)
