"""The price of an Asian option by Monte Carlo: paths come in batches with streams of their own, on whatever rank.

mpirun -n 4 python monte_carlo.py
"""

import numpy as np
from mpi4py import MPI

import fpna

BATCHES, PATHS, DAYS = 48, 2000, 64
START, STRIKE, RATE, VOLATILITY = 100.0, 105.0, 0.02, 0.3


def payoffs(batch):
    """Discounted payoffs of the paths of one batch."""
    steps = np.random.default_rng([2026, batch]).standard_normal((PATHS, DAYS))
    drift = (RATE - VOLATILITY**2 / 2) / DAYS
    prices = START * np.exp(np.cumsum(drift + VOLATILITY / np.sqrt(DAYS) * steps, axis=1))
    return np.exp(-RATE) * np.maximum(prices.mean(axis=1) - STRIKE, 0)


comm = MPI.COMM_WORLD
own = [payoffs(batch) for batch in range(comm.rank, BATCHES, comm.size)]

# As it is usually written: every rank adds up what it has.
plain = comm.allreduce(sum(float(batch.sum()) for batch in own)) / (BATCHES * PATHS)

# With a promise: every batch is one contribution, whichever rank computes it.
sums = np.array([[batch.sum(), (batch**2).sum()] for batch in own]).reshape(-1, 2)
total = np.empty(2)
fpna.wrap(comm, guarantee="layout").Allreduce(sums, total, axis=0)
price, square = total / (BATCHES * PATHS)

if comm.rank == 0:
    error = np.sqrt((square - price**2) / (BATCHES * PATHS))
    print(f"plain     {plain:.17f}  {plain.hex()}")
    print(f"promised  {price:.17f}  {float(price).hex()}  +- {error:.4f}")
