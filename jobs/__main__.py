"""`python -m jobs render --account A --nodes N ...`: print a batch script."""

import argparse
import sys
from pathlib import Path

from jobs.slurm import JobError, render


def main(argv=None):
    """Print the script on standard output; exit code 2 for a job that cannot be described."""
    parser = argparse.ArgumentParser(prog="python -m jobs", description=__doc__.split(": ")[1])
    command = parser.add_subparsers(required=True, metavar="COMMAND").add_parser(
        "render",
        help="print a Slurm script for the coupled application",
        description="Print a Slurm script for `python -m miniapps.coupled`.",
        epilog="Example: python -m jobs render --account lab --nodes 4 --ntasks-per-node 32 --time 00:30:00"
        " --deck L -- --guarantee layout --repeats 3 > job.sh && sbatch job.sh",
    )
    command.add_argument("--account", required=True, help="project to charge")
    command.add_argument("--nodes", type=int, required=True)
    command.add_argument("--ntasks-per-node", type=int, required=True, metavar="RANKS")
    command.add_argument("--cpus-per-task", type=int, default=1, metavar="CORES", help="threads per rank (1)")
    command.add_argument("--time", required=True, help="limit: minutes, HH:MM:SS or D-HH:MM:SS")
    command.add_argument("--deck", default="S", help="S, M, L or a TOML file (S)")
    command.add_argument("--name", default="coupled", help="name of the job (coupled)")
    command.add_argument("--out", default="runs", help="where the job makes its run directory (runs)")
    command.add_argument(
        "--environment",
        metavar="DIR",
        default=sys.prefix if Path(sys.prefix, "bin/activate").exists() else None,
        help="Python environment to activate, a directory with bin/activate (this one: %(default)s)",
    )
    command.add_argument(
        "--mpi", help="for srun --mpi; the MPICH of the package index needs pmi2 (site's default)"
    )
    command.add_argument("arguments", nargs="*", metavar="-- OPTION", help="options of the application")
    try:
        print(render(**vars(parser.parse_args(argv))), end="")
    except JobError as error:
        command.error(str(error))


if __name__ == "__main__":
    main()
