"""Measures rates of this machine for predictions: kernels by shape, all-reduces, exchanges, overheads, memory, noise.

    mpirun -n 2 python -m miniapps.calibrate --out cal --budget 60

Its trace has the usual form: regions are micro-benchmarks, values their parameters. `python -m analysis predict RUN
--calibration cal` reads it. See docs/how-to/predict.md.
"""

from miniapps.calibrate.config import CalibrateConfig
from miniapps.runner.main import App

APP = App(
    name="calibrate",
    config=CalibrateConfig,
    summary="rates of this machine for predictions: kernels, messages, memory, noise",
)
