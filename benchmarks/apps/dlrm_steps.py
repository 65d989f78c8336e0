"""Times steps of given tables of embeddings under given shardings: under mpirun, for benchmarks.apps.dlrm.

mpirun -n 2 python -m benchmarks.apps.dlrm_steps PROBLEMS.json TIMES.json
"""

import argparse
import json
from pathlib import Path

from mpi4py import MPI

from benchmarks.harness.results import add_quiet
from kernels.progress import Progress
from miniapps.embeddings.steps import Problem, times


def main(problems: str, answer: str, quiet: bool) -> None:
    """Read the file `problems`, and write their times to the file `answer`."""
    comm, asked = MPI.COMM_WORLD, json.loads(Path(problems).read_text())
    progress = Progress("benchmark", quiet=quiet or comm.rank > 0)
    answers = []
    for k, given in enumerate(asked["problems"]):
        progress.show(k / len(asked["problems"]), f"problem {k + 1} of {len(asked['problems'])}")
        problem = Problem(**given | {"tables": [tuple(table) for table in given["tables"]]})
        answers.append(times(comm, problem, asked["rounds"], "sorted").tolist())
    progress.clear()
    if comm.rank == 0:
        Path(answer).write_text(json.dumps(answers))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.apps.dlrm_steps", description=__doc__)
    parser.add_argument("problems", metavar="PROBLEMS")
    parser.add_argument("answer", metavar="TIMES")
    add_quiet(parser)
    main(**vars(parser.parse_args()))
