"""Drawn reductions of wrapped communicators, against plain mpi4py.

.venv/bin/python -m tests.mpi.wrapped_drawn --cases 20000 [--seed 1] [--ranks 2] [--library mpich] [--first 0]
"""

import argparse
import subprocess
import sys
import time

from tests.launch import LIBRARIES, ROOT, environment, launcher

PROGRAM = ROOT / "tests" / "mpi" / "programs" / "wrapped_drawn.py"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**31)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--library", choices=LIBRARIES, default=LIBRARIES[0])
    options = parser.parse_args()
    command, extra = launcher(options.library)
    program = [sys.executable, str(PROGRAM), str(options.cases), str(options.seed), str(options.first)]
    run = subprocess.run([*command, "-n", str(options.ranks), *program], env=environment(extra), check=False)
    print(f"{options.library}, {options.ranks} ranks, seed {options.seed}: exit code {run.returncode}")
    return run.returncode


if __name__ == "__main__":
    sys.exit(main())
