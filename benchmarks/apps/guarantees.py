"""The costs of the guarantees in an application."""

from functools import partial

from benchmarks.harness.turns import in_turn, ratio
from kernels.guarantees import LEVELS


def guarantee_costs(seconds, options, what: str) -> list[dict]:
    """A row for each guarantee: the ratio of its time to the time under none, round by round. `seconds(level)` makes a
    run; `options` are those of `run_parts`."""
    times = in_turn({level: partial(seconds, level) for level in LEVELS}, options.rounds, options.quiet)
    return [
        {
            "part": "guarantee",
            "what": f"{level} / none{what}",
            "figure": ratio(times[level], times["none"]),
            "raw": times[level],
        }
        for level in LEVELS[1:]
    ]
