"""Runs that answer requests, with given results and known times, written by the real tracer."""

import json
from unittest import mock

from miniapps.trace import Tracer
from miniapps.trace.schema import COMPUTE, rank_file
from miniapps.untrusted.schedule import SCHEDULE
from tests.analysis.synthetic import METHOD, Clock, attributes, write_result


def schedule(*shares, tile=4):
    """The document of a schedule: a kernel for each share, which hands a buffer of 1 KiB to the next; two places."""
    kernels = [
        {"kernel": f"linear {k}", "per": "tile" if k else "sample", "share": share}
        for k, share in enumerate(shares)
    ]
    buffers = [
        {"name": f"b{k}", "offset": 1024 * tile * (k % 2), "bytes": 1024, "samples": tile, "written": k, "read": k + 1,
         "first": k, "last": k + 1}
        for k in range(len(shares) - 1)
    ]  # fmt: skip
    return {
        "tile": tile,
        "kernels": kernels,
        "buffers": buffers,
        "price": {"flops_per_byte": 2.0},
        "more": [],
    }


def write_answers(out, results, ms, backend="eager", guarantee="none", schedule=None, **more):
    """Write a run into the new directory `out` and return it: `results` of each image, `ms` milliseconds of each
    request, the document of its `schedule`."""
    out.mkdir(parents=True)
    method = METHOD | {"run.guarantee": guarantee, "inference.backend": backend}
    given = {"app": "inference", "run_id": str(out), "method": method, **more}
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
    if schedule:
        (out / SCHEDULE).write_text(json.dumps(schedule))
    return out
