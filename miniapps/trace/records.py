"""Names of the records that stand between records of the state: a prefix, then the kernel, exchange or reduction.

`miniapps.runner.watch` says what is recorded under each; `analysis.divergence.from_messages` goes by it.
"""

INPUT = "input:"
SENT, RECEIVED = "sent:", "received:"
SOURCE = "source:"  # the rank whose message a receive from any source took
COMPUTED = "computed:"
ADDED, TOTAL = "added:", "total:"
GLOBAL = "global:"  # arrays that all ranks hold, gather or scatter together, by call, count and type
LEFT = "left:"
NODE = "node:"  # a value of a partitioned program, by the blocks of the problem: the same whoever owns them
# Choices: the trees of a reduction by `trees`, behind it the reduction's name; what a plan over a mesh comes to, in
# stages, which the options decide.
PACKING, STAGES = "packing:", "plan:stages"

# Values of rank 0 that say what a table of embeddings is asked for in a step, behind them the table's name: its rows
# and columns, samples of a step; by class of rows that are asked for about alike how many there are, and their lookups;
# the share of the lookups of each block of rows.
ASKED = ASKED_ROWS, ASKED_COLUMNS, ASKED_SAMPLES, ASKED_CLASS, ASKED_LOOKUPS, ASKED_SHARES = (
    "input:asked.rows:", "input:asked.columns:", "input:asked.samples:", "input:asked.class:",
    "input:asked.lookups:", "input:asked.shares:",
)  # fmt: skip
WRONG = "wrong_rank"  # a value by block, of blocks that ranks computed twice
CHAIN = "chain:"  # heads of the chain of the run (miniapps.trace.chain)

PASSING = (SENT, RECEIVED, SOURCE, COMPUTED, ADDED, TOTAL, GLOBAL, LEFT)  # with --record messages only


def is_state(name: str) -> bool:
    """Whether `name` is of the state or of a result, and not of what runs begin from or pass on."""
    return not name.startswith((*PASSING, NODE, INPUT, CHAIN))


ARGUMENTS = (
    "program.arguments"  # the key by which the problem of a program under `fpna run` states its arguments
)
