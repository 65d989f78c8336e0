"""A slowed rank works longer, and does not wait longer."""

from time import thread_time

from miniapps.runner.slow import Slow
from miniapps.trace import Tracer, read
from miniapps.trace.schema import COLLECTIVE, COMPUTE

PIECE = 0.004  # seconds


def spin():
    end = thread_time() + PIECE
    while thread_time() < end:
        pass


def test_work_takes_longer_by_the_factor_in_its_region_and_what_is_waited_for_does_not(tmp_path):
    used = {}
    with Tracer(tmp_path / "trace.h5", {"rank": 0}) as tracer:
        work, wait = tracer.name("work", COMPUTE), tracer.name("sum", COLLECTIVE)
        slow = Slow(tracer)
        for factor in (1.0, 5.0, 1.0):
            slow.by(factor)
            for part, number in (("inside", wait), ("work", work)):
                begin = thread_time()
                start = tracer.clock()
                spin()
                tracer.event(number, start)
                used[part, factor] = thread_time() - begin
    assert used["work", 1.0] < 2 * PIECE and used["work", 5.0] >= 5 * PIECE
    assert used["inside", 5.0] < 2 * PIECE
    events = read(tmp_path / "trace.h5", ["events"]).tables["events"]
    took = 1e-9 * (events["end"] - events["start"])
    assert took[3] >= 5 * PIECE


def test_work_before_a_wait_is_longer_inside_of_the_region_around_both(tmp_path):
    with Tracer(tmp_path / "trace.h5", {"rank": 0}) as tracer:
        work, wait = tracer.name("work", COMPUTE), tracer.name("sum", COLLECTIVE)
        slow = Slow(tracer)
        slow.by(5.0)
        around = tracer.clock()
        spin()
        begin = tracer.clock()
        tracer.event(wait, begin)
        tracer.event(work, around)
    assert begin - around >= 5e9 * PIECE
