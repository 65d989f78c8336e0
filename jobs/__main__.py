"""`python -m jobs render --app APP ... -- OPTION ...`: print a batch script."""

import argparse

from jobs.job import JobError
from jobs.script import render_arguments, render_command


def main(argv=None):
    """Print the script on standard output; exit code 2 for a job that cannot be described."""
    parser = argparse.ArgumentParser(prog="python -m jobs", description=__doc__.split(": ")[1])
    command = parser.add_subparsers(required=True, metavar="COMMAND").add_parser(
        "render",
        help="print a batch script",
        description="Print a batch script that runs one application.",
        epilog="Example: python -m jobs render --app coupled --site frontier --account lab --nodes 4 "
        "--ranks-per-node 8 --threads 7 --deck L -- --guarantee layout --repeats 3 > job.sh && sbatch job.sh",
    )
    render_arguments(command)
    try:
        render_command(parser.parse_args(argv))
    except JobError as error:
        command.error(str(error))


if __name__ == "__main__":
    main()
