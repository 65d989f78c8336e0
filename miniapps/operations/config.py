"""Options of the operations mini-app."""

from dataclasses import dataclass

from miniapps.runner.config import HUGE, option, section

MOST_RUNS = 100_000
CPU = "cpu"  # an axis


def _operations() -> list[str]:
    from kernels.torchops.cases import operations

    return [each.name for each in operations()]


@dataclass
class Audit:
    """The audited operations, and the number of trials."""

    operations: tuple[str, ...] = option(
        (),
        help="an operation; may be given several times; none given: all (--list names them)",
        flag="--operation",
        choices=_operations,
    )
    function: str = option(
        "",
        help="your function instead, FILE.py:FUNCTION, also allowed as the first argument; the file must also define "
        "inputs(seed), which returns the function's arguments",
        flag="--function",
        effect="source",
    )
    cases: int = option(
        0,
        help="cases per operation and direction, at most, spread over its factors; 0: all",
        minimum=0,
        maximum=MOST_RUNS,
        flag="--cases",
        effect="size",
    )
    runs: int = option(
        12,
        help="calls with each number of threads, to find differences from run to run",
        minimum=2,
        maximum=MOST_RUNS,
        flag="--runs",
        effect="size",
    )
    processes: int = option(
        1,
        help="further processes, each of which calls every case once",
        minimum=0,
        maximum=1000,
        flag="--processes",
        effect="size",
    )
    axes: tuple[str, ...] = option(
        (),
        help="a further condition to vary; cpu: the code that libraries choose by the processor; fresh processes hold "
        "each library to older code by its own setting",
        flag="--axes",
        choices=lambda: [CPU],
    )
    seconds: float = option(
        60.0,
        help="time after which a case counts as hanging and its process is killed",
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
