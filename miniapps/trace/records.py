"""Names of records between states: a prefix, then the kernel, exchange or reduction.

`miniapps.runner.watch` describes the record under each name; `analysis.divergence.from_messages` reads them.
"""

INPUT = "input:"
SENT, RECEIVED = "sent:", "received:"
SOURCE = "source:"  # the rank whose message a receive from any source took
COMPUTED = "computed:"
ADDED, TOTAL = "added:", "total:"
WRITTEN, READ = "written:", "read:"  # data of calls that write and read files
# The number of the file of such a call, and its first byte there; where the other bytes lie apart, by the file's view.
OF_FILE, OFFSET, VIEW_OFFSET = "file:", "offset:", "view offset:"
# Of one-sided calls: data of the origin, data that a call fetched, the target and the place in its window; the memory
# of a window as an exposure of it ends.
ORIGIN, FETCHED, TARGET, DISPLACEMENT, WINDOW = "origin:", "fetched:", "target:", "displacement:", "window:"
GLOBAL = "global:"  # arrays that all ranks hold, gather or scatter together, by call, count and type
LEFT = "left:"
NODE = "node:"  # a value of a partitioned program, by blocks of the problem: the same for any owners
# Of a watched model (miniapps.programs.watching), in the order of computation, each with the name of a module and its
# class, or of a parameter.
BEFORE, RANDOM, DATA, GIVEN, OUTPUT, LOSS, OUTPUT_GRADIENT, GRADIENT, UPDATE = WATCHED = (
    "model.weights before:", "model.random:", "model.data:", "model.given:", "model.output:", "model.loss:",
    "model.gradient of output:", "model.gradient:", "model.gradient for update:",
)  # fmt: skip
WEIGHTS = "model.weights:"  # state
# Choices: the trees of a reduction by `trees`, with the reduction's name; the stages of a plan over a mesh.
PACKING, STAGES = "packing:", "plan:stages"

# Values of rank 0 about the lookups in a table of embeddings, with the table's name: its rows and columns; samples of a
# step; for each class of about equally popular rows their number and their lookups; the share of the lookups in each
# block of rows.
ASKED = ASKED_ROWS, ASKED_COLUMNS, ASKED_SAMPLES, ASKED_CLASS, ASKED_LOOKUPS, ASKED_SHARES = (
    "input:asked.rows:", "input:asked.columns:", "input:asked.samples:", "input:asked.class:",
    "input:asked.lookups:", "input:asked.shares:",
)  # fmt: skip
# Values about decisions (`Tracer.decision`), each with the name of the decision: the outcome, and its margin.
DECISION, MARGIN = "decision:", "margin:"
WRONG = "wrong_rank"  # a value by block: the rank with wrong bits, found by --duplicate
CHAIN = "chain:"  # heads of the chain of the run (miniapps.trace.chain)

NO_NUMBERS = (
    SOURCE,
    OF_FILE,
    OFFSET,
    VIEW_OFFSET,
    TARGET,
    DISPLACEMENT,
)  # values without a distance: only equal or not
# With --record messages only.
OF_WINDOWS = (ORIGIN, FETCHED, WINDOW)
PASSING = (SENT, RECEIVED, COMPUTED, ADDED, TOTAL, GLOBAL, LEFT, WRITTEN, READ, *OF_WINDOWS, *NO_NUMBERS)


def is_state(name: str) -> bool:
    """Whether `name` is a record of a state or a result, not of inputs, messages, a model's passes or heads."""
    return not name.startswith((*PASSING, *WATCHED, NODE, INPUT, CHAIN))


ARGUMENTS = "program.arguments"  # key of a program's arguments in its problem, under `fpna run`
