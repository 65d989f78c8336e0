"""`exact` sums by definition: all contributions in the integers of `kernels.exact`, rounded once."""

import numpy as np

from kernels import exact


def defined(contributions):
    """The total (*shape,) of contributions (k, *shape), in their type."""
    shape, dtype = contributions.shape[1:], contributions.dtype
    words = exact.zeros(shape)
    exact.add(words, contributions)
    return exact.round(words, np.empty(shape, dtype))
