"""`fpna.accumulate` in one process: its gradients are those of the whole batch, and mistakes are told."""

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import fpna  # noqa: E402
from miniapps.errors import UsageError  # noqa: E402


def model_of(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 3))


def gradients(model, parts):
    for x, y in parts:
        nn.functional.mse_loss(model(x), y).backward()
    return [p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize("micro, samples", [(1, 8), (4, 8), (5, 8), (3, 11), (11, 11)])
def test_the_gradient_is_that_of_the_whole_batch(micro, samples):
    x, y = torch.randn(samples, 10), torch.randn(samples, 3)
    model = model_of()
    found = gradients(model, fpna.accumulate(model, micro).parts(x, y))
    wide = model_of().double()
    expected = gradients(wide, [(x.double(), y.double())])
    for one, other in zip(found, expected, strict=True):
        assert (one - other).abs().max() <= 2e-6 * other.abs().max()


def test_the_sum_is_exact_in_any_order():
    """Gradients that cancel: 2^24, 1, -2^24 have the mean 1/3, whichever comes first."""
    found = set()
    for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        model = nn.Linear(1, 1, bias=False)
        given = torch.tensor([[2.0**24], [1.0], [-(2.0**24)]])[order]
        for part in fpna.accumulate(model, 3).parts(given):
            model(part).sum().backward()
        found.add(model.weight.grad.item())
    assert found == {torch.tensor(1.0).div(3).item()}


def test_random_numbers_belong_to_the_micro_batch_and_not_to_the_process():
    model = model_of()
    whole = fpna.accumulate(model, 4, seed=5)
    x, before = torch.ones(8, 10), torch.get_rng_state()
    drawn = [torch.rand(2).tolist() for _ in whole.parts(x)]
    assert torch.equal(before, torch.get_rng_state())
    again = [torch.rand(2).tolist() for _ in fpna.accumulate(model, 4, seed=5).parts(x)]
    later = [torch.rand(2).tolist() for _ in whole.parts(x)]
    assert drawn == again and len({tuple(each) for each in drawn + later}) == 8


def test_types_and_parameters_without_a_gradient():
    model = nn.ModuleDict(
        {"used": nn.Linear(4, 2), "unused": nn.Linear(4, 2), "frozen": nn.Linear(4, 2)}
    ).bfloat16()
    model["frozen"].requires_grad_(False)
    for part in fpna.accumulate(model, 2).parts(torch.ones(4, 4, dtype=torch.bfloat16)):
        model["used"](part).sum().backward()
    assert model["used"].weight.grad.dtype == torch.bfloat16 and model["frozen"].weight.grad is None
    assert model["unused"].weight.grad.abs().max() == 0


def test_infinities_and_nan_arrive():
    model = nn.Linear(2, 1, bias=False)
    for part in fpna.accumulate(model, 2).parts(torch.tensor([[float("inf"), 1.0], [1.0, float("nan")]])):
        model(part).sum().backward()
    assert torch.isinf(model.weight.grad[0, 0]) and torch.isnan(model.weight.grad[0, 1])


@pytest.mark.parametrize(
    "make, micro, said",
    [
        (
            lambda: nn.Linear(2, 2).double(),
            2,
            "the gradient of weight is float64: it adds float32, float16, bfloat16",
        ),
        (lambda: nn.Sequential(nn.BatchNorm1d(2)), 2, "0 is BatchNorm1d, whose statistics depend"),
        (lambda: nn.Linear(2, 2), 0, "micro=0 on 1 processes"),
    ],
)
def test_what_cannot_keep_the_promise_is_refused(make, micro, said):
    with pytest.raises(UsageError, match=said):
        fpna.accumulate(make(), micro)


def test_a_frozen_batch_normalisation_is_taken():
    assert fpna.accumulate(nn.Sequential(nn.BatchNorm1d(2)).eval(), 2)


@pytest.mark.parametrize("batch", [(torch.ones(1, 2),), (torch.ones(4, 2), torch.ones(3))])
def test_a_batch_that_cannot_be_cut_is_refused(batch):
    with pytest.raises(UsageError, match="2 micro-batches of a batch of"):
        next(iter(fpna.accumulate(nn.Linear(2, 2), 2).parts(*batch)))


def test_a_sparse_gradient_is_refused_with_its_name():
    model = nn.Embedding(5, 2, sparse=True)
    with pytest.raises(UsageError, match="the gradient of weight is sparse"):
        for part in fpna.accumulate(model, 2).parts(torch.tensor([1, 2])):
            model(part).sum().backward()
