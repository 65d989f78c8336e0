"""The machine, its operating system and its MPI library, and their effects on a run."""
