"""Linear algebra over ranks: matrices, iterative methods, preconditioners."""
