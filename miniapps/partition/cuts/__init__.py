"""Axes, meshes of ranks, and the steps of a plan: plain data without MPI and torch."""
