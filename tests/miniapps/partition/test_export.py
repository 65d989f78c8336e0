"""Steps of torch as graphs: equal numbers, and steps that cannot be exported."""

import pickle

import numpy as np
import pytest
import torch

from miniapps.partition import models
from miniapps.partition.capture.export import ExportError, export
from tests.miniapps.partition.graphs import exported
from tests.miniapps.partition.oracle import truth


@pytest.mark.parametrize("name", models.names())
def test_the_graph_has_the_loss_and_the_gradients_of_torch(name):
    model, deck, graph = exported(name)
    torch.manual_seed(1)
    module = model.module(deck).double()
    inputs = [x.double() if x.is_floating_point() else x for x in model.inputs(deck)]
    given = {f"parameter.{k}": p.detach().numpy() for k, p in module.named_parameters()}
    given |= {f"buffer.{k}": b.detach().numpy().copy() for k, b in module.named_buffers()}
    given |= {f"input.{k}": x.numpy() for k, x in enumerate(inputs)}
    true = truth(graph, given)
    loss = module(*inputs)
    loss.backward()
    np.testing.assert_allclose(true[graph.loss], loss.item(), rtol=1e-12)
    assert [key for key, _ in graph.gradients] == [key for key, _ in module.named_parameters()]
    for key, value in graph.gradients:
        wanted = module.get_parameter(key).grad.numpy()
        assert np.abs(true[value] - wanted).max() <= 2.0**-36 * max(1.0, np.abs(wanted).max()), key
    for key, value in graph.updates:
        np.testing.assert_allclose(true[value], module.get_buffer(key).numpy(), rtol=1e-12)


def test_a_graph_is_plain_data():
    _, _, graph = exported("unet")
    assert pickle.loads(pickle.dumps(graph)) == graph and hash(graph.nodes[0])


def test_a_node_knows_the_module_that_it_belongs_to():
    by_name = {node.name: node.where for node in exported("gpt")[2].nodes}
    assert by_name["addmm_1_product"] == "blocks.0.k" and by_name["gelu_1"] == "blocks.1.up"


def test_a_bias_is_added_once_and_not_with_every_partial_sum():
    for name in models.names():
        targets = {node.target for node in exported(name)[2].nodes}
        assert not targets & {
            "aten.addmm.default",
            "aten.baddbmm.default",
            "aten.convolution_backward.default",
        }
        assert all(
            n.args[2] is None for n in exported(name)[2].nodes if n.target == "aten.convolution.default"
        )


class Step(torch.nn.Module):
    """A step of one line."""

    def __init__(self, function, **tensors):
        super().__init__()
        self.layer, self.function = torch.nn.Linear(4, 4), function
        for name, tensor in tensors.items():
            setattr(self, name, tensor)

    def forward(self, x):
        return self.function(self, x)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda m, x: m.layer(x)[x[:, 0] > 0].sum(), "a shape or a branch that depends on values"),
        (
            lambda m, x: m.layer(x).sum() * (2 if x.sum() > 0 else 3),
            "a shape or a branch that depends on values",
        ),
        (lambda m, x: m.layer(x), "must return one scalar, the loss"),
        (
            lambda m, x: m.layer(x).sum() * m.other.sum(),
            "neither input, parameter nor buffer: register it as a buffer",
        ),
    ],
)
def test_what_is_no_step_is_refused_with_a_remedy(function, message):
    with pytest.raises(ExportError, match=message):
        export(Step(function, other=torch.ones(200, 200)), (torch.ones(3, 4),))


def test_torchs_own_reason_follows():
    with pytest.raises(ExportError, match=r"\ntorch: \w+: "):
        export(Step(lambda m, x: m.layer(x)), (torch.ones(3, 4),))


def test_a_parameter_that_the_loss_does_not_depend_on_is_named():
    step = Step(lambda m, x: m.layer(x).sum(), unused=torch.nn.Linear(2, 2))
    with pytest.raises(ExportError, match=r"does not depend on unused\.weight, unused\.bias: remove"):
        export(step, (torch.ones(3, 4),))


def test_a_frozen_parameter_has_no_gradient():
    step = Step(lambda m, x: m.layer(x).sum())
    step.layer.weight.requires_grad_(False)
    assert [key for key, _ in export(step, (torch.ones(3, 4),)).gradients] == ["layer.bias"]


def test_a_tied_parameter_is_one_whose_gradients_are_added():
    step = Step(lambda m, x: m.other(m.layer(x)).square().sum(), other=torch.nn.Linear(4, 4)).double()
    step.other.weight = step.layer.weight
    x = torch.randn(3, 4, dtype=torch.float64)
    graph = export(step, (x,))
    given = {f"parameter.{key}": p.detach().numpy() for key, p in step.named_parameters()}
    assert [key for key, _ in graph.gradients] == list(dict(step.named_parameters()))
    step(x).backward()
    true = truth(graph, given | {"input.0": x.numpy()})
    wanted = step.layer.weight.grad.numpy()
    assert (
        np.abs(true[dict(graph.gradients)["layer.weight"]] - wanted).max() <= 2.0**-40 * np.abs(wanted).max()
    )


def test_a_step_on_two_devices_is_refused_before_torch_sees_it():
    step = Step(lambda m, x: m.layer(x).sum(), other=torch.nn.Linear(2, 2, device="meta"))
    with pytest.raises(ExportError, match=r"mixes devices: layer.weight on cpu; other.weight on meta"):
        export(step, (torch.ones(3, 4),))


def test_an_input_that_is_no_tensor_is_named():
    with pytest.raises(ExportError, match="input 0 is int, not a tensor"):
        export(Step(lambda m, x: m.layer(x).sum()), (3,))
