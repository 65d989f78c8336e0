"""mpi4py-fft: a transform there and back, whose lines are the same on any number of ranks, and the sum of squares."""

import hashlib

import numpy as np
from mpi4py import MPI
from mpi4py_fft import PFFT, newDistArray

comm = MPI.COMM_WORLD
fft = PFFT(comm, (16, 12, 8), dtype=np.float64)
u = newDistArray(fft, False)
at = np.meshgrid(*(np.arange(s.start, s.stop) for s in u.local_slice()), indexing="ij")
u[:] = np.sin(at[0]) + np.cos(3.0 * at[1]) * at[2] / 7
spectrum = fft.forward(u, newDistArray(fft, True))
buffer = np.array([float((np.abs(spectrum) ** 2).sum())])
comm.Allreduce(MPI.IN_PLACE, buffer)
pieces = comm.gather((spectrum.local_slice(), np.array(spectrum)), 0)
back = fft.backward(spectrum, newDistArray(fft, False))
assert np.abs(back - u).max() < 1e-12
if comm.rank == 0:
    whole = np.empty(tuple(max(s[i].stop for s, _ in pieces) for i in range(3)), np.complex128)
    for where, piece in pieces:
        whole[where] = piece
    print("result", hashlib.sha256(whole.tobytes()).hexdigest(), buffer[0].hex())
