"""The numbered cases of a run; each case is a block of work."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.torchops.cases import find, operations
from kernels.torchops.cases.operation import DIRECTIONS, Operation


@dataclass(frozen=True)
class Chosen:
    """One case: its name, the request to the child process, and the fields of its record beside the answer."""

    name: str
    request: dict[str, Any]
    about: dict[str, Any]


def chosen(audit) -> list[Chosen]:
    """The cases that the configuration requests, in a fixed order."""
    if audit.function:
        return [_own(audit.function, direction) for direction in DIRECTIONS]
    which = [find(name) for name in dict.fromkeys(audit.operations)] or operations()
    return [case for operation in which for case in _cases(operation, audit.cases)]


def _own(function: str, direction: str) -> Chosen:
    about = {"operation": function, "direction": direction, "factors": {}, "documented": []}
    return Chosen(f"{function} {direction}", {"file": function, "direction": direction}, about)


def _cases(operation: Operation, most: int) -> list[Chosen]:
    """At most `most` cases of each direction (0: all), spread evenly over the combinations of factors."""
    selected = []
    for direction in operation.directions:
        cases = [case for case in operation.cases() if case.direction == direction]
        count = min(most, len(cases)) or len(cases)
        places = np.unique(np.linspace(0, len(cases) - 1, count).astype(int)) if count > 1 else [0]
        selected += [cases[place] for place in places]
    return [
        Chosen(
            case.name,
            {"case": {"operation": case.operation, "direction": case.direction, "factors": case.factors}},
            {
                "operation": case.operation,
                "direction": case.direction,
                "factors": case.factors,
                "documented": list(operation.documented),
            },
        )
        for case in selected
    ]
