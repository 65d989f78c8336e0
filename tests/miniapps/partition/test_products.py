"""Products of elements, as a plan computes them."""

import pytest
import torch

from miniapps.partition.execution.compute import product_of_rows


@pytest.mark.parametrize("shape", [(2, 3), (3, 0, 2), (0,), (), (4,)])
def test_products_are_those_of_torch(shape):
    x = torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape) + 1
    assert torch.equal(product_of_rows(x), x.prod())
    assert torch.equal(product_of_rows(x, dtype=torch.float64), x.prod(dtype=torch.float64))
    assert torch.equal(product_of_rows(x.to(torch.int32)), x.to(torch.int32).prod())
    for dim in range(-len(shape), len(shape)):
        for keep in (False, True):
            assert torch.equal(product_of_rows(x, dim, keep), x.prod(dim, keep))
