"""Traces of watched models: records of an input, three modules, a loss, gradients and weights in three steps."""

import numpy as np

from miniapps.trace import Tracer
from miniapps.trace.records import DATA, GRADIENT, LOSS, OUTPUT, OUTPUT_GRADIENT, UPDATE, WEIGHTS
from tests.analysis.synthetic import attributes

MODULES = ("0 (Linear)", "1 (GELU)", "2 (LayerNorm)")
PARAMETERS = ("0.weight", "2.weight")
GRADIENT_OF_LAST, WEIGHTS_OF_LAST = f"{GRADIENT}2.weight", f"{WEIGHTS}2.weight"
STEPS = (1, 2, 3)


def names(modules=MODULES, parameters=PARAMETERS):
    """The records of a step in the order of computation."""
    made = [f"{DATA}0", *(f"{OUTPUT}{module}" for module in modules), LOSS]
    for module in reversed(modules):
        made.append(f"{OUTPUT_GRADIENT}{module}")
        own = [name for name in parameters if module.startswith(f"{name.rpartition('.')[0]} (")]
        made += [f"{GRADIENT}{name}" for name in own]
    return [*made, *(f"{UPDATE}{name}" for name in parameters), *(f"{WEIGHTS}{name}" for name in parameters)]


def write_watched(out, apart, modules=MODULES, parameters=PARAMETERS, steps=STEPS, **more):
    """A run in the new directory `out` of one rank; returns `out`. `apart` {(step, name): units in the last place that
    are added to the first of 8 numbers of this record}."""
    out.mkdir(parents=True)
    stated = {
        "config": {"recording": {"every": 1}},
        "options": {"recording.every": {"records": ["fingerprints:model.*"]}},
    }
    given = {"run_id": str(out), "app": "learns", **stated, **more}
    with Tracer(out / "rank-00000.h5", attributes(0, 1, "none", "", **given), size=1) as tracer:
        tracer.at(0, 0)
        for step in steps:
            tracer.at(0, step)
            for number, name in enumerate(names(modules, parameters)):
                array = np.full(8, 1 + number / 64, np.float32)
                array[0] += apart.get((step, name), 0) * np.spacing(array[0])
                block = 0 if name.startswith((UPDATE, WEIGHTS)) else -1
                tracer.array(name if block == 0 else f"{name} by rank", 0, array)
    return out
