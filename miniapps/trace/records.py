"""Names of the records that stand between records of the state: a prefix, then the kernel, exchange or reduction.

`miniapps.runner.watch` says what is recorded under each; `analysis.divergence.cause` goes by it.
"""

INPUT = "input:"
SENT, RECEIVED = "sent:", "received:"
SOURCE = "source:"  # the rank whose message a receive from any source took
COMPUTED = "computed:"
ADDED, TOTAL = "added:", "total:"
LEFT = "left:"
NODE = "node:"  # a value of a partitioned program, by the blocks of the problem: the same whoever owns them
PACKING = (
    "packing:"  # the choice that holds the trees of a reduction by `trees`, behind it the reduction's name
)
STAGES = (
    "plan:stages"  # the choice that holds what a plan over a mesh comes to, in stages: decided by the options
)

PASSING = (SENT, RECEIVED, SOURCE, COMPUTED, ADDED, TOTAL, LEFT)  # with --record messages only


def is_state(name: str) -> bool:
    """Whether `name` is of the state or of a result, and not of what runs begin from or pass on."""
    return not name.startswith((*PASSING, NODE, INPUT))
