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
        torch.embedding(x, i)
        (x + 1j).sum()
        x.cumsum_(0)
    assert mode.replaced == {"embedding": 1, "index_select": 1, "gather": 1, "index_add_": 1, "scatter_add": 1,
                             "index_put": 1, "index_put_": 1, "sum": 2, "cumsum_": 1}  # fmt: skip
    assert mode.kept["embedding"] == 1 and mode.kept["sum (complex numbers)"] == 1
    assert mode.kept["linear"] == 1 and mode.kept["softmax"] == 1 and mode.kept["sum (out=)"] == 1
    assert mode.kept["index_put_ (accumulate=False: the last writer wins)"] == 1
    assert sum(1 for name in mode.kept if "matmul" in name) == 1


@pytest.mark.parametrize(
    "name",
    ["l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits", "cosine_similarity"],
)
def test_losses_that_add_as_torch_does_are_named(name):
    x, y = torch.rand(3, 4), torch.rand(3, 4)
    with fpna.torch.replaced() as mode:
        getattr(nn.functional, name)(x, y)
    assert mode.kept == {name: 1}


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


class Bags(nn.Module):
    """Modules and functions with means, maxima, prefix sums and bags."""

    def __init__(self, mode):
        super().__init__()
        self.table, self.bags = nn.Embedding(9, 4), nn.EmbeddingBag(9, 4, mode=mode, padding_idx=2)

    def forward(self, index, offsets):
        rows = self.bags(index, offsets) + self.table(index).mean(0)
        return torch.cumsum(rows, 0).amax(1) + torch.mean(rows, dim=1) + rows.cumsum(dim=1)[:, -1]


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("order", ["exact", "sorted"])
def test_modules_of_tables_are_served(mode, order):
    torch.manual_seed(3)
    model, index, offsets = Bags(mode).double(), torch.randint(0, 9, (50,)), torch.tensor([0, 20, 20])
    results = []
    for served in (True, False):
        model.zero_grad()
        if served:
            with fpna.torch.replaced(order) as counted:
                out = model(index, offsets)
        else:
            out = model(index, offsets)
        out.sum().backward()
        results.append([out.detach(), *(p.grad for p in model.parameters())])
    assert counted.replaced == {"embedding": 1, "embedding_bag": 1, "mean": 2, "cumsum": 2, "amax": 1}
    assert not counted.kept
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_bags_that_an_option_changes_are_kept():
    bags = nn.EmbeddingBag(5, 2, max_norm=1.0)
    with fpna.torch.replaced("atomic") as mode:
        bags(torch.tensor([[1, 2]]))
        torch.ones(3).cumsum(0)
    assert mode.kept == {
        "embedding_bag (max_norm, scale_grad_by_freq or sparse)": 1,
        "cumsum (no order atomic)": 1,
    }
