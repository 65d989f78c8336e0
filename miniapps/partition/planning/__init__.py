"""Plans a graph with a few annotations for all ranks. No MPI, no torch."""
