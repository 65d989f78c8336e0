"""The model FLOPs of a step of the GPT of test_mesh_mpi.py, from its graph."""

from miniapps.partition.graphs.flops import model_flops
from tests.miniapps.partition.graphs import exported

SIZES = dict(samples="8", tokens="16", width="16", feedforward="64", layers="1", vocabulary="256", batch="4")

print(model_flops(exported("gpt", **SIZES)[2]))
