"""What the guarantees cost an application."""

from functools import partial

from benchmarks.harness.turns import in_turn, ratio
from kernels.guarantees import LEVELS


def guarantee_costs(seconds, options, what: str) -> list[dict]:
    """Rows of the cost of every guarantee over that of none, round by round; seconds(level) is one run, `options`
    those of parts."""
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
