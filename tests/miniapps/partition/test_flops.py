"""Model FLOPs: of the unsharded model, forward and backward, by hand and beside torch's own counter."""

import pytest
from torch.utils.flop_counter import FlopCounterMode

from miniapps.partition.graphs.flops import core_rates, model_flops
from tests.miniapps.partition.graphs import exported


def test_products_of_an_mlp_count_three_times():
    """Forward, gradient of the weights, gradient of the input; the images of the first layer have none."""
    _, deck, graph = exported("mlp")
    layers = [s.tensor.shape for s in graph.sources if s.kind == "parameter" and len(s.tensor.shape) == 2]
    products = [2 * deck.samples * rows * columns for rows, columns in layers]
    assert model_flops(graph) == 3 * sum(products) - products[0]


@pytest.mark.parametrize("name", ["gpt", "unet", "moe"])
def test_torch_counts_the_same(name):
    """But for attention on the CPU, of which torch counts nothing: two products forward, four backward."""
    model, deck, graph = exported(name)
    with FlopCounterMode(display=False) as counter:
        model.module(deck)(*model.inputs(deck)).backward()
    attention = 0
    if name == "gpt":
        attention = 6 * 2 * deck.samples * deck.tokens**2 * deck.width * deck.layers
    assert counter.get_total_flops() + attention == model_flops(graph)


def test_a_core_does_something_by_both_products():
    assert [1e8 < rate < 1e13 for rate in core_rates().values()] == [True, True]
