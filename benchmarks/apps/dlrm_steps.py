"""Times steps of given tables of embeddings under given shardings: under mpirun, for benchmarks.apps.dlrm.

mpirun -n 2 python -m benchmarks.apps.dlrm_steps PROBLEMS.json TIMES.json
"""

import json
import sys
from pathlib import Path

from mpi4py import MPI

from miniapps.embeddings.steps import Problem, times


def main() -> None:
    """Read problems, and write their times."""
    comm, asked = MPI.COMM_WORLD, json.loads(Path(sys.argv[1]).read_text())
    answers = []
    for given in asked["problems"]:
        problem = Problem(**given | {"tables": [tuple(table) for table in given["tables"]]})
        answers.append(times(comm, problem, asked["rounds"], "sorted").tolist())
    if comm.rank == 0:
        Path(sys.argv[2]).write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
