"""The error of preconditioners, and the check of the diagonal that they divide by."""

import numpy as np

from miniapps.errors import UsageError
from miniapps.system.device import host


class PreconditionerError(UsageError):
    """A preconditioner that is unsuitable for a matrix; the message has the reason and alternatives."""


def inverse_diagonal(matrix, what: str, positive: bool):
    """(m,) one over the diagonal of the own rows. Collective.

    Raises PreconditionerError on all ranks, with the first global row, for a zero or non-finite element and, if
    `positive`, for a negative one.
    """
    diagonal = matrix.diagonal()
    values = host(diagonal)
    good = np.isfinite(values) & (values > 0 if positive else values != 0)
    bad = matrix.rows.global_rows()[~good][:1]
    first = min(
        matrix.comm.allgather((int(bad[0]), float(values[~good][0])) if len(bad) else (matrix.n, 0.0))
    )
    if first[0] < matrix.n:
        raise PreconditionerError(
            f"row {first[0]} has {first[1]:g} on the diagonal, but {what} needs "
            f"{'positive elements' if positive else 'finite elements other than zero'} there; choose another "
            "preconditioner, or none"
        )
    return 1.0 / diagonal
