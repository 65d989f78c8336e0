"""What an export would leave out, or what every rank would draw for itself, is refused by name."""

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from miniapps.partition.capture.export import ExportError, export  # noqa: E402
from miniapps.partition.capture.refused import unkeyed  # noqa: E402
from miniapps.partition.rules.random import NAMES  # noqa: E402


class Step(nn.Module):
    """A layer, and what `between` makes of its result, summed."""

    def __init__(self, between=lambda y: y, before=lambda x: x, dtype=None):
        super().__init__()
        self.layer = nn.Linear(6, 6, dtype=dtype)
        self.between, self.before = between, before

    def forward(self, x):
        return self.between(self.layer(self.before(x))).float().sum()


def refused(step, x=None):
    with pytest.raises(ExportError) as caught:
        export(step, [torch.ones(6, 6) if x is None else x])
    return str(caught.value)


def random_operations():
    """All overloads of torch that draw, by its own tag."""
    for name in sorted(dir(torch.ops.aten)):
        packet = getattr(torch.ops.aten, name)
        if hasattr(packet, "overloads"):
            for overload in packet.overloads():
                operation = getattr(packet, overload)
                if torch.Tag.nondeterministic_seeded in operation.tags:
                    yield operation


def test_every_random_operation_of_torch_is_keyed_or_named():
    walked = list(random_operations())
    assert len(walked) > 80
    for operation in walked:
        name = operation._schema.name.partition("::")[2]
        assert unkeyed(operation, (), {}) in (("",) if name in NAMES or _may_not_draw(operation) else (name,))


def _may_not_draw(operation):
    """Whether by its defaults it draws nothing."""
    defaults = {a.name: a.default_value for a in operation._schema.arguments}
    return defaults.get("dropout_p") == 0 or (
        "rrelu" in operation._schema.name and defaults.get("training") is False
    )


DRAWING = {
    "randperm": lambda y: y[torch.randperm(6)],
    "multinomial": lambda y: y * torch.multinomial(torch.ones(6), 6),
    "rrelu_with_noise": lambda y: nn.functional.rrelu(y, training=True),
    "randint": lambda y: y * torch.randint(0, 5, (6,)),
    "normal": lambda y: y + torch.normal(0.0, 1.0, (6,)),
    "uniform": lambda y: y + torch.empty(6).uniform_(),
    "exponential": lambda y: y + torch.empty(6).exponential_(),
    "poisson": lambda y: y + torch.poisson(torch.ones(6)),
    "geometric": lambda y: y + torch.empty(6).geometric_(0.5),
    "cauchy": lambda y: y + torch.empty(6).cauchy_(),
    "log_normal": lambda y: y + torch.empty(6).log_normal_(),
    "randint_like": lambda y: y + torch.randint_like(y, 5),
    "_standard_gamma": lambda y: y + torch._standard_gamma(torch.ones(6)),
}


@pytest.mark.parametrize("name", DRAWING)
def test_what_every_rank_would_draw_for_itself_is_refused(name):
    assert "would differ between ranks" in refused(Step(DRAWING[name]))


@pytest.mark.parametrize("draw", [torch.bernoulli, torch.rand_like, torch.randn_like, nn.functional.dropout])
def test_keyed_operations_are_not(draw):
    export(Step(lambda y: y + draw(y.sigmoid())), [torch.ones(6, 6)])


def test_hooks_of_parameters_are_named():
    step = Step()
    step.layer.weight.register_hook(lambda g: g.clamp(-1, 1))
    step.layer.bias.register_post_accumulate_grad_hook(lambda p: None)
    text = refused(step)
    assert "layer.weight (register_hook)" in text
    assert "layer.bias (register_post_accumulate_grad_hook)" in text


def test_inputs_and_parameters_that_change_are_named():
    assert "changes its input 0 in place" in refused(Step(before=lambda x: x.add_(1)))
    step = Step()

    def shrink(x):
        with torch.no_grad():
            step.layer.weight.mul_(0.5)
        return x

    step.before = shrink
    text = refused(step)
    assert "changes its parameters layer.weight in place" in text and "registered" not in text
    assert "changes its parameters" in refused(step) and (step.layer.weight == step.layer.weight).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.complex64])
def test_types_that_are_not_partitioned_are_named(dtype):
    text = refused(Step(torch.abs, dtype=dtype), torch.ones(6, 6, dtype=dtype))
    assert f"is {str(dtype)[6:]}" in text and "float32 or float64" in text


def test_autocast_inside_a_step_is_named():
    def inside(x):
        with torch.autocast("cpu", torch.bfloat16):
            return (x @ x).float()

    assert "is bfloat16" in refused(Step(before=inside))
