"""Traces until no file may grow further, says how that was told, and ends as any program does."""

import resource
import sys

from miniapps.trace import TraceError, Tracer

tracer = Tracer(sys.argv[1], {"rank": 0, "app": "full"})
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
region = tracer.name("region")
try:
    for step in range(10_000):
        tracer.at(0, step)
        for _ in range(1000):
            tracer.event(region, tracer.clock())
        tracer.flush()
except TraceError as error:
    print(error)
    tracer.flush()  # writes no more, and says nothing more
    tracer.close()
    sys.exit(7)
