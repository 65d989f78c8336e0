"""Adam (Kingma & Ba, arXiv 1412.6980, algorithm 1) on one flat vector.

Not torch's: importing torch.optim loads torch's compiler, which costs every rank 1.6 s and 70 MB, and its foreach
and fused forms regroup elements. Here each element goes through the same correctly rounded operations on every
rank and every kind of processor.
"""

import numpy as np

BETA_1, BETA_2, EPSILON = np.float32(0.9), np.float32(0.999), np.float32(1e-8)


class Adam:
    """The optimiser's state beside `theta`, float32 (n,), which `step` changes in place."""

    def __init__(self, theta: np.ndarray, learning_rate: float):
        self.theta, self.learning_rate = theta, learning_rate
        self.first_moment, self.second_moment = np.zeros_like(theta), np.zeros_like(theta)
        self.steps = 0

    def step(self, gradient: np.ndarray) -> None:
        """One update with `gradient`, float32 (n,)."""
        gradient = np.asarray(gradient, np.float32)
        self.steps += 1
        self.first_moment *= BETA_1
        self.first_moment += (1 - BETA_1) * gradient
        self.second_moment *= BETA_2
        self.second_moment += (1 - BETA_2) * (gradient * gradient)
        # 1 - beta^t in double: in single, 1 - 0.999^t loses three digits at the start
        rate = np.float32(self.learning_rate / (1.0 - float(BETA_1) ** self.steps))
        scale = np.float32(1.0 / (1.0 - float(BETA_2) ** self.steps) ** 0.5)
        self.theta -= rate * self.first_moment / (np.sqrt(self.second_moment) * scale + EPSILON)
