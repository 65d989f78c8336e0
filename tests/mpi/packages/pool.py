"""Samples of emcee over schwimmbad's pool of ranks, and how the ranks took part: the pool closes itself at exit."""

import emcee
import numpy as np
from schwimmbad import MPIPool


def log_probability(x):
    return -0.5 * float(np.sum(x * x / (1 + np.arange(3))))


pool = MPIPool()  # workers stay in here
sampler = emcee.EnsembleSampler(8, 3, log_probability, pool=pool)
sampler.random_state = np.random.RandomState(2).get_state()
sampler.run_mcmc(np.random.default_rng(1).standard_normal((8, 3)), 5)
print("result", sampler.get_chain()[-1].tobytes().hex())
