"""What the machine, its operating system and its MPI library are, and what they do to a run."""
