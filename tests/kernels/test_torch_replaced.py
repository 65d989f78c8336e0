"""`fpna.torch.replaced`: torch's calls inside of a model add in a chosen order; what they keep is listed."""

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import fpna.torch  # noqa: E402
from kernels.guarantees import ChoiceError  # noqa: E402


class Graph(nn.Module):
    """Messages along edges, lookups, sums: by functions, methods and in place."""

    def __init__(self):
        super().__init__()
        self.table, self.layer = nn.Embedding(7, 5, padding_idx=0), nn.Linear(5, 5)

    def forward(self, nodes, sources, targets):
        x = self.layer(self.table(nodes))
        messages = x.index_select(0, sources) + torch.gather(x, 0, targets[:, None].expand(-1, 5))
        total = torch.zeros_like(x).index_add_(0, targets, messages)
        total = total + torch.zeros_like(x).scatter_add(0, targets[:, None].expand(-1, 5), messages)
        total = total.index_put((targets,), messages, accumulate=True)
        return total.sum(1), torch.sum(total)


def inputs(order):
    torch.manual_seed(1)
    nodes = torch.randint(0, 7, (40,))
    edges = torch.randint(0, 40, (2, 3000))[:, order]
    return nodes, edges[0], edges[1]


def trained(order, mode=None):
    torch.manual_seed(2)
    model = Graph()
    given = inputs(order)
    if mode is None:
        rows, total = model(*given)
    else:
        with mode:
            rows, total = model(*given)
    (rows.square().sum() + total).backward()
    return [rows.detach(), total.detach(), *(p.grad for p in model.parameters())]


def test_an_unedited_model_has_the_same_bits_in_any_order_of_edges():
    orders = [torch.arange(3000), torch.arange(3000).flip(0), torch.randperm(3000)]
    plain = [trained(order) for order in orders]
    exact = [trained(order, fpna.torch.replaced()) for order in orders]
    assert any(not torch.equal(a, b) for a, b in zip(plain[0], plain[1], strict=True))
    for other in exact[1:]:
        assert all(torch.equal(a, b) for a, b in zip(exact[0][:2], other[:2], strict=True))
    for a, b in zip(plain[0], exact[0], strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-4)


def test_calls_are_counted_and_what_torch_keeps_is_named():
    with fpna.torch.replaced("sorted") as mode:
        model = Graph()
        model(*inputs(torch.arange(3000)))
        x, i = torch.ones(4, 3), torch.tensor([0, 0])
        x.index_put_((i,), torch.zeros(2, 3))
        x.index_put_((torch.tensor([True, False, True, False]),), torch.ones(3), accumulate=True)
        torch.arange(4).sum()
        torch.sum(x, 0, out=torch.empty(3))
        x @ x.T
        x.softmax(1)
    assert mode.replaced == {"embedding": 1, "index_select": 1, "gather": 1, "index_add_": 1, "scatter_add": 1,
                             "index_put": 1, "sum": 2}  # fmt: skip
    assert mode.kept["linear"] == 1 and mode.kept["softmax"] == 1 and mode.kept["sum (out=)"] == 1
    assert mode.kept["index_put_ (accumulate=False: the last writer wins)"] == 1
    assert mode.kept["index_put_ (a mask)"] == 1
    assert sum(1 for name in mode.kept if "matmul" in name) == 1


def test_it_ends_with_its_block_also_by_an_error():
    with pytest.raises(IndexError), fpna.torch.replaced() as mode:
        torch.zeros(2).index_add(0, torch.tensor([5]), torch.ones(1))
    torch.ones(3).sum()
    assert "sum" not in mode.replaced


@pytest.mark.parametrize("dtype", [None, torch.float64])
def test_sums_have_the_shape_and_type_of_torchs(dtype):
    x = torch.randn(3, 4, 5)
    for arguments in ((), (1,), ((0, 2),), (1, True)):
        with fpna.torch.replaced():
            found = x.sum(*arguments, dtype=dtype)
        expected = x.sum(*arguments, dtype=dtype)
        assert found.shape == expected.shape and found.dtype == expected.dtype
        assert torch.allclose(found, expected, rtol=1e-5)


def test_an_unknown_order_is_refused():
    with pytest.raises(ChoiceError, match="by-moon"):
        fpna.torch.replaced("by-moon")
