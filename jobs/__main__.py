"""`python -m jobs render --app APP ... -- OPTION ...`: print a batch script."""

import argparse

from jobs.job import JobError
from jobs.script import DESCRIPTION, render_arguments, render_command


def main(argv=None):
    """Print the script on standard output; exit code 2 for a job that cannot be described."""
    parser = argparse.ArgumentParser(prog="python -m jobs", description="Batch scripts for the mini-apps.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("render", help="print a batch script", description=DESCRIPTION)
    render_arguments(command)
    try:
        render_command(parser.parse_args(argv))
    except JobError as error:
        command.error(str(error))


if __name__ == "__main__":
    main()
