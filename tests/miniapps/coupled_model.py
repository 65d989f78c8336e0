"""A model of the coupled app inside the test's own process: one rank, no launcher, no run directory."""

import contextlib
import logging

from mpi4py import MPI

from miniapps.coupled.config import CoupledConfig
from miniapps.coupled.model import Model
from miniapps.runner.context import Context
from miniapps.runner.options import RunOptions
from miniapps.trace import Tracer


def configured(settings) -> CoupledConfig:
    """The default configuration with `settings` {"section.name": value}."""
    config = CoupledConfig()
    for key, value in settings.items():
        part, name = key.split(".")
        assert hasattr(getattr(config, part), name), key
        setattr(getattr(config, part), name, value)
    return config


@contextlib.contextmanager
def model(tmp_path, settings, **options):
    """A started model on MPI.COMM_SELF; `settings` of the app, `options` of the common section."""
    number = len(list(tmp_path.glob("*.h5")))
    with Tracer(tmp_path / f"{number}.h5", {"rank": 0}, level="off") as tracer:
        ctx = Context(
            MPI.COMM_SELF, configured(settings), RunOptions(**options), tracer, logging.getLogger(), tmp_path
        )
        simulation = Model(ctx)
        try:
            simulation.start()
            simulation.measure()
            yield simulation
        finally:
            simulation.free()
            ctx.end_repeat()


def advance(simulation, steps: int) -> None:
    """`steps` further time steps."""
    for step in range(simulation.state.step + 1, simulation.state.step + steps + 1):
        simulation.advance(step)
