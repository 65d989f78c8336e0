"""Dot products of block fields over all blocks: several in one all-reduce.

Inside a block the products are added in the fixed 64-lane order; across blocks the reducer decides. With
`exact_products` every product enters the superaccumulator with both parts, so the dot product itself is correctly
rounded and depends on no order. From a GPU the partial sums are copied to the host, or the fields for exact products.
"""

import numpy as np

from kernels import exact
from miniapps.system.device import host, staging


class GlobalDots:
    """`n` dot products, filled one by one (`put`) or by a fused kernel (`partials`), then summed (`total`).

    `reducer` is an all-reduce of shape (n,), float64. `partials`: float64 `(own blocks, n)`, one row per block.
    """

    def __init__(self, blocks, kernels, reducer, n: int, exact_products: bool = False):
        self.exact_products = exact_products
        self._xp = xp = kernels.xp
        self.partials = xp.zeros((len(blocks.own), n))
        self._kernels, self._reducer = kernels, reducer
        self._on_host = staging(xp, self.partials.shape) if xp is not np else None
        self._column = xp.zeros(len(blocks.own))
        self._words = exact.zeros((n,)) if exact_products else None

    def put(self, k: int, a, a_pad: int, b, b_pad: int) -> None:
        """Sum k of the next total is the dot product of the interiors of a and b, padded fields."""
        if self._words is not None:
            self._words[k] = 0
            exact.add_products(self._words[k], self._inner(a, a_pad), self._inner(b, b_pad))
        else:
            self._kernels.block_dots(a, a_pad, b, b_pad, self._column)
            self.partials[:, k] = self._column

    def total(self) -> np.ndarray:
        """The sums over all blocks of all ranks, float64 (n,); valid until the reducer's next call."""
        if self._words is not None:
            return self._reducer.sum_words(self._words)
        if self._on_host is not None:
            return self._reducer(self.partials.get(out=self._on_host))
        return self._reducer(self.partials)

    def _inner(self, field, pad: int):
        rows, columns = field.shape[1:]
        return host(self._xp.ascontiguousarray(field[:, pad : rows - pad, pad : columns - pad])).reshape(-1)
