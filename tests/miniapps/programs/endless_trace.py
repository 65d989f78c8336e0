"""Writes a trace for ever, flushing all the time, until it is killed: the worst case for a file."""

import sys

import numpy as np

from miniapps.trace import Tracer, fingerprint

STEP_EVENTS, STEP_VALUES = 300, 20

tracer = Tracer(sys.argv[1], {"rank": 0, "app": "endless"}, size=3)
region = tracer.name("region")
print("ready", flush=True)
step = 0
while True:
    tracer.at(0, step)
    for number in range(STEP_EVENTS):
        tracer.event(region, tracer.clock(), number)
    for number in range(STEP_VALUES):
        tracer.value(f"value {step % 50}", step + number)
    tracer.fingerprint("state", 3, fingerprint(np.ones(3)))
    tracer.order("total", [[0, 2, 1]])
    tracer.flush()
    step += 1
