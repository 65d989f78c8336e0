"""What `fixed-point` and `exact` sums are by definition: all contributions in the integers of `kernels.exact`."""

import numpy as np

from kernels import exact

ORDER_FREE = ("fixed-point", "exact")


def defined(accumulation, contributions):
    """The total (*shape,) of contributions (k, *shape), in their type."""
    shape, dtype = contributions.shape[1:], contributions.dtype
    if accumulation == "exact":
        words = exact.zeros(shape)
        exact.add(words, contributions)
        return exact.round(words, np.empty(shape, dtype))
    exponent = exact.fixed_exponent(contributions)
    return exact.fixed_decode(exact.fixed_encode(contributions, exponent), exponent, dtype)
