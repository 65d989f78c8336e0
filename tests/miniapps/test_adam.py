"""The optimiser is Adam."""

import numpy as np
import torch

from miniapps.coupled.adam import Adam


def test_it_follows_torchs_adam_to_single_precision():
    rng = np.random.default_rng(1)
    theta = rng.standard_normal(50).astype(np.float32)
    oracle = torch.tensor(theta, dtype=torch.float64, requires_grad=True)
    reference = torch.optim.Adam([oracle], lr=0.01)
    adam = Adam(theta, 0.01)
    for _ in range(200):
        gradient = rng.standard_normal(50).astype(np.float32)
        adam.step(gradient)
        oracle.grad = torch.tensor(gradient, dtype=torch.float64)
        reference.step()
    # 200 steps of 0.01, each rounded to single precision
    np.testing.assert_allclose(adam.theta, oracle.detach().numpy(), rtol=0, atol=200 * 2.0**-24 * 4)
