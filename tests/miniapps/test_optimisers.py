"""The optimisers are Adam and momentum SGD. In one file, since importing torch.optim takes seconds."""

import numpy as np
import pytest
import torch

from miniapps.learning.optimisers import Adam, MomentumSGD, rate_at, restore, state_of


def test_momentum_sgd_follows_torchs():
    rng = np.random.default_rng(1)
    weights = [rng.standard_normal((5, 7)).astype(np.float32), rng.standard_normal(9).astype(np.float32)]
    oracles = [torch.tensor(w, dtype=torch.float64, requires_grad=True) for w in weights]
    reference, sgd = torch.optim.SGD(oracles, lr=1.0, momentum=0.9), MomentumSGD(weights, 0.9)
    steps = 100
    for step in range(1, steps + 1):
        drawn = [rng.standard_normal(w.shape).astype(np.float32) for w in weights]
        reference.param_groups[0]["lr"] = 0.1 * (1 - (step - 1) / steps) ** 2
        for oracle, gradient in zip(oracles, drawn, strict=True):
            oracle.grad = torch.tensor(gradient, dtype=torch.float64) / 256
        reference.step()
        sgd.step(drawn, 1 / 256, rate_at(step, steps, 0.1))
    for weight, oracle in zip(weights, oracles, strict=True):
        # a rounding of the weight, of at most 4, at every step, and those of the velocity beside it
        np.testing.assert_allclose(weight, oracle.detach().numpy(), rtol=0, atol=steps * 4 * 2.0**-24)


@pytest.mark.parametrize("reciprocal", [False, True])
@pytest.mark.parametrize("decay", [0.0, 5e-4])
def test_adam_follows_torchs_to_single_precision(reciprocal, decay):
    rng = np.random.default_rng(1)
    weights = [rng.standard_normal((5, 7)).astype(np.float32), rng.standard_normal(9).astype(np.float32)]
    oracles = [torch.tensor(w, dtype=torch.float64, requires_grad=True) for w in weights]
    reference, adam = torch.optim.Adam(oracles, lr=0.01, weight_decay=decay), Adam(weights, decay, reciprocal)
    for step in range(1, 201):
        drawn = [rng.standard_normal(w.shape).astype(np.float32) for w in weights]
        for oracle, gradient in zip(oracles, drawn, strict=True):
            oracle.grad = torch.tensor(gradient, dtype=torch.float64) / 140
        reference.step()
        adam.step(drawn, 1 / 140, 0.01, step)
    for weight, oracle in zip(weights, oracles, strict=True):
        # 200 steps of 0.01, each rounded to single precision
        np.testing.assert_allclose(weight, oracle.detach().numpy(), rtol=0, atol=200 * 2.0**-24 * 4)


def test_both_forms_of_adam_round_differently():
    """So that an application which changes its form changes its bits, and the recorded ones show it."""
    weights = [[np.zeros(50, np.float32)] for _ in range(2)]
    optimisers = [Adam(each, reciprocal=form) for each, form in zip(weights, (False, True), strict=True)]
    rng = np.random.default_rng(1)
    for step in range(1, 21):
        gradient = rng.standard_normal(50).astype(np.float32)
        for adam in optimisers:
            adam.step([gradient], 1.0, 0.01, step)
    assert weights[0][0].tobytes() != weights[1][0].tobytes()


@pytest.mark.parametrize("make", [lambda weights: MomentumSGD(weights, 0.9), Adam])
def test_an_optimiser_that_goes_on_from_a_copy_of_its_state_takes_the_same_steps(make):
    def steps(optimiser, *numbers):
        for number in numbers:
            gradients = [np.full_like(w, number) for w in optimiser.weights]
            optimiser.step(gradients, 0.5, 0.1, number)
        return [array.tobytes() for arrays in state_of(optimiser) for array in arrays]

    def fresh():
        return make([np.ones((3, 2), np.float32), np.zeros(4, np.float32)])

    one, other = fresh(), fresh()
    steps(one, 1, 2)
    copied = [[array.copy() for array in arrays] for arrays in state_of(one)]
    after = steps(one, 3)
    restore(other, copied)
    assert steps(other, 3) == after
    assert steps(fresh(), 3) != after
