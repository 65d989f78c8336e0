"""What runs an application: options and decks, context, checks, failures, exit codes."""

import os

# Waiting OpenMP threads spin for some 10 us only, unless the user chose otherwise. GNU's default is 34 times slower
# where 4 ranks of 2 threads share 4 cores, and no faster where they do not. The library reads it as it loads, with the
# C++ kernels, which no module of this package imports before this line.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
