"""--mesh auto: the recipe and mesh that are predicted to be the fastest on the ranks of the run."""

from __future__ import annotations

import sys
from typing import Any

from miniapps.errors import UsageError
from miniapps.learning.course.options import AUTO
from miniapps.mesh.problem import deck
from miniapps.partition import models
from miniapps.partition.capture.shapes import graph_of
from miniapps.partition.pricing.candidates import candidates, planned
from miniapps.partition.pricing.program import program_of
from miniapps.partition.showing.price import priced
from miniapps.untrusted.text import tell


def choose(config: Any, options: Any, size: int) -> None:
    """Set recipe and mesh to those with the lowest predicted wall time, of all recipes of the model or of the given
    one. Raises UsageError without a calibration, or if no recipe has a mesh of `size` ranks."""
    if not config.mesh.calibration:
        raise UsageError(
            f"--mesh auto: compares prices; time kernels and messages by mpirun -n {size} fpna calibrate --out cal "
            f"--plan '{config.model.name}', and give --calibration cal"
        )
    if config.mesh.map or config.mesh.axes:
        raise UsageError("--mesh auto: chooses what the axes carry; leave --map and --axes out")
    model, sizes = models.model(config.model.name), deck(config)
    names = list(model.RECIPES) if config.mesh.recipe == AUTO else [config.mesh.recipe]
    found, _ = candidates(model, sizes, names, size)
    graph, level = graph_of(model, sizes), options.policy.level
    threads, anywhere = options.threads, options.processor == "any"
    programs = [
        program_of(plan, one.mesh, level, str(number), 0, threads, anywhere, recorded=True)
        for number, (one, plan) in enumerate(planned(model, sizes, graph, found))
    ]
    prices = priced(programs, config.mesh.calibration)["tables"]
    for row in prices["unpriced"]:
        tell(f"mesh: --mesh auto: {found[int(row['title'])]} is not compared: {row['reason']}", sys.stderr)
    one = found[int(prices["plans"][0]["title"])]
    config.mesh.recipe = one.recipe
    config.mesh.mesh = str(one.mesh)
