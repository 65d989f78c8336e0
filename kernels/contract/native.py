"""Products in C++: chains of fused multiply-adds, packed panels, tiles in registers (kernels/native/contract.hpp).

`threads`: of OpenMP, 0 for its default; `level`: an instruction set of LEVELS, None for the best that this processor
has. Neither enters the bits.
"""

from __future__ import annotations

from kernels import _native
from kernels.contract.operands import Array, written
from kernels.contract.promises import promised
from kernels.contract.shapes import matrices
from kernels.guarantees import known
from kernels.threads import checked

LEVELS: list[str] = _native.CONTRACT["levels"]
PIECE: int = _native.CONTRACT["piece"]


def _level(name: str | None) -> int:
    return -1 if name is None else LEVELS.index(known("instruction set", name, LEVELS))


@promised("matmul", "own", backend="native")
def matmul(
    a: Array, b: Array, out: Array | None = None, *, threads: int = 1, level: str | None = None
) -> Array:
    """c[i, j] = the sum over k, ascending, of a[i, k] b[k, j]: fixed by the number of k alone."""
    x, y, shape = matrices(a, b)
    team, at = checked(threads), _level(level)
    return written("matmul", lambda c: _native.contract_matmul(x, y, c, team, at), shape, (x, y), a, out)
