"""--mesh auto: the recipe and mesh that are predicted to be the fastest on the ranks of the run."""

from __future__ import annotations

import sys
from typing import Any

from miniapps.errors import UsageError
from miniapps.learning.course.options import AUTO
from miniapps.mesh.problem import deck, ordering_of
from miniapps.partition import models
from miniapps.partition.search import Asking, search
from miniapps.untrusted.text import tell


def choose(config: Any, options: Any, size: int) -> None:
    """Set recipe and mesh to those with the lowest predicted wall time, of all recipes of the model or of the given
    one. Raises UsageError without a calibration, or if no recipe has a mesh of `size` ranks."""
    if not config.mesh.calibration:
        raise UsageError(
            f"--mesh auto: compares prices; time kernels and messages by mpirun -n {size} fpna calibrate --out cal "
            f"--plan '{config.model.name}', and give --calibration cal"
        )
    if config.training.policy != "fixed":
        raise UsageError(
            f"--mesh auto: compares prices, and no price knows the wires that --policy {config.training.policy} will "
            "choose; choose a mesh, or --policy fixed"
        )
    if config.mesh.map or config.mesh.axes or config.mesh.owners:
        raise UsageError("--mesh auto: chooses what the axes carry; leave --map, --axes and --owners out")
    model, sizes = models.model(config.model.name), deck(config)
    names = list(model.RECIPES) if config.mesh.recipe == AUTO else [config.mesh.recipe]
    asking = Asking(
        config.model.name, config.mesh.calibration, threads=options.threads, anywhere=options.processor == "any",
        recorded=True, wire=config.training.wire, ordering=ordering_of(options),
    )  # fmt: skip
    found = search(
        model, sizes, names, size, asking, level=options.policy.level, schedule=config.mesh.schedule,
        attention=config.mesh.attention, overlap=config.mesh.overlap,
    )  # fmt: skip
    for row in found.price["tables"]["unpriced"]:
        tell(f"mesh: --mesh auto: {row['title']} is not compared: {row['reason']}", sys.stderr)
    config.mesh.recipe = found.best[0].recipe
    config.mesh.mesh = str(found.best[0].mesh)
