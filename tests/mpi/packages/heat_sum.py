"""heat over `fpna.wrap` (argument: a guarantee, or `plain`): a sum that cancels, the place of the largest number."""

import sys
import types

import numpy as np
from mpi4py import MPI

import fpna

vision = types.ModuleType("torchvision")  # which heat imports for its data sets alone
vision.datasets, vision.transforms = types.ModuleType("datasets"), types.ModuleType("transforms")
vision.datasets.MNIST = vision.transforms.Compose = object
sys.modules.update({"torchvision": vision, "torchvision.transforms": vision.transforms})

import heat  # noqa: E402

comm = MPI.COMM_WORLD if sys.argv[1] == "plain" else fpna.wrap(MPI.COMM_WORLD, sys.argv[1])
x = heat.array(np.array([1.0, 1e16, -1e16, 1.0]), split=0, comm=heat.communication.MPICommunication(comm))
total = float(heat.sum(x))
try:
    largest = str(int(heat.argmax(x)))
except ValueError as error:
    largest = str(error)
if comm.rank == 0:
    print("result", total, largest)
