"""From a graph and a few annotations to the plan of all ranks. No MPI, no torch."""
