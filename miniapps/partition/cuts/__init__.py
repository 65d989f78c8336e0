"""Axes, meshes of ranks, and the steps of a plan: plain data that all the rooms share. No MPI, no torch."""
