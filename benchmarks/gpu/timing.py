"""Times on the device: CUDA events around many calls, the variants in turn, medians and ratios within a round."""

from collections.abc import Callable

from benchmarks.harness.turns import in_turn, ratio

ROUNDS = 9
SAMPLE_S = 0.02


def rounds(calls: dict[str, Callable], asked, most: int = 100) -> dict[str, list[float]]:
    """Seconds per call, one for each round, of every call in `calls`, which queue work on the current stream.

    A sample has as many calls as take SAMPLE_S, at most `most`. They are in a CUDA graph if they can be captured, so
    the time excludes queueing. Every round begins with another call. `asked`: the options; `quick`: one call each;
    `quiet`: no progress.
    """
    if asked.quick:
        return in_turn({name: sampler(call, 1) for name, call in calls.items()}, 1, asked.quiet)
    samplers = {}
    for name, call in calls.items():
        once = sampler(call, 1)
        once()
        samplers[name] = sampler(call, max(1, min(most, int(SAMPLE_S / once()))))
    return in_turn(samplers, ROUNDS, asked.quiet)


def sampler(call: Callable, repeats: int) -> Callable[[], float]:
    """A function that runs `repeats` calls and returns the seconds of one."""
    import cupy as xp

    xp.cuda.Device().synchronize()  # what the call reads may have been made on another stream
    stream = xp.cuda.Stream(non_blocking=True)
    with stream:
        call()  # compiles, and fills the memory pool: a capture must not allocate
        stream.synchronize()
    graph = captured(call, repeats, stream) if repeats > 1 else None

    def seconds() -> float:
        begin, end = xp.cuda.Event(), xp.cuda.Event()
        with stream:
            begin.record(stream)
            if graph:
                graph.launch(stream)
            else:
                for _ in range(repeats):
                    call()
            end.record(stream)
        end.synchronize()
        return 1e-3 * xp.cuda.get_elapsed_time(begin, end) / repeats

    return seconds


def captured(call: Callable, repeats: int, stream):
    """The calls as a CUDA graph, or None if they cannot be captured, for example because they wait for the device.

    The graph writes to memory that CuPy's pool considers free but keeps for this stream, so do not use the stream for
    other calls.
    """
    try:
        with stream:
            stream.begin_capture()
            try:
                for _ in range(repeats):
                    call()
            finally:
                graph = stream.end_capture()
            return graph
    except Exception:  # CUDA, its libraries and CuPy have different classes of errors
        return None


def against(times: dict[str, list[float]], name: str, other: str):
    """The ratio of the times round by round, or "-" where the other was not timed."""
    return ratio(times[name], times[other]) if other in times else "-"
