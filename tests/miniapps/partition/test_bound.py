"""Bound steps of random operations, shapes, cuts and owners have the bits of the same steps on one rank."""

import pytest
import torch

from tests.miniapps.partition.cases import FIRST, case
from tests.miniapps.partition.lockstep import compare
from tests.miniapps.partition.oracle import drawn


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def compared(seed, shapes="exact"):
    graph, plan, ranks = case(seed)
    dtypes = {source.tensor.name: getattr(torch, source.tensor.dtype) for source in graph.sources}
    values = {name: torch.as_tensor(x).to(dtypes[name]) for name, x in drawn(graph, seed).items()}
    return compare(plan, ranks, values, shapes=shapes)


@pytest.mark.parametrize("family", range(len(FIRST)), ids=[function.__name__ for function in FIRST])
def test_parts_of_ranks_have_the_bits_of_one_rank(family):
    seeds = range(family, 12 * len(FIRST), len(FIRST))
    assert sum(compared(seed, ("exact", "padded")[k % 2]) for k, seed in enumerate(seeds)) >= len(seeds)


@pytest.mark.slow
def test_ten_thousand_random_cuts_keep_their_bits():
    for seed in range(10_000):
        compared(seed, ("exact", "padded")[seed // len(FIRST) % 2])
