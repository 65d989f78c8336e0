"""Options of the operations mini-app."""

from dataclasses import dataclass

from miniapps.runner.config import HUGE, option, section

MOST_RUNS = 100_000


def _operations() -> list[str]:
    from kernels.torchops.cases import operations

    return [each.name for each in operations()]


@dataclass
class Audit:
    """What is audited, and how much is tried."""

    operations: tuple[str, ...] = option(
        (),
        help="an operation; may be repeated; none given: all (--list names them)",
        flag="--operation",
        choices=_operations,
    )
    function: str = option(
        "",
        help="a function of yours instead, FILE.py:FUNCTION, as the first argument is too; the file also has "
        "inputs(seed), which returns the arrays that it is called with",
        flag="--function",
        effect="source",
    )
    cases: int = option(
        0,
        help="cases of each operation and direction, at most, spread over its factors; 0: all",
        minimum=0,
        maximum=MOST_RUNS,
        flag="--cases",
        effect="size",
    )
    runs: int = option(
        12,
        help="calls with each number of threads, to see whether they differ from run to run",
        minimum=2,
        maximum=MOST_RUNS,
        flag="--runs",
        effect="size",
    )
    processes: int = option(
        1,
        help="fresh processes beside the first, each of which calls every case once",
        minimum=0,
        maximum=1000,
        flag="--processes",
        effect="size",
    )
    seconds: float = option(
        60.0,
        help="time after which a case counts as hanging, and its process is ended",
        unit="s",
        role="control",
        minimum=0.1,
        maximum=HUGE,
        flag="--seconds-per-case",
    )


@dataclass
class OperationsConfig:
    """All options of `python -m miniapps.operations` beside the common ones."""

    audit: Audit = section(Audit)
