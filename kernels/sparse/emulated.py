"""The GPU's atomic product by entries on the CPU: a seed gives the order of arrival, so it repeats on any machine."""

from __future__ import annotations

import numpy as np

from kernels import _native
from kernels.sparse.csr import Csr
from kernels.sparse.native import clear, coordinates
from kernels.sparse.orders import in_order
from kernels.sparse.product import Product
from kernels.sums.emulated import WARP, arrivals


@in_order("coo-emulated", backend="emulated")
def coo(matrix: Csr, threads: int = 1, seed: int = 0, resident: int = 0) -> Product:
    """One addition per entry, warp by warp in an order of arrival; call k of the product draws one from (seed, k).

    A warp is 32 consecutive entries. They arrive together and are added in ascending order; the order of warps is that
    of `kernels.sums.emulated.arrivals`, with `resident` warps in flight at once (0: all). On a device chance decides;
    here the seed does, so products with equal plans and calls give the same bits. Always uses one thread. Raises
    ValueError for a seed outside [0, 2**64) and a negative `resident`.
    """
    arrivals(0, resident, seed)  # refuses both now, not at the first call
    places, warps, calls = coordinates(matrix), -(-matrix.nnz // WARP), 0

    def multiply(x, y):
        nonlocal calls
        order = arrivals(warps, resident, of_call(seed, calls))
        calls += 1
        clear(matrix, y)
        _native.spmv_units(places, matrix.indices, matrix.data, x, y, order, WARP)

    return Product(matrix, "coo-emulated (emulated)", multiply)


def of_call(seed: int, call: int) -> int:
    """The seed of call number `call`, counted from 0."""
    return int(np.random.SeedSequence([seed, call]).generate_state(1, np.uint64)[0])
