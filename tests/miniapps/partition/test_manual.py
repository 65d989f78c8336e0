"""Manual regions: shards of the user's function, its places, gradients, one set of bits, and what is refused."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from kernels.guarantees import ChoiceError  # noqa: E402
from miniapps.errors import UsageError  # noqa: E402
from miniapps.partition.capture.export import export  # noqa: E402
from miniapps.partition.cuts.axes import evenly  # noqa: E402
from miniapps.partition.cuts.mesh import Mesh  # noqa: E402
from miniapps.partition.execution.run import Program  # noqa: E402
from miniapps.partition.manual import manual  # noqa: E402
from miniapps.partition.planning.plan import plan  # noqa: E402
from miniapps.partition.pricing.dry import dry_run  # noqa: E402
from tests.miniapps.partition.lockstep import compare  # noqa: E402

seen: list = []


@manual("nh, h., . -> n., nh")
def region(where, x, weight, bias):
    """A product over h and a scaling, which notes its places."""
    if x.device.type == "cpu" and type(x) in (torch.Tensor, torch.nn.Parameter):
        seen.append({letter: at.tolist() for letter, at in where.items()})
    return x @ weight + 0 * bias[0], torch.sin(x) * torch.from_numpy(where["h"]).to(x)


class Regional(torch.nn.Module):
    """The region between two operations."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(6, 3))
        self.bias = torch.nn.Parameter(torch.randn(3))

    def forward(self, x):
        one, two = region(x * 2, self.weight, self.bias)
        return (one.tanh().sum(1) * two.square().sum(1)).sum()


def planned(heads=True):
    """(module, input, plan) with 7 samples in 4 blocks, 6 columns in 3."""
    torch.manual_seed(0)
    module, x = Regional(), torch.randn(7, 6)
    axes = [evenly("batch", 7, 4), evenly("columns", 6, 3)]
    given = {0: ("batch", "columns" if heads else None)}
    return module, x, plan(export(module, (x,)), axes, given)


def values(module, x):
    found = {f"parameter.{key}": p.detach() for key, p in module.named_parameters()}
    return found | {"input.0": x}


@pytest.mark.parametrize("level", ["none", "layout", "exact"])
def test_loss_and_gradients_are_torchs(level):
    module, x, found = planned()
    program = Program(None, found, Mesh((("data", 1),)), level)
    given = {("parameter", key): p.detach() for key, p in module.named_parameters()} | {("input", "0"): x}
    loss, gradients, _ = program(program.sources(given))
    true = module(x)
    true.backward()
    assert loss.item() == pytest.approx(true.item(), rel=1e-5)
    for (key, _), gradient in zip(found.gradients, gradients, strict=True):
        wanted = module.get_parameter(key).grad
        assert (gradient - wanted).abs().max() <= 2.0**-18 * wanted.abs().max(), key
        assert key != "bias" or not gradient.any()


def test_every_block_is_a_call_under_layout_and_a_shard_without():
    module, x, found = planned()
    given = {("parameter", key): p.detach() for key, p in module.named_parameters()} | {("input", "0"): x}
    for level, calls in (("layout", 4 * 3), ("none", 1)):
        program = Program(None, found, Mesh((("data", 1),)), level)
        seen.clear()
        program(program.sources(given))
        assert len(seen) == 2 * calls  # forward, and once more in the backward pass
        places = {(n, h) for each in seen[:calls] for n in each["n"] for h in each["h"]}
        assert places == {(n, h) for n in range(7) for h in range(6)}


@pytest.mark.parametrize("shapes", ["exact", "padded"])
@pytest.mark.parametrize("level", ["layout", "exact"])
def test_no_bit_follows_the_owners(level, shapes):
    module, x, found = planned()
    ranks = [
        {"batch": batch, "columns": columns} for batch in ((0, 3), (1,), (2,)) for columns in ((0, 2), (1,))
    ]
    assert compare(found, ranks, values(module, x), level, shapes) > 20


def test_a_dry_run_calls_the_function_without_numbers():
    _, _, found = planned()
    mesh = Mesh((("data", 2),), (("batch", "data"),))
    events = dry_run(found, mesh, 1, "layout")
    names = [event.target for event in events if hasattr(event, "target")]
    assert names.count("fpna.manual.default") == names.count("fpna.manual_backward.default") == 2 * 3


def test_a_region_outside_of_a_plan_is_an_ordinary_function():
    x, w, b = (
        torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((4, 3), (3, 2), (2,))
    )
    assert torch.autograd.gradcheck(region, (x, w, b))


@pytest.mark.parametrize(
    "spec, message",
    [
        ("n.", "write a letter or a dot"),
        ("n1 -> n", "write a letter or a dot"),
        ("nn -> n", "has a letter once"),
        ("n. -> nk", "k is in a result and in no operand"),
    ],
)
def test_specs_that_are_none_are_refused(spec, message):
    with pytest.raises(ChoiceError, match=message):
        manual(spec)


def test_wrong_dims_are_refused():
    with pytest.raises(UsageError, match=r"called with tensors of \[1, 2, 1\] dims, but its spec is"):
        region(torch.ones(3), torch.ones(3, 3), torch.ones(3))

    @manual("n. -> n")
    def wrong(where, x):
        return x

    with pytest.raises(ChoiceError, match=r"it returns tensors of \[2\] dims, but 'n. -> n' has \[1\]"):
        wrong(torch.ones(3, 3))


def test_places_are_numbers_of_elements():
    seen.clear()
    region(torch.ones(2, 3), torch.ones(3, 1), torch.ones(1))
    assert seen == [{"n": [0, 1], "h": [0, 1, 2]}] and isinstance(np.arange(2), np.ndarray)
