"""Runs that answer requests, written by the real tracer from numbers that a test gives, with times that are known."""

from unittest import mock

from miniapps.trace import Tracer
from miniapps.trace.schema import COMPUTE, rank_file
from tests.analysis.synthetic import METHOD, Clock, attributes, write_result


def write_answers(out, results, ms, backend="eager", guarantee="none"):
    """Write a run into the new directory `out` and return it: `results` of each image, `ms` milliseconds of each
    request."""
    out.mkdir(parents=True)
    method = METHOD | {"run.guarantee": guarantee, "inference.backend": backend}
    given = {"app": "inference", "run_id": str(out), "method": method}
    clock = Clock()
    with mock.patch("time.perf_counter_ns", clock):
        tracer = Tracer(out / rank_file(0), attributes(0, 1, guarantee, "direct", **given), size=1)
        for request, time in enumerate(ms):
            tracer.at(0, request)
            begin = clock.now
            clock.spend(time)
            tracer.event(tracer.name("request", COMPUTE), begin)
        tracer.at(0, len(ms))
        for image, count in enumerate(results):
            tracer.value("results_per_image", count, image)
        tracer.close()
    write_result(out)
    return out
