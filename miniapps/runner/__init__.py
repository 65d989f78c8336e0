"""The runner of all applications: options and decks, context, checks, failures, exit codes."""

import os

# Waiting OpenMP threads spin for some 10 us only, unless the user chose otherwise. GNU's default is 34 times slower
# where 4 ranks of 2 threads share 4 cores, and no faster otherwise. The OpenMP library reads the variable when the C++
# kernels load it, and no module of this package imports them before this line.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
